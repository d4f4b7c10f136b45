/**
 * Reading a prompt and decoding: steps with everything that changes from one to the next on the device.
 *
 * A step embeds tokens, runs the model over the cache's buffers, chooses the next token and writes the new state in place of the old. The
 * prompt is a step of many tokens, or several if it is long; then one token a step. Steps are traced once per capacity of the cache,
 * those of a prompt also once per number of rows, which has few values. The model keeps the traces for later prompts. The host only submits
 * steps, several at a time on a fast device. It reads the tokens from a log that it can see while later steps run.
 *
 * A session is one sequence; src/llm/engine runs several together.
 *
 * This file has the session and its loop. prompt.ts reads the prompt, steps.ts runs steps and prepares the growth of the cache, and
 * device_state.ts has the state and the cache. masked.ts chooses constrained tokens, drafted.ts verifies drafts, sequence.ts keeps the sequence and submit.ts heeds
 * aborts.
 *
 * @module
 */

import { DecodeContext, type Traced } from "./context.ts";
import { DraftedSteps } from "./drafted.ts";
import { MaskedSteps } from "./masked.ts";
import { type PromptParts, PromptReader } from "./prompt.ts";
import { DecodedSequence, type DecodedToken } from "./sequence.ts";
import { type DecodeOptions, decodeStep } from "./state.ts";
import { StepLoop, type StepOver } from "./steps.ts";
import { PromptSubmitter } from "./submit.ts";
import type { KvCache } from "../kv/cache.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";
import { type Submission, SubmissionSizer, succeeded } from "./submission_sizer.ts";

/** Tokens that are read again at once. */
const REREAD = 512;

/** Reads a prompt and generates the tokens after it. */
export class GenerationSession implements Disposable {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #steps: StepLoop;
  readonly #masked: MaskedSteps;
  /** Absent where nothing is drafted. */
  readonly #drafted: DraftedSteps | undefined;
  readonly #parts: PromptParts;
  readonly #reader: PromptReader;

