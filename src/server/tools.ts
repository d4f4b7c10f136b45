/**
 * Endpoints around the models: health, metrics, tokens and the text of a conversation.
 *
 * @module
 */

import type { HttpReply } from "../../ffi/http/server.ts";
import type { lm } from "../../mod.ts";
import { type Context, jsonReply } from "./context.ts";
import { chatOptionsOf } from "./conversation.ts";
import { fieldError } from "./errors.ts";
import { boolean, list, object, type Read, required, text, whole } from "./fields.ts";
import { MESSAGES, messagesOf, TEMPLATE, templateOf } from "./openai/chat_fields.ts";

/** GET /health: the server answers. */
export function health(): Promise<HttpReply> {
  return Promise.resolve(jsonReply(200, { status: "ok" }));
}

/** GET /metrics: counts and times for Prometheus. */
export function metrics({ metrics, models }: Context): Promise<HttpReply> {
  const headers = { "content-type": "text/plain; version=0.0.4; charset=utf-8" };
  return Promise.resolve({ status: 200, headers, body: metrics.text(models.loaded) });
}

const TOKENIZE = object({
  ...TEMPLATE,
  messages: MESSAGES,
  add_generation_prompt: boolean,
  content: text,
  add_special: boolean,
  parse_special: boolean,
  with_pieces: boolean,
});

/** POST /tokenize: the ids of a text, as llama.cpp's server has it, or of a conversation, as vLLM's has it. */
export async function tokenize(context: Context): Promise<HttpReply> {
  const body = await context.read(TOKENIZE);
  const { content, messages, add_special: addSpecialTokens = false, parse_special: controlTokens = true } = body;
  if ((content === undefined) === (messages === undefined)) {
    throw fieldError("content", "Either content, a text, or messages have to be there");
  }
  using lease = await context.models.lease(body.model);
  const { tokenizer } = lease.served;
  const ids = messages === undefined
    ? tokenizer.encode(content!, { addSpecialTokens, controlTokens })
    : tokenizer.encodeChat(messagesOf(messages), promptOptions(body));
  const tokens = body.with_pieces ? ids.map((id) => ({ id, piece: tokenizer.decode([id]) })) : ids;
  return jsonReply(200, { tokens });
}

const DETOKENIZE = object({ model: text, tokens: required(list(whole(0))) });

/** POST /detokenize: the text of ids. */
export async function detokenize(context: Context): Promise<HttpReply> {
  const body = await context.read(DETOKENIZE);
  using lease = await context.models.lease(body.model);
  return jsonReply(200, { content: lease.served.tokenizer.decode(body.tokens) });
}

const APPLY = object({ ...TEMPLATE, add_generation_prompt: boolean });

/** POST /apply-template: the prompt of a conversation. */
export async function applyTemplate(context: Context): Promise<HttpReply> {
  const body = await context.read(APPLY);
  using lease = await context.models.lease(body.model);
  const prompt = lease.served.tokenizer.applyChatTemplate(messagesOf(body.messages), promptOptions(body));
  return jsonReply(200, { prompt });
}

/** What the template gets besides messages. */
function promptOptions(body: Omit<Read<typeof APPLY>, "messages">): lm.ChatOptions {
  const { tools, add_generation_prompt: addGenerationPrompt = true } = body;
  return { addGenerationPrompt, ...chatOptionsOf({ tools, ...templateOf(body) }) };
}
