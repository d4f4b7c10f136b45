/**
 * POST /api/chat and /api/generate of ollama: answers as JSON objects on lines, or as one object. Durations are nanoseconds.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import type { lm } from "../../../mod.ts";
import { type AnswerCall, type AnswerEnd, answerParts, namingFormat, tokenParts } from "../answer.ts";
import { type Context, jsonReply } from "../context.ts";
import type { ConversationCall } from "../conversation.ts";
import type { Read } from "../fields.ts";
import { chatLogprob } from "../openai/logprobs.ts";
import { samplingOptions } from "../sampling.ts";
import type { Served } from "../served.ts";
import { ERROR_PIECES, line, lineReply } from "../sse.ts";
import { CHAT, chatCall, GENERATE, generateCall } from "./fields.ts";
import { modelName, nanoseconds } from "./names.ts";

/** A piece of an answer. */
interface Piece {
  readonly text: string;
  readonly thinking: string;
  readonly calls: readonly AnswerCall[];
  readonly logprobs: readonly unknown[];
}

/** A piece as the model gives it. */
interface Answered extends Piece {
  readonly end?: AnswerEnd | undefined;
}

/** A piece as a client gets it. */
interface Part extends Piece {
  /** Fields of the last part. */
  readonly end?: Readonly<Record<string, unknown>>;
}

const NOTHING: Piece = { text: "", thinking: "", calls: [], logprobs: [] };

/** How an endpoint shows a part. */
type Show = (piece: Piece) => Record<string, unknown>;

/** What an endpoint makes of its body. */
interface Asked {
  readonly body: Pick<Read<typeof CHAT>, "model" | "stream" | "keep_alive">;
  /** What is to be answered; undefined loads the model, or unloads it if it is not to be kept. */
  readonly call: ConversationCall | undefined;
  /** A prompt that no template is put around. */
  readonly raw?: string | undefined;
  readonly show: Show;
}

/** POST /api/chat: answers a conversation. */
export async function chat(context: Context): Promise<HttpReply> {
  const body = await context.read(CHAT);
  const call = body.messages === undefined || body.messages.length === 0 ? undefined : chatCall(body);
  return await reply(context, { body, call, show: showMessage });
}

/** POST /api/generate: answers a prompt, or continues it with `raw` or if the model has no chat template. */
export async function generate(context: Context): Promise<HttpReply> {
  const body = await context.read(GENERATE);
  const { prompt = "", raw = false } = body;
  const call = prompt === "" ? undefined : generateCall(body);
  return await reply(context, { body, call, raw: raw ? prompt : undefined, show: showResponse });
}

function showMessage({ text, thinking, calls }: Piece): Record<string, unknown> {
  return {
    message: {
      role: "assistant",
      content: text,
      ...(thinking !== "" && { thinking }),
      ...(calls.length > 0 && {
        tool_calls: calls.map(({ id, name, arguments: given }) => ({
          id,
          function: { name, arguments: JSON.parse(given) },
        })),
      }),
    },
  };
}

function showResponse({ text, thinking }: Piece): Record<string, unknown> {
  return { response: text, ...(thinking !== "" && { thinking }) };
}

async function reply(context: Context, asked: Asked): Promise<HttpReply> {
  const model = modelName(context.models, asked.body.model);
  const parts = partsOf(context, asked, model);
  const shown = (part: Part): Record<string, unknown> => ({
    model: asked.body.model ?? model,
    created_at: new Date().toISOString(),
    ...asked.show(part),
    ...(part.logprobs.length > 0 && { logprobs: part.logprobs }),
    ...(part.end ?? { done: false }),
  });
  if (asked.body.stream ?? true) {
    return await lineReply(linesOf(parts, shown), ERROR_PIECES.ollama, context.report);
  }
  let whole: Part = NOTHING;
  for await (const { text, thinking, calls, logprobs, end } of parts) {
    whole = {
      text: whole.text + text,
      thinking: whole.thinking + thinking,
      calls: [...whole.calls, ...calls],
      logprobs: [...whole.logprobs, ...logprobs],
      ...(end && { end }),
    };
  }
  return jsonReply(200, shown(whole));
}

async function* linesOf(
  parts: AsyncGenerator<Part, void, void>,
  shown: (part: Part) => unknown,
): AsyncGenerator<string, void, void> {
  for await (const part of parts) yield line(shown(part));
}

/** The parts of an answer as they come, but for those that show nothing; the last one has counts and durations. */
async function* partsOf(
  context: Context,
  { body: { keep_alive: keepAlive }, call, raw }: Asked,
  model: string,
): AsyncGenerator<Part, void, void> {
  const started = performance.now();
  const ending = call === undefined && keepAlive === 0;
  if (ending && !context.models.loaded.some(({ id }) => id === model)) {
    return yield { ...NOTHING, end: { done: true, done_reason: "unload" } };
  }
  using lease = await context.models.lease(model, keepAlive);
  if (call === undefined) return yield { ...NOTHING, end: { done: true, done_reason: ending ? "unload" : "load" } };
  const loaded = performance.now();
  let first: number | undefined;
  for await (const { end, ...piece } of answer(context, call, raw, lease.served)) {
    const now = performance.now();
    first ??= now;
    if (piece.text !== "" || piece.thinking !== "" || piece.calls.length + piece.logprobs.length > 0) yield piece;
    if (!end) continue;
    yield {
      ...NOTHING,
      end: {
        done: true,
        done_reason: end.reason === "length" ? "length" : "stop",
        total_duration: nanoseconds(now - started),
        load_duration: nanoseconds(loaded - started),
        prompt_eval_count: end.usage.promptTokens,
        prompt_eval_duration: nanoseconds(first - loaded),
        eval_count: end.usage.completionTokens,
        eval_duration: nanoseconds(now - first),
      },
    };
  }
}

async function* answer(
  { metrics, request: { signal } }: Context,
  call: ConversationCall,
  raw: string | undefined,
  served: Served,
): AsyncGenerator<Answered, void, void> {
  const { tokenizer, generationConfig } = served;
  const logprobsOf = (token: number | undefined, logprobs: lm.Logprobs | undefined): unknown[] =>
    token === undefined || !logprobs ? [] : [chatLogprob(tokenizer, token, logprobs)];
  const prompt = raw ?? (tokenizer.hasChatTemplate ? undefined : promptOf(call));
  if (prompt === undefined) {
    for await (const { text, reasoning, calls, token, logprobs, end } of answerParts(call, served, metrics, signal)) {
      yield { text, thinking: reasoning, calls, logprobs: logprobsOf(token, logprobs), end };
    }
    return;
  }
  const request: lm.EngineRequest = {
    prompt,
    maxTokens: call.maxTokens ?? Number.MAX_SAFE_INTEGER, // the context ends it
    ...samplingOptions(call.sampling, generationConfig),
    ...(call.responseFormat && { responseFormat: call.responseFormat }),
    ...(call.logprobs !== undefined && { logprobs: call.logprobs }),
    signal,
  };
  const tokens = namingFormat(call, () => tokenParts(request, served, metrics));
  for await (const { response, token, end } of tokens) {
    yield { ...NOTHING, text: response.raw, logprobs: logprobsOf(token, response.logprobs), end };
  }
}

/** The texts of a conversation for a model without a chat template. */
function promptOf({ messages }: ConversationCall): string {
  return messages.map(({ content }) => content).join("\n\n");
}
