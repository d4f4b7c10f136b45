/**
 * Generation for several prompts that are there together: an {@link EngineCore} of their own, whose steps read the weights once for all of
 * them.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { interruptible, interruptibleStream } from "../host.ts";
import type { ParsedToolCall } from "../answer/tool_calls.ts";
import { checkModel, checkOptions } from "../arguments.ts";
import { LlmError } from "../error.ts";
import { chunkLength } from "../generation/generate.ts";
import { type GenerationRequest, requestsOf } from "../generation/request.ts";
import { BATCH_OPTIONS, type BatchGenerateOptions } from "../sampling/options.ts";
import { type GenerationResponse, perSecond } from "../sampling/response.ts";
import { type DecodingModel, decodingModel, type LanguageModel } from "../models/mod.ts";
import type { Prompt } from "../generation/prompt.ts";
import { Constraint } from "../structured/constraint.ts";
import type { GrammarSource } from "../structured/protocol.ts";
import { grammarOf, type ResponseFormat } from "../structured/response_format.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { Channel } from "./channel.ts";
import { EngineCore } from "./core.ts";
import { Job } from "./job.ts";
import { batchSizesOf } from "./options.ts";
import type { EngineResponse } from "./request.ts";

/** One generated token of one sequence. */
export interface BatchToken extends
  Pick<
    GenerationResponse,
    "text" | "reasoning" | "toolCalls" | "raw" | "token" | "logprobs" | "generationTokens" | "finishReason"
  > {
  /** Number of the prompt. */
  readonly sequence: number;
}

/** What {@link batchGenerate} returns: an entry for each prompt, in their order, and figures of the whole batch. */
export interface BatchResponse {
  /** The texts, without EOS tokens and stop strings; answers in conversations also without thoughts and calls. */
  readonly texts: readonly string[];
  /** What the model thought before it answered in conversations. */
  readonly reasonings: readonly string[];
  /** Functions that it calls. */
  readonly toolCalls: readonly (readonly ParsedToolCall[])[];
  /** The tokens. */
  readonly tokens: readonly (readonly number[])[];
  /** Why each sequence ended. */
  readonly finishReasons: readonly NonNullable<GenerationResponse["finishReason"]>[];
  /** Tokens of all prompts. */
  readonly promptTokens: number;
  /** Prompt tokens per second, the first generated tokens included in the time. */
  readonly promptTps: number;
  /** Tokens of all sequences. */
  readonly generationTokens: number;
  /** Tokens per second after the last prompt was read. */
  readonly generationTps: number;
  /** Highest use of device memory so far in GB. */
  readonly peakMemory: number;
}

/**
 * Continues several prompts together and yields one response for every token of every sequence. They come step by step, and those of a
 * step in the order of the prompts. The last response of a sequence has a `finishReason`. With the same seed a sequence gets
 * the tokens that it would get alone, up to rounding. On matrix units several sequences are multiplied in float16.
 *
 * Up to 256 prompts are computed at a time, as many as there is memory for; the others follow when some have ended. What prompts have in
 * common at their beginning is read once.
 *
 * Throws as `streamGenerate` does. Options out of range and prompts that do not fit throw before any work. An abort before the first
 * token throws the signal's reason. A later one ends all sequences, those that have tokens with a last response.
 *
 * @example
 * ```ts ignore
 * for await (const { sequence, text } of mx.lm.streamBatchGenerate(model, tokenizer, ["One", "Two"])) {
 *   texts[sequence] += text;
 * }
 * ```
 */
export function streamBatchGenerate(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompts: readonly Prompt[],
  options: BatchGenerateOptions = {},
): AsyncGenerator<BatchToken, void, void> {
  return interruptibleStream(options, async function* (heeding) {
    checkModel("batchGenerate", model, tokenizer);
    checkOptions("batchGenerate", heeding, BATCH_OPTIONS);
    yield* streamRequests(model, tokenizer, batchRequestsOf(model, tokenizer, prompts, heeding), heeding);
  });
}

