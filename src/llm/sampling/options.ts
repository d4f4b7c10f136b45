/**
 * Options of generation, and the names that calls check them by.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import type { OptionKind } from "../arguments.ts";
import type { ChatOptions } from "../chat/template.ts";
import type { KvCache } from "../kv/cache.ts";
import type { CacheOptions } from "../kv/make_cache.ts";
import type { BatchSpeculation, SpeculationOptions } from "../speculation/speculation.ts";
import type { ResponseFormat } from "../structured/response_format.ts";

/** How to choose tokens. */
export interface SamplerOptions {
  /** 0 takes the most probable token; 1 samples from the model's own distribution. Default 0. */
  readonly temp?: number;
  /** Keep the most probable tokens up to this share of probability; 0 or 1 keeps all. */
  readonly topP?: number;
  /** Keep this many of the most probable tokens; 0 keeps all. */
  readonly topK?: number;
  /** Drop tokens whose probability is below this share of the highest one. */
  readonly minP?: number;
  /** Makes the draws repeatable; random when absent. */
  readonly seed?: number;
  /** Divides positive and multiplies negative logits of recent tokens; 1 changes nothing. */
  readonly repetitionPenalty?: number;
  /** Is subtracted from the logits of recent tokens, once however often they occur; 0 changes nothing. */
  readonly presencePenalty?: number;
  /** Is subtracted from the logits of recent tokens, once for each time that they occur; 0 changes nothing. */
  readonly frequencyPenalty?: number;
  /** How many recent tokens the penalties look at. Default 20. */
  readonly repetitionContextSize?: number;
  /** Is added to the logits of tokens, by their ids; -Infinity forbids a token. */
  readonly logitBias?: Readonly<Record<number, number>>;
}

/** (logits (B, V), key for this draw (2,) or keys (B, 2)[, mask]) → (B,) uint32 token ids. */
export interface Sampler {
  (logits: Tensor, key: Tensor, mask?: Tensor): Tensor;
  /** uint32 (2,): the state to split keys from; `undefined` if nothing is drawn and the key is not looked at. */
  readonly key: readonly [number, number] | undefined;
  /** Names the graph that it builds, for steps that are traced once for all with equal names; without one each trace is its own. */
  readonly graph?: string;
  /**
   * Whether it heeds a mask of the tokens that may be chosen, as `mx.fast.sample` takes it. Other samplers get logits of -Infinity for
   * the tokens that may not. Default false.
   */
  readonly takesMask?: boolean;
}

/**
 * (recent token ids (n,) or (B, n), logits (B, V)) → logits. Where there were fewer tokens than places, one of them stands in the
 * places that are left.
 */
export interface LogitsProcessor {
  (tokens: Tensor, logits: Tensor, weights?: Tensor): Tensor;
  /** Whether it counts tokens: then it gets weights of the shape of `tokens`, 0 in the places that are left and 1 elsewhere. */
  readonly counts?: boolean;
  /** Names the graph that it builds, see {@link Sampler}. */
  readonly graph?: string;
}

/** Options of `makeLogitsProcessors`. */
export type LogitsOptions = Pick<
  SamplerOptions,
  "repetitionPenalty" | "presencePenalty" | "frequencyPenalty" | "logitBias"
>;

/** Options of `streamGenerate` and `generate`. */
export interface GenerateOptions extends SamplerOptions {
  /** Most tokens to generate. Default 256. */
  readonly maxTokens?: number;
  /** Texts that end the generation; they are not part of the result. */
  readonly stop?: string | readonly string[];
  /** Ends the generation within one token. While a prompt is read, that is in chunks of less than about 100 ms then. */
  readonly signal?: AbortSignal;
  /** For conversations: let the model think first. Default true. */
  readonly enableThinking?: boolean;
  /** For conversations: text that the answer goes on from. It is not part of the result, and a form is that of what follows. */
  readonly begun?: ChatOptions["begun"];
  /** For conversations: functions that the model may call. */
  readonly tools?: ChatOptions["tools"];
  /** For conversations: further variables of the chat template, as JSON values. */
  readonly chatTemplateKwargs?: ChatOptions["chatTemplateKwargs"];
  /**
   * The form of the answer: a JSON object, JSON of a schema, text of a grammar. If the model thinks first, the form holds after
   * `</think>`. An answer that ends by "length" is incomplete.
   */
  readonly responseFormat?: ResponseFormat;
  /** Chooses tokens in place of what the options of sampling describe. */
  readonly sampler?: Sampler;
  /** Change logits after bias and penalties. */
  readonly logitsProcessors?: readonly LogitsProcessor[];
  /**
   * Reports the log probability of each token, and the top tokens in its place, so many of them: an integer from 0 to 20. They are
   * computed after bias and penalties, and before temperature and filters. A step then ends op by op, which takes longer.
   */
  readonly logprobs?: number;
  /** A cache to continue; it is kept. Without one, a cache is made and freed. */
  readonly cache?: KvCache;
  /**
   * Whether the prompt is the whole text, not only the part after the tokens of `cache`. Text that the cache holds is not read again.
   * Tokens of the cache that differ from the prompt are dropped. For conversations that go on. Default false.
   */
  readonly cachePrompt?: boolean;
  /** 8 keeps keys and values of the cache that is made in 8 bits, see {@link CacheOptions}. Default: as the device's caches have them. */
  readonly kvBits?: CacheOptions["kvBits"];
  /** Positions that a token sees with the cache that is made, see {@link CacheOptions}. Default all. */
  readonly maxKvSize?: number;
  /** Most prompt tokens of one forward pass. Default 2048. */
  readonly prefillStepSize?: number;
  /**
   * Drafts tokens and verifies several in one step, which is faster where drafts are often right. The tokens are those that come without it.
   * Default none.
   */
  readonly speculation?: SpeculationOptions;
  /**
   * Called while the prompt is read, with the number of tokens read. The calls come after each pass, and about twice a second within
   * a long one. Where layers are on several devices, tokens of two passes may still be on their way.
   */
  readonly onPrompt?: (done: number, total: number) => void;
}

