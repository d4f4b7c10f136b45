/**
 * Runs the steps that verify drafts: one pass over a few columns of each sequence, and a choice after each.
 *
 * A column sees the earlier ones of its sequence, as tokens of a prompt do. Rows that share pages would not do: kernels of whole layers attend
 * before others write.
 *
 * @module
 */

import { acceptedOf } from "../speculation/acceptance.ts";
import { verifyStep } from "./steps/device_steps.ts";
import { RowLoops } from "./row_loops.ts";
import type { RunnerContext } from "./runner_context.ts";
import type { Sequence } from "./sequence.ts";
import type { Submitted, VerifyStep } from "./step.ts";

/** Runs steps that verify drafts. */
export class VerifyRunner implements Disposable {
  readonly #context: RunnerContext;
  /** By the number of columns. */
  readonly #loops: RowLoops;

  /** `ended` takes rows whose results may still be read. */
  constructor(context: RunnerContext, ended: (rows: Disposable) => void) {
    this.#context = context;
    this.#loops = new RowLoops(context, {
      name: "engine verify",
      neededFor: (sequences) => context.neededFor(sequences),
      step: (kind, now) => verifyStep(context.pooled, kind, now, context.processors),
      keeps: context.keepsChoices,
    }, ended);
  }

  /** Whether a step over sequences needs no pipelines that are not made. If it does, they are made beside other steps. */
  isReady(sequences: readonly Sequence[], columns: number): boolean {
    // A draft may begin another page.
    return this.#loops.isReady(sequences, columns, 1);
  }

  /** Submits a step. */
  async submit(step: VerifyStep): Promise<Submitted> {
    const sequences = step.rows.map(({ sequence }) => sequence);
    const columns = await this.#loops.made(sequences, step.columns);
    const { rows: verified, loop } = columns;
    const { rows } = verified;
    verified.place(step.rows, this.#context.of);
    if (rows.sizes.masked !== undefined) {
      for (const [i, sequence] of sequences.entries()) {
        verified.allow(i, await this.#context.of(sequence).masks(), step.rows[i].count);
      }
    }
    const submitted = performance.now();
    const ticket = this.#loops.run(columns);
    return {
      step,
      isFirst: columns.steps === 1,
      submitted,
      done: () => loop.done(ticket, true),
      drop: () => void loop.drop(ticket),
      tokens: (i) => {
        const { from, drafted } = step.rows[i];
        const places = Int32Array.from({ length: drafted.length + 1 }, (_, j) => i * step.columns + j);
        const chosen = places.map((row, j) => rows.tokens(row, from + 1 + j, 1)[0]);
        return chosen.slice(0, acceptedOf(chosen, drafted) + 1);
      },
      logprobs: (i, j, top) => rows.logprobs(i * step.columns + j, step.rows[i].from + 1 + j, top),
    };
  }

  /** Frees all; nothing may be on its way. */
  [Symbol.dispose](): void {
    this.#loops[Symbol.dispose]();
  }
}
