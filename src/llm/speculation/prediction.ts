/**
 * Drafts by a text that the answer is expected to repeat, such as a file that is to be changed a little.
 *
 * @module
 */

import type { Drafter } from "./drafter.ts";
import { NgramDrafter } from "./ngrams.ts";

/**
 * Drafts the tokens of a predicted answer as long as the answer repeats them. After a difference it goes on where two tokens of the answer
 * are in the prediction, or drafts as {@link NgramDrafter} does.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const drafter = new mx.lm.PredictionDrafter([5, 6, 7, 8, 9]);
 * drafter.extend([1, 2]); // the prompt
 * drafter.draft(2); // [5, 6]
 * drafter.extend([5, 3, 7, 8]); // a difference
 * drafter.draft(2); // [9]
 * ```
 */
export class PredictionDrafter implements Drafter {
  /** See {@link Drafter.instant}. */
  readonly instant: boolean = true;
  readonly #prediction: readonly number[];
  /** By two tokens of the prediction, where the tokens after them are. */
  readonly #after = new Map<number, number[]>();
  readonly #ngrams = new NgramDrafter();
  /** Which token of the prediction is next; undefined before the prompt and after a difference. */
  #at: number | undefined;
  /** Where the answer was in the prediction last. */
  #reached = 0;
  #last: number | undefined;
  #begun = false;

  /** For a prediction of some tokens. */
  constructor(prediction: readonly number[]) {
    this.#prediction = [...prediction];
    for (let at = 2; at < prediction.length; at++) {
      const key = pairOf(prediction[at - 2], prediction[at - 1]);
      const places = this.#after.get(key);
      if (places) places.push(at);
      else this.#after.set(key, [at]);
    }
  }

  /** See {@link Drafter.extend}. */
  extend(tokens: readonly number[]): void {
    if (this.#begun) { for (const token of tokens) this.#follow(token); }
    else this.#at = 0;
    this.#begun = true;
    this.#ngrams.extend(tokens);
  }

  /** Goes on after a token of the answer: if the prediction has it next, or has the last two tokens elsewhere. */
  #follow(token: number): void {
    if (this.#at !== undefined && this.#prediction[this.#at] === token) this.#at++;
    else this.#at = this.#find(token);
    this.#reached = this.#at ?? this.#reached;
    this.#last = token;
  }

  /** Where the prediction goes on after the last token and another one: next where it was left, else where it first does. */
  #find(token: number): number | undefined {
    if (this.#last === undefined) return undefined;
    const places = this.#after.get(pairOf(this.#last, token)) ?? [];
    return places.find((at) => at > this.#reached) ?? places[0];
  }

  /** See {@link Drafter.matches}. */
  matches(): boolean {
    return this.#isWithin() || this.#ngrams.matches();
  }

  /** See {@link Drafter.draft}. */
  draft(count: number): readonly number[] {
    return this.#isWithin() ? this.#prediction.slice(this.#at!, this.#at! + count) : this.#ngrams.draft(count);
  }

  #isWithin(): boolean {
    return this.#at !== undefined && this.#at < this.#prediction.length;
  }
}

/** A number for two token ids. */
function pairOf(first: number, second: number): number {
  return first * 2 ** 24 + second;
}
