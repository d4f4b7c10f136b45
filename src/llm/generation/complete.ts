/**
 * Whole answers: what {@link streamGenerate} yields, put together.
 *
 * @module
 */

import type { ParsedToolCall } from "../answer/tool_calls.ts";
import { streamGenerate } from "./generate.ts";
import type { GenerationResponse } from "../sampling/response.ts";
import type { Prompt } from "./prompt.ts";
import type { GenerateOptions } from "../sampling/options.ts";
import type { Logprobs } from "../sampling/logprobs_log.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** A whole answer: text, thoughts and calls of all its tokens, and the figures of the last one. */
export interface Completion extends Omit<GenerationResponse, "token" | "logprobs" | "finishReason"> {
  /** The tokens. */
  readonly tokens: readonly number[];
  /** Log probabilities of each token, if {@link GenerateOptions.logprobs} asks for them. */
  readonly logprobs?: readonly Logprobs[];
  /** Why it ended: "stop" by itself or at a stop string, "length" at a limit, "abort" by the signal. */
  readonly finishReason: NonNullable<GenerationResponse["finishReason"]>;
}

/**
 * Generates an answer and returns it whole, in its parts: what the model thought, what it says and the functions that it calls. See
 * {@link streamGenerate} for what it throws.
 *
 * @example
 * ```ts ignore
 * const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } } }];
 * const { reasoning, text, toolCalls } = await mx.lm.complete(model, tokenizer, messages, { tools });
 * messages.push({ role: "assistant", content: text, tool_calls: toolCalls });
 * for (const call of toolCalls) messages.push({ role: "tool", content: JSON.stringify(await run(call.function)) });
 * ```
 */
export async function complete(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: GenerateOptions = {},
): Promise<Completion> {
  const tokens: number[] = [];
  const logprobs: Logprobs[] = [];
  const toolCalls: ParsedToolCall[] = [];
  const parts = { text: "", reasoning: "", raw: "" };
  let last: GenerationResponse | undefined;
  for await (last of streamGenerate(model, tokenizer, prompt, options)) {
    tokens.push(last.token);
    if (last.logprobs) logprobs.push(last.logprobs);
    toolCalls.push(...last.toolCalls);
    parts.text += last.text;
    parts.reasoning += last.reasoning;
    parts.raw += last.raw;
  }
  const { token: _token, logprobs: _logprobs, finishReason, ...figures } = last!; // every prompt yields at least one token
  return {
    ...figures,
    ...parts,
    toolCalls,
    tokens,
    ...(options.logprobs !== undefined && { logprobs }),
    finishReason: finishReason!,
  };
}

/**
 * Generates text and returns all of it; see {@link streamGenerate}, and {@link complete} for thoughts, calls and figures.
 *
 * @example
 * ```ts ignore
 * const text = await mx.lm.generate(model, tokenizer, [{ role: "user", content: "Hi" }], { maxTokens: 50 });
 * ```
 */
export async function generate(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: GenerateOptions = {},
): Promise<string> {
  return (await complete(model, tokenizer, prompt, options)).text;
}
