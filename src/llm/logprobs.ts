/**
 * Log probabilities of tokens: computed beside the choice of a token on its device, and kept in a log that the host sees.
 *
 * The likeliest tokens are found among the chunks of the vocabulary with the largest maxima, of which as many as tokens are enough;
 * so two short lists are sorted and not the vocabulary.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { LlmError } from "./error.ts";

/** A token and the natural logarithm of its probability. */
export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** What is known of a chosen token. */
export interface Logprobs {
  /** Of the token itself. */
  readonly logprob: number;
  /** The likeliest tokens, likelier ones first and lower ids first among equals. */
  readonly top: readonly TokenLogprob[];
}

/** Most tokens of {@link Logprobs.top}. */
const MOST_TOP = 20;
/** Tokens of a chunk. */
const CHUNK = 256;

/** Throws unless `top` is a number of likeliest tokens that can be told; `undefined` tells nothing at all. */
export function checkLogprobs(top: number | undefined): void {
  if (top === undefined || (Number.isSafeInteger(top) && top >= 0 && top <= MOST_TOP)) return;
  throw new LlmError("option", `logprobs is ${top}, expected an integer from 0 to ${MOST_TOP}`);
}

/** Floats that {@link logprobsOf} gives for each row. */
export function logprobsWidth(top: number): number {
  return 1 + 2 * top;
}

/**
 * float32 (B, 1 + 2 top) of logits (B, V) and chosen tokens (B, 1): the token's log probability, those of the likeliest tokens, and
 * their ids, which are exact in float32.
 */
export function logprobsOf(logits: Tensor, tokens: Tensor, top: number): Tensor {
  const x = logits.astype(mx.float32);
  const total = mx.logsumexp(x, -1, true);
  const own = mx.subtract(mx.takeAlongAxis(x, tokens, -1), total);
  if (top === 0) return own;
  const { ids, values } = likeliest(x, top);
  return mx.concatenate([own, mx.subtract(values, total), ids.astype(mx.float32)], 1);
}

/** The `top` largest of each row of x (B, V) and where they are: both (B, top). Rows that are shorter repeat their last one. */
function likeliest(x: Tensor, top: number): { readonly ids: Tensor; readonly values: Tensor } {
  const [rows, size] = x.shape;
  const chunks = Math.ceil(size / CHUNK);
  const count = Math.min(top, chunks);
  const parts = mx.pad(x, [[0, 0], [0, chunks * CHUNK - size]], "constant", -Infinity).reshape([rows, chunks, CHUNK]);
  const best = mx.argsort(mx.negative(mx.max(parts, -1)), -1).astype(mx.int32);
  const chosen = mx.sort(best.index(mx.Slice(), mx.Slice(0, count)), -1); // in the order of ids
  const ids = mx.add(mx.multiply(chosen.reshape([rows, count, 1]), CHUNK), mx.arange(0, CHUNK, 1, mx.int32)).reshape([
    rows,
    -1,
  ]);
  const values = mx.takeAlongAxis(x, mx.minimum(ids, size - 1), -1);
  const listed = mx.where(mx.less(ids, size), values, -Infinity);
  const order = mx.argsort(mx.negative(listed), -1).astype(mx.int32);
  const places = mx.minimum(mx.arange(0, top, 1, mx.int32), Math.min(size, count * CHUNK) - 1);
  const at = mx.take(order, places, 1);
  return { ids: mx.takeAlongAxis(ids, at, -1), values: mx.takeAlongAxis(listed, at, -1) };
}

/** What one row of {@link logprobsOf} says. */
export function readLogprobs(row: Float32Array): Logprobs {
  const top = (row.length - 1) / 2;
  const likely = Array.from({ length: top }, (_, i) => ({ token: row[1 + top + i], logprob: row[1 + i] }));
  return { logprob: row[0], top: likely };
}
