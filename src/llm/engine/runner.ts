/**
 * Runs the steps of a scheduler on the device of a model.
 *
 * A prompt's part is a forward pass of one sequence; its last part is followed by the choice of a token. A decode step advances all rows of
 * {@link DeviceRows}, several tokens at a time if asked, without the host in between. Where a token is constrained, a step is two:
 * the logits, and then the choice by masks that the host made.
 *
 * Rows are made anew when sequences need more of them, longer tables or settings of another kind. What fills them then has to be known to
 * the host: {@link Runner.canSubmit} says whether steps on their way have to end first.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, hostVisible, TracedStep } from "../../array/compile/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Key } from "../../array/random/keys.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import { detach, paddedLength } from "../decode/state.ts";
import type { Buffers } from "../kv/cache.ts";
import type { KvPool } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { Logprobs } from "../sampling/logprobs_log.ts";
import type { LogitsProcessor } from "../sampling/options.ts";
import { everyToken } from "../structured/constraint.ts";
import { type ChoiceKind, type ChoiceSettings, covers, kindOf, powerOfTwo } from "./choice.ts";
import {
  chooseStep,
  type CopyState,
  copyStep,
  decodeStep,
  forwardStep,
  type PromptState,
  promptStep,
} from "./device_steps.ts";
import { DeviceRows, type RowSizes, type RowState } from "./rows.ts";
import type { Sequence } from "./sequence.ts";
import type { DecodeStep, PageCopy, PrefillStep, Step, StepRow } from "./step.ts";

/** What a runner asks about a sequence. */
export interface RunnerSequence {
  readonly settings: ChoiceSettings;
  /** Whether masks say what its tokens may be. */
  readonly constrained: boolean;
  /** What its next token may be; undefined where it may be any, or none is wanted because it has ended meanwhile. */
  mask(): Promise<Int32Array | undefined>;
  /** State of its random numbers before the next token that the host does not know. */
  readonly key: Key | undefined;
}

/** A step on its way. */
export interface Submitted {
  readonly step: Step;
  /** When it was submitted, in milliseconds. */
  readonly submitted: number;
  /** Resolves when the device has done it. */
  done(): Promise<void>;
  /** Leaves out the rest of it, where the device can; nothing of it may be read then. */
  drop(): void;
  /** The tokens that were chosen for a row of the step, afterwards; -1 where logits had NaN or infinity in them. */
  tokens(row: number): Int32Array;
  /** The log probabilities of token `i` of those. */
  logprobs(row: number, i: number, top: number): Logprobs;
}

/** The reading of a prompt's part on its way. */
type Read = Pick<Submitted, "step" | "submitted" | "drop">;

/** Fewest pages in a table, so that short sequences share traces. */
const MIN_COLUMNS = 4;
/** Steps of a loop after which a faster form is looked for, and then one of what read prompts. */
const IMPROVE_AFTER = 32;
/** Most traces of prompts of which a faster form is looked for then. */
const MAX_IMPROVED = 8;

/** A step over a state, or its trace where that is kept. */
type Traced<S> = TracedStep<S> | ((state: S) => S);

/** Runs steps. */
export class Runner implements Disposable {
  readonly #model: DecodingModel;
  readonly #pool: KvPool;
  readonly #of: (sequence: Sequence) => RunnerSequence;
  readonly #processors: readonly LogitsProcessor[];
  /** Names the graphs of the processors; undefined where one has no name, so that its steps are not kept. */
  readonly #graphs: string | undefined;
  readonly #dtype: mx.Dtype;
  #rows: DeviceRows | undefined;
  /** The row of each sequence that has one, and the position that it feeds next. */
  readonly #held = new Map<Sequence, { readonly row: number; next: number }>();
  /** Rows that no sequence has, and the most steps that one of them has taken from position 0 on. */
  #vacant: number[] = [];
  #vacantSteps = 0;
  #loop: DeviceLoop<RowState & Buffers> | undefined;
  #chooser: DeviceLoop<RowState> | undefined;
  #steps = 0;
  /** Traces that read prompts since a faster form was looked for, the last one last. */
  readonly #prompts = new Set<TracedStep<unknown>>();
  #every: Int32Array | undefined;
  /** What steps on their way still use, with the number of them. */
  readonly #ended: Disposable[] = [];

  /** Over the pages of a pool; `of` tells about sequences, and `processors` change the logits of all of them. */
  constructor(
    model: DecodingModel,
    pool: KvPool,
    of: (sequence: Sequence) => RunnerSequence,
    processors: readonly LogitsProcessor[],
  ) {
    this.#model = model;
    this.#pool = pool;
    this.#of = of;
    this.#processors = processors;
    const graphs = processors.map(({ graph }) => graph);
    this.#graphs = graphs.includes(undefined) ? undefined : graphs.join(" ");
    this.#dtype = mx.tidy(() => model.forward(mx.zeros([1, 1], mx.int32)).dtype);
  }

