/**
 * POST /v1/responses, and GET and DELETE /v1/responses/ID: answers as lists of items, which the server may keep. A count of the tokens that
 * a response would read.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import type { lm } from "../../../mod.ts";
import { type AnswerEnd, answerParts, newId, nowInSeconds } from "../answer.ts";
import { type Block, type BlockEvent, blockEvents } from "../blocks.ts";
import { type Context, jsonReply } from "../context.ts";
import { demandedTools, promptIds } from "../conversation.ts";
import { ApiError, fieldError } from "../errors.ts";
import type { Read } from "../fields.ts";
import { event, eventReply } from "../sse.ts";
import { choiceOf, conversationOf, COUNTED, inputOf, itemsOf, RESPONSE } from "./response_fields.ts";
import { inputItems, type Item, pageOf } from "./response_items.ts";
import type { StoredResponse } from "./response_store.ts";

type Body = Read<typeof RESPONSE>;
type Json = Record<string, unknown>;

/** Answers a conversation, whole or as events. */
export async function createResponse(context: Context): Promise<HttpReply> {
  const body = await context.read(RESPONSE);
  const id = context.models.resolve(body.model);
  const { previous_response_id: previous } = body;
  const before = previous === undefined ? undefined : find(context, previous, "previous_response_id");
  const items = body.store === false
    ? []
    : [...before?.items ?? [], ...before?.response.output as Item[] ?? [], ...inputItems(itemsOf(body))];
  const run = new Run(context, { ...body, model: id }, [...before?.messages ?? [], ...inputOf(body)], items);
  if (body.stream) return await eventReply(run.events(), (error) => run.errorEvent(error), context.report);
  for await (const one of run.blocks()) if (one.type === "end") return jsonReply(200, run.finish(one.blocks, one.end));
  throw new Error("An answer had no end");
}

/** Counts the tokens of a conversation that goes on from a kept one. */
export async function countInputTokens(context: Context): Promise<HttpReply> {
  const body = await context.read(COUNTED);
  const { previous_response_id: previous } = body;
  if (body.input === undefined && previous === undefined && body.instructions === undefined) {
    throw fieldError("input", "input is missing: there is nothing to count", "missing_required_parameter");
  }
  const before = previous === undefined ? [] : find(context, previous, "previous_response_id").messages;
  using lease = await context.models.lease(body.model);
  const call = conversationOf(body, [...before, ...inputOf(body)]);
  demandedTools(call); // throws as an answer would
  const { length } = promptIds(call, lease.served.tokenizer);
  return jsonReply(200, { object: "response.input_tokens", input_tokens: length });
}

/** The items that a kept response was made from. */
export function listInputItems(context: Context): Promise<HttpReply> {
  const { items } = find(context, context.rest);
  return Promise.resolve(jsonReply(200, pageOf(items, new URLSearchParams(context.request.query))));
}

/** A kept response. */
export function showResponse(context: Context): Promise<HttpReply> {
  if (new URLSearchParams(context.request.query).get("stream") === "true") {
    throw fieldError("stream", "stream is not supported of a kept response: it is whole", "unsupported_parameter");
  }
  return Promise.resolve(jsonReply(200, find(context, context.rest).response));
}

/** Drops a kept response. */
export function deleteResponse(context: Context): Promise<HttpReply> {
  find(context, context.rest);
  context.responses.delete(context.rest);
  return Promise.resolve(jsonReply(200, { id: context.rest, object: "response", deleted: true }));
}

function find({ responses }: Context, id: string, param?: string): StoredResponse {
  const found = responses.get(id);
  if (found) return found;
  const details = { code: "response_not_found", ...(param !== undefined && { param }) };
  throw new ApiError(
    404,
    `There is no response ${JSON.stringify(id.slice(0, 100))}: it was not kept, or dropped`,
    details,
  );
}

/** One response on its way. */
class Run {
  readonly #context: Context;
  readonly #body: Body;
  readonly #messages: readonly lm.ChatMessage[];
  readonly #input: readonly Item[];
  readonly #id: string = newId("resp_");
  readonly #created: number = nowInSeconds();
  /** Ids of items, by their place in the output. */
  readonly #items: string[] = [];
  #sequence = 0;

  constructor(context: Context, body: Body, messages: readonly lm.ChatMessage[], input: readonly Item[]) {
    this.#context = context;
    this.#body = body;
    this.#messages = messages;
    this.#input = input;
  }

