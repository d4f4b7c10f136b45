/**
 * Drafts by the head of the model, of several sequences in one step: see head_steps.ts.
 *
 * @module
 */

import { succeeded } from "../decode/submission_sizer.ts";
import type { ChoiceSettings } from "./steps/choice.ts";
import { draftStep } from "./steps/head_steps.ts";
import { RowLoops } from "./row_loops.ts";
import type { RunnerContext } from "./runner_context.ts";
import type { NeededRows } from "./steps/ready_rows.ts";
import type { Sequence } from "./sequence.ts";
import type { HiddenFeatures } from "./verify_rows.ts";

/** The choice of a drafted token, which is of all that a request says its temperature and what that draws from. */
const WITHOUT = {
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  contextSize: 0,
  bias: [],
  logprobs: undefined,
} as const satisfies Partial<ChoiceSettings>;

/** What the head hands from token to token: states of the pool have the same features. */
function hiddenOf({ pool, pooled: { head } }: RunnerContext): HiddenFeatures | undefined {
  if (!head) return undefined;
  const { shape, dtype } = pool.sizes.states![head.state];
  return { size: shape[shape.length - 1], dtype };
}

/** Runs steps that draft. */
export class HeadRunner implements Disposable {
  readonly #context: RunnerContext;
  /** Each step drafts a token of each sequence. */
  readonly #loops: RowLoops;

  /** `ended` takes rows whose results may still be read. */
  constructor(context: RunnerContext, ended: (rows: Disposable) => void) {
    this.#context = context;
    this.#loops = new RowLoops(context, {
      name: "engine draft",
      hidden: hiddenOf(context),
      neededFor: (sequences) => this.#neededFor(sequences),
      step: (kind, now) => draftStep(context.pooled, kind, now),
      keeps: true,
    }, ended);
  }

  #neededFor(sequences: readonly Sequence[]): NeededRows {
    const settings = sequences.map((sequence) => ({ ...this.#context.of(sequence).settings, ...WITHOUT }));
    const kind = { ...this.#context.kindOf(settings), recent: 0 };
    return { ...this.#context.neededFor(sequences), kind, masked: undefined };
  }

  /**
   * The `count` tokens after the last one of each sequence. Nothing may be on its way. None while pipelines are being made, and where the step
   * failed so that all has to be made anew: `forget` is called then.
   */
  async draft(
    sequences: readonly Sequence[],
    count: number,
    forget: () => void,
  ): Promise<readonly Int32Array[] | undefined> {
    const one = this.#loops.ready(sequences, 1);
    if (!one) return undefined;
    const { rows, loop } = one;
    const froms = sequences.map(({ tokens }) => tokens.length - 1);
    const all = sequences.map((sequence, i) => ({ sequence, from: froms[i], count: 1, drafted: [] }));
    rows.place(all, this.#context.of);
    const ticket = this.#loops.run(one, count);
    if (!await succeeded({ count: 0, submitted: 0, done: () => loop.done(ticket, true) })) {
      forget();
      return undefined;
    }
    return froms.map((from, i) => rows.rows.tokens(i, from + 1, count));
  }

  /** Frees all; nothing may be on its way. */
  [Symbol.dispose](): void {
    this.#loops[Symbol.dispose]();
  }
}
