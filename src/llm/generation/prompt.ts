/**
 * Prompts: their token ids, the room after them in the context, and the parts of their answers.
 *
 * @module
 */

import { type AnswerFormat, answerMarks } from "../answer/parts.ts";
import { checkIds } from "../arguments.ts";
import type { ChatMessage } from "../chat/messages.ts";
import type { ChatOptions } from "../chat/template.ts";
import { LlmError } from "../error.ts";
import type { GenerateOptions } from "../sampling/options.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** A prompt: text (control tokens in it count), token ids, or a conversation. */
export type Prompt = string | readonly number[] | readonly ChatMessage[];

/** Tokens at the end of a prompt that tell whether it begins a thought. */
const PROMPT_END = 16;

/** The tokens of a prompt. */
export function encodePrompt(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: ChatOptions,
): number[] {
  if (typeof prompt !== "string" && typeof prompt?.[Symbol.iterator] !== "function") {
    throw new LlmError("option", "The prompt is neither a text nor a list of token ids or messages");
  }
  const ids = typeof prompt === "string"
    ? encodeText(tokenizer, prompt)
    : isConversation(prompt)
    ? tokenizer.encodeChat(prompt, options)
    : [...prompt];
  if (ids.length === 0) throw new LlmError("context", "The prompt is empty");
  return checkIds(model, ids, "The prompt", "token ids or messages");
}

/** The ids of a text with those around it, as mlx-lm reads prompts: a text that begins with its first token gets none. */
function encodeText(tokenizer: Tokenizer, text: string): number[] {
  const { bosToken } = tokenizer;
  return tokenizer.encode(text, { addSpecialTokens: !bosToken || !text.startsWith(bosToken) });
}

/** The parts that the answer to a prompt has: what follows a text or ids is only text. */
export function answerFormat(
  tokenizer: Tokenizer,
  prompt: Prompt,
  ids: readonly number[],
  { tools = [], begun }: Pick<GenerateOptions, "tools" | "begun">,
): AnswerFormat {
  const marks = answerMarks(tokenizer);
  if (typeof prompt === "string" || !isConversation(prompt)) {
    return { ...marks, reasoning: false, thinking: false, tools: [] };
  }
  // A text that goes on begins with no thought. Messages of gpt-oss may follow it.
  if (begun !== undefined) {
    return { ...marks, reasoning: marks.calls === "harmony", thinking: false, tools: tools ?? [] };
  }
  const thinking = tokenizer.decode(ids.slice(-PROMPT_END)).trimEnd().endsWith(marks.thoughts.open);
  return { ...marks, reasoning: true, thinking, tools: tools ?? [] };
}

/** Most tokens to generate after a prompt of `count` that follows `offset` others. Throws if the context has no room for it. */
export function tokensFor(
  model: LanguageModel,
  count: number,
  offset: number,
  maxTokens: number,
  context: number = model.config.maxPositionEmbeddings,
): number {
  const room = context - offset - count;
  if (room < 0) {
    throw new LlmError(
      "context",
      `The prompt has ${count} tokens and the context has room for ${room + count}: shorten the prompt`,
    );
  }
  return Math.min(maxTokens, room + 1); // the last token need not be fed back
}

/** How many of the tokens held begin a prompt; its last one has to be read in any case. */
export function commonTokens(held: readonly number[], ids: readonly number[]): number {
  const most = Math.min(held.length, ids.length - 1);
  let count = 0;
  while (count < most && held[count] === ids[count]) count++;
  return count;
}

function isConversation(prompt: readonly number[] | readonly ChatMessage[]): prompt is readonly ChatMessage[] {
  return typeof prompt[0] === "object";
}
