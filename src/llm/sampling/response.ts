/**
 * The response of a generation for each token, and the rates in it.
 *
 * @module
 */

import type { ParsedToolCall } from "../answer/tool_calls.ts";
import type { Logprobs } from "./logprobs_log.ts";

/** One generated token. */
export interface GenerationResponse {
  /** Text that became certain with this token; may be empty. Of an answer in a conversation, without thoughts and calls. */
  readonly text: string;
  /** The thoughts of the model before its answer in a conversation, without `<think>` and `</think>`. */
  readonly reasoning: string;
  /** Functions that the model calls, if the option `tools` offers some: each comes when its call is whole. */
  readonly toolCalls: readonly ParsedToolCall[];
  /** The full text as the model wrote it, with the marks of thoughts and calls, without the EOS token or stop string. */
  readonly raw: string;
  /** The token. */
  readonly token: number;
  /** Log probabilities, if {@link GenerateOptions.logprobs} asks for them. */
  readonly logprobs?: Logprobs;
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Those of them that the cache held already; see {@link GenerateOptions.cachePrompt}. */
  readonly cachedTokens: number;
  /** Prompt tokens that were read per second, the first generated token included in the time. */
  readonly promptTps: number;
  /** Tokens generated so far. */
  readonly generationTokens: number;
  /** Tokens per second after the first one. */
  readonly generationTps: number;
  /** Tokens drafted so far, and those of them that the answer has, if {@link GenerateOptions.speculation} asks for drafts. */
  readonly draftedTokens?: number;
  readonly acceptedTokens?: number;
  /** Highest use of device memory so far in GB. */
  readonly peakMemory: number;
  /** Set on the last response: "stop" at an EOS token or stop string, "length" at a limit, "abort" by the signal. */
  readonly finishReason: "stop" | "length" | "abort" | null;
}

/** `count` per second; 0 if no time passed. */
export function perSecond(count: number, milliseconds: number): number {
  return milliseconds > 0 ? count * 1000 / milliseconds : 0;
}
