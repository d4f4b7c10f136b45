/**
 * Many requests on one model, which come and go at any time. This file checks them, opens their grammars and gives their tokens to the
 * callers; {@link EngineCore} runs them.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import { checkModel, checkNumber, checkOptions } from "../arguments.ts";
import { LlmError } from "../error.ts";
import type { EmbedOptions } from "../generation/embed.ts";
import { requestsOf } from "../generation/request.ts";
import { type DecodingModel, decodingModel, type LanguageModel } from "../models/mod.ts";
import { Constraint } from "../structured/constraint.ts";
import { grammarOf } from "../structured/response_format.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { Channel } from "./channel.ts";
import { EngineCore } from "./core.ts";
import { Embeddings } from "./embeddings.ts";
import { Job } from "./job.ts";
import {
  draftsByHead,
  ENGINE_OPTIONS,
  type EngineOptions,
  type EngineSizes,
  REQUEST_OPTIONS,
  sizesOf,
} from "./options.ts";
import type { EngineMetrics, EngineRequest, EngineResponse } from "./request.ts";
import { Speculations } from "./speculation.ts";
import { isDraftModel } from "../speculation/speculation.ts";

/**
 * Generates for many requests at a time. Requests may be added at any time; each has options of its own. What they have in common at their
 * beginning is computed once and kept as long as there is memory for it.
 *
 * Greedy tokens of a request do not depend on its company, but for ties that rounding breaks. Until pipelines of a new size are made, a step
 * has a larger one, whose sums may round otherwise. With a seed the same holds on one
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
  readonly #core: EngineCore;
  /** Requests that have not ended. */
  readonly #live = new Set<Job>();
  /** Grammars that are being made ready. */
  readonly #opening = new Set<Promise<void>>();
  readonly #embeddings: Embeddings;
  readonly #speculations: Speculations;
  #ids = 0;
  #requests = 0;
  #closed: LlmError | undefined;

  /** For a loaded model. Throws an {@link LlmError} for options out of range. */
  constructor(model: LanguageModel, tokenizer: Tokenizer, options: EngineOptions = {}) {
    checkModel("Engine", model, tokenizer);
    checkOptions("Engine", options, ENGINE_OPTIONS);
    this.#model = decodingModel(model);
    this.#tokenizer = tokenizer;
    const { drafter } = options.speculation ?? {};
    this.#sizes = sizesOf(this.#model, options, isDraftModel(drafter) ? decodingModel(drafter.model) : undefined);
    const { pages, slots, kvDtype, maxSequences, maxQueue, prefillStepSize: tokenBudget } = this.#sizes;
    this.#core = new EngineCore(this.#model, {
      pages,
      slots,
      kvDtype,
      draftHead: draftsByHead(options),
      maxSequences,
      maxQueue,
      tokenBudget,
    });
    this.#embeddings = new Embeddings(model, tokenizer);
    this.#speculations = new Speculations(this.#model, tokenizer, this.#sizes, options.speculation);
  }

  /** Most tokens of a prompt and its answer. */
  get contextSize(): number {
    return this.#sizes.contextSize;
  }

  /** The error of a step that ended all requests, such as that of a lost device; undefined if there is none. The engine takes no others. */
  get failure(): unknown {
    return this.#core.failure;
  }

  /** What it has done and does. */
  get metrics(): EngineMetrics {
    const { bytesOfPage, bytesOfSlots, pages } = this.#sizes;
    const drafts = this.#speculations.kvBytes;
    return {
      running: this.#core.running,
      waiting: this.#core.waiting + this.#opening.size + this.#embeddings.size,
      kvBytes: (pages - 1) * bytesOfPage + bytesOfSlots + drafts.all,
      kvBytesUsed: this.#core.usedPages * bytesOfPage + bytesOfSlots + drafts.used,
      requests: this.#requests,
      ...this.#core.counts,
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
    this.#checkOpen();
    checkOptions("Engine.add", request, REQUEST_OPTIONS);
    const { prompt, maxTokens, seed, priority, responseFormat, speculation: wanted, ...shared } = request;
    checkNumber("priority", priority ?? 0, Number.isSafeInteger(priority ?? 0), "an integer");
    this.#checkQueue();
    const { contextSize } = this.#sizes;
    const grammar = grammarOf(responseFormat);
    const own = [{ prompt, maxTokens, seed, contextSize }];
    const [checked] = requestsOf(this.#model, this.#tokenizer, own, shared);
    const speculation = this.#speculations.of(wanted, { request: checked, choice: request });
    const { signal } = request;
    signal?.throwIfAborted();
    const abort = (): void => {
      if (!job.isExpected) this.#core.end(job, signal!.reason);
    };
    const responses = new Channel<EngineResponse>();
    const onEnd = (): void => {
      signal?.removeEventListener("abort", abort);
      this.#live.delete(job);
      this.#requests++;
      if (speculation) this.#speculations.keep(checked.ids, job.answer);
    };
    const choice = { request: checked, choice: request, speculation };
    const job = new Job({ id: this.#ids++, ...choice, priority, output: responses, onEnd });
    if (!grammar) this.#core.add(job);
    else this.#open(job, grammar, signal);
    this.#live.add(job);
    signal?.addEventListener("abort", abort);
    const taken = this.#take(job, responses);
    void taken.next();
    return taken;
  }

  /**
   * Vectors of texts as `embed` gives them, float32 (texts, hidden size). A call has a place in the queue as a request, and calls go one after the
   * other. At most `prefillStepSize` tokens, or as much work in some layers of a longer text, come between two steps of other requests.
   *
   * Throws an {@link LlmError} as `embed` does, and with code "busy" where too many requests wait.
   *
   * @example
   * ```ts
   * import * as mx from "@vkmx/vkmx";
   *
   * const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
   * await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 8, kvBytes: 2 ** 24 });
   * const vectors = await engine.embed(["a cat", "a kitten"]);
   * console.log(vectors.shape); // [2, 256]
   * ```
   */
  async embed(
    texts: readonly string[],
    options: Omit<EmbedOptions, "batchTokens"> = {},
  ): Promise<Tensor<"float32", 2>> {
    this.#checkOpen();
    this.#checkQueue();
    return await this.#embeddings.add(texts, { ...options, batchTokens: this.#sizes.prefillStepSize });
  }

  /** Resolves when all requests that were added so far have ended. */
  async drain(): Promise<void> {
    await Promise.all([...Array.from(this.#live, (job) => job.done), this.#embeddings.drain()]);
  }

  /** Ends all requests and frees the memory of keys and values. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= new LlmError("option", "The engine was disposed: make a new one");
    for (const job of this.#live) this.#core.end(job, this.#closed);
    await Promise.all([this.#embeddings.close(this.#closed), ...this.#opening]);
    await this.#core[Symbol.asyncDispose]();
    await this.#speculations[Symbol.asyncDispose]();
  }

  #checkOpen(): void {
    const closed = this.failure ?? this.#closed;
    if (closed !== undefined) throw closed;
  }

  #checkQueue(): void {
    const { maxSequences, maxQueue } = this.#sizes;
    const { running, waiting } = this.metrics;
    if (running + waiting < maxSequences + maxQueue) return;
    throw new LlmError("busy", `${maxQueue} requests wait already: try again later`);
  }

  /** The responses of a request, which ends where they are left. */
  async *#take(job: Job, responses: Channel<EngineResponse>): AsyncGenerator<EngineResponse, void, void> {
    try {
      yield undefined!; // add() takes it: so the request ends where its responses are left before the first one
      yield* responses.take();
    } finally {
      this.#core.end(job);
    }
  }

  #open(job: Job, grammar: NonNullable<ReturnType<typeof grammarOf>>, signal?: AbortSignal): void {
    const open = async (): Promise<void> => {
      try {
        const { vocabSize } = this.#model.config;
        const constraint = await Constraint.open(this.#tokenizer, vocabSize, grammar, signal);
        constraint!.begin(job.ids, job.thinking);
        if (job.constrain(constraint!)) this.#core.add(job);
      } catch (error) {
        this.#core.end(job, error);
      } finally {
        this.#opening.delete(opened);
      }
    };
    const opened = open();
    this.#opening.add(opened);
  }
}