  /** For a prompt that follows what `cache` holds, and at most `limit` tokens after it. The cache stays the caller's. */
  constructor(model: LanguageModel, cache: KvCache, prompt: readonly number[], limit: number, given: DecodeOptions) {
    const decoding = decodingModel(model);
    const options = { ...given, group: decoding.group };
    const { sampler: { key }, contextSize, constraint } = options;
    const last = cache.offset + prompt.length - 1;
    const seen = Math.max(1, contextSize);
    const tokens = [...cache.tokens.slice(-seen), ...prompt.slice(-seen)].slice(-seen);
    const sequence = new DecodedSequence({ last, limit, key, tokens, constraint });
    const context = new DecodeContext(decoding, cache, options, sequence);
    const stepOver: StepOver = (buffers) => {
      if (constraint) return this.#masked.forwardOver(buffers);
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
    const { speculation } = options;
    if (speculation) this.#drafted = new DraftedSteps(context, submitter, steps, speculation);
    this.#parts = { context, submitter, steps, masked, forget: () => this.#forget() };
    this.#reader = new PromptReader(prompt, this.#parts);
  }

  /** Tokens of the prompt that were not read yet. */
  get unread(): number {
    return this.#reader.unread;
  }

  /** Reads the next `count` tokens of the prompt, which must leave some: see {@link PromptReader.read}. */
  read(count: number): Promise<void> {
    return this.#reader.read(count);
  }

  /** Resolves when what {@link GenerationSession.read} was asked for is done. */
  idle(): Promise<void> {
    return this.#reader.idle();
  }

  /**
   * Reads the rest of the prompt and yields lists of tokens until the limit. It may be called once. Read each list to its end before
   * asking for the next one.
   *
   * The first list comes as soon as its token exists. On a fast device later lists come several to a submission, and the next submission runs
   * while they are read. On return the cache contains every token that was fed for the yielded tokens.
   * Failed steps are repeated, see {@link succeeded}.
   */
  async *tokens(): AsyncGenerator<Iterable<DecodedToken>, void, void> {
    const { cache, sequence, state, model } = this.#context;
    // A recurrent state cannot go back, so nothing is computed that may not be taken. Processes with parts of a model differ in time.
    const byOne = cache.hasState || model.group !== undefined;
    // Logits ahead of a draft are dropped, and the head would have taken their token.
    const waits = cache.hasState || this.#context.options.speculation?.byHead === true;
    const flight: Submission[] = [];
    let submitted = 0;
    let finished = 0;
    let sizer = new SubmissionSizer(undefined);
    try {
      while (!sequence.ended) {
        const most = sequence.limit;
        if (this.#steps.outgrown) await this.#steps.ahead;
        // The end of the prompt sets another sizer.
        const wantsDraft = this.#drafted && (finished === 0 || this.#drafted.wanted); // the first token may have a match
        const depth = (): number => sequence.constraint || byOne || wantsDraft ? 1 : sizer.depth;
        // Where the context ends, what is on its way is yielded before the error.
        const goesOn = (): boolean => flight.length === 0 || cache.offset < cache.limit;
        while (flight.length < depth() && submitted < most && goesOn()) {
          const submission = submitted === 0
            ? await this.#reader.open()
            : (wantsDraft && await this.#submitDraft()) || (sequence.constraint
              ? await this.#masked.submit(submitted + 1 < most && !waits && !this.#drafted?.isLikely)
              : this.#steps.submit(Math.min(byOne ? 1 : this.#fitting(sizer), most - submitted)));
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
          if (finished > 0) await this.#restart(finished);
          else this.#reader.rewind();
          submitted = finished;
          continue;
        }
        if (finished === 0) this.#context.options.signal?.throwIfAborted();
        flight.shift();
        if (finished === 0) state.checkpoint();
        const { count } = submission;
        const isDrafted = finished + count > submitted;
        submitted = Math.max(submitted, finished + count);
        // The first submission is the prompt.
        const time = sizer.note(finished > 0 && !isDrafted ? count : 0, submission.submitted, asked);
        if (isDrafted) this.#drafted?.noteDrafts(time);
        else if (finished > 0) this.#drafted?.note(count, time);
        if (finished > 0) this.#steps.note(sizer.perStep);
        if (sequence.constraint) sequence.accept(this.#context.scalars, finished + 1, count);
        yield sequence.take(this.#context.scalars, finished + 1, Math.min(finished += count, most));
        sizer.grow();
      }
    } finally {
      await this.#reader.idle().catch(() => {}); // the caller has the error that came first
      for (const submission of flight) await succeeded(submission);
      await this.#masked.dropForward();
      const { dropped } = this.#submitter;
      state.takeBack(dropped > 0 ? dropped + submitted - 1 : submitted - sequence.lastStep);
    }
  }

  /** Submits a step that verifies drafts, if there are some. Logits that were computed ahead for a mask are not used then. */
  async #submitDraft(): Promise<Submission | undefined> {
    await this.#masked.dropForward();
    return await this.#drafted!.submit();
  }

  /** How many steps are submitted next. */
  #fitting({ size }: SubmissionSizer): number {
    return this.#drafted?.fitting(size) ?? size;
  }

  /**
   * Goes back to the state after the last good step, the one with number `steps`. A recurrent state goes back to its last copy, and the tokens
   * since then are read again.
   */
  async #restart(steps: number): Promise<void> {
    this.#forget();
    const { cache, sequence, state } = this.#context;
    state.restartAfter(steps);
    const missing = sequence.last + steps - cache.offset;
    const reader = new PromptReader(sequence.tokens.slice(-1 - missing), this.#parts);
    try {
      while (reader.unread > 1) await reader.read(Math.min(REREAD, reader.unread - 1));
    } finally {
      await reader.idle();
    }
  }

  /** Lets the state go, and the traces that hold what failed. */
  #forget(): void {
    this.#release();
    this.#context.model.traces[Symbol.dispose]();
  }

  /** Frees the steps and their state; the cache stays. */
  [Symbol.dispose](): void {
    this.#context[Symbol.dispose]();
    this.#release();
    this.#drafted?.[Symbol.dispose]();
    this.#context.state.end();
  }

  #release(): void {
    this.#steps.release();
    this.#masked.release();
    this.#drafted?.release();
    this.#context.state[Symbol.dispose]();
  }
}
