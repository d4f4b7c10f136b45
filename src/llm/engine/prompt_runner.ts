/**
 * Reads prompts on the device of a model. Parts of several are one forward pass; the choice of a token follows for those that end.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, hostVisible, TracedStep } from "../../array/compile/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import { detach } from "../decode/state.ts";
import { type CopyState, copyStatesStep, copyStep, type PromptState, promptStep } from "./steps/device_steps.ts";
import { PipelinesAhead } from "../decode/pipelines_ahead.ts";
import { type BatchShape, type ForwardBatch, forwardBatch } from "./forward_batch.ts";
import type { PageCopy } from "./pages/sequence_pages.ts";
import type { DeviceRows } from "./steps/rows.ts";
import type { RunnerContext } from "./runner_context.ts";
import type { PrefillRow, PrefillStep, Submitted } from "./step.ts";

/** The reading of parts of prompts on its way. */
interface Read extends Pick<Submitted, "step" | "submitted" | "done" | "drop"> {
  /** What goes afterwards. */
  readonly free: readonly Disposable[];
}

/** Arrays of a step, and the step over them or its trace. */
interface Form {
  readonly arrays: PromptArrays;
  readonly state: PromptState;
  readonly traced: TracedStep<PromptState> | ((state: PromptState) => PromptState);
}

type PromptArrays = Pick<PromptState, "ids" | "after" | "last" | "position" | "tables" | "slots" | "logits">;

/** Most traces that are kept for {@link PromptRunner.takeTraces}. */
const MAX_TRACES = 8;

/** Runs the steps that read prompts. */
export class PromptRunner {
  readonly #context: RunnerContext;
  readonly #ended: (rows: DeviceRows) => void;
  /** Traces that read prompts, the last one last. */
  readonly #traces = new Set<TracedStep<unknown>>();
  readonly #ahead: PipelinesAhead;
  /** Shapes of steps of several parts that ran, and whether prompts ended there, by their text. */
  readonly #shapes = new Map<string, { readonly shape: BatchShape; readonly ends: boolean }>();

  /** `ended` takes rows whose step has ended; what they hold is read before the next step is submitted. */
  constructor(context: RunnerContext, ended: (rows: DeviceRows) => void) {
    this.#context = context;
    this.#ended = ended;
    this.#ahead = new PipelinesAhead(context.model.traces);
  }

