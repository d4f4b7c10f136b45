/**
 * Weights by name, compared with the parameters of a module before any of them is put there.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Shape, Tensor } from "../array/mod.ts";
import { quoted } from "../graph/error.ts";
import { formatShape, sameShape } from "../graph/shape.ts";
import { describe } from "./tree.ts";

const { ShapeError, ValueError } = mx;

/** Pairs of names and arrays. */
export type NamedWeights = readonly (readonly [name: string, array: Tensor])[];

/** Names in a message at most. */
const MAX_NAMES = 8;

/** The shapes of parameters by name. */
export function shapesByName(parameters: readonly (readonly [string, unknown])[]): ReadonlyMap<string, Shape> {
  return new Map(parameters.map(([name, array]) => [name, (array as Tensor).shape]));
}

function listed(names: readonly string[]): string {
  const shown = names.toSorted().slice(0, MAX_NAMES).map(quoted).join(", ");
  return names.length > MAX_NAMES ? `${shown} and ${names.length - MAX_NAMES} more` : shown;
}

/** The name here of a parameter that a file names as Python does: "self_attention.query_proj.weight". */
function nameOf(name: string, known: ReadonlyMap<string, Shape>): string {
  if (known.has(name)) return name;
  const camel = name.replace(/(?<=[^._])_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
  return known.has(camel) ? camel : name;
}

function pairsOf(fileOrWeights: string | NamedWeights): NamedWeights {
  if (typeof fileOrWeights !== "string") return fileOrWeights;
  const loaded = mx.load(fileOrWeights);
  if (!(loaded instanceof mx.Tensor)) return Object.entries(loaded);
  throw new ValueError(`loadWeights() expected arrays by name: found one array in ${quoted(fileOrWeights)}`);
}

/** The weights that have a place among parameters. With `strict`, throws unless they are those parameters, in their shapes. */
export function checkWeights(
  fileOrWeights: string | NamedWeights,
  parameters: ReadonlyMap<string, Shape>,
  strict: boolean,
): NamedWeights {
  const weights = pairsOf(fileOrWeights).map(([name, array]) => [nameOf(name, parameters), array] as const);
  for (const [name, array] of weights) {
    if (array instanceof mx.Tensor || (!strict && !parameters.has(name))) continue;
    throw new ValueError(`loadWeights() expected an array for parameter ${quoted(name)}: found ${describe(array)}`);
  }
  if (!strict) return weights.filter(([name]) => parameters.has(name));
  const names = new Set(weights.map(([name]) => name));
  const extra = [...names].filter((name) => !parameters.has(name));
  if (extra.length > 0) {
    throw new ValueError(`loadWeights() got ${extra.length} parameters that the model does not have: ${listed(extra)}`);
  }
  const missing = [...parameters.keys()].filter((name) => !names.has(name));
  if (missing.length > 0) {
    throw new ValueError(`loadWeights() misses ${missing.length} parameters of the model: ${listed(missing)}`);
  }
  for (const [name, array] of weights) {
    const expected = parameters.get(name)!;
    if (sameShape(array.shape, expected)) continue;
    throw new ShapeError(
      `loadWeights() expected shape ${formatShape(expected)} for parameter ${quoted(name)}: found ${
        formatShape(array.shape)
      }`,
    );
  }
  return weights;
}
