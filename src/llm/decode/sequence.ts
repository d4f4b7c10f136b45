/**
 * The sequence of a session: its generated tokens, whether it ended, and the constraint on its next token.
 *
 * @module
 */

import { type DecodeScalars, fromLog, logprobsIn } from "./state.ts";
import { logitsError } from "../error.ts";
import type { Sampler } from "../sampling/options.ts";
import type { Logprobs } from "../sampling/logprobs_log.ts";
import type { Constraint } from "../structured/constraint.ts";

/** A generated token. */
export interface DecodedToken {
  readonly token: number;
  /** Where they were asked for. */
  readonly logprobs?: Logprobs;
}

/** What a {@link DecodedSequence} is made from. */
export interface DecodedSequenceOptions {
  /** Position of the last token of its prompt. */
  readonly last: number;
  /** Most tokens to generate. */
  readonly limit: number;
  /** State of its random numbers before the first token, if there are any. */
  readonly key: Sampler["key"];
  /** The end of the prompt, as much of it as processors see; the generated tokens are added. */
  readonly tokens: number[];
  /** The constraint on its tokens. */
  readonly constraint: Constraint | undefined;
}

/** The sequence of a session. */
export class DecodedSequence {
  readonly last: number;
  readonly limit: number;
  readonly key: Sampler["key"];
  readonly constraint: Constraint | undefined;
  readonly #tokens: number[];
  /** The last step of which a token was taken. */
  #lastStep = 0;

  /** Begins after a prompt. */
  constructor({ last, limit, key, tokens, constraint }: DecodedSequenceOptions) {
    this.last = last;
    this.limit = limit;
    this.key = key;
    this.constraint = constraint;
    this.#tokens = tokens;
  }

  /** The end of the prompt and the tokens that were taken. */
  get tokens(): readonly number[] {
    return this.#tokens;
  }

  /** The last step of which a token was taken; 0 before the first one. */
  get lastStep(): number {
    return this.#lastStep;
  }

  /** The tokens that were taken after a step, which must be one of the last. */
  after(step: number): readonly number[] {
    return this.#tokens.slice(this.#tokens.length - (this.#lastStep - step));
  }

  /** Whether it has as many tokens as it may. */
  get ended(): boolean {
    return this.#lastStep >= this.limit;
  }

  /** Tells the constraint what `count` steps chose, a draft and the token after it: it makes the next mask from now on. */
  accept({ log }: DecodeScalars, step: number, count: number): void {
    for (const token of fromLog(log, 0, this.last + step, count)) if (token >= 0) this.constraint?.accept(token);
  }

  /** The tokens of finished steps, one by one: the caller may end between two of them. */
  *take({ log, logprobs }: DecodeScalars, from: number, to: number): Generator<DecodedToken, void, void> {
    const logged = fromLog(log, 0, this.last + from, to - from + 1);
    for (let step = from; step <= to; step++) {
      const token = logged[step - from];
      if (token < 0) throw logitsError(step, this.last + step);
      this.#lastStep = step;
      this.#tokens.push(token);
      yield { token, ...(logprobs && { logprobs: logprobsIn(logprobs, 0, this.last + step) }) };
    }
  }
}
