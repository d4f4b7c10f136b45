/**
 * Matrices of gate and up that a checkpoint stores as one, as Hugging Face does in some families. mlx-lm has them apart.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Weights } from "./weights.ts";

/** The names that a checkpoint has for the matrices of a feed-forward part. */
export interface JoinedNames {
  /** Gate, then up, along the last axis but one. */
  readonly gateUp: string;
  /** The matrix after them. */
  readonly down: string;
}

/** Gives the matrices of a feed-forward part, or of all experts, mlx-lm's names below `path`. Nothing happens where they are not stored. */
export function splitGateUp(weights: Weights, { gateUp, down }: JoinedNames, path: string): void {
  const fits = ({ shape, ndim }: Tensor): boolean => (ndim === 2 || ndim === 3) && shape[ndim - 2] % 2 === 0;
  weights.replace(gateUp, fits, (both) => {
    const [gate, up] = mx.split(both, 2, -2);
    return { [`${path}.gate_proj.weight`]: gate, [`${path}.up_proj.weight`]: up };
  });
  weights.replace(down, ({ ndim }) => ndim === 2 || ndim === 3, (x) => ({ [`${path}.down_proj.weight`]: x }));
}
