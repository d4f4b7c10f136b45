/**
 * Generation for several prompts that are there together: what callers give and get.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { interruptible, interruptibleStream } from "../host.ts";
import type { ParsedToolCall } from "../answer/tool_calls.ts";
import { checkModel, checkOptions } from "../arguments.ts";
import { LlmError } from "../error.ts";
import { requestsOf } from "../generation/request.ts";
import { BATCH_OPTIONS, type BatchGenerateOptions } from "../sampling/options.ts";
import { type GenerationResponse, perSecond } from "../sampling/response.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Prompt } from "../generation/prompt.ts";
import { grammarOf, type ResponseFormat } from "../structured/response_format.ts";
import { checkBatchSpeculation } from "../speculation/speculation.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { type BatchRequest, type BatchToken, streamRequests } from "./batch_stream.ts";

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
  /** Drafted tokens that were verified, and those of them that the answers have; absent without speculation. */
  readonly draftedTokens?: number;
  readonly acceptedTokens?: number;
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

/** A request for each prompt of a batch. Checks everything that can be wrong before any work is done. */
function batchRequestsOf(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompts: readonly Prompt[],
  options: BatchGenerateOptions,
): readonly BatchRequest[] {
  const { maxTokens, seed, responseFormat, onPrompt: _, speculation, ...shared } = options;
  if (speculation) checkBatchSpeculation(speculation);
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
  let [drafted, accepted] = [0, 0];
  for await (const response of streamRequests(model, tokenizer, requests, options)) {
    count++;
    if (response.generationTokens === 1) read = { at: performance.now(), count };
    texts[response.sequence] += response.text;
    reasonings[response.sequence] += response.reasoning;
    toolCalls[response.sequence].push(...response.toolCalls);
    tokens[response.sequence].push(response.token);
    if (response.finishReason === null) continue;
    finishReasons[response.sequence] = response.finishReason;
    drafted += response.draftedTokens ?? 0;
    accepted += response.acceptedTokens ?? 0;
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
    ...(options.speculation && { draftedTokens: drafted, acceptedTokens: accepted }),
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
