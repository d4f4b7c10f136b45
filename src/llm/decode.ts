/**
 * Reading a prompt and decoding: steps with everything that changes from one to the next on the device.
 *
 * A step embeds tokens, runs the model over the cache's buffers, chooses the next token and writes the new state in place of the
 * old. The prompt is a step of many tokens, or several where it is long; then one token a step. Steps are traced once per
 * capacity of the cache, those of a prompt also once per number of rows, of which there are few; the model keeps the traces for
 * later prompts. The host only submits steps, several at a time on a fast device, and reads the tokens from a log that it can
 * see while later steps run.
 *
 * Decoders of several sequences that have read their prompts can be joined: then each sequence is a row of the state, at a position
 * of its own, and all rows advance at every step. A row whose sequence has ended computes on, and goes when half of them have.
 *
 * Where tokens are constrained, what the next one may be depends on the one before, which the host has to see first. A step is two
 * then: the logits of the next token are computed as soon as a token is chosen, and the host makes the mask meanwhile.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { keyAfter } from "../array/keys.ts";
import { DeviceLoop, poke, TracedStep, visible } from "../array/loop.ts";
import { orAborted } from "./abort.ts";
import {
  chooseStep,
  type DecodeOptions,
  type DecodeScalars,
  decodeStep,
  forwardPromptStep,
  type ForwardState,
  forwardStep,
  fromLog,
  logOf,
  logprobsIn,
  logprobsLog,
  type Masking,
  maskingOf,
  own,
  type PrefillState,
  type PromptChunk,
  promptRows,
  promptStep,
  readStep,
  ring,
  ringWeights,
  stackStates,
  type State,
  takeStates,
} from "./decode_state.ts";
import { LlmError } from "./error.ts";
import { type Buffers, KvCache } from "./kv_cache.ts";
import type { Logprobs } from "./logprobs_log.ts";
import type { LanguageModel } from "./models/mod.ts";
import { PromptSizer, type Submission, SubmissionSizer, succeeded } from "./submission_sizer.ts";
import type { Sampler } from "./generate_options.ts";
import { type Constraint, everyToken } from "./structured/constraint.ts";

/** A generated token. */
export interface DecodedToken {
  /** Number of its sequence. */
  readonly sequence: number;
  readonly token: number;
  /** Where they were asked for. */
  readonly logprobs?: Logprobs;
}

/** Tokens of a prompt that are fed one by one: so few rows take as long as many. */
const MOST_FED = 3;
/** Milliseconds of making the pipelines of a prompt after which those of the steps behind it are worth making beside. */
const COLD_MS = 10;
/** Steps over a cache after which its growth is prepared, and after which a faster step is looked for: one thing at a time. */
const PREPARE_AFTER = 16;
const IMPROVE_AFTER = 32;

/** When a model's device will be done with what was submitted for an aborted prompt. */
const abandoned = new WeakMap<LanguageModel, Promise<void>>();

/** Resolves when a device computes nothing of aborted prompts any more, and throws the reason of an abort meanwhile. */
export function untilIdle(model: LanguageModel, signal: AbortSignal): Promise<void> {
  return orAborted(abandoned.get(model) ?? Promise.resolve(), signal);
}

/** Milliseconds of a traced step when it last ran. */
const stepTimes = new WeakMap<TracedStep<unknown>, number>();
/** How fast prompts are read on a model's device. */
const promptSizers = new WeakMap<LanguageModel, PromptSizer>();

function promptSizerOf(model: LanguageModel): PromptSizer {
  const sizer = promptSizers.get(model) ?? new PromptSizer(model.traces.concurrent);
  promptSizers.set(model, sizer);
  return sizer;
}

/** Steps by what they compute. */
type StepKind = "read" | "prompt" | "step" | "forward prompt" | "forward" | "choose";

