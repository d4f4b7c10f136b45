/**
 * Reading a prompt: chunks that only fill the cache, then the rest, which chooses the first token. A rest of few tokens is fed through the
 * loop of decode steps.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, hostVisible, TracedStep } from "../../array/compile/loop.ts";
import { MegakernelFailure } from "../../graph/error.ts";
import type { DecodeContext, StepKind, Traced } from "./context.ts";
import type { MaskedSteps } from "./masked.ts";
import { paddedLength } from "./padding.ts";
import {
  decodeStep,
  detach,
  forwardPromptStep,
  type PrefillState,
  type PromptChunk,
  promptStep,
  readStep,
  type State,
} from "./state.ts";
import type { StepLoop } from "./steps.ts";
import type { PromptSubmitter } from "./submit.ts";
import type { Submission } from "./submission_sizer.ts";

/** Tokens of a prompt that are fed one by one: so few rows take as long as many. One where a device reads many in the time of a few. */
const MAX_FED = { alone: 3, tiles: 1 } as const;
/** If making the pipelines of a prompt takes more milliseconds than this, those of the steps after it are made at the same time. */
const COLD_MS = 10;
/** If it takes more than this after that, no earlier program made them: steps over larger caches will need pipelines too. */
const FRESH_MS = 150;

/** The context of a {@link PromptReader}. */
export interface PromptParts {
  readonly context: DecodeContext;
  readonly submitter: PromptSubmitter;
  readonly steps: StepLoop;
  readonly masked: MaskedSteps;
  /** Lets the state go, and the traces that hold what failed. Nothing may be on its way. */
  forget(): void;
}

/** Reads the prompt of a session of one sequence. */
export class PromptReader {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #steps: StepLoop;
  readonly #masked: MaskedSteps;
  readonly #forget: () => void;
  /** Tokens of the prompt that were not read yet. */
  #prompt: readonly number[];
  /** Those that the step which chooses the first token read. */
  #rest: readonly number[] = [];
  /** The step that read the end of the prompt and chose the first token. */
  #opening: Promise<Submission> | undefined;
  /** Finishes the last part. Where layers are on several devices, only the first one may have read it yet. */
  #finishLast: () => Promise<void> = () => Promise.resolve();
  /** The part before the last one, which is being finished. */
  #finishing: Promise<void> = Promise.resolve();

  /** For a prompt that follows what the cache holds. */
  constructor(prompt: readonly number[], { context, submitter, steps, masked, forget }: PromptParts) {
    this.#context = context;
    this.#submitter = submitter;
    this.#steps = steps;
    this.#masked = masked;
    this.#forget = forget;
    this.#prompt = prompt;
  }

  /** Tokens of the prompt that were not read yet. */
  get unread(): number {
    return this.#prompt.length;
  }

