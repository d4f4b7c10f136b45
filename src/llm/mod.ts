/**
 * Language models: loading them and generating text. `mx.lm` has these exports.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load("models/Qwen3-0.6B-MLX-4bit");
 * for await (const response of mx.lm.streamGenerate(model, tokenizer, "Once upon a time", { maxTokens: 100 })) {
 *   Deno.stdout.writeSync(new TextEncoder().encode(response.text));
 * }
 * ```
 *
 * @module
 */

export type { ModelPart } from "./placement/place.ts";
export { load, type Loaded, type LoadOptions, shardedLoad, type ShardedLoadOptions } from "./load.ts";
export {
  convert,
  type Converted,
  type ConvertOptions,
  type QuantPredicate,
  type QuantRecipe,
} from "./convert/convert.ts";
export { EMBEDDED_MODEL } from "./checkpoint/embedded.ts";
export * as tuner from "./tuner/mod.ts";
export { inspect, type InspectOptions, type ModelInfo } from "./inspect.ts";
export type { Verify } from "./checkpoint/verify.ts";
export * as hub from "./hub.ts";
export { generateStep, streamGenerate } from "./generation/generate.ts";
export type { GenerationResponse } from "./sampling/response.ts";
export type { Prompt } from "./generation/prompt.ts";
export { complete, type Completion, generate } from "./generation/complete.ts";
export {
  describeTools,
  type FunctionDescription,
  runTools,
  type RunToolsOptions,
  type Tool,
  tool,
  toolRounds,
  type ToolRoundsOptions,
  type ToolRun,
  type ToolsCompletion,
} from "./generation/run_tools.ts";
export type { SchemaValue } from "./generation/tool_arguments.ts";
export type { ParsedToolCall } from "./answer/tool_calls.ts";
export { embed, type EmbedOptions, type Pooling } from "./generation/embed.ts";
export { type Perplexity, perplexity, type PerplexityOptions } from "./generation/perplexity.ts";
export { batchGenerate, type BatchResponse, streamBatchGenerate } from "./engine/batch.ts";
export type { BatchToken } from "./engine/batch_stream.ts";
export { Engine } from "./engine/engine.ts";
export type { EngineOptions } from "./engine/options.ts";
export type { EngineMetrics, EngineRequest, EngineResponse } from "./engine/request.ts";
export { makeLogitsProcessors, makeSampler } from "./sampling/sampler.ts";
export type {
  BatchGenerateOptions,
  GenerateOptions,
  LogitsOptions,
  LogitsProcessor,
  Sampler,
  SamplerOptions,
  StepOptions,
} from "./sampling/options.ts";
export type { Drafter } from "./speculation/drafter.ts";
export { NgramDrafter } from "./speculation/ngrams.ts";
export { PredictionDrafter } from "./speculation/prediction.ts";
export type {
  DraftModel,
  EngineSpeculation,
  RequestSpeculation,
  SpeculationOptions,
} from "./speculation/speculation.ts";
export type { ResponseFormat, ToolCallsFormat } from "./structured/response_format.ts";
export { requireToolCalls, type RequireToolCallsOptions } from "./structured/tool_calls.ts";
export type { JsonSchema } from "./structured/json/schema.ts";
export type { Logprobs, TokenLogprob } from "./sampling/logprobs_log.ts";
export { type Cache, type KeysValues, KvCache, type KvCacheOptions } from "./kv/cache.ts";
export type { CacheOptions } from "./kv/make_cache.ts";
export type { RingMask, RingSizes } from "./kv/ring.ts";
export {
  type LoadedPromptCache,
  loadPromptCache,
  type LoadPromptCacheOptions,
  savePromptCache,
  type SavePromptCacheOptions,
} from "./generation/prompt_cache.ts";
export { type EncodeOptions, Tokenizer, type TokenizerSource } from "./tokenizer/tokenizer.ts";
export { StopStrings, StreamDecoder, type TokenBytes } from "./tokenizer/detokenizer.ts";
export type { ChatMessage, TextPart, ToolCall } from "./chat/messages.ts";
export type { ChatOptions } from "./chat/template.ts";
export type { GenerationConfig, ModelConfig, Quantization, QuantizationConfig } from "./config/model.ts";
export type { Draft, LanguageModel, Traces } from "./models/mod.ts";
export { LlmError, type LlmErrorCode } from "./error.ts";