/** The responses to some requests. */
async function* streamRequests(
  model: LanguageModel,
  tokenizer: Tokenizer,
  requests: readonly BatchRequest[],
  options: BatchGenerateOptions,
): AsyncGenerator<BatchToken, void, void> {
  if (requests.length === 0) return;
  const { signal } = options;
  signal?.throwIfAborted();
  const constraints = await openConstraints(tokenizer, model.config.vocabSize, requests, signal);
  const batch = new Batch(decodingModel(model), requests, constraints, options);
  let count = 0;
  try {
    for (let list = await batch.responses.next(); list; list = await batch.responses.next()) {
      count += list.length;
      for (const response of list) yield response;
    }
  } finally {
    const closed = batch[Symbol.asyncDispose]();
    // Memory that the device still uses for aborted prompts lives until the device is done, but no caller waits for that.
    if (count > 0 || !signal?.aborted) await closed;
  }
}

/** What the tokens of each sequence may be. */
async function openConstraints(
  tokenizer: Tokenizer,
  size: number,
  requests: readonly BatchRequest[],
  signal: AbortSignal | undefined,
): Promise<readonly (Constraint | undefined)[]> {
  using opened = new DisposableStack();
  const constraints: (Constraint | undefined)[] = [];
  for (const { grammar, ids, thinking } of requests) {
    const constraint = opened.use(await Constraint.open(tokenizer, size, grammar, signal));
    constraint?.begin(ids, thinking);
    constraints.push(constraint);
  }
  opened.move();
  return constraints;
}

/** Sequences that advance together. */
class Batch implements AsyncDisposable {
  /** What the sequences give, for the caller to take. */
  readonly responses = new Channel<BatchToken>();
  readonly #core: EngineCore;
  readonly #jobs: readonly Job[];
  readonly #options: BatchGenerateOptions;
  /** Prompts that were read, and sequences that have not ended. */
  #read = 0;
  #left: number;