  /** Resolves when all parts are read, and rejects with the first error when none is on its way any more. */
  async idle(): Promise<void> {
    const ends = await Promise.allSettled([this.#finishing, this.#finishLast()]);
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  /**
   * Reads the next `count` tokens of the prompt, which must leave some: only the cache is computed. Resolves when that is done. Where layers are
   * on several devices, two parts before these may be on their way. So each device has the next part when it is done with one.
   */
  async read(count: number): Promise<void> {
    await this.#beforeGrowth(count);
    const chunk = this.#chunk(count);
    const ended = new DisposableStack();
    ended.defer(() => mx.dispose(chunk));
    try {
      const { position, head } = this.#context.scalars;
      const state: PrefillState & PromptChunk = { ...chunk, position, head, ...this.#context.cache.buffers };
      const traced = this.#context.traced("read", state, (now) => readStep(this.#context.model, now));
      const loop = ended.use(new DeviceLoop(state, traced, this.#submitter.inParts(count)));
      await this.#submitter.heedAbort();
      const { done } = this.#submitter.submit(loop, count);
      const before = this.#finishing;
      this.#finishing = this.#finishLast();
      this.#finishing.catch(() => {}); // idle() and the next read reject with it
      this.#finishLast = this.#finisher(done, ended.move());
      await before;
    } finally {
      ended.dispose();
    }
    const { cache, model } = this.#context;
    // A copy of recurrent states must be of one position on all devices.
    if (!model.placement || cache.hasState) await this.#finishLast();
  }

  /** A cache on several devices grows only when no part is on its way, since those write into the buffers that they were bound to. */
  async #beforeGrowth(count: number): Promise<void> {
    const { cache, model } = this.#context;
    const end = cache.offset + paddedLength(count, model.device.tile);
    if (model.placement && end > cache.capacity) await this.idle();
  }

  /** A function that finishes a part once, and frees what it took. */
  #finisher(done: () => Promise<void>, ended: DisposableStack): () => Promise<void> {
    const end = async (): Promise<void> => {
      using _ended = ended;
      await done();
      this.#context.state.takeBack(this.#submitter.dropped);
    };
    let ending: Promise<void> | undefined;
    return () => ending ??= end();
  }

  /** Submits the rest of the prompt, once; that chooses the first token. */
  open(): Promise<Submission> {
    const { cache, sequence, model: { device } } = this.#context;
    const most = MAX_FED[device.readsTiles ? "tiles" : "alone"];
    const feeds = this.#prompt.length <= most && cache.fused && !sequence.constraint;
    if (!this.#opening) {
      if (cache.hasState) this.#context.state.checkpoint(); // a step that does not end well may have replaced it
      this.#rest = this.#prompt;
      this.#opening = feeds ? this.#feedRest() : this.#readRest();
    }
    return this.#opening;
  }

  /**
   * Goes back to the state before the rest of the prompt, whose reading did not end well: {@link PromptReader.open} submits it again.
   * Nothing may be on its way.
   */
  rewind(): void {
    this.#forget();
    this.#prompt = this.#rest;
    this.#context.state.rewind(this.#rest.length);
    this.#opening = undefined;
  }

  /** Submits a rest of few tokens as steps of decoding, one by one: what a step chooses gives way to the next token. */
  async #feedRest(): Promise<Submission> {
    await this.idle();
    const ids = this.#prompt;
    const { model, options, state } = this.#context;
    this.#prompt = [];
    state.reserve(ids.length);
    const traced = this.#context.traced("step", state.all, (now) => decodeStep(model, options, now));
    if (traced instanceof TracedStep && !traced.ready) await this.#context.model.traces.prepare(traced);
    await this.#submitter.heedAbort();
    this.#steps.current(); // from now on the state is on the model's device
    let submission: Submission | undefined;
    for (const id of ids) {
      state.replaceToken(id);
      submission = this.#steps.submit(1);
    }
    return submission!; // the last of them
  }

  /** Submits the rest of the prompt. */
  async #readRest(): Promise<Submission> {
    if (this.#context.sequence.constraint) {
      await this.idle();
      return await this.#readMasked();
    }
    const count = this.#prompt.length;
    await this.#beforeGrowth(count);
    const chunk = this.#chunk(count);
    const state: State & PromptChunk = { ...this.#context.state.all, ...chunk };
    const step = (now: State & PromptChunk): State & PromptChunk =>
      promptStep(this.#context.model, this.#context.options, now);
    const traced = await this.#tracedOpening("prompt", state, step);
    const loop = new DeviceLoop(state, traced, this.#submitter.inParts(count));
    this.#context.ended.push(loop);
    await this.#submitter.heedAbort();
    const { done, partly } = this.#submitter.submit(loop, count);
    const before = this.idle().catch(throwForGood); // the devices get the last part before this one
    before.catch(() => {}); // done() rejects with it
    return { count: 1, submitted: performance.now(), partly, done: () => before.then(done) };
  }

  /** Submits the rest of the prompt, and the choice of the first token when that is read. */
  async #readMasked(): Promise<Submission> {
    const count = this.#prompt.length;
    const chunk = this.#chunk(count);
    const state = { ...this.#masked.forwardState(), ...chunk };
    const step = (now: typeof state): typeof state => forwardPromptStep(this.#context.model, now);
    const traced = await this.#tracedOpening("forward prompt", state, step);
    const loop = new DeviceLoop(state, traced, this.#submitter.inParts(count));
    this.#context.ended.push(loop);
    await this.#submitter.heedAbort();
    const submitted = performance.now();
    const { done, partly } = this.#submitter.submit(loop, count);
    const choose = async (): Promise<void> => {
      await done();
      if (this.#submitter.dropped > 0) return;
      await this.#masked.chooseFirst();
    };
    let chosen: Promise<void> | undefined;
    return { count: 1, submitted, partly, done: () => chosen ??= choose() };
  }

  /** Takes tokens from the prompt, padded if that costs nothing, and makes room for them. */
  #chunk(count: number): PromptChunk {
    const ids = this.#prompt.slice(0, count);
    this.#prompt = this.#prompt.slice(count);
    const rows = paddedLength(count, this.#context.model.device.tile);
    this.#context.state.reserve(count, rows);
    if (this.#context.options.signal) this.#context.state.checkpoint(); // an abort may leave out the chunk
    const padded = new Int32Array(rows).fill(ids[count - 1]);
    padded.set(ids);
    const next = this.#context.options.speculation?.byHead && Int32Array.of(this.#prompt[0] ?? 0);
    const chunk = {
      ids: detach(hostVisible(padded)),
      last: detach(hostVisible(Uint32Array.of(count - 1))),
      ...(next && { next: detach(hostVisible(next)) }),
    };
    this.#context.ended.push({ [Symbol.dispose]: () => mx.dispose(chunk) }); // also where the device has no room for what follows
    return chunk;
  }

  /** The step that reads the end of the prompt, its pipelines made. A faster one for later prompts is looked for when that for tokens is. */
  async #tracedOpening<S>(kind: StepKind, state: S, step: (state: S) => S): Promise<Traced<S>> {
    let trace = this.#context.traced(kind, state, step);
    if (trace instanceof TracedStep && !trace.ready) {
      await this.#prepareOpening(trace);
      trace = this.#context.traced(kind, state, step); // another one where a sequence beside this failed meanwhile: all traces went
    }
    if (trace instanceof TracedStep) this.#steps.alsoImprove(trace as TracedStep<unknown>);
    return trace;
  }

  /** Has the pipelines of the end of a prompt made. If that takes time, those of the steps after it are made at the same time. */
  async #prepareOpening<S>(trace: TracedStep<S>): Promise<void> {
    const { model, sequence } = this.#context;
    const ready = model.traces.prepare(trace as TracedStep<unknown>);
    if (sequence.limit > 1 && await isLate(ready, COLD_MS)) {
      this.#steps.prepare();
      if (await isLate(ready, FRESH_MS)) this.#steps.noteFresh();
    }
    await ready;
  }
}

/** Throws an error of a part that comes before the rest: it ends the answer, since reading the rest again would not help. */
function throwForGood(error: unknown): never {
  throw error instanceof MegakernelFailure ? new mx.RuntimeError("timeout", "generate", error.message) : error;
}

/** Whether a promise does not resolve within so many milliseconds. */
async function isLate(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer;
  const late = new Promise<true>((resolve) => timer = setTimeout(resolve, ms, true));
  try {
    return await Promise.race([promise.then(() => false), late]);
  } finally {
    clearTimeout(timer);
  }
}
