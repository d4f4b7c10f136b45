/**
 * The sequences of a session, each a row of its state: its generated tokens, whether it ended, and the constraint on its next token.
 *
 * @module
 */

import { type DecodeScalars, fromLog, logprobsIn } from "./state.ts";
import { LlmError } from "../error.ts";
import type { Sampler } from "../sampling/options.ts";
import type { Logprobs } from "../sampling/logprobs_log.ts";
import type { Constraint } from "../structured/constraint.ts";

/** A generated token. */
export interface DecodedToken {
  /** Number of its sequence. */
  readonly sequence: number;
  readonly token: number;
  /** Where they were asked for. */
  readonly logprobs?: Logprobs;
}

/** A row of the state. */
export interface Sequence {
  /** Number of its sequence. */
  readonly sequence: number;
  /** Position of the last token of its prompt. */
  readonly last: number;
  /** Most tokens to generate. */
  readonly limit: number;
  /** State of its random numbers before the first token, if there are any. */
  readonly key: Sampler["key"];
  /** The end of the prompt, as much of it as processors see, and the generated tokens. */
  readonly tokens: number[];
  /** The constraint on its tokens. */
  readonly constraint: Constraint | undefined;
  ended: boolean;
}

/** The sequences of a session. */
export class Sequences {
  #sequences: readonly Sequence[];
  /** The last step of which a token was taken. */
  lastStep = 0;

  /** The sequences of a state in its order. */
  constructor(sequences: readonly Sequence[]) {
    this.#sequences = sequences;
  }

  /** The sequences of several sessions of one sequence each, numbered in their order. */
  static join(all: readonly Sequences[]): Sequences {
    return new Sequences(all.map((sequences, sequence) => ({ ...sequences.first, sequence })));
  }

  /** All of them, in the order of the state. */
  get all(): readonly Sequence[] {
    return this.#sequences;
  }

  /** The only one of a session that was not joined. */
  get first(): Sequence {
    return this.#sequences[0];
  }

  /** Whether a sequence goes on. */
  get active(): boolean {
    return this.#sequences.some((one) => !one.ended);
  }

  /** Whether the tokens of a row are constrained. */
  get constrained(): boolean {
    return this.#sequences.some(({ constraint }) => constraint !== undefined);
  }

  /** Most tokens that a sequence which has not ended may have. */
  get limit(): number {
    return Math.max(...this.#sequences.map((one) => one.ended ? 0 : one.limit));
  }

  /** Whether half of the sequences have ended, or one that has stands where the context ends for it but not for others. */
  idle(submitted: number, contextLimit: number): boolean {
    const ended = this.#sequences.filter((one) => one.ended);
    return 2 * ended.length >= this.#sequences.length || ended.some((one) => one.last + submitted >= contextLimit);
  }

  /** Drops the sequences that have ended; returns the indices of those that stay. */
  dropEnded(): number[] {
    const kept = this.#sequences.flatMap((one, i) => one.ended ? [] : [i]);
    this.#sequences = kept.map((i) => this.#sequences[i]);
    return kept;
  }

  /** Ends a sequence: no more tokens of it are yielded. */
  end(sequence: number): void {
    for (const one of this.#sequences) one.ended ||= one.sequence === sequence;
  }

  /** Tells the constraints what a step chose: they make the next masks from now on. */
  accept({ log }: DecodeScalars, step: number): void {
    this.#sequences.forEach(({ constraint, ended, last }, i) => {
      const [token] = fromLog(log, i, last + step, 1);
      if (!ended && token >= 0) constraint?.accept(token);
    });
  }

  /** The tokens of finished steps, one by one: a sequence may end between two of them. */
  *take({ log, logprobs }: DecodeScalars, from: number, to: number): Generator<DecodedToken, void, void> {
    const sequences = this.#sequences;
    const logged = sequences.map(({ last }, i) => fromLog(log, i, last + from, to - from + 1));
    for (let step = from; step <= to; step++) {
      for (let i = 0; i < sequences.length; i++) {
        const one = sequences[i];
        if (one.ended) continue;
        const token = logged[i][step - from];
        if (token < 0) throw this.#noToken(one, step);
        this.lastStep = step;
        one.tokens.push(token);
        one.ended = step === one.limit;
        yield {
          sequence: one.sequence,
          token,
          ...(logprobs && { logprobs: logprobsIn(logprobs, i, one.last + step) }),
        };
      }
    }
  }

  /** The error of a step whose logits have NaN or infinity in them. */
  #noToken({ sequence, last }: Sequence, step: number): LlmError {
    const which = this.#sequences.length > 1 ? ` of sequence ${sequence}` : "";
    return new LlmError(
      "logits",
      `The logits of step ${step}${which}, after ${last + step} tokens, contain NaN or infinity, or no finite value. ` +
        "Look for such values in the weights, or for an overflow in their dtype",
    );
  }
}
