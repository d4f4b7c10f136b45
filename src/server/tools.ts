/**
 * Endpoints around the models: health, metrics, tokens and the text of a conversation.
 *
 * @module
 */

import type { HttpReply } from "../../ffi/http/server.ts";
import { type Context, jsonReply } from "./context.ts";
import { boolean, list, object, required, text, whole } from "./fields.ts";
import { messagesOf, TEMPLATE, thinkingOf } from "./openai/chat_fields.ts";

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
  model: text,
  content: required(text),
  add_special: boolean,
  parse_special: boolean,
  with_pieces: boolean,
});

/** POST /tokenize: the ids of a text, as llama.cpp's server has it. */
export async function tokenize(context: Context): Promise<HttpReply> {
  const body = await context.read(TOKENIZE);
  using lease = await context.models.lease(body.model);
  const { tokenizer } = lease.served;
  const { add_special: addSpecialTokens = false, parse_special: controlTokens = true } = body;
  const ids = tokenizer.encode(body.content, { addSpecialTokens, controlTokens });
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
  const { tools = [], add_generation_prompt: addGenerationPrompt = true } = body;
  const enableThinking = thinkingOf(body);
  const prompt = lease.served.tokenizer.applyChatTemplate(messagesOf(body.messages), {
    addGenerationPrompt,
    ...(tools.length > 0 && { tools }),
    ...(enableThinking !== undefined && { enableThinking }),
  });
  return jsonReply(200, { prompt });
}
