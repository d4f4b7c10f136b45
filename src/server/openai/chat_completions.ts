/**
 * POST /v1/chat/completions.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type AnswerPart, answerParts, merged, newId, nowInSeconds, type Usage } from "../answer.ts";
import { type Context, jsonReply } from "../context.ts";
import type { Read } from "../fields.ts";
import type { Lease } from "../models.ts";
import { ERROR_PIECES, event, eventReply } from "../sse.ts";
import type { Served } from "../served.ts";
import { CHAT, conversationOf } from "./chat_fields.ts";
import { chatLogprob } from "./logprobs.ts";
import { usageOf } from "./usage.ts";

/** Answers a conversation, whole or as events. */
export async function chatCompletions(context: Context): Promise<HttpReply> {
  const body = await context.read(CHAT);
  if (body.stream) {
    context.models.resolve(body.model);
    return await eventReply(chunks(context, body), ERROR_PIECES.openai, context.report);
  }
  using lease = await context.models.lease(body.model);
  return jsonReply(200, await whole(context, body, lease));
}

type Body = Read<typeof CHAT>;

/** Parts of all choices as they come. */
function partsOf(
  { metrics, request }: Context,
  body: Body,
  served: Served,
): AsyncGenerator<{ readonly index: number; readonly value: AnswerPart }, void, void> {
  const call = conversationOf(body);
  const choices = Array.from({ length: body.n ?? 1 }, (_, i) => answerParts(call, served, metrics, request.signal, i));
  return merged(choices);
}

/** A choice of a whole answer. */
interface Choice {
  content: string;
  reasoning: string;
  readonly calls: unknown[];
  readonly logprobs: unknown[];
  reason: string;
}

async function whole(context: Context, body: Body, { served }: Lease): Promise<unknown> {
  const choices = Array.from(
    { length: body.n ?? 1 },
    (): Choice => ({ content: "", reasoning: "", calls: [], logprobs: [], reason: "" }),
  );
  const usages: Usage[] = [];
  for await (const { index, value } of partsOf(context, body, served)) {
    const choice = choices[index];
    choice.content += value.text;
    choice.reasoning += value.reasoning;
    choice.calls.push(...value.calls.map(callOf));
    choice.logprobs.push(...logprobsOf(served, value));
    if (!value.end) continue;
    choice.reason = value.end.reason;
    usages.push(value.end.usage);
  }
  return {
    ...head("chat.completion", served),
    choices: choices.map(({ content, reasoning, calls, logprobs, reason }, index) => ({
      index,
      message: {
        role: "assistant",
        content: content === "" && calls.length > 0 ? null : content,
        refusal: null,
        ...(reasoning !== "" && { reasoning_content: reasoning }),
        ...(calls.length > 0 && { tool_calls: calls }),
      },
      logprobs: body.logprobs ? { content: logprobs, refusal: null } : null,
      finish_reason: reason,
    })),
    usage: usageOf(usages),
  };
}

async function* chunks(context: Context, body: Body): AsyncGenerator<string, void, void> {
  using lease = await context.models.lease(body.model);
  const { served } = lease;
  const fixed = head("chat.completion.chunk", served);
  const { include_usage: includeUsage = false } = body.stream_options ?? {};
  const chunk = (rest: Record<string, unknown>): string =>
    event({ ...fixed, ...rest, ...(includeUsage && !("usage" in rest) && { usage: null }) });
  const usages: Usage[] = [];
  const calls: number[] = [];
  for await (const { index, value } of partsOf(context, body, served)) {
    const logprobs = logprobsOf(served, value);
    const choice = (delta: unknown, reason: string | null = null): string =>
      chunk({
        choices: [{
          index,
          delta,
          logprobs: logprobs.length > 0 ? { content: logprobs.splice(0), refusal: null } : null,
          finish_reason: reason,
        }],
      });
    if (calls[index] === undefined) {
      calls[index] = 0;
      yield chunk({
        choices: [{ index, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }],
      });
    }
    if (value.reasoning !== "") yield choice({ reasoning_content: value.reasoning });
    if (value.text !== "") yield choice({ content: value.text });
    for (const call of value.calls) yield choice({ tool_calls: [{ index: calls[index]++, ...callOf(call) }] });
    if (value.end) usages.push(value.end.usage);
    if (value.end) yield choice({}, value.end.reason);
    else if (logprobs.length > 0) yield choice({});
  }
  if (includeUsage) yield chunk({ choices: [], usage: usageOf(usages) });
  yield event("[DONE]");
}

function callOf({ id, name, arguments: given }: AnswerPart["calls"][number]): Record<string, unknown> {
  return { id, type: "function", function: { name, arguments: given } };
}

function logprobsOf({ tokenizer }: Served, { token, logprobs }: AnswerPart): unknown[] {
  return token === undefined || !logprobs ? [] : [chatLogprob(tokenizer, token, logprobs)];
}

function head(object: string, { id: model }: Served): Record<string, unknown> {
  return { id: newId("chatcmpl-"), object, created: nowInSeconds(), model };
}
