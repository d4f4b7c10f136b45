/**
 * How routers choose experts. The scores of each token become a few experts and their weights.
 *
 * Shapes: B batch, T tokens, E experts, k experts that a token gets.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { ExpertGroups, ExpertsConfig, SigmoidScores } from "../config/decoder.ts";

/** The experts of tokens. */
export interface ExpertChoice {
  /** uint32 (B, T, k). */
  readonly chosen: Tensor;
  /** float32 (B, T, k). */
  readonly weights: Tensor;
}

/** Added to a sum of weights by which they are divided. */
const SUM_EPS = 1e-6;

/** The experts of the highest scores (B, T, E). Probabilities are float32 whatever the scores are. A `bias` (E,) counts for the choice alone. */
export function chooseExperts(
  given: Tensor,
  { chosen: k, among, sigmoid }: Pick<ExpertsConfig, "chosen" | "among" | "sigmoid">,
  bias?: Tensor,
): ExpertChoice {
  const scores = given.astype(mx.float32);
  if (sigmoid) return chooseBySigmoid(mx.sigmoid(scores), k, sigmoid, bias);
  const chosen = best(scores, k);
  const probable = among === "all" ? mx.softmax(scores, -1) : scores;
  const weights = mx.takeAlongAxis(probable, chosen, -1);
  return { chosen, weights: among === "all" ? weights : mx.softmax(weights, -1) };
}

/** The indices of the k highest along the last axis. */
function best(of: Tensor, k: number): Tensor {
  return mx.stopGradient(mx.argpartition(mx.negative(of), k - 1, -1).index("...", mx.Slice(0, k)));
}

function chooseBySigmoid(
  scores: Tensor,
  k: number,
  { normalized, sumEps = SUM_EPS, factor, groups }: SigmoidScores,
  bias: Tensor | undefined,
): ExpertChoice {
  const biased = bias ? mx.add(scores, bias.astype(mx.float32)) : scores;
  const chosen = best(groups ? inOpenGroups(biased, groups) : biased, k);
  const own = mx.takeAlongAxis(scores, chosen, -1);
  const weights = normalized ? mx.divide(own, mx.add(mx.sum(own, -1, true), sumEps)) : own;
  return { chosen, weights: mx.multiply(weights, factor) };
}

/** Scores (B, T, E) with 0 for experts of groups that a token may not choose from. */
function inOpenGroups(scores: Tensor, { count, open }: ExpertGroups): Tensor {
  const closed = count - open;
  if (closed === 0) return scores;
  const [B, T, E] = scores.shape;
  const grouped = scores.reshape(B, T, count, E / count);
  const sums = mx.sum(mx.topk(grouped, 2, -1), -1);
  const worst = best(mx.negative(sums), closed).astype(mx.int32);
  const group = mx.arange(0, count, 1, mx.int32).reshape(count, 1);
  const isClosed = mx.any(mx.equal(group, mx.expandDims(worst, -2)), -1, true);
  return mx.where(mx.stopGradient(isClosed), 0, grouped).reshape(B, T, E);
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

/** The sum of the results (B, T, k, hidden) of the experts of a choice by their weights: (B, T, hidden). */
export function weightedSum(each: Tensor, { weights }: ExpertChoice, dtype: Dtype): Tensor {
  return mx.sum(mx.multiply(each, mx.expandDims(weights, -1)), -2).astype(dtype);
}