/** A row of the state. */
interface Row {
  /** Number of its sequence. */
  readonly sequence: number;
  /** Position of the last token of its prompt. */
  readonly last: number;
  /** Most tokens to generate. */
  readonly limit: number;
  /** State of its random numbers before the first token, where there are any. */
  readonly key: Sampler["key"];
  /** The end of the prompt, as much of it as processors see, and what was generated. */
  readonly tokens: number[];
  /** What its tokens may be. */
  readonly constraint: Constraint | undefined;
  ended: boolean;
}

/** Reads a prompt and generates the tokens behind it; of several sequences when joined. */
export class GenerationSession implements Disposable {
  readonly #model: LanguageModel;
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  /** Names the graphs of steps, where they can be named. */
  readonly #graph: string | undefined;
  #scalars: DecodeScalars;
  #rows: Row[];
  /** Tokens of the prompt that were not read yet. */
  #prompt: readonly number[];
  /** The step that read the end of the prompt and chose the first token. */
  #opening: Promise<Submission> | undefined;
  #loop: DeviceLoop<unknown> | undefined;
  /** What the loop runs, where it is kept. */
  #trace: TracedStep<unknown> | undefined;
  /** Where tokens are constrained, the rest of the state; the loop computes logits and this one chooses from them. */
  #masking: Masking | undefined;
  #chooser: DeviceLoop<unknown> | undefined;
  /** Whether the logits behind the last token are on their way. */
  #forwarded = false;
  /** Capacity of the cache that the loop is for. */
  #capacity = 0;
  /** Steps that the loop took. */
  #steps = 0;
  /** Whether the loop was asked for a faster step. */
  #improved = false;
  /** Capacity whose growth was prepared. */
  #prepared = 0;
  /** The step that is to come, and when its pipelines were made. */
  #next: TracedStep<unknown> | undefined;
  #ahead: Promise<void> | undefined;
  /** Loops of the prompt and of smaller caches, whose steps may still run. */
  readonly #ended: Disposable[] = [];
  /** The last step of which a token was taken. */
  #taken = 0;
  /** Tokens of the prompt whose reading was left out behind an abort. */
  #dropped = 0;

  /** For a prompt that follows what `cache` holds, and at most `limit` tokens behind it. The cache stays the caller's. */
  constructor(
    model: LanguageModel,
    cache: KvCache,
    prompt: readonly number[],
    limit: number,
    options: DecodeOptions,
    scalars?: DecodeScalars,
  ) {
    const { sampler, processors, contextSize, logprobs, constraint } = options;
    this.#model = model;
    this.#cache = cache;
    this.#options = options;
    this.#prompt = prompt;
    const graphs = [sampler.graph, ...processors.map(({ graph }) => graph)];
    this.#graph = graphs.includes(undefined) ? undefined : [...graphs, contextSize, logprobs].join(" ");
    const last = cache.offset + prompt.length - 1;
    const seen = Math.max(1, contextSize);
    const tokens = [...cache.tokens.slice(-seen), ...prompt.slice(-seen)].slice(-seen);
    this.#rows = [{ sequence: 0, last, limit, key: sampler.key, tokens, constraint, ended: limit <= 0 }];
    this.#scalars = scalars ?? this.#unread();
  }

