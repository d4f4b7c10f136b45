/**
 * How work of a session that may be aborted goes to the device. It goes whole if that is fast or can be dropped, in parts if a prompt takes
 * long. Also how an abort leaves out work that was not computed yet.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import type { DeviceLoop } from "../../array/compile/loop.ts";
import { orAborted } from "../abort.ts";
import type { DecodeContext } from "./context.ts";
import type { DecodingModel, LanguageModel } from "../models/mod.ts";
import { ReadingClock } from "./reading_clock.ts";
import { PromptSizer, type Submission } from "./submission_sizer.ts";

/** When a model's device will be done with the submitted work of an aborted prompt. */
const abandoned = new WeakMap<LanguageModel, Promise<void>>();

/** Resolves when a device computes nothing of aborted prompts any more, and throws the reason of an abort meanwhile. */
export function untilIdle(model: LanguageModel, signal: AbortSignal): Promise<void> {
  return orAborted(abandoned.get(model) ?? Promise.resolve(), signal);
}

/** How fast prompts are read on a model's device. */
const promptSizers = new WeakMap<LanguageModel, PromptSizer>();

function promptSizerOf(model: DecodingModel): PromptSizer {
  const sizer = promptSizers.get(model) ?? new PromptSizer(model.device.concurrent);
  promptSizers.set(model, sizer);
  return sizer;
}

/** Submits prompts, and waits for them and for the steps after them. */
export class PromptSubmitter {
  readonly #context: DecodeContext;
  /** Tokens of the prompt whose reading was left out after an abort. */
  dropped = 0;

  constructor(context: DecodeContext) {
    this.#context = context;
  }

  /**
   * Throws the reason of an abort, also of one in this turn of the event loop or while the device still computes abandoned work. It waits
   * for that work, so at most one submission is ever abandoned.
   */
  async heedAbort(): Promise<void> {
    const { options: { signal }, sequence } = this.#context;
    if (!signal || sequence.lastStep > 0) return; // an answer that has begun ends without an error
    await setImmediate();
    await untilIdle(this.#context.model, signal);
    signal.throwIfAborted();
  }

  /** Whether a step over `count` tokens of the prompt is submitted in parts. */
  inParts(count: number): boolean {
    return this.#context.options.signal !== undefined && !this.#context.model.device.drops &&
      promptSizerOf(this.#context.model).inParts(count);
  }

  /**
   * Submits a step over `count` tokens of the prompt: at once, or in parts of which each waits for those before, until an abort.
   * `partly` says that not all was submitted on return. Of several devices only the first one gets its part then.
   */
  submit<S>(loop: DeviceLoop<S>, count: number): Pick<Submission, "done" | "partly"> {
    this.#context.state.advance(count);
    if (this.#context.model.placement) return this.#submitFirst(loop, count);
    const parts = this.inParts(count);
    if (!parts) {
      const submitted = performance.now();
      const ticket = loop.run();
      const done = async (): Promise<void> => {
        await this.done(loop, ticket, count);
        if (this.#context.options.signal) promptSizerOf(this.#context.model).note(count, performance.now() - submitted);
      };
      return { partly: false, done };
    }
    const reading = this.#runParts(loop, count);
    reading.catch(() => {}); // the caller that waits for it gets the error
    return { partly: true, done: () => reading };
  }

  /** Submits the part of the first device. The others follow when the step is waited for, so that the first one may get more before. */
  #submitFirst<S>(loop: DeviceLoop<S>, count: number): Pick<Submission, "done" | "partly"> {
    const first = loop.runPart(0);
    const finish = async (): Promise<void> => {
      let ticket = first;
      for (let part = 1; part < loop.parts; part++) ticket = loop.runPart(part);
      await this.done(loop, ticket, count);
    };
    let finished: Promise<void> | undefined;
    return { partly: true, done: () => finished ??= finish() };
  }

  /** Tokens that are read again in the middle of an answer are not told. */
  get #onRead(): DecodeContext["options"]["onRead"] {
    const { options, sequence } = this.#context;
    return sequence.lastStep > 0 ? undefined : options.onRead;
  }

  async #runParts<S>(loop: DeviceLoop<S>, count: number): Promise<void> {
    const { signal } = this.#context.options;
    const sizer = promptSizerOf(this.#context.model);
    const { parts } = loop;
    const clock = new ReadingClock(this.#onRead, count);
    for (let at = 0; at < parts;) {
      const begin = at;
      const end = Math.min(parts, at + sizer.parts(count, parts));
      const submitted = performance.now();
      let ticket = 0;
      while (at < end) ticket = loop.runPart(at++);
      await this.done(loop, ticket, 0, true);
      sizer.note(count * (end - begin) / parts, performance.now() - submitted);
      clock.tick(at / parts);
      if (!signal?.aborted || at === parts) continue;
      this.dropped += count;
      return;
    }
  }

  /** Resolves when a submission is done that reads `count` tokens of the prompt, or steps after it; at an abort, when it is left out. */
  async done<S>(loop: DeviceLoop<S>, ticket: number, count: number, soon: boolean = count > 0): Promise<void> {
    const { signal } = this.#context.options;
    const done = loop.done(ticket, soon);
    const drop = (): void => {
      if (this.#context.sequence.lastStep > 0) return;
      if (loop.drop(ticket)) this.dropped += count;
      else abandoned.set(this.#context.model, done.catch(() => {}));
    };
    if (signal?.aborted) drop();
    signal?.addEventListener("abort", drop);
    using clock = new ReadingClock(count > 0 ? this.#onRead : undefined, count);
    clock.start(() => loop.progress(ticket));
    try {
      await done;
      clock.check();
    } finally {
      signal?.removeEventListener("abort", drop);
    }
  }
}
