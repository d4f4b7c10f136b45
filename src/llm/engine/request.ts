/**
 * What callers of an engine give and get.
 *
 * @module
 */

import type { GenerateOptions } from "../sampling/options.ts";
import type { GenerationResponse } from "../sampling/response.ts";
import type { Prompt } from "../generation/prompt.ts";
import type { RequestSpeculation } from "../speculation/speculation.ts";

/** Options that make sense for one stream, or for all requests alike. */
type StreamOptions =
  | "cache"
  | "cachePrompt"
  | "kvBits"
  | "maxKvSize"
  | "speculation"
  | "sampler"
  | "logitsProcessors"
  | "prefillStepSize"
  | "onPrompt";

/** A prompt, and the options of `streamGenerate` that hold for its answer alone. */
export interface EngineRequest extends Omit<GenerateOptions, StreamOptions> {
  /** Text, token ids or a conversation. */
  readonly prompt: Prompt;
  /** Requests of a higher number are served first; equal ones in the order of their arrival. Default 0. */
  readonly priority?: number;
  /**
   * Drafts tokens of the answer and verifies several in one step; the tokens stay the same. `false` switches it off where the engine drafts.
   * An answer of a `responseFormat` has no drafts. Default as the engine does.
   */
  readonly speculation?: false | RequestSpeculation;
}

/** One generated token of a request. The last one has a `finishReason`. */
export type EngineResponse = Omit<GenerationResponse, "promptTps" | "generationTps" | "peakMemory">;

/** What an engine has done and does. All but the four numbers of now grow only. */
export interface EngineMetrics {
  /** Requests whose tokens are computed now. */
  readonly running: number;
  /** Requests that wait for their turn. */
  readonly waiting: number;
  /** Bytes of keys and values that may be used, those of a draft model too. */
  readonly kvBytes: number;
  /** Those of them that running requests and kept prefixes use now. */
  readonly kvBytesUsed: number;
  /** Requests that have ended, by any reason. */
  readonly requests: number;
  /** Tokens of their prompts, and those that were not read again because a kept prefix had them. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Tokens that were generated. */
  readonly generationTokens: number;
  /** Tokens that were drafted and verified, and those of them that answers have. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  /** Requests that gave up their memory for others and were read again. */
  readonly preemptions: number;
}
