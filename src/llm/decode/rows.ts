/**
 * The sequences of a session, each a row of its state: what was generated of them, which have ended, and what their next tokens may be.
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
export interface Row {
  /** Number of its sequence. */
  readonly sequence: number;
  /** Position of the last token of its prompt. */
  readonly last: number;
  /** Most tokens to generate. */
  readonly limit: number;
  /** State of its random numbers before the first token, where there are any. */
  readonly key: Sampler["key"];
  /** The end of the prompt, as much of it as processors see, and what was generated. */
  readonly tokens: number[];
  /** What its tokens may be. */
  readonly constraint: Constraint | undefined;
  ended: boolean;
}

/** The rows of a session. */
export class SequenceRows {
  #rows: readonly Row[];
  /** The last step of which a token was taken. */
  taken = 0;

  /** The rows of a state in its order. */
  constructor(rows: readonly Row[]) {
    this.#rows = rows;
  }

  /** The rows of several sessions of one sequence each, numbered in their order. */
  static join(all: readonly SequenceRows[]): SequenceRows {
    return new SequenceRows(all.map((rows, sequence) => ({ ...rows.first, sequence })));
  }

  /** All of them, in the order of the state. */
  get all(): readonly Row[] {
    return this.#rows;
  }

  /** The only one of a session that was not joined. */
  get first(): Row {
    return this.#rows[0];
  }

  /** Whether a sequence goes on. */
  get active(): boolean {
    return this.#rows.some((row) => !row.ended);
  }

  /** Whether the tokens of a row are constrained. */
  get constrained(): boolean {
    return this.#rows.some(({ constraint }) => constraint !== undefined);
  }

  /** Most tokens that a sequence which has not ended may have. */
  get limit(): number {
    return Math.max(...this.#rows.map((row) => row.ended ? 0 : row.limit));
  }

  /** Whether half of the rows have ended, or one that has stands where the context ends for it but not for others. */
  idle(submitted: number, contextLimit: number): boolean {
    const ended = this.#rows.filter((row) => row.ended);
    return 2 * ended.length >= this.#rows.length || ended.some((row) => row.last + submitted >= contextLimit);
  }

  /** Drops the rows that have ended; returns the indices of those that stay. */
  dropEnded(): number[] {
    const kept = this.#rows.flatMap((row, i) => row.ended ? [] : [i]);
    this.#rows = kept.map((i) => this.#rows[i]);
    return kept;
  }

  /** Ends a sequence: no more tokens of it are yielded. */
  end(sequence: number): void {
    for (const row of this.#rows) row.ended ||= row.sequence === sequence;
  }

  /** Tells the constraints what a step chose: they make the next masks from now on. */
  accept({ log }: DecodeScalars, step: number): void {
    this.#rows.forEach(({ constraint, ended, last }, i) => {
      const [token] = fromLog(log, i, last + step, 1);
      if (!ended && token >= 0) constraint?.accept(token);
    });
  }

  /** The tokens of finished steps, one by one: a sequence may end between two of them. */
  *take({ log, logprobs }: DecodeScalars, from: number, to: number): Generator<DecodedToken, void, void> {
    const rows = this.#rows;
    const logged = rows.map(({ last }, i) => fromLog(log, i, last + from, to - from + 1));
    for (let step = from; step <= to; step++) {
      for (let i = 0; i < rows.length; i++) {
        const row = rows[i];
        if (row.ended) continue;
        const token = logged[i][step - from];
        if (token < 0) throw this.#noToken(row, step);
        this.taken = step;
        row.tokens.push(token);
        row.ended = step === row.limit;
        yield {
          sequence: row.sequence,
          token,
          ...(logprobs && { logprobs: logprobsIn(logprobs, i, row.last + step) }),
        };
      }
    }
  }

  /** The error of a step whose logits have NaN or infinity in them. */
  #noToken({ sequence, last }: Row, step: number): LlmError {
    const which = this.#rows.length > 1 ? ` of sequence ${sequence}` : "";
    return new LlmError(
      "logits",
      `The logits of step ${step}${which}, behind ${
        last + step
      } tokens, have NaN or infinity in them, or no finite one: ` +
        "look for such values in the weights, or for an overflow in their dtype",
    );
  }
}
