/**
 * Runs the steps that verify drafts: one pass over a few columns of each sequence, and a choice after each.
 *
 * Each number of columns has rows, a loop and a trace of its own. A column sees the earlier ones of its sequence, as tokens of a prompt do.
 * Rows that share pages would not do: kernels of whole layers attend before others write.
 *
 * @module
 */

import { DeviceLoop, TracedStep } from "../../array/compile/loop.ts";
import * as mx from "../../array/mod.ts";
import type { Buffers } from "../kv/cache.ts";
import { PipelinesAhead } from "../decode/pipelines_ahead.ts";
import { acceptedOf } from "../speculation/acceptance.ts";
import { verifyStep } from "./device_steps.ts";
import type { VerifyState } from "./rows.ts";
import { columnsFor, type NeededRows, type RunnerContext, serves } from "./runner_context.ts";
import type { Sequence } from "./sequence.ts";
import type { Submitted, VerifyStep } from "./step.ts";
import { VerifyRows } from "./verify_rows.ts";

/** Steps of a loop after which a faster form is looked for. */
const IMPROVE_AFTER = 16;

/** A loop over some columns of each sequence. */
interface Columns {
  readonly rows: VerifyRows;
  /** What the rows were made for: sequences, and pages of each. */
  readonly sizes: VerifyRows["rows"]["sizes"];
  readonly loop: DeviceLoop<VerifyState & Buffers>;
  steps: number;
}

/** Rows, and the step or the trace of the loop over them. */
interface MadeColumns extends Pick<Columns, "rows" | "sizes"> {
  readonly traced: TracedStep<unknown> | ((state: VerifyState & Buffers) => VerifyState & Buffers);
}

/** Runs steps that verify drafts. */
export class VerifyRunner implements Disposable {
  readonly #context: RunnerContext;
  readonly #ended: (rows: Disposable) => void;
  /** By the number of columns. */
  readonly #all = new Map<number, Columns>();
  readonly #ahead: PipelinesAhead;

  /** `ended` takes rows whose results may still be read. */
  constructor(context: RunnerContext, ended: (rows: Disposable) => void) {
    this.#context = context;
    this.#ended = ended;
    this.#ahead = new PipelinesAhead(context.model.traces);
  }

  /** Whether a step over sequences needs no pipelines that are not made. If it does, they are made beside other steps. */
  isReady(sequences: readonly Sequence[], columns: number): boolean {
    // A draft may begin another page.
    return this.#columnsFor(sequences, columns, 1) !== undefined;
  }

  /** Submits a step. */
  async submit(step: VerifyStep): Promise<Submitted> {
    const sequences = step.rows.map(({ sequence }) => sequence);
    const columns = this.#columnsFor(sequences, step.columns, 0) ?? await this.#made(sequences, step.columns);
    const { rows: verified, loop } = columns;
    const { rows } = verified;
    verified.place(step.rows, this.#context.of);
    if (rows.sizes.masked !== undefined) {
      for (const [i, sequence] of sequences.entries()) {
        verified.allow(i, await this.#context.of(sequence).masks(), this.#context.everyToken);
      }
    }
    const submitted = performance.now();
    const ticket = loop.run(1);
    if (++columns.steps === IMPROVE_AFTER) this.#context.model.traces.improve(loop);
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

  /** The columns there are for sequences, or new ones; undefined while their pipelines are being made. */
  #columnsFor(sequences: readonly Sequence[], columns: number, morePages: number): Columns | undefined {
    const needed = this.#needed(sequences, morePages);
    const known = this.#all.get(columns);
    if (known && serves(known.sizes, needed, this.#context.model.device.tiled)) return known;
    if (this.#ahead.busy) return undefined; // one after the other
    const made = this.#make(needed, columns);
    if (!this.#ahead.has(made.traced)) {
      made.rows[Symbol.dispose]();
      return undefined;
    }
    return this.#keep(columns, made);
  }

  /** New columns, whose pipelines are waited for. */
  async #made(sequences: readonly Sequence[], columns: number): Promise<Columns> {
    const made = this.#make(this.#needed(sequences, 0), columns);
    if (made.traced instanceof TracedStep) await this.#context.model.traces.prepare(made.traced);
    return this.#keep(columns, made);
  }

  #needed(sequences: readonly Sequence[], morePages: number): NeededRows {
    const needed = this.#context.neededFor(sequences);
    const pages = Math.max(...sequences.map((sequence) => sequence.pages.length));
    return { ...needed, columns: columnsFor(pages + morePages) };
  }

  #make(needed: NeededRows, columns: number): MadeColumns {
    const { model, pool, processors } = this.#context;
    const { rows: sequences, columns: pages, kind, masked } = needed;
    const tables = pool.sizes.groups?.tables.length ?? 1;
    const rows = mx.withDevice(model.device.name, () => {
      const own = this.#context.newRows({ rows: sequences * columns, columns: 1, kind, masked });
      return new VerifyRows(own, columns, pages, tables);
    });
    const all = { ...rows.state, ...pool.buffers };
    const name = `engine verify ${this.#context.nameOf(kind)}`;
    const step = (now: VerifyState & Buffers): VerifyState & Buffers => verifyStep(model, kind, now, processors);
    const traced = this.#context.keepsChoices ? model.traces.trace(name, all, step) as TracedStep<unknown> : step;
    return { rows, sizes: { ...rows.rows.sizes, rows: sequences, columns: pages }, traced };
  }

  #keep(columns: number, { rows, sizes, traced }: MadeColumns): Columns {
    this.#release(columns);
    const state = { ...rows.state, ...this.#context.pool.buffers };
    const loop = new DeviceLoop(state, traced as TracedStep<VerifyState & Buffers>);
    const made: Columns = { rows, sizes, loop, steps: 0 };
    this.#all.set(columns, made);
    return made;
  }

  #release(columns: number): void {
    const known = this.#all.get(columns);
    if (!known) return;
    this.#all.delete(columns);
    known.loop[Symbol.dispose]();
    this.#ended(known.rows);
  }

  /** Frees all; nothing may be on its way. */
  [Symbol.dispose](): void {
    for (const columns of [...this.#all.keys()]) this.#release(columns);
  }
}
