/**
 * The endpoints of the page for tools of MCP servers. The server makes the calls of an answer itself, within one request.
 *
 * The answer comes as the chunks of a chat completion. Between them stand events of calls:
 *
 *     {"object": "mcp.call", "id", "round", "name", "server", "tool", "arguments", "state": "asked" | "running" | "done" | "failed", "result"}
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { lm } from "../../../mod.ts";
import { exactJson } from "../../graph/exact_json.ts";
import type { McpTool } from "../../mcp/tools.ts";
import { type AnswerEnd, answerParts, newId, nowInSeconds, type Usage } from "../answer.ts";
import { type Context, jsonReply } from "../context.ts";
import type { FunctionTool } from "../conversation.ts";
import { ApiError } from "../errors.ts";
import { boolean, object, type Read, refused, required, text } from "../fields.ts";
import { CHAT_FIELDS, conversationOf } from "../openai/chat_fields.ts";
import { usageOf } from "../openai/usage.ts";
import { ERROR_PIECES, event, eventReply } from "../sse.ts";

const OWN_TOOLS = "the tools are those of the server's --mcp; /v1/chat/completions takes others";

const BODY = object({
  ...CHAT_FIELDS,
  tools: refused(OWN_TOOLS),
  tool_choice: refused(OWN_TOOLS),
  n: refused("there is one answer"),
});

type Body = Read<typeof BODY>;

/** GET /mcp: the servers with their tools, and whether a call of each is asked about. */
export function listMcp({ mcp }: Context): Promise<HttpReply> {
  const tools = mcp?.tools.tools ?? [];
  const servers = (mcp?.tools.servers ?? []).map((name) => ({
    name,
    error: mcp!.tools.failures.get(name)?.message ?? null,
    tools: tools.filter(({ server }) => server === name).map((tool) => ({
      name: tool.tool,
      description: tool.description ?? null,
      allowed: mcp!.consent.allows(tool),
    })),
  }));
  return Promise.resolve(jsonReply(200, { servers }));
}

const CONSENT = object({ id: required(text), allow: required(boolean) });

/** POST /mcp/consent: allows or refuses the call of an event whose state is "asked". */
export async function consent(context: Context): Promise<HttpReply> {
  const { id, allow } = await context.read(CONSENT);
  if (context.questions.answer(id, allow)) return jsonReply(200, {});
  throw new ApiError(404, "No call of this id waits for consent", { param: "id", code: "not_found" });
}

/** POST /mcp/chat: answers a conversation as events, with calls of the servers' tools. */
export async function mcpChat(context: Context): Promise<HttpReply> {
  const body = await context.read(BODY);
  if (context.mcp === undefined) throw new ApiError(404, "This server offers no tools: start it with --mcp FILE");
  context.models.resolve(body.model);
  return await eventReply(events(context, body), ERROR_PIECES.openai, context.report);
}

/** The events of an answer: the rounds push them while they are read. */
async function* events(context: Context, body: Body): AsyncGenerator<string, void, void> {
  const ended = new AbortController();
  const signal = AbortSignal.any([context.request.signal, ended.signal]);
  const pushed = new ReadableStream<string>({
    start: async (controller) => {
      // Not awaited by the stream: its reader takes what comes meanwhile.
      try {
        await answer(context, body, signal, (value) => controller.enqueue(event(value)));
        controller.close();
      } catch (error) {
        controller.error(error);
      }
    },
  });
  try {
    yield* pushed;
  } finally {
    ended.abort(new DOMException("The client went", "AbortError"));
  }
}

async function answer(
  context: Context,
  body: Body,
  signal: AbortSignal,
  send: (value: unknown) => void,
): Promise<void> {
  using lease = await context.models.lease(body.model);
  const { served } = lease;
  const { maxRounds, tools: servers } = context.mcp!;
  const { tools } = servers;
  const given = { ...conversationOf(body), tools: lm.describeTools(tools) as readonly FunctionTool[] };
  const fixed = { id: newId("chatcmpl-"), object: "chat.completion.chunk", created: nowInSeconds(), model: served.id };
  const chunk = (delta: unknown, reason: string | null = null): void =>
    send({ ...fixed, choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }] });
  const usages: Usage[] = [];
  let end: AnswerEnd | undefined;
  const calls = new CallEvents(context, tools, signal, send);
  chunk({ role: "assistant", content: "" });
  await lm.toolRounds(
    async (messages, round) => {
      calls.round = round;
      const whole = { text: "", reasoning: "", toolCalls: [] as lm.ParsedToolCall[] };
      for await (const part of answerParts({ ...given, messages }, served, context.metrics, signal)) {
        if (part.reasoning !== "") chunk({ reasoning_content: part.reasoning });
        if (part.text !== "") chunk({ content: part.text });
        whole.text += part.text;
        whole.reasoning += part.reasoning;
        whole.toolCalls.push(...part.calls.map(({ id, parsed }) => ({ ...parsed, id })));
        end = part.end ?? end;
      }
      usages.push(end!.usage);
      return { ...whole, finishReason: end!.reason === "length" ? "length" : "stop" };
    },
    given.messages,
    tools,
    { maxRounds, signal, allow: (call) => calls.allow(call), onCall: (run) => calls.made(run) },
  );
  chunk({}, end!.reason);
  send({ ...fixed, choices: [], usage: usageOf(usages) });
  send("[DONE]");
}

/** Events of the calls of an answer, which are made one after the other. */
class CallEvents {
  readonly #context: Context;
  readonly #tools: readonly McpTool[];
  readonly #signal: AbortSignal;
  readonly #send: (value: unknown) => void;
  #id: string | undefined;
  /** The number of the answer that makes the calls. */
  round = 1;

  constructor(context: Context, tools: readonly McpTool[], signal: AbortSignal, send: (value: unknown) => void) {
    this.#context = context;
    this.#tools = tools;
    this.#signal = signal;
    this.#send = send;
  }

  /** Whether a call may be made: its tool is allowed, or the page says so. */
  async allow(call: lm.ParsedToolCall["function"]): Promise<boolean> {
    const { mcp, questions } = this.#context;
    this.#id = newId("mcp_");
    const tool = this.#tools.find(({ name }) => name === call.name)!;
    if (!mcp!.consent.allows(tool)) {
      const answer = questions.ask(this.#id, this.#signal);
      this.#event(call, { state: "asked" });
      if (!await answer) return false;
    }
    this.#event(call, { state: "running" });
    return true;
  }

  /** A call that was made or refused. */
  made({ result, ok, ...call }: lm.ToolRun): void {
    this.#event(call, { state: ok ? "done" : "failed", result });
    this.#id = undefined;
  }

  #event({ name, arguments: given }: lm.ParsedToolCall["function"], rest: Record<string, unknown>): void {
    const { server = null, tool = name } = this.#tools.find((one) => one.name === name) ?? {};
    const id = this.#id ??= newId("mcp_"); // a call that could not be made was not asked about
    this.#send({ object: "mcp.call", id, round: this.round, name, server, tool, arguments: exactJson(given), ...rest });
  }
}