  /** Begins to read the prompts; the constraints belong to the batch. */
  constructor(
    model: DecodingModel,
    requests: readonly BatchRequest[],
    constraints: readonly (Constraint | undefined)[],
    options: BatchGenerateOptions,
  ) {
    this.#options = options;
    this.#left = requests.length;
    this.#core = new EngineCore(model, {
      ...batchSizesOf(model, requests.map(({ ids, settings: { maxTokens } }) => ids.length + maxTokens - 1)),
      tokenBudget: Infinity,
      prefillStepSize: chunkLength(model, requests[0].settings),
      processors: options.logitsProcessors,
      pace: () => this.responses.drained(),
    });
    this.#jobs = requests.map((request, sequence) => {
      const output = {
        push: (response: EngineResponse): void => this.#push(sequence, response),
        end: (error?: unknown): void => this.#end(error),
      };
      const name = requests.length > 1 ? ` of sequence ${sequence}` : "";
      const job = new Job({ id: sequence, request, choice: options, output, name });
      const constraint = constraints[sequence];
      if (constraint) job.constrain(constraint);
      return job;
    });
    for (const job of this.#jobs) this.#core.add(job);
    options.signal?.addEventListener("abort", this.#abort);
    if (options.signal?.aborted) this.#abort(); // while the grammars opened
  }

  /** Ends all sequences and frees what they used. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#options.signal?.removeEventListener("abort", this.#abort);
    this.responses.end();
    for (const job of this.#jobs) this.#core.end(job);
    await this.#core[Symbol.asyncDispose]();
  }

  #push(sequence: number, { promptTokens: _, cachedTokens: _cached, ...response }: EngineResponse): void {
    if (response.generationTokens === 1) {
      this.#read++;
      this.#options.onPrompt?.(this.#read, this.#jobs.length);
    }
    this.responses.push({ sequence, ...response });
  }

  #end(error: unknown): void {
    if (--this.#left === 0 || error !== undefined) this.responses.end(error);
  }

  /** Ends the sequences without a token; the others end with their next one. Without any token, the reason is thrown. */
  readonly #abort = (): void => {
    if (this.#read === 0) this.responses.end(this.#options.signal!.reason);
    for (const job of this.#jobs) if (!job.isExpected) this.#core.end(job);
  };
}

/** What a prompt of a batch comes to. */
interface BatchRequest extends GenerationRequest {
  readonly grammar: GrammarSource | undefined;
}

/** A request for each prompt of a batch. Checks everything that can be wrong before any work is done. */
function batchRequestsOf(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompts: readonly Prompt[],
  options: BatchGenerateOptions,
): readonly BatchRequest[] {
  const { maxTokens, seed, responseFormat, onPrompt: _, ...shared } = options;
  checkPrompts(prompts);
  const limits = perPrompt("maxTokens", maxTokens, prompts, (value) => value);
  const seeds = perPrompt("seed", seed, prompts, (value, i) => value + i);
  const own = prompts.map((prompt, i) => ({ prompt, maxTokens: limits[i], seed: seeds[i] }));
  const requests = requestsOf(model, tokenizer, own, shared);
  const grammars = formatsOf(responseFormat, prompts).map(grammarOf);
  return requests.map((request, i) => ({ ...request, grammar: grammars[i] }));
}

/**
 * Continues several prompts together and returns all of it; see {@link streamBatchGenerate}.
 *
 * @example
 * ```ts ignore
 * const { texts } = await mx.lm.batchGenerate(model, tokenizer, ["Once upon a time", "The sea"], { maxTokens: 50 });
 * ```
 */
export async function batchGenerate(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompts: readonly Prompt[],
  options: BatchGenerateOptions = {},
): Promise<BatchResponse> {
  return await interruptible(options, (heeding) => generateAll(model, tokenizer, prompts, heeding));
}

async function generateAll(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompts: readonly Prompt[],
  options: BatchGenerateOptions,
): Promise<BatchResponse> {
  checkModel("batchGenerate", model, tokenizer);
  checkOptions("batchGenerate", options, BATCH_OPTIONS);
  const requests = batchRequestsOf(model, tokenizer, prompts, options);
  const texts = prompts.map(() => "");
  const reasonings = prompts.map(() => "");
  const toolCalls = prompts.map((): ParsedToolCall[] => []);
  const tokens = prompts.map((): number[] => []);
  const finishReasons = prompts.map((): BatchResponse["finishReasons"][number] => "abort"); // of those that never had a token
  const promptTokens = requests.reduce((n, { ids }) => n + ids.length, 0);
  const started = performance.now();
  /** When the last prompt was read, and the tokens that there were then. */
  let read = { at: started, count: 0 };
  let count = 0;
  for await (const response of streamRequests(model, tokenizer, requests, options)) {
    count++;
    if (response.generationTokens === 1) read = { at: performance.now(), count };
    texts[response.sequence] += response.text;
    reasonings[response.sequence] += response.reasoning;
    toolCalls[response.sequence].push(...response.toolCalls);
    tokens[response.sequence].push(response.token);
    if (response.finishReason !== null) finishReasons[response.sequence] = response.finishReason;
  }
  return {
    texts,
    reasonings,
    toolCalls,
    tokens,
    finishReasons,
    promptTokens,
    promptTps: perSecond(promptTokens, read.at - started),
    generationTokens: count,
    generationTps: perSecond(count - read.count, performance.now() - read.at),
    peakMemory: mx.getPeakMemory() / 1e9,
  };
}

/** Throws unless the prompts are a list. */
function checkPrompts(prompts: readonly Prompt[]): void {
  if (!Array.isArray(prompts)) throw new LlmError("option", "The prompts are no list: generate() takes a single one");
}

/** A format for each prompt. */
function formatsOf(
  formats: BatchGenerateOptions["responseFormat"],
  prompts: readonly Prompt[],
): readonly (ResponseFormat | undefined)[] {
  if (!Array.isArray(formats)) return prompts.map(() => formats as ResponseFormat | undefined);
  if (formats.length === prompts.length) return formats;
  throw new LlmError("option", `responseFormat has ${formats.length} formats for ${prompts.length} prompts`);
}

/** One value for each prompt out of a list of them, or out of one number; none without either. */
function perPrompt(
  name: string,
  value: number | readonly number[] | undefined,
  prompts: readonly Prompt[],
  each: (value: number, i: number) => number,
): readonly (number | undefined)[] {
  if (value === undefined) return prompts.map(() => undefined);
  if (typeof value === "number") return prompts.map((_, i) => each(value, i));
  if (value.length === prompts.length) return value;
  throw new LlmError("option", `${name} has ${value.length} values for ${prompts.length} prompts`);
}
