/**
 * Reads prompts on the device of a model. A part is a forward pass of one sequence; the choice of a token follows the last one.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, hostVisible, TracedStep } from "../../array/compile/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import { detach, paddedLength } from "../decode/state.ts";
import { type CopyState, copyStatesStep, copyStep, type PromptState, promptStep } from "./device_steps.ts";
import type { DeviceRows } from "./rows.ts";
import { columnsFor, type RunnerContext } from "./runner_context.ts";
import type { PageCopy, PrefillStep, Submitted } from "./step.ts";

/** The reading of a prompt's part on its way. */
interface Read extends Pick<Submitted, "step" | "submitted" | "done" | "drop"> {
  /** What goes afterwards. */
  readonly free: readonly Disposable[];
}

/** Most traces that are kept for {@link PromptRunner.takeTraces}. */
const MAX_TRACES = 8;

/** Runs the steps that read prompts. */
export class PromptRunner {
  readonly #context: RunnerContext;
  readonly #ended: (rows: DeviceRows) => void;
  /** Traces that read prompts, the last one last. */
  readonly #traces = new Set<TracedStep<unknown>>();

  /** `ended` takes rows whose step has ended; what they hold is read before the next step is submitted. */
  constructor(context: RunnerContext, ended: (rows: DeviceRows) => void) {
    this.#context = context;
    this.#ended = ended;
  }

  /** The traces of the last prompts since the last call. */
  takeTraces(): readonly TracedStep<unknown>[] {
    const traces = [...this.#traces];
    this.#traces.clear();
    return traces;
  }

  /** Reads a part of a prompt. */
  async read(step: PrefillStep): Promise<Submitted> {
    const { model, pool, dtype } = this.#context;
    const { sequence, from, count, last, copies, restored, kept } = step;
    const free: Disposable[] = [];
    for (const copy of copies) free.push(await this.#copy(copy, "engine copy", copyStep));
    if (restored !== undefined) free.push(await this.#copyStates(restored, sequence.slot));
    const rows = paddedLength(count, model.device.tile);
    const ids = new Int32Array(rows).fill(sequence.tokens[from + count - 1]);
    ids.set(sequence.tokens.slice(from, from + count));
    const pages = sequence.pages.slice(0, Math.ceil((from + count) / PAGE));
    const table = new Int32Array(columnsFor(pages.length));
    table.set(pages);
    const { vocabSize } = model.config;
    const arrays = {
      ids: detach(hostVisible(ids)),
      last: detach(hostVisible(Uint32Array.of(count - 1))),
      position: detach(hostVisible(Int32Array.of(from))),
      table: detach(hostVisible(table, [1, table.length])),
      slots: detach(hostVisible(Int32Array.of(sequence.slot))),
      logits: last ? detach(mx.zeros([1, vocabSize], dtype)) : undefined,
    };
    const state: PromptState = { ...arrays, ...pool.buffers };
    const kind = last ? "engine prompt" : "engine read";
    // Parts of a long prompt have one length. Its end may have any, of which few occur again where rows are not padded.
    const keeps = model.device.tiled || !last;
    const traced = await this.#context.traced(kind, state, (now) => promptStep(model, now), keeps);
    if (traced instanceof TracedStep) this.#noteUse(traced as TracedStep<unknown>);
    const loop = new DeviceLoop(state, traced);
    const submitted = performance.now();
    const ticket = loop.run(1);
    free.push(loop, { [Symbol.dispose]: () => mx.dispose(arrays) });
    if (kept !== undefined) free.push(await this.#copyStates(sequence.slot, kept));
    const read: Read = { step, submitted, done: () => loop.done(ticket), drop: () => void loop.drop(ticket), free };
    return last ? await this.#chooseFirst(step, read, arrays.logits!) : this.#reading(read);
  }

  /** Submits the copy of the recurrent states of a slot. */
  #copyStates(from: number, to: number): Promise<Disposable> {
    return this.#copy({ from, to }, "engine copy states", copyStatesStep);
  }

  /** Submits a copy, as of a page: its first positions count, the others are written before they are read. */
  async #copy(
    { from, to }: Pick<PageCopy, "from" | "to">,
    name: string,
    step: (now: CopyState) => CopyState,
  ): Promise<Disposable> {
    const pages = { from: detach(hostVisible(Int32Array.of(from))), to: detach(hostVisible(Int32Array.of(to))) };
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

  /** Chooses the token after a prompt, from its logits. */
  async #chooseFirst(
    step: PrefillStep,
    { free, ...read }: Read,
    logits: Tensor,
  ): Promise<Submitted> {
    const { sequence } = step;
    const position = step.from + step.count - 1;
    const job = this.#context.of(sequence);
    const { settings, key } = job;
    const mask = await job.mask();
    const masked = mask ? this.#context.model.config.vocabSize : undefined;
    const rows = this.#context.newRows({ rows: 1, columns: 1, kind: this.#context.kindOf([settings]), masked });
    rows.place(0, { tokens: sequence.tokens, position, pages: [], slot: 0, key, settings });
    if (mask) rows.allow(0, mask);
    const chooser = await this.#context.choosing(rows, { ...rows.state, logits });
    const ticket = chooser.run(1);
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
      tokens: () => rows.tokens(0, position + 1, 1),
      logprobs: (_, i, top) => rows.logprobs(0, position + 1 + i, top),
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
