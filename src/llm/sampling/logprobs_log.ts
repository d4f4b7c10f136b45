/**
 * Log probabilities of tokens: computed beside the choice of a token on its device, and kept in a log that the host sees.
 *
 * @module
 */

import { optionError } from "../error.ts";

/** A token and the natural logarithm of its probability. */
export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** Log probabilities of a chosen token. */
export interface Logprobs {
  /** Of the token itself. */
  readonly logprob: number;
  /** The most probable tokens, in falling order; equal ones by id. */
  readonly top: readonly TokenLogprob[];
}

/** Most tokens of {@link Logprobs.top}. */
const MAX_TOP = 20;

/** Throws unless `top` is a number of tokens for which log probabilities can be given; `undefined` asks for none. */
export function checkLogprobs(top: number | undefined): void {
  if (top === undefined || (Number.isSafeInteger(top) && top >= 0 && top <= MAX_TOP)) return;
  throw optionError("logprobs", top, `an integer from 0 to ${MAX_TOP}`);
}

/** Floats that `mx.fast.logprobs` gives for each row. */
export function logprobsWidth(top: number): number {
  return 1 + 2 * top;
}

/** The content of one row of `mx.fast.logprobs`. */
export function readLogprobs(row: Float32Array): Logprobs {
  const top = (row.length - 1) / 2;
  const likely = Array.from({ length: top }, (_, i) => ({ token: row[1 + top + i], logprob: row[1 + i] }));
  return { logprob: row[0], top: likely };
}
