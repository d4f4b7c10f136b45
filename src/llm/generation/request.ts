/**
 * What prompts and options come to. Everything that can be wrong with them is found here, before any work is done.
 *
 * @module
 */

import { checkNumber } from "../arguments.ts";
import { LlmError } from "../error.ts";
import type { GenerateOptions, LogitsOptions, LogitsProcessor, StepOptions } from "../sampling/options.ts";
import { KvCache } from "../kv/cache.ts";
import { checkLogprobs } from "../sampling/logprobs_log.ts";
import type { LanguageModel } from "../models/mod.ts";
import { answerFormat, commonTokens, encodePrompt, type Prompt, tokensFor } from "./prompt.ts";
import { makeLogitsProcessors, makeSampler, repetitionContext } from "../sampling/sampler.ts";
import { StopChecker } from "../sampling/stop_checker.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** Default of the option `maxTokens`. */
const MAX_TOKENS = 256;

/** What a prompt and options come to. */
export interface GenerationRequest {
  /** The tokens of the prompt. */
  readonly ids: readonly number[];
  /** How many of them the cache holds, and how many tokens it keeps. */
  readonly cached: number;
  readonly offset: number;
  /** Whether the answer may begin with thoughts. */
  readonly thinking: boolean;
  readonly stopChecker: StopChecker;
  readonly settings: Omit<StepOptions, "cache">;
}

/** A prompt, and the options that each of several prompts has for itself. */
export interface PromptOptions extends Pick<GenerateOptions, "maxTokens" | "seed" | "cache" | "cachePrompt"> {
  readonly prompt: Prompt;
  /** Most tokens of prompt and answer, where that is less than the model's context. */
  readonly contextSize?: number;
}

/** The options that several prompts share. */
export type SharedOptions = Omit<GenerateOptions, Exclude<keyof PromptOptions, "prompt"> | "responseFormat">;

/** A request for each prompt. Checks everything that can be wrong, with an {@link LlmError}, before any work is done. */
export function requestsOf(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompts: readonly PromptOptions[],
  options: SharedOptions,
): readonly GenerationRequest[] {
  const { prefillStepSize = 2048, stop = [], signal } = options;
  for (const { maxTokens } of prompts) checkCount("maxTokens", maxTokens ?? MAX_TOKENS);
  checkCount("prefillStepSize", prefillStepSize);
  checkLogprobs(options.logprobs);
  for (const { cache } of prompts) if (cache) checkCache(model, cache);
  checkBias(options, model.config.vocabSize);
  const samplers = prompts.map(({ seed }) => options.sampler ?? makeSampler({ ...options, seed }));
  const processors = processorsOf(options);
  const contextSize = repetitionContext(options, model.config.maxPositionEmbeddings);
  return prompts.map(({ prompt, cache, cachePrompt, maxTokens = MAX_TOKENS, contextSize: context }, i) => {
    const ids = encodePrompt(model, tokenizer, prompt, options);
    const cached = cachePrompt && cache ? cache.reachable(commonTokens(cache.tokens, ids)) : 0;
    const offset = cachePrompt ? cached : cache?.offset ?? 0;
    const limit = tokensFor(model, ids.length - cached, offset, maxTokens, context);
    const format = answerFormat(tokenizer, prompt, ids, options);
    return {
      ids,
      cached,
      offset,
      thinking: typeof prompt !== "string" && options.enableThinking !== false && options.begun === undefined,
      stopChecker: new StopChecker(tokenizer, { stop, limit, signal, format }),
      settings: { ...options, maxTokens: limit, sampler: samplers[i], processors, contextSize, prefillStepSize },
    };
  });
}

/** All processors that options ask for, in the order in which they run. */
function processorsOf(options: LogitsOptions & Pick<GenerateOptions, "logitsProcessors">): LogitsProcessor[] {
  const { logitsProcessors: own = [] } = options;
  return [...makeLogitsProcessors(options), ...own];
}

/** Throws unless all tokens with a bias are of the vocabulary. */
function checkBias({ logitBias }: LogitsOptions, vocabulary: number): void {
  for (const id of Object.keys(logitBias ?? {}).map(Number)) {
    checkNumber("logitBias has a token that", id, !(id >= vocabulary), `an id below ${vocabulary}`);
  }
}

/** Throws unless a cache is one that the model makes for one sequence. */
function checkCache(model: LanguageModel, cache: KvCache): void {
  if (cache instanceof KvCache && cache.isLike(model.makeCache())) return;
  throw new LlmError("option", "The cache is not one of this model for one sequence: make it with model.makeCache()");
}

/** Throws unless a count is a positive integer, or without end. */
export function checkCount(name: string, value: number): void {
  checkNumber(name, value, value === Infinity || (Number.isSafeInteger(value) && value >= 1), "a positive integer");
}
