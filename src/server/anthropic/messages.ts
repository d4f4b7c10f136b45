/**
 * POST /v1/messages and /v1/messages/count_tokens, Anthropic's API of conversations.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type AnswerEnd, answerParts, newId } from "../answer.ts";
import { type Block, type BlockEvent, blockEvents } from "../blocks.ts";
import { type Context, jsonReply } from "../context.ts";
import { promptIds } from "../conversation.ts";
import type { Read } from "../fields.ts";
import type { Served } from "../served.ts";
import { ERROR_PIECES, event, eventReply } from "../sse.ts";
import { checkAnswer, conversationOf, COUNTED, MESSAGES } from "./fields.ts";

type Body = Read<typeof MESSAGES>;

/** Answers a conversation, whole or as events. */
export async function messages(context: Context): Promise<HttpReply> {
  const body = await context.read(MESSAGES);
  checkAnswer(body, conversationOf(body));
  if (body.stream) {
    context.models.resolve(body.model);
    return await eventReply(events(context, body), ERROR_PIECES.anthropic, context.report);
  }
  using lease = await context.models.lease(body.model);
  const warms = body.max_tokens === 0; // a prompt is read, and kept, for the sake of a token, which is dropped
  for await (const one of blocksOf(context, warms ? { ...body, max_tokens: 1 } : body, lease.served)) {
    if (one.type !== "end") continue;
    return jsonReply(
      200,
      warms ? warmedOf(lease.served, one.end) : messageOf(lease.served, one.blocks.map(contentOf), one.end),
    );
  }
  throw new Error("An answer had no end");
}

/** Counts the tokens of a conversation. */
export async function countTokens(context: Context): Promise<HttpReply> {
  const body = await context.read(COUNTED);
  using lease = await context.models.lease(body.model);
  return jsonReply(200, { input_tokens: promptIds(conversationOf(body), lease.served.tokenizer).length });
}

function blocksOf({ metrics, request }: Context, body: Body, served: Served): AsyncGenerator<BlockEvent, void, void> {
  return blockEvents(answerParts(conversationOf(body), served, metrics, request.signal));
}

async function* events(context: Context, body: Body): AsyncGenerator<string, void, void> {
  using lease = await context.models.lease(body.model);
  for await (const one of blocksOf(context, body, lease.served)) {
    switch (one.type) {
      case "begin":
        yield named({ type: "message_start", message: messageOf(lease.served, [], undefined, one) });
        break;
      case "start":
        yield named({
          type: "content_block_start",
          index: one.index,
          content_block: contentOf({ ...one.block, text: "" }),
        });
        break;
      case "delta":
        yield named({ type: "content_block_delta", index: one.index, delta: deltaOf(one.block, one.text) });
        break;
      case "stop":
        yield named({ type: "content_block_stop", index: one.index });
        break;
      case "end": {
        const { stop_reason, stop_sequence, usage } = messageOf(lease.served, [], one.end);
        yield named({ type: "message_delta", delta: { stop_reason, stop_sequence }, usage });
        yield named({ type: "message_stop" });
      }
    }
  }
}

/** An event, which has the name of its type. */
function named(data: { readonly type: string } & Readonly<Record<string, unknown>>): string {
  return event(data, data.type);
}

/** A block as a client gets it. */
function contentOf({ kind, text, callId, name }: Block): unknown {
  if (kind === "text") return { type: "text", text };
  if (kind === "reasoning") return { type: "thinking", thinking: text, signature: "" };
  return { type: "tool_use", id: callId, name, input: text === "" ? {} : JSON.parse(text) };
}

/** More of a block. */
function deltaOf({ kind }: Block, text: string): unknown {
  if (kind === "text") return { type: "text_delta", text };
  return kind === "reasoning"
    ? { type: "thinking_delta", thinking: text }
    : { type: "input_json_delta", partial_json: text };
}

/** The message of a prompt that was read and not answered. */
function warmedOf(served: Served, end: AnswerEnd): Record<string, unknown> {
  const usage = { ...end.usage, completionTokens: 0 };
  return messageOf(served, [], { ...end, reason: "length", stopString: undefined, usage });
}

const REASONS = { stop: "end_turn", length: "max_tokens", tool_calls: "tool_use" } as const;

function messageOf(
  { id: model }: Served,
  content: readonly unknown[],
  end?: AnswerEnd,
  prompt: Pick<AnswerEnd["usage"], "promptTokens" | "cachedTokens"> = end!.usage,
): Record<string, unknown> {
  const { promptTokens, cachedTokens } = prompt;
  return {
    id: newId("msg_"),
    type: "message",
    role: "assistant",
    model,
    content,
    stop_reason: end === undefined ? null : end.stopString === undefined ? REASONS[end.reason] : "stop_sequence",
    stop_sequence: end?.stopString ?? null,
    usage: {
      input_tokens: promptTokens - cachedTokens,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: cachedTokens,
      output_tokens: end?.usage.completionTokens ?? 0,
    },
  };
}