  /** Whether a step may be submitted while others are on their way: the rows serve it, and the host knows its inputs. */
  canSubmit(step: Step): boolean {
    if (step.kind === "prefill") return true;
    return this.#fits(step) && step.rows.every((row) => this.#isCurrent(row) || isKnown(row));
  }

  /** Submits a step. */
  async submit(step: Step): Promise<Submitted> {
    return step.kind === "prefill" ? await this.#read(step) : await this.#decode(step);
  }

  /** Forgets what is on the device but the pool, after steps that failed; nothing may be on its way. */
  reset(): void {
    this[Symbol.dispose]();
    this.#prompts.clear();
    this.#model.traces[Symbol.dispose]();
  }

  /** Frees all but the pool; nothing may be on its way. */
  [Symbol.dispose](): void {
    this.#releaseRows();
    this.#free();
  }

  // ---- prompts --------------------------------------------------------------------------------------------------------

  async #read(step: PrefillStep): Promise<Submitted> {
    const { sequence, from, count, last, copies } = step;
    const free: Disposable[] = [];
    for (const copy of copies) free.push(await this.#copy(copy));
    const rows = paddedLength(count, this.#model.device.tile);
    const ids = new Int32Array(rows).fill(sequence.tokens[from + count - 1]);
    ids.set(sequence.tokens.slice(from, from + count));
    const pages = sequence.pages.slice(0, Math.ceil((from + count) / PAGE));
    const table = new Int32Array(columnsFor(pages.length));
    table.set(pages);
    const { vocabSize } = this.#model.config;
    const arrays = {
      ids: detach(hostVisible(ids)),
      last: detach(hostVisible(Uint32Array.of(count - 1))),
      position: detach(hostVisible(Int32Array.of(from))),
      table: detach(hostVisible(table, [1, table.length])),
      logits: last ? detach(mx.zeros([1, vocabSize], this.#dtype)) : undefined,
    };
    const state: PromptState = { ...arrays, ...this.#pool.buffers };
    const kind = last ? "engine prompt" : "engine read";
    // Parts of a long prompt have one length. Its end may have any, of which few occur again where rows are not padded.
    const keeps = this.#model.device.tiled || !last;
    const traced = await this.#traced(kind, state, (now) => promptStep(this.#model, now), keeps);
    if (traced instanceof TracedStep) this.#noteUse(traced as TracedStep<unknown>);
    const loop = new DeviceLoop(state, traced);
    const submitted = performance.now();
    const ticket = loop.run(1);
    const read = { step, submitted, drop: () => void loop.drop(ticket) };
    free.push(loop, { [Symbol.dispose]: () => mx.dispose(arrays) });
    if (!last) return this.#reading(read, loop, free);
    return await this.#chooseFirst(step, read, arrays.logits!, free);
  }

  /** Submits the copy of a page: its first positions count, the others are written before they are read. */
  async #copy({ from, to }: PageCopy): Promise<Disposable> {
    const pages = { from: detach(hostVisible(Int32Array.of(from))), to: detach(hostVisible(Int32Array.of(to))) };
    const state: CopyState = { ...pages, ...this.#pool.buffers };
    const loop = new DeviceLoop(state, await this.#traced("engine copy", state, copyStep));
    loop.run(1);
    return {
      [Symbol.dispose]: () => {
        loop[Symbol.dispose]();
        mx.dispose(pages);
      },
    };
  }

  #reading(read: Read, loop: DeviceLoop<PromptState>, free: readonly Disposable[]): Submitted {
    const done = once(async () => {
      await loop.done();
      for (const one of free) one[Symbol.dispose]();
    });
    return { ...read, done, tokens: () => new Int32Array(0), logprobs: noLogprobs };
  }

  /** Chooses the token after a prompt, from its logits. */
  async #chooseFirst(
    step: PrefillStep,
    read: Read,
    logits: Tensor,
    free: readonly Disposable[],
  ): Promise<Submitted> {
    const { sequence } = step;
    const position = step.from + step.count - 1;
    const job = this.#of(sequence);
    const { settings, key } = job;
    const mask = await job.mask();
    const masked = mask ? this.#model.config.vocabSize : undefined;
    const rows = this.#newRows({ rows: 1, columns: 1, kind: this.#kindOf([settings]), masked, dtype: this.#dtype });
    rows.place(0, { tokens: sequence.tokens, position, pages: [], key, settings });
    if (mask) rows.allow(0, mask);
    const chooser = await this.#choosing(rows, { ...rows.state, logits });
    const ticket = chooser.run(1);
    const done = once(async () => {
      await chooser.done(ticket, true);
      for (const one of [chooser, ...free]) one[Symbol.dispose]();
      this.#ended.push(rows); // its log is read until the next step
    });
    return {
      ...read,
      done,
      drop: () => {
        read.drop();
        chooser.drop(ticket);
      },
      tokens: () => rows.tokens(0, position + 1, 1),
      logprobs: (_, i, top) => rows.logprobs(0, position + 1 + i, top),
    };
  }

  // ---- decoding -------------------------------------------------------------------------------------------------------

  async #decode(step: DecodeStep): Promise<Submitted> {
    this.#free();
    if (!this.#fits(step)) this.#makeRows(step);
    const rows = this.#rows!;
    const at = this.#place(step);
    const submitted = performance.now();
    const masked = rows.sizes.masked !== undefined;
    const loop = await this.#looping(masked);
    let ticket = loop.run(masked ? 1 : step.steps);
    let choosing: DeviceLoop<RowState> | undefined;
    if (masked) {
      for (const [i, row] of at.entries()) rows.allow(row, await this.#maskOf(step.rows[i].sequence));
      choosing = this.#chooser ??= await this.#choosing(rows, rows.state);
      ticket = choosing.run(1);
    }
    for (const { sequence } of step.rows) this.#held.get(sequence)!.next += step.steps;
    this.#steps += step.steps;
    if (this.#steps >= IMPROVE_AFTER && this.#steps - step.steps < IMPROVE_AFTER) this.#improve(loop);
    const done = async (): Promise<void> => {
      await (choosing ?? loop).done(ticket, true);
      if (choosing) await loop.done(ticket);
    };
    return {
      step,
      submitted,
      done,
      drop: () => void (choosing ?? loop).drop(ticket),
      tokens: (i) => rows.tokens(at[i], step.rows[i].from + 1, step.rows[i].count),
      logprobs: (i, j, top) => rows.logprobs(at[i], step.rows[i].from + 1 + j, top),
    };
  }

  /** Has a faster form looked for of the loop, then of what read prompts. */
  #improve(loop: DeviceLoop<RowState & Buffers>): void {
    for (const what of [loop, ...this.#prompts]) this.#model.traces.improve(what);
    this.#prompts.clear();
  }

  /** Notes that a trace reads a prompt. */
  #noteUse(traced: TracedStep<unknown>): void {
    this.#prompts.delete(traced);
    this.#prompts.add(traced);
    if (this.#prompts.size > MAX_IMPROVED) this.#prompts.delete(this.#prompts.values().next().value!);
  }

  /** Whether a row of a step is on the device as the step needs it. */
  #isCurrent({ sequence, from }: StepRow): boolean {
    return this.#held.get(sequence)?.next === from;
  }

  /** Whether the rows there are serve a step, without many that are not needed; none if each row costs. */
  #fits(step: DecodeStep): boolean {
    if (!this.#rows) return false;
    const { rows, columns, kind, masked } = this.#rows.sizes;
    const needed = this.#needed(step);
    const cheap = kind.penalties === needed.kind.penalties && (kind.bias > 0) === (needed.kind.bias > 0) &&
      (kind.logprobs >= 0) === (needed.kind.logprobs >= 0);
    return covers(kind, needed.kind) && cheap && masked === needed.masked && columns >= needed.columns &&
      rows >= needed.rows && rows <= (this.#model.device.tiled ? 2 : 1) * needed.rows;
  }

  /** The least rows that serve a step. */
  #needed({ rows }: DecodeStep): RowSizes {
    const all = rows.map(({ sequence }) => this.#of(sequence));
    const constrained = all.some((one) => one.constrained);
    return {
      rows: bucketOf(rows.length, this.#model.device.tiled),
      columns: columnsFor(Math.max(...rows.map(({ sequence }) => sequence.pages.length))),
      kind: this.#kindOf(all.map(({ settings }) => settings)),
      masked: constrained ? this.#model.config.vocabSize : undefined,
      dtype: this.#dtype,
    };
  }

  #kindOf(all: readonly ChoiceSettings[]): ChoiceKind {
    return kindOf(all, this.#processors.length > 0);
  }

  /** Rows on the model's device, which need not be the default one. */
  #newRows(sizes: RowSizes): DeviceRows {
    return mx.withDevice(this.#model.device.name, () => new DeviceRows(sizes));
  }

  /** Makes rows for a step; those there were are let go. Nothing may be on its way. */
  #makeRows(step: DecodeStep): void {
    this.#releaseRows();
    const sizes = this.#needed(step);
    this.#rows = this.#newRows(sizes);
    this.#vacant = Array.from({ length: sizes.rows }, (_, i) => i);
    this.#steps = 0;
  }

  /** Brings the sequences of a step into rows; returns the row of each. */
  #place(step: DecodeStep): number[] {
    const rows = this.#rows!;
    const wanted = new Map(step.rows.map(({ sequence, from }) => [sequence, from]));
    for (const [sequence, { row, next }] of this.#held) {
      if (wanted.get(sequence) === next) continue;
      this.#held.delete(sequence);
      rows.clear(row);
      this.#vacant.push(row);
    }
    this.#vacantSteps += step.steps;
    if (this.#vacantSteps > PAGE) {
      for (const row of this.#vacant) rows.rewind(row);
      this.#vacantSteps = step.steps;
    }
    return step.rows.map(({ sequence, from }) => {
      const known = this.#held.get(sequence);
      if (known) {
        rows.grow(known.row, sequence.pages);
        return known.row;
      }
      const row = this.#vacant.pop()!;
      const { settings, key } = this.#of(sequence);
      rows.place(row, { tokens: sequence.tokens, position: from, pages: sequence.pages, key, settings });
      this.#held.set(sequence, { row, next: from });
      return row;
    });
  }

  /** What the next token of a sequence may be. */
  async #maskOf(sequence: Sequence): Promise<Int32Array> {
    return await this.#of(sequence).mask() ?? (this.#every ??= everyToken(this.#model.config.vocabSize));
  }

  /** The loop over the rows: whole steps, or their logits alone. */
  async #looping(masked: boolean): Promise<DeviceLoop<RowState & Buffers>> {
    if (this.#loop) return this.#loop;
    const { state, sizes: { kind } } = this.#rows!;
    const all = { ...state, ...this.#pool.buffers };
    const name = masked ? "engine forward" : `engine step ${this.#nameOf(kind)}`;
    const step = (now: RowState & Buffers): RowState & Buffers =>
      masked ? forwardStep(this.#model, now) : decodeStep(this.#model, kind, now, this.#processors);
    return this.#loop = new DeviceLoop(all, await this.#traced(name, all, step, masked || this.#graphs !== undefined));
  }

  /** A loop that chooses tokens from logits. */
  async #choosing(
    { sizes: { kind, masked } }: Pick<DeviceRows, "sizes">,
    state: RowState,
  ): Promise<DeviceLoop<RowState>> {
    const name = `engine choose ${this.#nameOf(kind)} ${masked !== undefined}`;
    const step = (now: RowState): RowState => chooseStep(kind, now, this.#processors);
    return new DeviceLoop(state, await this.#traced(name, state, step, this.#graphs !== undefined));
  }

  /** A step, its pipelines made, or the trace of it where that is kept. */
  async #traced<S>(name: string, state: S, step: (state: S) => S, keeps: boolean = true): Promise<Traced<S>> {
    if (!keeps) return step;
    const { traces } = this.#model;
    const traced = traces.trace(name, state, step);
    if (!traced.ready) await traces.prepare(traced as TracedStep<unknown>);
    return traced;
  }

  #nameOf(kind: ChoiceKind): string {
    return `${Object.values(kind).join(" ")} ${this.#graphs}`;
  }

  #releaseRows(): void {
    this.#loop?.[Symbol.dispose]();
    this.#chooser?.[Symbol.dispose]();
    if (this.#rows) this.#ended.push(this.#rows); // their log may still be read
    this.#loop = this.#chooser = this.#rows = undefined;
    this.#held.clear();
    this.#vacantSteps = 0;
  }

  #free(): void {
    for (const ended of this.#ended.splice(0)) ended[Symbol.dispose]();
  }
}

/** Whether the host knows the token that a row feeds. */
function isKnown({ sequence, from }: StepRow): boolean {
  return sequence.tokens.length > from || sequence.status === "ended";
}

/** Rows that serve `count` sequences: few numbers serve all, but where each row costs they are close to it. */
function bucketOf(count: number, tiled: boolean): number {
  return tiled || count > 8 ? powerOfTwo(count) : count;
}

/** Columns of a table of so many pages. */
function columnsFor(pages: number): number {
  return Math.max(MIN_COLUMNS, powerOfTwo(pages));
}

/** The same promise at every call. */
function once(work: () => Promise<void>): () => Promise<void> {
  let begun: Promise<void> | undefined;
  return () => begun ??= work();
}

function noLogprobs(): never {
  throw new Error("a prompt's part chooses no token");
}
