/**
 * Drafts by prompt lookup: what followed the last tokens where they occurred before, in the prompt or in the answer (Saxena 2023, "Prompt
 * lookup decoding"). Answers that quote, edit or summarize their prompt repeat long parts of it.
 *
 * @module
 */

import type { Drafter } from "./drafter.ts";

/** Tokens of the n-grams that are looked up, the longest first: one token alone is followed by too many others. */
const LENGTHS = [4, 3, 2] as const;
/** An odd factor for hashes of 32 bits. */
const FACTOR = 0x9e3779b1;

/**
 * Drafts what followed the last occurrence of the longest n-gram that ends the sequence. Where that reaches the end of the sequence, the draft
 * goes on with itself, so a period continues.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const drafter = new mx.lm.NgramDrafter();
 * drafter.extend([5, 6, 7, 8, 9, 5, 6]);
 * drafter.draft(4); // [7, 8, 9, 5]
 * ```
 */
export class NgramDrafter implements Drafter {
  /** See {@link Drafter.instant}. */
  readonly instant: boolean = true;
  readonly #tokens: number[] = [];
  /** By hash of an n-gram, where the token after its last occurrence is: a map for each length. */
  readonly #after = LENGTHS.map(() => new Map<number, number>());
  /** Where the token after the last occurrence of the sequence's end is; undefined where there is none. */
  #match: number | undefined;

  /** See {@link Drafter.extend}. */
  extend(tokens: readonly number[]): void {
    for (const token of tokens) {
      // The end of the sequence is indexed when a token follows it: it would find itself.
      for (const [i, length] of LENGTHS.entries()) {
        if (length <= this.#tokens.length) this.#after[i].set(this.#hash(length), this.#tokens.length);
      }
      this.#tokens.push(token);
    }
    this.#match = this.#find();
  }

  /** See {@link Drafter.matches}. */
  matches(): boolean {
    return this.#match !== undefined;
  }

  /** See {@link Drafter.draft}. */
  draft(count: number): readonly number[] {
    if (this.#match === undefined) return [];
    const length = this.#tokens.length;
    const drafted: number[] = [];
    for (let at = this.#match; drafted.length < count; at++) {
      drafted.push(at < length ? this.#tokens[at] : drafted[at - length]);
    }
    return drafted;
  }

  /** Where the token after the last occurrence of the longest n-gram at the end is. */
  #find(): number | undefined {
    for (const [i, length] of LENGTHS.entries()) {
      if (length >= this.#tokens.length) continue;
      const at = this.#after[i].get(this.#hash(length));
      if (at !== undefined && this.#isLikeEnd(at, length)) return at;
    }
    return undefined;
  }

  /** Whether the `length` tokens before `at` are those of the end: other n-grams may have the same hash. */
  #isLikeEnd(at: number, length: number): boolean {
    for (let back = 1; back <= length; back++) {
      if (this.#tokens[at - back] !== this.#tokens.at(-back)) return false;
    }
    return true;
  }

  /** Of the last `length` tokens. */
  #hash(length: number): number {
    let hash = 0;
    for (let i = this.#tokens.length - length; i < this.#tokens.length; i++) {
      hash = Math.imul(hash ^ this.#tokens[i], FACTOR);
      hash ^= hash >>> 15;
    }
    return hash;
  }
}