  /** The blocks of the answer; the model is in use until their end. */
  async *blocks(): AsyncGenerator<BlockEvent, void, void> {
    const { models, metrics, request } = this.#context;
    using lease = await models.lease(this.#body.model);
    yield* blockEvents(answerParts(conversationOf(this.#body, this.#messages), lease.served, metrics, request.signal));
  }

  /** The whole response, which is kept unless that is not wanted. */
  finish(blocks: readonly Block[], end: AnswerEnd): Json {
    const status = end.reason === "length" ? "incomplete" : "completed";
    const response = this.#response(status, blocks.map((block, i) => this.#item(block, i, "completed")), end);
    if (this.#body.store ?? true) {
      const messages = [...this.#messages, messageOf(blocks)];
      this.#context.responses.set(this.#id, { response, messages, items: this.#input });
    }
    return response;
  }

  /** The events of the answer. */
  async *events(): AsyncGenerator<string, void, void> {
    for await (const one of this.blocks()) {
      switch (one.type) {
        case "begin":
          yield this.#event("response.created", { response: this.#response("in_progress", []) });
          yield this.#event("response.in_progress", { response: this.#response("in_progress", []) });
          break;
        case "start": {
          const empty = { ...one.block, text: "" };
          const item = this.#item(empty, one.index, "in_progress");
          yield this.#event("response.output_item.added", { output_index: one.index, item });
          if (empty.kind !== "call") {
            yield this.#partEvent("response.content_part.added", one.index, { part: partOf(empty) });
          }
          break;
        }
        case "delta":
          yield this.#partEvent(`response.${NAMES[one.block.kind]}.delta`, one.index, {
            delta: one.text,
            ...(one.block.kind === "text" && { logprobs: [] }),
          });
          break;
        case "stop": {
          const { kind, text } = one.block;
          const whole = kind === "call" ? { name: one.block.name, arguments: text } : { text };
          yield this.#partEvent(`response.${NAMES[kind]}.done`, one.index, {
            ...whole,
            ...(kind === "text" && { logprobs: [] }),
          });
          if (kind !== "call") {
            yield this.#partEvent("response.content_part.done", one.index, { part: partOf(one.block) });
          }
          const item = this.#item(one.block, one.index, "completed");
          yield this.#event("response.output_item.done", { output_index: one.index, item });
          break;
        }
        case "end": {
          const response = this.finish(one.blocks, one.end);
          yield this.#event(`response.${response.status}`, { response });
        }
      }
    }
  }

  /** The event of an error. */
  errorEvent(error: ApiError): string {
    return this.#event("error", errorFields(error));
  }

  #event(type: string, rest: Json): string {
    return event({ type, sequence_number: this.#sequence++, ...rest }, type);
  }

  /** An event of the one content that an item has; calls have none. */
  #partEvent(type: string, index: number, rest: Json): string {
    const content = type.includes("function_call") ? {} : { content_index: 0 };
    return this.#event(type, { item_id: this.#items[index], output_index: index, ...content, ...rest });
  }

  #item(block: Block, index: number, status: string): Json {
    const { kind, text, callId, name } = block;
    const id = this.#items[index] ??= newId(PREFIXES[kind]);
    if (kind === "reasoning") {
      return { id, type: "reasoning", summary: [], content: text === "" ? [] : [partOf(block)], status };
    }
    if (kind === "call") return { id, type: "function_call", call_id: callId, name, arguments: text, status };
    return { id, type: "message", role: "assistant", content: text === "" ? [] : [partOf(block)], status };
  }

  #response(status: string, output: readonly Json[], end?: AnswerEnd): Json {
    const body = this.#body;
    return {
      id: this.#id,
      object: "response",
      created_at: this.#created,
      status,
      error: null,
      incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
      instructions: body.instructions ?? null,
      max_output_tokens: body.max_output_tokens ?? null,
      metadata: body.metadata ?? {},
      model: body.model,
      output,
      parallel_tool_calls: body.parallel_tool_calls ?? true,
      previous_response_id: body.previous_response_id ?? null,
      reasoning: { effort: body.reasoning?.effort ?? null, summary: null },
      store: body.store ?? true,
      temperature: body.temperature ?? null,
      text: { format: body.text?.format ?? { type: "text" } },
      tool_choice: shownChoice(body.tool_choice),
      tools: (body.tools ?? []).map(({ function: described }) => ({ type: "function", strict: null, ...described })),
      top_p: body.top_p ?? null,
      truncation: "disabled",
      usage: end === undefined ? null : usageOf(end),
    };
  }
}

/** The event of an error that ends a stream, of which `sent` is the end. */
export function errorAfter(error: ApiError, sent: string): string {
  const numbers = Array.from(sent.matchAll(/"sequence_number":(\d+)/g), ([, number]) => Number(number));
  return event({ type: "error", sequence_number: (numbers.at(-1) ?? -1) + 1, ...errorFields(error) }, "error");
}

function errorFields({ message, details: { code, param } }: ApiError): Json {
  return { code: code ?? null, message, param: param ?? null };
}

/** A choice as the API shows it. */
function shownChoice(given: Body["tool_choice"]): unknown {
  const choice = choiceOf(given) ?? "auto";
  if (typeof choice === "string") return choice;
  if (!("names" in choice)) return { type: "function", ...choice };
  return { type: "allowed_tools", mode: choice.mode, tools: choice.names.map((name) => ({ type: "function", name })) };
}

const NAMES = { reasoning: "reasoning_text", text: "output_text", call: "function_call_arguments" } as const;
const PREFIXES = { reasoning: "rs_", text: "msg_", call: "fc_" } as const;

function partOf({ kind, text }: Block): Json {
  return kind === "reasoning"
    ? { type: "reasoning_text", text }
    : { type: "output_text", text, annotations: [], logprobs: [] };
}

/** An answer as the message that a later request goes on from. */
function messageOf(blocks: readonly Block[]): lm.ChatMessage {
  const textOf = (kind: Block["kind"]): string =>
    blocks.filter((block) => block.kind === kind).map(({ text }) => text).join("");
  const calls = blocks.filter(({ kind }) => kind === "call").map(({ callId, name, text }) => ({
    id: callId,
    type: "function" as const,
    function: { name, arguments: text },
  }));
  const reasoning = textOf("reasoning");
  return {
    role: "assistant",
    content: textOf("text"),
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

function usageOf({ usage: { promptTokens, cachedTokens, completionTokens, reasoningTokens } }: AnswerEnd): Json {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}
