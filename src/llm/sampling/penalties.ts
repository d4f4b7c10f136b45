/**
 * The arithmetic of penalties, for settings that are numbers and for those that are arrays with a row for each sequence.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";

/** Logits of recent tokens after a repetition penalty. */
export function penalizeRepeated(seen: Tensor, penalty: number | Tensor): Tensor {
  return mx.where(mx.less(seen, 0), mx.multiply(seen, penalty), mx.divide(seen, penalty));
}

/**
 * Where tokens (B, n) are among the logits (B, V) in a row, (B * n,). A row without finite logits has the token -1, and stays in its own
 * place.
 */
export function placesOf(tokens: Tensor, vocabulary: number): Tensor {
  const [rows] = tokens.shape;
  const begins = mx.multiply(mx.arange(rows), vocabulary).astype(mx.int32).reshape(rows, 1);
  return mx.add(mx.maximum(tokens, 0), begins).reshape(-1);
}

/**
 * How often each token of a vocabulary occurs among tokens (B, n): float32 (B, V). Each counts as much as its weight (B, n).
 * Counted in a table of all tokens: comparing each token with each would take their number squared.
 */
export function countTokens(tokens: Tensor, weights: Tensor, vocabulary: number): Tensor {
  const [rows] = tokens.shape;
  return mx.zeros([rows * vocabulary]).at(placesOf(tokens, vocabulary)).add(weights.reshape(-1))
    .reshape(rows, vocabulary) as Tensor;
}

/** Logits less a penalty for each time that their tokens occur. */
export function penalizeCounted(logits: Tensor, counts: Tensor, penalty: number | Tensor): Tensor {
  return mx.subtract(logits, mx.multiply(counts, penalty).astype(logits.dtype));
}