  /** The state in front of the rest of the prompt. */
  #unread(): DecodeScalars {
    const [{ key }] = this.#rows;
    const recent = this.#recent();
    const weights = this.#weights();
    return {
      token: own(visible(Int32Array.of(0), [1, 1])),
      position: own(visible(Int32Array.of(this.#cache.offset))),
      key: key && own(mx.array([[...key]], mx.uint32)),
      recent: recent && own(mx.array([recent], mx.int32)),
      weights: weights && own(mx.array([weights], mx.float32)),
      log: logOf([[]]),
      logprobs: logprobsLog(this.#options.logprobs, 1),
    };
  }

  /** The ring of recent tokens that choosing the first one looks at. */
  #recent(): number[] | undefined {
    const [{ tokens, last }] = this.#rows;
    const { processors, contextSize } = this.#options;
    return processors.length > 0 ? ring(tokens, last, contextSize) : undefined;
  }

  /** Which places of that ring have tokens, where a processor counts them. */
  #weights(): number[] | undefined {
    const [{ tokens, last }] = this.#rows;
    const { processors, contextSize } = this.#options;
    return processors.some(({ counts }) => counts) ? ringWeights(tokens, last, contextSize) : undefined;
  }

  /**
   * One session of several sequences, numbered in the order of `sessions`. Those have been opened and have the same options but
   * for the random key; they are given up and their caches emptied. The new one owns its cache.
   */
  static join(sessions: readonly GenerationSession[]): GenerationSession {
    const [first] = sessions;
    const scalars = stackStates(sessions.map((session) => session.#scalars), first.#options.logprobs);
    const cache = KvCache.stack(sessions.map((session) => session.#cache));
    const joined = new GenerationSession(first.#model, cache, [], 0, first.#options, scalars);
    joined.#rows = sessions.map((session, sequence) => ({ ...session.#rows[0], sequence }));
    joined.#opening = Promise.resolve({ count: 1, submitted: performance.now(), done: () => Promise.resolve() });
    joined.#ended.push(cache);
    for (const session of sessions) session[Symbol.dispose]();
    return joined;
  }

  /** Tokens of the prompt that were not read yet. */
  get unread(): number {
    return this.#prompt.length;
  }

  /** Reads the next `count` tokens of the prompt, which must leave some: only the cache is computed. Resolves when that is done. */
  async read(count: number): Promise<void> {
    const chunk = this.#chunk(count);
    try {
      const { position } = this.#scalars;
      const state: PrefillState & PromptChunk = { ...chunk, position, ...this.#cache.buffers };
      const traced = this.#traced("read", state, (now) => readStep(this.#model, now));
      using loop = new DeviceLoop(state, traced, this.#inParts(count));
      await this.#heedAbort();
      await this.#submitPrompt(loop, count).done();
      this.#cache.trim(this.#dropped);
    } finally {
      mx.dispose(chunk);
    }
  }

  /**
   * Throws the reason of an abort, that which happens in this turn of the event loop included, or while the device still computes
   * what was abandoned: so no more than one submission ever is.
   */
  async #heedAbort(): Promise<void> {
    const { signal } = this.#options;
    if (!signal) return;
    await setImmediate();
    await untilIdle(this.#model, signal);
    signal.throwIfAborted();
  }

  /** Whether a step over `count` tokens of the prompt is submitted in parts. */
  #inParts(count: number): boolean {
    return this.#options.signal !== undefined && !this.#model.traces.drops && promptSizerOf(this.#model).inParts(count);
  }

  /**
   * Submits a step over `count` tokens of the prompt: at once, or in parts of which each waits for those before, until an abort.
   * `partly` says that not all was submitted on return.
   */
  #submitPrompt<S>(loop: DeviceLoop<S>, count: number): Pick<Submission, "done" | "partly"> {
    this.#cache.advance(count);
    const parts = this.#inParts(count);
    if (!parts) {
      const submitted = performance.now();
      const ticket = loop.run();
      const done = async (): Promise<void> => {
        await this.#done(loop, ticket, count);
        if (this.#options.signal) promptSizerOf(this.#model).note(count, performance.now() - submitted);
      };
      return { partly: false, done };
    }
    const reading = this.#runParts(loop, count);
    reading.catch(() => {}); // whoever waits for it hears of it
    return { partly: true, done: () => reading };
  }

  async #runParts<S>(loop: DeviceLoop<S>, count: number): Promise<void> {
    const { signal } = this.#options;
    const sizer = promptSizerOf(this.#model);
    const { parts } = loop;
    for (let at = 0; at < parts;) {
      const begin = at;
      const end = Math.min(parts, at + sizer.parts(count, parts));
      const submitted = performance.now();
      let ticket = 0;
      while (at < end) ticket = loop.runPart(at++);
      await this.#done(loop, ticket, 0, true);
      sizer.note(count * (end - begin) / parts, performance.now() - submitted);
      if (!signal?.aborted || at === parts) continue;
      this.#dropped += count;
      return;
    }
  }

  /** Resolves when a submission is done that reads `count` tokens of the prompt, or steps behind it; at an abort, when it is left out. */
  async #done<S>(loop: DeviceLoop<S>, ticket: number, count: number, soon: boolean = count > 0): Promise<void> {
    const { signal } = this.#options;
    const done = loop.done(ticket, soon);
    const drop = (): void => {
      if (this.#taken > 0) return;
      if (loop.drop(ticket)) this.#dropped += count;
      else abandoned.set(this.#model, done.catch(() => {}));
    };
    if (signal?.aborted) drop();
    signal?.addEventListener("abort", drop);
    try {
      await done;
    } finally {
      signal?.removeEventListener("abort", drop);
    }
  }

  /**
   * Reads the rest of the prompt and yields lists of tokens until every sequence has ended, step by step and in the order of
   * sequences within a step; may be called once. Each list is to be read to its end before the next one is asked for. The first one
   * comes as soon as it is there; on a fast device the tokens of later ones were computed in one submission, and the next one runs
   * while they are read, also behind the prompt where the time of a step is known. Afterwards the cache holds all tokens that were fed
   * to get those that were taken, of the longest sequence. Steps that did not end well are done again in another way, see
   * {@link succeeded}.
   */
  async *tokens(): AsyncGenerator<Iterable<DecodedToken>, void, void> {
    const cache = this.#cache;
    const flight: Submission[] = [];
    let submitted = 0;
    let finished = 0;
    let sizer = new SubmissionSizer(undefined);
    try {
      while (this.#rows.some((row) => !row.ended)) {
        const most = Math.max(...this.#rows.map((row) => row.ended ? 0 : row.limit));
        const narrow = submitted > 0 && this.#hasIdleRows(submitted);
        if (narrow && flight.length === 0) {
          await this.#dropForward();
          this.#dropEnded(submitted);
        }
        if (cache.offset === cache.capacity || this.#capacity !== cache.capacity) await this.#ahead;
        // A row that stands at the end of the context is read, and dropped, before others go on.
        const goesOn = (): boolean => flight.length === 0 || (!narrow && cache.offset < cache.limit);
        const depth = (): number => this.#masked ? 1 : sizer.depth; // the end of the prompt sets another sizer
        while (flight.length < depth() && submitted < most && goesOn()) {
          const submission = submitted === 0
            ? await this.#open()
            : this.#masked
            ? await this.#submitMasked(submitted + 1 < most)
            : this.#submit(Math.min(sizer.size, most - submitted));
          // What follows a prompt is submitted behind all of it.
          if (submitted === 0) sizer = new SubmissionSizer(submission.partly ? undefined : this.#knownStepTime());
          submitted += submission.count;
          flight.push(submission);
        }
        if (this.#steps >= PREPARE_AFTER) this.#prepareGrowth(most - submitted);
        if (this.#steps >= IMPROVE_AFTER) this.#improve();
        const [submission] = flight;
        const asked = performance.now();
        if (!await succeeded(submission)) {
          for (const later of flight.splice(0)) await succeeded(later);
          await this.#dropForward();
          cache.trim(submitted - finished);
          submitted = finished;
          this.#restart(finished);
          continue;
        }
        if (finished === 0) this.#options.signal?.throwIfAborted();
        flight.shift();
        sizer.note(finished > 0 ? submission.count : 0, submission.submitted, asked); // the first submission is the prompt
        if (finished > 0 && this.#trace) stepTimes.set(this.#trace, sizer.perStep);
        if (this.#masked) this.#accept(finished + 1);
        yield this.#take(finished + 1, finished += submission.count);
        sizer.grow();
      }
    } finally {
      for (const submission of flight) await succeeded(submission);
      await this.#dropForward();
      cache.trim(this.#dropped > 0 ? this.#dropped + submitted - 1 : submitted - this.#taken);
    }
  }

  /** The tokens of finished steps, one by one: a sequence may end between two of them. */
  *#take(from: number, to: number): Generator<DecodedToken, void, void> {
    const rows = this.#rows;
    const { log, logprobs } = this.#scalars;
    const logged = rows.map(({ last }, i) => fromLog(log, i, last + from, to - from + 1));
    for (let step = from; step <= to; step++) {
      for (let i = 0; i < rows.length; i++) {
        const row = rows[i];
        if (row.ended) continue;
        const token = logged[i][step - from];
        if (token < 0) throw this.#noToken(row, step);
        this.#taken = step;
        row.tokens.push(token);
        row.ended = step === row.limit;
        yield {
          sequence: row.sequence,
          token,
          ...(logprobs && { logprobs: logprobsIn(logprobs, i, row.last + step) }),
        };
      }
    }
  }

  /** The error of a step whose logits have NaN or infinity in them. */
  #noToken({ sequence, last }: Row, step: number): LlmError {
    const which = this.#rows.length > 1 ? ` of sequence ${sequence}` : "";
    return new LlmError(
      "logits",
      `The logits of step ${step}${which}, behind ${
        last + step
      } tokens, have NaN or infinity in them, or no finite one: ` +
        "look for such values in the weights, or for an overflow in their dtype",
    );
  }

  /** Goes back to the state behind the last good step, the one with number `steps`. */
  #restart(steps: number): void {
    const { sampler, processors, contextSize, logprobs } = this.#options;
    const rows = this.#rows;
    const rings = (make: typeof ring, dtype: mx.Dtype): Tensor =>
      own(mx.array(rows.map(({ tokens, last }) => make(tokens, last + steps, contextSize)), dtype));
    this.#forget();
    this.#scalars = {
      token: own(mx.array(rows.map(({ tokens }) => tokens.slice(-1)), mx.int32)),
      position: own(mx.array(rows.map(({ last }) => last + steps), mx.int32)),
      key: sampler.key && own(mx.array(rows.map(({ key }) => [...keyAfter(key!, steps)]), mx.uint32)),
      recent: processors.length > 0 ? rings(ring, mx.int32) : undefined,
      weights: processors.some(({ counts }) => counts) ? rings(ringWeights, mx.float32) : undefined,
      log: logOf(rows.map(() => [])),
      logprobs: logprobsLog(logprobs, rows.length),
    };
  }

  /** Lets the state go, and the traces that hold what failed. */
  #forget(): void {
    this.#release();
    this.#model.traces[Symbol.dispose]();
    this.#capacity = 0;
  }

  /** Ends a sequence: no more tokens of it are yielded. */
  end(sequence: number): void {
    for (const row of this.#rows) row.ended ||= row.sequence === sequence;
  }

  /**
   * Submits the rest of the prompt, which chooses the first token; {@link GenerationSession.tokens} does it where it was not done. `read`
   * resolves when the device has read it.
   */
  async open(): Promise<{ readonly read: Promise<void> }> {
    const submission = await this.#open();
    return { read: submission.done() };
  }

  #open(): Promise<Submission> {
    const feeds = this.#prompt.length <= MOST_FED && this.#cache.fused && !this.#masked;
    return this.#opening ??= feeds ? this.#feedRest() : this.#readRest();
  }

  /**
   * Submits a rest of few tokens as steps of decoding, one by one: what a step chooses gives way to the next token. Where they do not
   * end well, the rest is read as a whole.
   */
  async #feedRest(): Promise<Submission> {
    const ids = this.#prompt;
    const [{ key }] = this.#rows;
    const recent = this.#recent();
    const weights = this.#weights();
    this.#prompt = [];
    this.#cache.reserve(ids.length);
    const traced = this.#traced("step", this.#state(), (now) => this.#step(now));
    if (traced instanceof TracedStep && !traced.ready) await this.#model.traces.prepare(traced);
    await this.#heedAbort();
    this.#stepLoop(); // from now on the state is on the model's device
    let submission: Submission | undefined;
    for (const id of ids) {
      poke(this.#scalars.token, Int32Array.of(id));
      if (key) poke(this.#scalars.key!, Uint32Array.from(key));
      if (recent) poke(this.#scalars.recent!, Int32Array.from(recent));
      if (weights) poke(this.#scalars.weights!, Float32Array.from(weights));
      submission = this.#submit(1);
    }
    const done = async (): Promise<void> => {
      if (await succeeded(submission!)) return;
      this.#cache.trim(ids.length);
      this.#forget();
      this.#prompt = ids;
      this.#scalars = this.#unread();
      await (await this.#readRest()).done();
    };
    return { ...submission!, count: 1, done };
  }

  /** Submits the rest of the prompt. */
  async #readRest(): Promise<Submission> {
    if (this.#masked) return await this.#readMasked();
    const count = this.#prompt.length;
    const chunk = this.#chunk(count);
    const state: State & PromptChunk = { ...this.#state(), ...chunk };
    const step = (now: State & PromptChunk): State & PromptChunk => promptStep(this.#model, this.#options, now);
    const traced = this.#traced("prompt", state, step);
    if (traced instanceof TracedStep && !traced.ready) await this.#prepareOpening(traced);
    const loop = new DeviceLoop(state, traced, this.#inParts(count));
    this.#ended.push(loop);
    await this.#heedAbort();
    return { count: 1, submitted: performance.now(), ...this.#submitPrompt(loop, count) };
  }

  /** Takes tokens from the prompt, padded where that costs nothing, and makes room for them. */
  #chunk(count: number): PromptChunk {
    const ids = this.#prompt.slice(0, count);
    this.#prompt = this.#prompt.slice(count);
    const rows = promptRows(count, this.#model.traces.tile);
    this.#cache.reserve(count, rows);
    const padded = new Int32Array(rows).fill(ids[count - 1]);
    padded.set(ids);
    const chunk = { ids: own(visible(padded)), last: own(visible(Uint32Array.of(count - 1))) };
    this.#ended.push({ [Symbol.dispose]: () => mx.dispose(chunk) }); // also where the device has no room for what follows
    return chunk;
  }

  /** Submits at most `most` steps: as many as the cache has room for before it grows. */
  #submit(most: number): Submission {
    const cache = this.#cache;
    const loop = this.#stepLoop();
    const count = Math.min(most, Math.min(cache.capacity, cache.limit) - cache.offset);
    cache.advance(count);
    this.#steps += count;
    const ticket = loop.run(count);
    return { count, submitted: performance.now(), done: () => this.#done(loop, ticket, 0) };
  }

  /** Whether the tokens of a row are constrained. */
  get #masked(): boolean {
    return this.#rows.some(({ constraint }) => constraint !== undefined);
  }

  /** The state of computing logits. */
  #forwardState(buffers: Buffers = this.#cache.buffers): ForwardState {
    const { token, position } = this.#scalars;
    const { logits } = this.#masking ??= maskingOf(this.#model, this.#rows.length);
    return { token, position, logits, keys: buffers.keys, values: buffers.values };
  }

  /** Submits the rest of the prompt, and the choice of the first token when that is read. */
  async #readMasked(): Promise<Submission> {
    const count = this.#prompt.length;
    const chunk = this.#chunk(count);
    const state = { ...this.#forwardState(), ...chunk };
    const traced = this.#traced("forward prompt", state, (now) => forwardPromptStep(this.#model, now));
    if (traced instanceof TracedStep && !traced.ready) await this.#prepareOpening(traced);
    const loop = new DeviceLoop(state, traced, this.#inParts(count));
    this.#ended.push(loop);
    await this.#heedAbort();
    const submitted = performance.now();
    const { done, partly } = this.#submitPrompt(loop, count);
    const choose = async (): Promise<void> => {
      await done();
      if (this.#dropped > 0) return;
      const chooser = this.#chooseLoop();
      await this.#pokeMask();
      await this.#done(chooser, chooser.run(1), 0, true);
    };
    let chosen: Promise<void> | undefined;
    return { count: 1, submitted, partly, done: () => chosen ??= choose() };
  }

  /**
   * Submits the choice of the next tokens, in front of it the logits unless they are on their way; with `more` the logits behind these
   * tokens too, which the device computes while the host makes the next mask.
   */
  async #submitMasked(more: boolean): Promise<Submission> {
    const cache = this.#cache;
    if (!this.#forwarded) this.#forward(this.#stepLoop());
    this.#forwarded = false;
    const forward = this.#loop!;
    const chooser = this.#chooseLoop();
    await this.#pokeMask();
    const submitted = performance.now();
    const ticket = chooser.run(1);
    if (more && cache.offset < Math.min(cache.capacity, cache.limit)) this.#forward(forward);
    const done = async (): Promise<void> => {
      await this.#done(chooser, ticket, 0, true);
      await forward.done(ticket); // whether the logits in front of it ended well
    };
    return { count: 1, submitted, done };
  }

  #forward(loop: DeviceLoop<unknown>): void {
    this.#cache.advance(1);
    this.#steps++;
    loop.run(1);
    this.#forwarded = true;
  }

  /** Takes back logits that were computed ahead. */
  async #dropForward(): Promise<void> {
    if (!this.#forwarded) return;
    await this.#loop!.done().catch(() => {}); // nobody needs them
    this.#cache.trim(1);
    this.#forwarded = false;
  }

  /** The loop that chooses tokens. */
  #chooseLoop(): DeviceLoop<unknown> {
    if (this.#chooser) return this.#chooser;
    const state = { ...this.#scalars, ...this.#masking! };
    return this.#chooser = new DeviceLoop(
      state,
      this.#traced("choose", state, (now) => chooseStep(this.#options, now)),
    );
  }

  /** Writes what the next tokens may be, behind the last choice. */
  async #pokeMask(): Promise<void> {
    const rows = this.#rows;
    const { mask } = this.#masking!;
    const words = mask.shape[1];
    const masks = new Int32Array(rows.length * words);
    for (const [i, { constraint, ended }] of rows.entries()) {
      const free = !constraint || ended;
      masks.set(free ? everyToken(this.#model.config.vocabSize) : await constraint.mask(), i * words);
    }
    poke(mask, masks);
  }

  /** Tells the constraints what a step chose: they make the next masks from now on. */
  #accept(step: number): void {
    this.#rows.forEach(({ constraint, ended, last }, i) => {
      const [token] = fromLog(this.#scalars.log, i, last + step, 1);
      if (!ended && token >= 0) constraint?.accept(token);
    });
  }

  /** A step over the state with a cache of such buffers, or its trace where that is kept. */
  #tracedStep(buffers: Buffers = this.#cache.buffers): [unknown, TracedStep<unknown> | ((state: unknown) => unknown)] {
    if (this.#masked) {
      const state = this.#forwardState(buffers);
      return [state, this.#traced("forward", state, (now) => forwardStep(this.#model, now)) as TracedStep<unknown>];
    }
    const state = { ...this.#scalars, ...buffers };
    return [state, this.#traced("step", state, (now) => this.#step(now)) as TracedStep<unknown>];
  }

  /** The loop over the cache with room for one more token. */
  #stepLoop(): DeviceLoop<unknown> {
    const cache = this.#cache;
    cache.reserve(1);
    if (this.#loop && this.#capacity === cache.capacity) return this.#loop;
    if (this.#loop) this.#ended.push(this.#loop);
    this.#capacity = cache.capacity;
    this.#steps = 0;
    this.#improved = false;
    const [state, traced] = this.#tracedStep();
    this.#trace = traced instanceof TracedStep ? traced : undefined;
    return this.#loop = new DeviceLoop(state, traced);
  }

  /** Milliseconds of the next step where that is known and it can follow at once, while the prompt is still being read. */
  #knownStepTime(): number | undefined {
    if (this.#graph === undefined || this.#masked || this.#cache.offset >= this.#cache.capacity) return undefined;
    const trace = this.#model.traces.known(`step ${this.#graph}`, this.#state());
    return trace?.ready ? stepTimes.get(trace) : undefined;
  }

  /** Has the pipelines of the prompt made; where that takes time, then beside them those of the steps behind it. */
  async #prepareOpening(trace: TracedStep<unknown>): Promise<void> {
    const ready = this.#model.traces.prepare(trace);
    let timer;
    const late = new Promise<true>((resolve) => timer = setTimeout(resolve, COLD_MS, true));
    if (await Promise.race([ready, late]) && this.#rows[0].limit > 1) this.#prepare();
    clearTimeout(timer);
    await ready;
  }

  /** Has the pipelines of a step over a cache of such buffers made beside other work, where the step can be kept. */
  #prepare(buffers?: Buffers): void {
    const [, traced] = this.#tracedStep(buffers);
    if (!(traced instanceof TracedStep)) return;
    this.#next = traced;
    const ready = this.#model.traces.prepare(traced);
    this.#ahead = ready.catch(() => {}); // what fails fails again, and is reported, when the step is needed
  }

  /** Lets the loop find a faster step while it goes on, and then one for the grown cache. */
  #improve(): void {
    if (this.#improved) return;
    this.#improved = true;
    this.#model.traces.improve(this.#loop!);
    if (this.#next) this.#model.traces.improve(this.#next);
  }

  /** Has the step behind the next growth of the cache compiled while others run, where `left` more steps reach it. */
  #prepareGrowth(left: number): void {
    const cache = this.#cache;
    if (this.#prepared === cache.capacity || cache.capacity - cache.offset >= left) return;
    this.#prepared = cache.capacity;
    const grown = cache.outgrown();
    if (!grown) return;
    this.#prepare(grown);
    mx.dispose(grown);
  }

  /** Whether half of the rows have ended, or one that has stands where the context ends for it but not for others. */
  #hasIdleRows(submitted: number): boolean {
    const ended = this.#rows.filter((row) => row.ended);
    return 2 * ended.length >= this.#rows.length || ended.some((row) => row.last + submitted >= this.#cache.limit);
  }

  /** Goes on with the rows that have not ended. Nothing may be on its way. */
  #dropEnded(submitted: number): void {
    const kept = this.#rows.flatMap((row, i) => row.ended ? [] : [i]);
    this.#rows = kept.map((i) => this.#rows[i]);
    this.#cache.keep(kept, Math.max(...this.#rows.map((row) => row.last)) + submitted);
    const scalars = takeStates(this.#scalars, kept, this.#options.logprobs);
    this.#release();
    this.#scalars = scalars;
    this.#capacity = 0;
  }

  /** Frees the steps and their state; the cache stays. */
  [Symbol.dispose](): void {
    for (const ended of this.#ended.splice(0)) ended[Symbol.dispose]();
    this.#release();
  }

  #release(): void {
    this.#loop?.[Symbol.dispose]();
    this.#loop = undefined;
    this.#chooser?.[Symbol.dispose]();
    this.#chooser = undefined;
    if (this.#masking) mx.dispose(this.#masking);
    this.#masking = undefined;
    mx.dispose(this.#scalars);
  }

  #state(): State {
    return { ...this.#scalars, ...this.#cache.buffers };
  }

  /** A step, or its trace where that is kept. The ends of prompts, which have any length, on devices where each row costs, are not worth keeping. */
  #traced<S>(kind: StepKind, state: S, step: (state: S) => S): TracedStep<S> | ((state: S) => S) {
    const { traces } = this.#model;
    const keeps = this.#graph !== undefined && (!kind.endsWith("prompt") || traces.tiled);
    return keeps ? traces.trace(`${kind} ${this.#graph}`, state, step) : step;
  }

  #step(state: State): State {
    return decodeStep(this.#model, this.#options, state);
  }
}
