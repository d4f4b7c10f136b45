/**
 * Reading a prompt and decoding: steps with everything that changes from one to the next on the device.
 *
 * A step embeds tokens, runs the model over the cache's buffers, chooses the next token and writes the new state in place of the old. The
 * prompt is a step of many tokens, or several if it is long; then one token a step. Steps are traced once per capacity of the cache,
 * those of a prompt also once per number of rows, which has few values. The model keeps the traces for later prompts. The host only submits
 * steps, several at a time on a fast device. It reads the tokens from a log that it can see while later steps run.
 *
 * Decoders of several sequences that have read their prompts can be joined. Then each sequence is a row of the state, at its own position,
 * and all rows advance at every step. A row whose sequence has ended computes on, and goes when half of them have.
 *
 * This file has the session and its loop. prompt.ts reads the prompt, steps.ts runs steps and prepares the growth of the cache, and
 * device_state.ts has the state and the cache. masked.ts chooses constrained tokens, sequences.ts keeps the sequences and submit.ts heeds
 * aborts.
 *
 * @module
 */

import { DecodeContext, type Traced } from "./context.ts";
import { DeviceState } from "./device_state.ts";
import { MaskedSteps } from "./masked.ts";
import { PromptReader } from "./prompt.ts";
import { type DecodedToken, Sequences } from "./sequences.ts";
import { type DecodeOptions, type DecodeScalars, decodeStep } from "./state.ts";
import { StepLoop, type StepOver } from "./steps.ts";
import { PromptSubmitter } from "./submit.ts";
import type { KvCache } from "../kv/cache.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";
import { type Submission, SubmissionSizer, succeeded } from "./submission_sizer.ts";

/** The common part of sessions that were joined: the rows, whose prompts were read, and their state. */
interface Joined {
  readonly sequences: Sequences;
  readonly scalars: DecodeScalars;
}

/** Reads a prompt and generates the tokens after it; of several sequences when joined. */
export class GenerationSession implements Disposable {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #steps: StepLoop;
  readonly #masked: MaskedSteps;
  readonly #reader: PromptReader;

