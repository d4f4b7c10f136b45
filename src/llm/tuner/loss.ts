/**
 * The loss of a language model on a batch.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import * as nn from "../../nn/mod.ts";

/** A module that makes logits (B, T, V) of token ids (B, T). */
export interface TrainableModel extends nn.Module {
  forward(tokens: Tensor): Tensor;
}

/** The mean loss of a batch, float32, and how many tokens it counts, int32. Training reduces this loss. */
export type Loss = (model: TrainableModel, tokens: Tensor, lengths: Tensor) => [loss: Tensor, tokens: Tensor];

/**
 * The mean cross entropy of a batch's tokens (B, T). `lengths` (B, 2) gives the first and the last counted place. They start after
 * the prompt and end with the token after the example, as in mlx-lm.
 */
export const defaultLoss: Loss = (model, tokens, lengths) => {
  const inputs = tokens.index("...", mx.Slice(null, -1));
  const targets = tokens.index("...", mx.Slice(1));
  const logits = model.forward(inputs);
  const steps = mx.arange(1, tokens.shape[1]);
  const [first, last] = mx.split(lengths, 2, 1);
  const mask = mx.logicalAnd(mx.greaterEqual(steps, first), mx.lessEqual(steps, last));
  const losses = mx.multiply(nn.losses.crossEntropy(logits, targets), mask);
  const count = mx.sum(mask);
  return [mx.divide(mx.sum(losses.astype(mx.float32)), count), count];
};