  /** The traces of the last prompts since the last call. */
  takeTraces(): readonly TracedStep<unknown>[] {
    const traces = [...this.#traces];
    this.#traces.clear();
    return traces;
  }

  /** Reads parts of prompts. */
  async read(step: PrefillStep): Promise<Submitted> {
    const { rows } = step;
    const free: Disposable[] = [];
    for (const row of rows) free.push(...await this.#prepare(row));
    const { arrays, state, traced } = await this.#formOf(rows);
    if (traced instanceof TracedStep) this.#noteUse(traced as TracedStep<unknown>);
    const loop = new DeviceLoop(state, traced);
    const submitted = performance.now();
    const ticket = loop.run(1);
    free.push(loop, { [Symbol.dispose]: () => mx.dispose(arrays) });
    for (const { sequence, kept } of rows) {
      if (kept !== undefined) free.push(await this.#copyStates(sequence.slot, kept));
    }
    const read: Read = { step, submitted, done: () => loop.done(ticket), drop: () => void loop.drop(ticket), free };
    return arrays.logits ? await this.#chooseFirst(rows, read, arrays.logits) : this.#reading(read);
  }

  /**
   * A step over parts, whose pipelines are made. On a fresh machine pipelines take longer than a hundred steps. Until those of its own shape are
   * there, it has that of a larger step of several parts which ran before.
   */
  async #formOf(rows: readonly PrefillRow[]): Promise<Form> {
    const { model, pooled } = this.#context;
    const ends = rows.some(({ last }) => last);
    const name = ends ? "engine prompt" : "engine read";
    const step = (now: PromptState): PromptState => promptStep(pooled, now);
    const batch = forwardBatch(rows, model.device);
    const own = this.#arraysOf(batch, ends);
    // Parts of a long prompt have one length. Its end may have any, of which few occur again where rows are not padded.
    const keeps = model.device.tiled || rows.length > 1 || !ends;
    const isReady = (): boolean => {
      // Tracing takes time, so it waits until the step before is prepared.
      if (this.#ahead.busy) return model.traces.known(name, own.state)?.ready ?? false;
      return this.#ahead.has(model.traces.trace(name, own.state, step));
    };
    const larger = this.#shapes.size > 0 && !isReady() ? this.#largerForm(rows, name, ends) : undefined;
    if (larger) {
      mx.dispose(own.arrays);
      return larger;
    }
    const traced = await this.#context.traced(name, own.state, step, keeps);
    if (rows.length > 1 && model.device.tiled) {
      const shape = { tiles: batch.tiles, columns: batch.columns, ends: batch.last.length };
      this.#shapes.set(`${Object.values(shape)} ${ends}`, { shape, ends });
    }
    return { ...own, traced };
  }

  /** The smallest step of several parts that ran before, if its trace is kept and has room. */
  #largerForm(rows: readonly PrefillRow[], name: string, ends: boolean): Form | undefined {
    const { device, traces } = this.#context.model;
    const shapes = [...this.#shapes.values()].filter((known) => known.ends === ends).map(({ shape }) => shape);
    for (const shape of shapes.sort((a, b) => a.tiles - b.tiles || a.columns - b.columns || a.ends - b.ends)) {
      const batch = forwardBatch(rows, device, shape);
      if (!batch) continue;
      const { arrays, state } = this.#arraysOf(batch, ends);
      const traced = traces.known(name, state);
      if (traced?.ready) return { arrays, state, traced };
      mx.dispose(arrays);
    }
    return undefined;
  }

  #arraysOf({ tiles, columns, ...batch }: ForwardBatch, ends: boolean): Pick<Form, "arrays" | "state"> {
    const { model, pool, dtype } = this.#context;
    const arrays: PromptArrays = {
      ids: detach(hostVisible(batch.ids)),
      ...(pool.sizes.head && { after: detach(hostVisible(batch.after)) }),
      last: detach(hostVisible(batch.last)),
      position: detach(hostVisible(batch.positions)),
      tables: batch.tables.map((table) => detach(hostVisible(table, [tiles, columns]))),
      slots: detach(hostVisible(batch.slots)),
      logits: ends ? detach(mx.zeros([batch.last.length, model.config.vocabSize], dtype)) : undefined,
    };
    return { arrays, state: { ...arrays, ...pool.buffers } };
  }

  /** Submits the copies that a part begins with. */
  async #prepare({ sequence, copies, restored }: PrefillRow): Promise<Disposable[]> {
    const free: Disposable[] = [];
    for (const copy of copies) free.push(await this.#copy(copy, "engine copy", copyStep));
    if (restored !== undefined) free.push(await this.#copyStates(restored, sequence.slot));
    return free;
  }

  /** Submits the copy of the recurrent states of a slot. */
  #copyStates(from: number, to: number): Promise<Disposable> {
    return this.#copy({ from: [from], to: [to] }, "engine copy states", copyStatesStep);
  }

  /** Submits a copy, as of a page: its first positions count, the others are written before they are read. */
  async #copy(
    { from, to }: Pick<PageCopy, "from" | "to">,
    name: string,
    step: (now: CopyState) => CopyState,
  ): Promise<Disposable> {
    const named = (pages: readonly number[]): Tensor[] => pages.map((page) => detach(hostVisible(Int32Array.of(page))));
    const pages = { from: named(from), to: named(to) };
    const state: CopyState = { ...pages, ...this.#context.pool.buffers };
    const loop = new DeviceLoop(state, await this.#context.traced(name, state, step));
    loop.run(1);
    return {
      [Symbol.dispose]: () => {
        loop[Symbol.dispose]();
        mx.dispose(pages);
      },
    };
  }

  #reading({ free, ...read }: Read): Submitted {
    return { ...read, done: onceAnd(read.done, free), tokens: () => new Int32Array(0), logprobs: noLogprobs };
  }

  /** Chooses the tokens after the prompts that end, from their logits. */
  async #chooseFirst(all: readonly PrefillRow[], { free, ...read }: Read, logits: Tensor): Promise<Submitted> {
    const ends = all.filter(({ last }) => last);
    const jobs = ends.map(({ sequence }) => this.#context.of(sequence));
    const constrained = jobs.some((job) => job.constrained);
    const rows = this.#context.newRows({
      rows: logits.shape[0],
      columns: 1,
      kind: this.#context.kindOf(jobs.map(({ settings }) => settings)),
      masked: constrained ? this.#context.model.config.vocabSize : undefined,
    });
    for (const [i, { sequence, from, count }] of ends.entries()) {
      const { settings, key } = jobs[i];
      const position = from + count - 1;
      rows.place(i, { tokens: sequence.tokens, position, tables: [], slot: 0, key, settings });
      if (constrained) rows.allow(i, await this.#context.of(sequence).mask());
    }
    const chooser = await this.#context.choosing(rows, { ...rows.state, logits });
    const ticket = chooser.run(1);
    /** The row of a part, and the position that its token has. */
    const placeOf = (i: number): readonly [row: number, position: number] => [
      ends.indexOf(all[i]),
      all[i].from + all[i].count,
    ];
    const chosen = async (): Promise<void> => {
      await chooser.done(ticket, true);
      await read.done(); // whether the logits before it are sound
    };
    const later = { [Symbol.dispose]: () => this.#ended(rows) }; // the log is read until the next step
    return {
      ...read,
      done: onceAnd(chosen, [chooser, ...free, later]),
      drop: () => {
        read.drop();
        chooser.drop(ticket);
      },
      tokens: (i) => rows.tokens(...placeOf(i), 1),
      logprobs: (i, _, top) => rows.logprobs(...placeOf(i), top),
    };
  }

  /** Notes that a trace reads a prompt. */
  #noteUse(traced: TracedStep<unknown>): void {
    this.#traces.delete(traced);
    this.#traces.add(traced);
    if (this.#traces.size > MAX_TRACES) this.#traces.delete(this.#traces.values().next().value!);
  }
}

/** Waits for work and then frees what it used, however it ended. All calls have one promise. */
function onceAnd(work: () => Promise<void>, free: readonly Disposable[]): () => Promise<void> {
  const all = async (): Promise<void> => {
    try {
      await work();
    } finally {
      for (const one of free) one[Symbol.dispose]();
    }
  };
  let begun: Promise<void> | undefined;
  return () => begun ??= all();
}

function noLogprobs(): never {
  throw new Error("a prompt's part chooses no token");
}