  /** For a prompt that follows what `cache` holds, and at most `limit` tokens after it. The cache stays the caller's. */
  constructor(
    model: LanguageModel,
    cache: KvCache,
    prompt: readonly number[],
    limit: number,
    options: DecodeOptions,
    joined?: Joined,
  ) {
    const { sampler: { key }, contextSize, constraint } = options;
    const last = cache.offset + prompt.length - 1;
    const seen = Math.max(1, contextSize);
    const tokens = [...cache.tokens.slice(-seen), ...prompt.slice(-seen)].slice(-seen);
    const rows = joined?.sequences ??
      new Sequences([{ sequence: 0, last, limit, key, tokens, constraint, ended: limit <= 0 }]);
    const context = new DecodeContext(decodingModel(model), cache, options, rows, joined?.scalars);
    const stepOver: StepOver = (buffers) => {
      if (rows.constrained) return this.#masked.forwardOver(buffers);
      const state = { ...context.scalars, ...buffers };
      return [state, context.traced("step", state, (now) => decodeStep(model, options, now)) as Traced<unknown>];
    };
    const submitter = new PromptSubmitter(context);
    const steps = new StepLoop(context, submitter, stepOver);
    const masked = new MaskedSteps(context, submitter, steps);
    this.#context = context;
    this.#submitter = submitter;
    this.#steps = steps;
    this.#masked = masked;
    const parts = { context, submitter, steps, masked, forget: () => this.#forget() };
    this.#reader = new PromptReader(joined ? undefined : prompt, parts);
  }

  /**
   * One session of several sequences, numbered in the order of `sessions`. Those have been opened and have the same options but
   * for the random key; they are given up and their caches emptied. The new one owns its cache.
   */
  static join(sessions: readonly GenerationSession[]): GenerationSession {
    const contexts = sessions.map((session) => session.#context);
    const [{ model, options }] = contexts;
    const { cache, scalars } = DeviceState.join(contexts.map((context) => context.state));
    const sequences = Sequences.join(contexts.map((context) => context.sequences));
    const joined = new GenerationSession(model, cache, [], 0, options, { sequences, scalars });
    joined.#context.ended.push(cache);
    for (const session of sessions) {
      joined.#steps.alsoImproveThoseOf(session.#steps);
      session[Symbol.dispose]();
    }
    return joined;
  }

  /** Tokens of the prompt that were not read yet. */
  get unread(): number {
    return this.#reader.unread;
  }

  /** Reads the next `count` tokens of the prompt, which must leave some: only the cache is computed. Resolves when that is done. */
  read(count: number): Promise<void> {
    return this.#reader.read(count);
  }

  /**
   * Submits the rest of the prompt, which chooses the first token; {@link GenerationSession.tokens} does it if it was not done. `read`
   * resolves when the device has read it.
   */
  async open(): Promise<{ readonly read: Promise<void> }> {
    return { read: this.#read(await this.#reader.open()) };
  }

  async #read(submission: Submission): Promise<void> {
    if (await succeeded(submission)) return;
    this.#reader.rewind();
    await (await this.#reader.open()).done();
  }

  /**
   * Reads the rest of the prompt and yields lists of tokens until every sequence has ended. The order is step by step, and that of the
   * sequences within a step. It may be called once. Read each list to its end before asking for the next one.
   *
   * The first list comes as soon as its token exists. On a fast device later lists come several to a submission, and the next submission runs
   * while they are read. On return the cache contains every token that was fed for the yielded tokens (the longest sequence's count).
   * Failed steps are repeated, see {@link succeeded}.
   */
  async *tokens(): AsyncGenerator<Iterable<DecodedToken>, void, void> {
    const { cache, sequences, state } = this.#context;
    const flight: Submission[] = [];
    let submitted = 0;
    let finished = 0;
    let sizer = new SubmissionSizer(undefined);
    try {
      while (sequences.active) {
        const most = sequences.limit;
        const narrow = submitted > 0 && sequences.idle(submitted, cache.limit);
        if (narrow && flight.length === 0) {
          await this.#masked.dropForward();
          this.#dropEnded(submitted);
        }
        if (this.#steps.outgrown) await this.#steps.ahead;
        // A row that stands at the end of the context is read, and dropped, before others go on.
        const goesOn = (): boolean => flight.length === 0 || (!narrow && cache.offset < cache.limit);
        const depth = (): number => sequences.constrained ? 1 : sizer.depth; // the end of the prompt sets another sizer
        while (flight.length < depth() && submitted < most && goesOn()) {
          const submission = submitted === 0
            ? await this.#reader.open()
            : sequences.constrained
            ? await this.#masked.submit(submitted + 1 < most)
            : this.#steps.submit(Math.min(sizer.size, most - submitted));
          // Steps are submitted after the whole prompt.
          if (submitted === 0) sizer = new SubmissionSizer(submission.partly ? undefined : this.#steps.knownTime());
          submitted += submission.count;
          flight.push(submission);
        }
        this.#steps.lookAhead(most - submitted);
        const [submission] = flight;
        const asked = performance.now();
        if (!await succeeded(submission)) {
          for (const later of flight.splice(0)) await succeeded(later);
          await this.#masked.dropForward();
          state.takeBack(submitted - Math.max(1, finished));
          if (finished > 0) this.#restart(finished);
          else this.#reader.rewind();
          submitted = finished;
          continue;
        }
        if (finished === 0) this.#context.options.signal?.throwIfAborted();
        flight.shift();
        sizer.note(finished > 0 ? submission.count : 0, submission.submitted, asked); // the first submission is the prompt
        if (finished > 0) this.#steps.note(sizer.perStep);
        if (sequences.constrained) sequences.accept(this.#context.scalars, finished + 1);
        yield sequences.take(this.#context.scalars, finished + 1, finished += submission.count);
        sizer.grow();
      }
    } finally {
      for (const submission of flight) await succeeded(submission);
      await this.#masked.dropForward();
      const { dropped } = this.#submitter;
      state.takeBack(dropped > 0 ? dropped + submitted - 1 : submitted - sequences.lastStep);
    }
  }

  /** Ends a sequence: no more tokens of it are yielded. */
  end(sequence: number): void {
    this.#context.sequences.end(sequence);
  }

  /** Goes back to the state after the last good step, the one with number `steps`. */
  #restart(steps: number): void {
    this.#forget();
    this.#context.state.restartAfter(steps);
  }

  /** Lets the state go, and the traces that hold what failed. */
  #forget(): void {
    this.#release();
    this.#context.model.traces[Symbol.dispose]();
  }

  /** Goes on with the rows that have not ended. Nothing may be on its way. */
  #dropEnded(submitted: number): void {
    const { sequences, state } = this.#context;
    const kept = sequences.dropEnded();
    this.#releaseLoops();
    state.keep(kept, Math.max(...sequences.all.map((row) => row.last)) + submitted);
  }

  /** Frees the steps and their state; the cache stays. */
  [Symbol.dispose](): void {
    this.#context[Symbol.dispose]();
    this.#release();
  }

  #release(): void {
    this.#releaseLoops();
    this.#context.state[Symbol.dispose]();
  }

  #releaseLoops(): void {
    this.#steps.release();
    this.#masked.release();
  }
}
