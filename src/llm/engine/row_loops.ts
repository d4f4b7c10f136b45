/**
 * Loops over rows of sequences that draft or are verified. Each size, a number of columns, has rows, a loop and a trace of its own. Pipelines
 * are made beside other steps before a loop is needed.
 *
 * @module
 */

import { DeviceLoop, TracedStep } from "../../array/compile/loop.ts";
import * as mx from "../../array/mod.ts";
import { PipelinesAhead } from "../decode/pipelines_ahead.ts";
import type { Buffers } from "../kv/cache.ts";
import type { ChoiceKind } from "./steps/choice.ts";
import type { VerifyState } from "./steps/rows.ts";
import { columnsFor, type RunnerContext } from "./runner_context.ts";
import { type NeededRows, serves } from "./steps/ready_rows.ts";
import type { Sequence } from "./sequence.ts";
import { type HiddenFeatures, VerifyRows } from "./verify_rows.ts";

/** What steps over rows read and write. */
export type RowLoopState = VerifyState & Buffers;

/** What loops are of. */
export interface RowLoopKind {
  /** Names the steps, but for the choice of tokens. */
  readonly name: string;
  /** The hidden states that steps hand on, if they do. */
  readonly hidden?: HiddenFeatures | undefined;
  /** The least rows that serve sequences. */
  readonly neededFor: (sequences: readonly Sequence[]) => NeededRows;
  readonly step: (kind: ChoiceKind, now: RowLoopState) => RowLoopState;
  /** Whether their steps can be traced once for all. */
  readonly keeps: boolean;
}

/** A loop over some columns of each sequence. */
export interface RowLoop {
  readonly rows: VerifyRows;
  /** What the rows were made for: sequences, and pages of each. */
  readonly sizes: VerifyRows["rows"]["sizes"];
  readonly loop: DeviceLoop<RowLoopState>;
  steps: number;
}

/** A step, or its trace. */
type MadeStep = TracedStep<unknown> | ((state: RowLoopState) => RowLoopState);

/** Rows, and what gives the step of the loop over them: a trace may have gone. The rows have no memory before the loop is there. */
interface MadeRows extends Pick<RowLoop, "rows" | "sizes"> {
  readonly trace: () => MadeStep;
  looping: RowLoop | undefined;
}

/** Steps of a loop after which a faster form is looked for. */
const IMPROVE_AFTER = 16;

/** Loops of one kind. */
export class RowLoops implements Disposable {
  readonly #context: RunnerContext;
  readonly #kind: RowLoopKind;
  readonly #ended: (rows: Disposable) => void;
  /** By their size. */
  readonly #all = new Map<number, MadeRows>();
  readonly #ahead: PipelinesAhead;

  /** `ended` takes rows whose results may still be read. */
  constructor(context: RunnerContext, kind: RowLoopKind, ended: (rows: Disposable) => void) {
    this.#context = context;
    this.#kind = kind;
    this.#ended = ended;
    this.#ahead = new PipelinesAhead(context.model.traces);
  }

  /** Whether a loop for sequences with so many more pages needs no pipelines that are not made. If it does, they are made from now on. */
  isReady(sequences: readonly Sequence[], size: number, morePages: number): boolean {
    return this.#ready(sequences, size, morePages) !== undefined;
  }

  /** The loop for sequences; undefined while its pipelines are being made, which begins now. */
  ready(sequences: readonly Sequence[], size: number): RowLoop | undefined {
    const found = this.#ready(sequences, size, 0);
    return found && this.#looping(found);
  }

  /** The loop for sequences, whose pipelines are waited for. */
  async made(sequences: readonly Sequence[], size: number): Promise<RowLoop> {
    const known = this.ready(sequences, size);
    if (known) return known;
    const made = this.#make(this.#needed(sequences, 0), size);
    const traced = made.trace();
    if (traced instanceof TracedStep) await this.#context.model.traces.prepare(traced);
    return this.#looping(this.#keep(size, made));
  }

  #ready(sequences: readonly Sequence[], size: number, morePages: number): MadeRows | undefined {
    const needed = this.#needed(sequences, morePages);
    const known = this.#all.get(size);
    if (known && serves(known.sizes, needed, this.#context.model.device.tiled)) return known;
    if (this.#ahead.busy) return undefined; // one after the other
    const made = this.#make(needed, size);
    if (this.#ahead.has(made.trace())) return this.#keep(size, made);
    made.rows[Symbol.dispose]();
    return undefined;
  }

  /** Submits steps of a loop, and returns the ticket of the last one. */
  run(one: RowLoop, count: number = 1): number {
    const ticket = one.loop.run(count);
    const before = one.steps;
    one.steps += count;
    if (before < IMPROVE_AFTER && one.steps >= IMPROVE_AFTER) this.#context.model.traces.improve(one.loop);
    return ticket;
  }

  #needed(sequences: readonly Sequence[], morePages: number): NeededRows {
    const pages = Math.max(...sequences.map((sequence) => sequence.pages.length));
    return { ...this.#kind.neededFor(sequences), columns: columnsFor(pages + morePages) };
  }

  #make(needed: NeededRows, size: number): MadeRows {
    const { model, pool } = this.#context;
    const { rows: sequences, columns: pages, kind, masked } = needed;
    const tables = pool.sizes.groups?.tables.length ?? 1;
    const rows = mx.withDevice(model.device.name, () => {
      const own = this.#context.newRows({ rows: sequences * size, columns: 1, kind, masked }, { begin: false });
      return new VerifyRows(own, size, pages, tables, this.#kind.hidden);
    });
    const name = `${this.#kind.name} ${this.#context.nameOf(kind)}`;
    const step = (now: RowLoopState): RowLoopState => this.#kind.step(kind, now);
    const trace = (): MadeStep => {
      if (!this.#kind.keeps) return step;
      return model.traces.trace(name, { ...rows.state, ...pool.buffers }, step) as TracedStep<unknown>;
    };
    return { rows, sizes: { ...rows.rows.sizes, rows: sequences, columns: pages }, trace, looping: undefined };
  }

  #keep(size: number, made: MadeRows): MadeRows {
    this.#release(size);
    this.#all.set(size, made);
    return made;
  }

  #looping(made: MadeRows): RowLoop {
    if (made.looping) return made.looping;
    const { rows, sizes, trace } = made;
    mx.withDevice(this.#context.model.device.name, () => rows.begin());
    const state = { ...rows.state, ...this.#context.pool.buffers };
    const loop = new DeviceLoop(state, trace() as TracedStep<RowLoopState>);
    return made.looping = { rows, sizes, loop, steps: 0 };
  }

  #release(size: number): void {
    const known = this.#all.get(size);
    if (!known) return;
    this.#all.delete(size);
    known.looping?.loop[Symbol.dispose]();
    this.#ended(known.rows);
  }

  /** Frees all; nothing may be on its way. */
  [Symbol.dispose](): void {
    for (const size of [...this.#all.keys()]) this.#release(size);
  }
}
