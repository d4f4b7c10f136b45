/**
 * Padding: elements added around an array.
 *
 * @module
 */

import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { MAX_SIZE } from "../../graph/node.ts";
import { entryOf } from "../../graph/options.ts";
import { formatShape } from "../../graph/shape.ts";
import { castNode, type TensorLike, toList, toNode } from "../tensor/convert.ts";
import { take } from "./gather.ts";
import { fitValue } from "./indexing.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, make, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";

/**
 * How `pad` fills: with a constant, with the nearest element, or with the elements mirrored at the ends. "symmetric" repeats the end
 * elements, "reflect" does not.
 */
export type PadMode = "constant" | "edge" | "reflect" | "symmetric";

/** Which element of n stands at place i, which may lie outside. */
const SOURCES: Readonly<Record<Exclude<PadMode, "constant">, (i: number, n: number) => number>> = {
  edge: (i, n) => Math.min(n - 1, Math.max(0, i)),
  reflect: (i, n) => n - 1 - Math.abs(n - 1 - modulo(i, Math.max(1, 2 * n - 2))),
  symmetric: (i, n) => Math.min(modulo(i, 2 * n), modulo(-1 - i, 2 * n)),
};

function modulo(i: number, n: number): number {
  return ((i % n) + n) % n;
}

/**
 * With elements added around: `padWidth` is one number for all sides, [before, after] for all axes, or one such pair an axis.
 * Mirrored elements go to and fro where more are asked for than there are.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.pad([1, 2], [[1, 2]]).tolist(); // [0, 1, 2, 0, 0]
 * ```
 */
export function pad<A extends TensorLike>(
  a: A,
  padWidth: number | readonly number[] | readonly (readonly [number, number])[],
  mode: PadMode = "constant",
  constantValues: TensorLike = 0,
): Same<A> {
  const node = toNode("pad", a);
  const rank = node.shape.length;
  const pairs = padPairs(padWidth, rank);
  if (pairs.length !== rank || pairs.flat().some((n) => !Number.isInteger(n) || n < 0 || n > MAX_SIZE)) {
    throw new ShapeError(
      `pad() expected [before, after] for each axis of ${formatShape(node.shape)}: found ${quoted(padWidth)}`,
    );
  }
  const shape = node.shape.map((d, i) => d + pairs[i][0] + pairs[i][1]);
  if (mode === "constant") {
    const value = castNode(toNode("pad", constantValues, node.dtype), node.dtype);
    const base = fitValue("pad", value, shape);
    return make("sliceUpdate", [base, node], shape, node.dtype, {
      starts: pairs.map(([before]) => before),
      steps: shape.map(() => 1),
      donate: false,
    });
  }
  const source = entryOf(SOURCES, mode);
  if (!source) {
    const modes = ["constant", ...Object.keys(SOURCES)].map((name) => `"${name}"`).join(", ");
    throw new ValueError(`pad() expected mode to be one of ${modes}: found ${quoted(mode)}`);
  }
  return scoped("pad", (): AnyTensor =>
    pairs.reduce((x: Tensor, [before, after], axis) => {
      const size = node.shape[axis];
      if (before === 0 && after === 0) return x;
      if (size === 0) {
        throw new ShapeError(`pad() mode "${mode}" cannot fill an empty axis: found ${formatShape(node.shape)}`);
      }
      const from = Int32Array.from({ length: before + size + after }, (_, i) => source(i - before, size));
      return take(x, from, axis);
    }, wrap(node)));
}

function padPairs(
  width: number | readonly number[] | readonly (readonly [number, number])[],
  rank: number,
): (readonly [number, number])[] {
  const all = (pair: readonly [number, number]): (readonly [number, number])[] => new Array(rank).fill(pair);
  if (typeof width === "number") return all([width, width]);
  if (toList<unknown>("pad", "widths, or one number", width).every((w) => typeof w === "number")) {
    const [before, after = before] = width as readonly number[];
    return all([before, after]);
  }
  const pairs = (width as readonly (readonly [number, number])[]).map((pair) => {
    return toList<number>("pad", "pairs of widths", pair) as readonly [number, number];
  });
  return pairs.length === 1 ? all(pairs[0]) : [...pairs];
}
