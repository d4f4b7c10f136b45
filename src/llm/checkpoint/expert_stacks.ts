/**
 * Experts that a checkpoint stores one by one, as Hugging Face does, and the stacks that mlx-lm makes of them.
 *
 * @module
 */

import { type DecoderConfig, layerPaths } from "../config/decoder.ts";

/** A tensor that is stored in parts, one after the other along a new first axis. */
export interface Stack {
  /** The name of the whole. */
  readonly to: string;
  /** Those of its parts. */
  readonly from: readonly string[];
}

/** The matrices of an expert, by names that are the same in both layouts. */
export const PROJECTIONS = [["gate_proj", "gate_proj"], ["up_proj", "up_proj"], ["down_proj", "down_proj"]] as const;

const PARTS = ["weight", "scales", "biases"];

/** The stacks of all experts of a model; `names` are those of the matrices where they are stored one by one, and mlx-lm's. */
export function expertStacks(
  config: DecoderConfig,
  names: readonly (readonly [one: string, stack: string])[],
): Stack[] {
  const { count, names: { part } } = config.experts!;
  return layerPaths(config).map((path) => `${path}.${part}`).flatMap((path) =>
    names.flatMap(([one, stack]) =>
      PARTS.map((part) => ({
        to: `${path}.switch_mlp.${stack}.${part}`,
        from: Array.from({ length: count }, (_, expert) => `${path}.experts.${expert}.${one}.${part}`),
      }))
    )
  );
}