/** Options of `generateStep`. */
export interface StepOptions {
  /** Most tokens to generate. */
  readonly maxTokens: number;
  /** Chooses tokens. */
  readonly sampler: Sampler;
  /** Change logits before that. */
  readonly processors: readonly LogitsProcessor[];
  /** Number of recent tokens that processors see. */
  readonly contextSize: number;
  /** Holds the tokens before the prompt; the prompt and the generated ones are added. */
  readonly cache: KvCache;
  /** Log probabilities are wanted, see {@link GenerateOptions.logprobs}. */
  readonly logprobs?: number;
  /** Most prompt tokens of one forward pass. */
  readonly prefillStepSize: number;
  /** Drafts tokens, see {@link GenerateOptions.speculation}. */
  readonly speculation?: SpeculationOptions;
  /** Ends the reading of the prompt, of which no more than a chunk is still computed then. */
  readonly signal?: AbortSignal;
  /** Called while the prompt is read. */
  readonly onPrompt?: (done: number, total: number) => void;
}

/** Options of `batchGenerate` and `streamBatchGenerate`. */
export interface BatchGenerateOptions extends
  Omit<
    GenerateOptions,
    | "cache"
    | "cachePrompt"
    | "kvBits"
    | "maxKvSize"
    | "sampler"
    | "maxTokens"
    | "seed"
    | "onPrompt"
    | "responseFormat"
    | "speculation"
  > {
  /** Most tokens to generate: for each sequence the same, or one number a prompt. Default 256. */
  readonly maxTokens?: number | readonly number[];
  /** Makes the draws repeatable: one number a prompt, or one from which sequence i takes `seed + i`. */
  readonly seed?: number | readonly number[];
  /** The format of the answers: all the same, or one format a prompt. */
  readonly responseFormat?: ResponseFormat | readonly ResponseFormat[];
  /** Drafts tokens, see {@link GenerateOptions.speculation}, where at most eight prompts are generated together, or 16 with "mtp". Default none. */
  readonly speculation?: BatchSpeculation;
  /** Called when a prompt has been read. */
  readonly onPrompt?: (done: number, total: number) => void;
}

/** Kinds of {@link BatchGenerateOptions}. */
export const BATCH_OPTIONS = {
  maxTokens: "numbers",
  temp: "number",
  topP: "number",
  topK: "number",
  minP: "number",
  seed: "numbers",
  stop: true,
  signal: true,
  logprobs: "number",
  logitBias: true,
  repetitionPenalty: "number",
  repetitionContextSize: "number",
  presencePenalty: "number",
  frequencyPenalty: "number",
  speculation: true,
  logitsProcessors: "functions",
  enableThinking: "boolean",
  begun: "text",
  tools: "list",
  chatTemplateKwargs: true,
  responseFormat: true,
  prefillStepSize: "number",
  onPrompt: "function",
} as const satisfies Record<keyof BatchGenerateOptions, OptionKind>;

/** Kinds of {@link GenerateOptions}. */
export const GENERATE_OPTIONS = {
  ...BATCH_OPTIONS,
  maxTokens: "number",
  seed: "number",
  sampler: "function",
  cache: true,
  cachePrompt: "boolean",
  kvBits: "number",
  maxKvSize: "number",
} as const satisfies Record<keyof GenerateOptions, OptionKind>;

/** Kinds of what only chooses tokens: it takes the options of a generation and of a batch. */
export const CHOICE_OPTIONS = { ...GENERATE_OPTIONS, ...BATCH_OPTIONS } as const;

/** Kinds of what `generateStep` takes: all of a generation too. */
export const STEP_OPTIONS = {
  ...GENERATE_OPTIONS,
  processors: "functions",
  contextSize: "number",
} as const satisfies Record<keyof (StepOptions & GenerateOptions), OptionKind>;
