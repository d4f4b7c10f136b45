/**
 * How routers choose experts. The scores of each token become a few experts and their weights.
 *
 * Shapes: B batch, T tokens, E experts, k experts that a token gets.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { chooseExperts as choose } from "../../array/quantized/experts.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { ExpertsConfig } from "../config/decoder.ts";

/** Added to a sum of weights by which they are divided. */
const SUM_EPS = 1e-6;

/**
 * The experts of the highest scores (…, E). Each token gets k numbers and then k weights, float32 (tokens, 2 * k).
 * Probabilities are float32 whatever the scores are. A `bias` (E,) counts for the choice alone, a `scale` (E,) multiplies weights.
 */
export function chooseExperts(
  scores: Tensor,
  { chosen, among, sigmoid }: Pick<ExpertsConfig, "chosen" | "among" | "sigmoid">,
  factors: { readonly bias?: Tensor; readonly scale?: Tensor } = {},
): Tensor {
  const { normalized = false, sumEps = SUM_EPS, factor = 1, groups } = sigmoid ?? {};
  const { count = 1, open = 1 } = groups ?? {};
  return choose(scores.reshape(-1, scores.shape.at(-1)!), {
    chosen,
    among: sigmoid ? "sigmoid" : among,
    normalized,
    sumEps,
    factor,
    groups: count,
    closedGroups: count - open,
  }, factors);
}

/** A router with a bias of each expert that counts in the choice only (arXiv 2408.15664). */
export class BiasedRouter extends Module {
  /** (E, hidden), not quantized by mlx-lm. */
  weight: Tensor;
  /** (E,), of the dtype that it is stored in. */
  e_score_correction_bias: Tensor;

  /** Takes weight and e_score_correction_bias below `path`. */
  constructor(hiddenSize: number, count: number, weights: Weights, path: string) {
    super();
    this.weight = weights.takeDense(`${path}.weight`, [count, hiddenSize]);
    this.e_score_correction_bias = weights.take(`${path}.e_score_correction_bias`, [count], "float");
  }

  /** (…, hidden) → (…, E) */
  override forward(x: Tensor): Tensor {
    return mx.matmul(x, this.weight.swapaxes(0, 1));
  }
}
