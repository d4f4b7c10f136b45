/**
 * Many requests on one model, which come and go at any time. They share the device step by step and the memory page by page.
 *
 * A {@link Scheduler} orders steps, a {@link Runner} runs them, and this file moves tokens between them and the callers. While the device
 * does a step, the host takes the tokens of the one before and schedules the next.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import { PAGE } from "../../graph/kv_layout.ts";
import { checkModel, checkNumber, checkOptions } from "../arguments.ts";
import { SubmissionSizer, succeeded } from "../decode/submission_sizer.ts";
import { LlmError } from "../error.ts";
import { requestsOf } from "../generation/request.ts";
import { KvPool, pageBytes } from "../kv/paged.ts";
import { type DecodingModel, decodingModel, type LanguageModel } from "../models/mod.ts";
import { Constraint } from "../structured/constraint.ts";
import { grammarOf } from "../structured/response_format.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { Job } from "./job.ts";
import { ENGINE_OPTIONS, type EngineOptions, type EngineSizes, REQUEST_OPTIONS, sizesOf } from "./options.ts";
import type { EngineMetrics, EngineRequest, EngineResponse } from "./request.ts";
import { Runner, type Submitted } from "./runner.ts";
import { Scheduler } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";
import { type Step, type StepResult, stepRowsOf, tokenCountOf } from "./step.ts";

/** Milliseconds after which other tasks of the event loop get their turn. */
const TURN_MS = 2;

/**
 * Generates for many requests at a time. Requests may be added at any time; each has options of its own. What they have in common at their
 * beginning is computed once and kept as long as there is memory for it.
 *
 * Greedy tokens of a request do not depend on its company, but for ties that rounding breaks. With a seed the same holds on one
 * device. Memory of keys and values is taken once and stays below {@link EngineOptions.kvBytes}: where it is full, requests of low
 * priority wait and are read again. Dispose the engine when it is not needed any more: the model stays.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
 * await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 8, kvBytes: 2 ** 24 });
 * const answers = ["Once upon a time", "The sea was"].map(async (prompt) => {
 *   let text = "";
 *   for await (const response of engine.add({ prompt, maxTokens: 10 })) text += response.text;
 *   return text;
 * });
 * console.log(await Promise.all(answers));
 * ```
 */
export class Engine implements AsyncDisposable {
  readonly #model: DecodingModel;
  readonly #tokenizer: Tokenizer;
  readonly #sizes: EngineSizes;
  readonly #scheduler: Scheduler;
  readonly #pool: KvPool;
  readonly #runner: Runner;
  /** Requests that a step may still concern, by the number of their sequence. */
  readonly #jobs = new Map<number, Job>();
  /** Requests that have not ended. */
  readonly #live = new Set<Job>();
  /** Grammars that are being made ready. */
  readonly #opening = new Set<Promise<void>>();
  /** Requests with a grammar that steps may concern. */
  #constrained = 0;
  #ids = 0;
  #loop: Promise<void> | undefined;
  #closed: unknown;
  #counts = { requests: 0, promptTokens: 0, cachedTokens: 0, generationTokens: 0 };

  /** For a loaded model. Throws an {@link LlmError} for options out of range. */
  constructor(model: LanguageModel, tokenizer: Tokenizer, options: EngineOptions = {}) {
    checkModel("Engine", model, tokenizer);
    checkOptions("Engine", options, ENGINE_OPTIONS);
    this.#model = decodingModel(model);
    this.#tokenizer = tokenizer;
    const shape = this.#model.poolSizes();
    this.#sizes = sizesOf(this.#model, pageBytes(shape), options);
    const { pages, maxSequences, maxQueue, prefillStepSize: tokenBudget } = this.#sizes;
    this.#scheduler = new Scheduler({ pages, pageSize: PAGE, maxSequences, maxQueue, tokenBudget });
    this.#pool = new KvPool({ ...shape, pages });
    this.#runner = new Runner(this.#model, this.#pool, (sequence) => this.#jobOf(sequence));
  }

  /** Most tokens of a prompt and its answer. */
  get contextSize(): number {
    return this.#sizes.contextSize;
  }

  /** What it has done and does. */
  get metrics(): EngineMetrics {
    const { bytesOfPage, pages } = this.#sizes;
    return {
      running: this.#scheduler.running,
      waiting: this.#scheduler.waiting + this.#opening.size,
      kvBytes: (pages - 1) * bytesOfPage,
      kvBytesUsed: this.#scheduler.usedPages * bytesOfPage,
      ...this.#counts,
      preemptions: this.#scheduler.preemptions,
    };
  }

  /**
   * Adds a request, whose tokens come as they are computed, the last one with a `finishReason`. It ends within one step when its signal is
   * aborted or the loop over its tokens is left. An abort before the first token throws the
   * signal's reason, and so does one while the request waits or is read again.
   *
   * Throws an {@link LlmError} at once for options out of range and for a prompt that does not fit. Its code is "busy" where too many
   * requests wait.
   */
  add(request: EngineRequest): AsyncGenerator<EngineResponse, void, void> {
    if (this.#closed !== undefined) throw this.#closed;
    checkOptions("Engine.add", request, REQUEST_OPTIONS);
    const { prompt, maxTokens, seed, priority, responseFormat, ...shared } = request;
    checkNumber("priority", priority ?? 0, Number.isSafeInteger(priority ?? 0), "an integer");
    const { maxSequences, maxQueue, contextSize } = this.#sizes;
    if (this.#scheduler.running + this.#scheduler.waiting + this.#opening.size >= maxSequences + maxQueue) {
      throw new LlmError("busy", `${maxQueue} requests wait already: try again later`);
    }
    const grammar = grammarOf(responseFormat);
    const own = [{ prompt, maxTokens, seed, contextSize }];
    const [checked] = requestsOf(this.#model, this.#tokenizer, own, shared);
    const { signal } = request;
    signal?.throwIfAborted();
    const abort = (): void => {
      if (!job.isExpected) this.#end(job, signal!.reason);
    };
    const job = new Job(this.#ids++, checked, request, () => {
      signal?.removeEventListener("abort", abort);
      this.#live.delete(job);
      this.#counts.requests++;
      if (job.constrained) this.#constrained--;
    });
    if (!grammar) this.#begin(job);
    else this.#open(job, grammar, signal);
    this.#live.add(job);
    signal?.addEventListener("abort", abort);
    const responses = this.#responsesOf(job);
    void responses.next();
    return responses;
  }

  /** Resolves when all requests that were added so far have ended. */
  async drain(): Promise<void> {
    await Promise.all(Array.from(this.#live, (job) => job.done));
  }

  /** Ends all requests and frees the memory of keys and values. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= new LlmError("option", "The engine was disposed: make a new one");
    for (const job of this.#live) this.#end(job, this.#closed);
    await Promise.all([this.#loop, ...this.#opening]);
    this.#runner[Symbol.dispose]();
    this.#pool[Symbol.dispose]();
  }

  async *#responsesOf(job: Job): AsyncGenerator<EngineResponse, void, void> {
    try {
      yield undefined!; // add() takes it: so the request ends where its responses are left before the first one
      yield* job.responses();
    } finally {
      this.#end(job);
    }
  }

  #open(job: Job, grammar: NonNullable<ReturnType<typeof grammarOf>>, signal?: AbortSignal): void {
    const open = async (): Promise<void> => {
      try {
        const { vocabSize } = this.#model.config;
        const constraint = await Constraint.open(this.#tokenizer, vocabSize, grammar, signal);
        constraint!.begin(job.ids, job.thinking);
        if (!job.constrain(constraint!)) return;
        this.#constrained++;
        this.#begin(job);
      } catch (error) {
        this.#end(job, error);
      } finally {
        this.#opening.delete(opened);
      }
    };
    const opened = open();
    this.#opening.add(opened);
  }

  #begin(job: Job): void {
    const refusal = this.#scheduler.add(job.sequence);
    if (refusal) throw new LlmError(refusal.code === "queue" ? "busy" : "memory", refusal.message);
    this.#jobs.set(job.sequence.id, job);
    this.#loop ??= this.#run();
  }

  /** Ends a request before its time, with an error where its caller is to get one. */
  #end(job: Job, error?: unknown): void {
    if (job.ended) return;
    job.end(error);
    const { id, inFlight } = job.sequence;
    this.#scheduler.abort(id);
    if (inFlight === 0) this.#jobs.delete(id);
  }

  #jobOf({ id }: Sequence): Job {
    return this.#jobs.get(id)!;
  }

  // ---- the loop -------------------------------------------------------------------------------------------------------

  /** Runs steps until no request is left. */
  async #run(): Promise<void> {
    const flight: Submitted[] = [];
    try {
      await setImmediate(); // requests that come together are scheduled together
      await this.#runSteps(flight);
    } catch (error) {
      this.#closed ??= error;
      await Promise.allSettled(flight.map((submitted) => submitted.done()));
      for (const job of this.#live) this.#end(job, error);
      this.#jobs.clear();
      this.#loop = undefined;
    }
  }

  async #runSteps(flight: Submitted[]): Promise<void> {
    let sizer = new SubmissionSizer(undefined);
    /** Scheduled, but not submitted. */
    const pending: Step[] = [];
    let turn = performance.now();
    for (;;) {
      // A grammar may open while a step is submitted.
      const depth = (): number => this.#constrained > 0 ? 1 : sizer.depth;
      while (flight.length < depth()) {
        if (performance.now() - turn > TURN_MS) {
          await setImmediate();
          turn = performance.now();
        }
        if (pending.length === 0) {
          const next = this.#scheduler.schedule(this.#constrained > 0 ? 1 : sizer.size);
          if (!next) break;
          pending.push(next);
        }
        if (flight.length > 0 && !this.#runner.canSubmit(pending[0])) break;
        flight.push(await this.#runner.submit(pending.shift()!));
      }
      if (flight.length === 0) {
        this.#loop = undefined; // at once: the next request may come before the caller goes on
        return;
      }
      const [submitted] = flight;
      const asked = performance.now();
      if (!await succeeded({ ...submitted, count: 1 })) {
        pending.unshift(...await this.#takeBack(flight));
        sizer = new SubmissionSizer(undefined);
        continue;
      }
      flight.shift();
      const { step } = submitted;
      sizer.note(step.kind === "decode" ? step.steps : 0, submitted.submitted, asked);
      sizer.grow();
      this.#scheduler.commit(step, this.#take(submitted));
      this.#forget(step);
    }
  }

  /** The steps on their way, of which the first one failed, to be submitted again. */
  async #takeBack(flight: Submitted[]): Promise<readonly Step[]> {
    const failed = flight.splice(0);
    for (const later of failed.slice(1)) await succeeded({ ...later, count: 1 });
    this.#runner.reset();
    return failed.map(({ step }) => step);
  }

  /** Gives the tokens of a step to their callers; says what the step comes to for each of its rows. */
  #take(submitted: Submitted): StepResult[] {
    const { step } = submitted;
    return stepRowsOf(step).map((row, i) => {
      const { sequence } = row;
      const job = this.#jobOf(sequence);
      if (sequence.status === "ended" || job.ended) return { tokens: [], ended: true };
      const expected = tokenCountOf(step, row);
      if (expected === 0) return { tokens: [], ended: false };
      if (job.generated === 0) {
        this.#counts.promptTokens += sequence.promptLength;
        this.#counts.cachedTokens += sequence.cached ?? 0;
      }
      const top = job.settings.logprobs;
      const tokens: number[] = [];
      for (const [j, token] of submitted.tokens(i).entries()) {
        const ended = job.push(token, top === undefined ? undefined : submitted.logprobs(i, j, top));
        if (token >= 0) tokens.push(token);
        if (!ended) continue;
        this.#counts.generationTokens += tokens.length;
        return { tokens, ended: true };
      }
      this.#counts.generationTokens += tokens.length;
      return { tokens, ended: false };
    });
  }

  /** Forgets requests that have ended and that no step on its way concerns. */
  #forget(step: Step): void {
    for (const { sequence: { id, status, inFlight } } of stepRowsOf(step)) {
      if (status === "ended" && inFlight === 0) this.#jobs.delete(id);
    }
  }
}
