/**
 * The page's endpoints for tools: what the model is offered, the rounds as events, and the consent that another request gives. The test
 * writes the answers; the servers of the tools are those of mcp_tools_test.ts.
 */

import { assert, assertEquals } from "@std/assert";
import type * as mx from "../../mod.ts";
import { Consent } from "../../src/mcp/consent.ts";
import { McpTools } from "../../src/mcp/tools.ts";
import { ScriptedEngine, type ScriptedToken } from "../support/server/scripted_engine.ts";
import { needing } from "../support/needs.ts";
import { mcpProgram } from "../support/processes/mcp_server.ts";
import { eventsOf, TestServer } from "../support/server/served.ts";

const ASK = { messages: [{ role: "user", content: "Do it" }] };

/** A call that the model makes. */
const call = (name: string, given: Record<string, unknown> = {}): ScriptedToken => ({
  toolCalls: [{ function: { name, arguments: given } }],
});

/** A server with a scripted model: the tokens of its answers, by the messages of tools that it has. */
async function start(
  answers: readonly (readonly ScriptedToken[])[],
  { allowed = [], maxRounds = 16 }: { readonly allowed?: readonly string[]; readonly maxRounds?: number } = {},
): Promise<AsyncDisposable & { readonly server: TestServer; readonly engine: ScriptedEngine }> {
  const tools = await McpTools.open([{ name: "s", ...mcpProgram(), env: {} }], { timeoutMs: 1000 });
  const engine = new ScriptedEngine(({ prompt }) => {
    const done = (prompt as readonly mx.lm.ChatMessage[]).filter(({ role }) => role === "assistant").length;
    return answers[done];
  });
  const server = await TestServer.start({
    engines: { scripted: () => engine },
    mcp: { tools, consent: new Consent(allowed), maxRounds },
  });
  return {
    server,
    engine,
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await tools[Symbol.asyncDispose]();
    },
  };
}

/** Reads an answer; the questions of its calls get these answers. */
async function chat(server: TestServer, replies: readonly boolean[] = [], body: unknown = ASK): Promise<{
  readonly text: string;
  readonly calls: readonly string[];
  readonly reason: string;
  // deno-lint-ignore no-explicit-any -- what a test looks at
  readonly events: readonly any[];
}> {
  const response = await server.post("/mcp/chat", body);
  assertEquals(response.status, 200);
  const left = [...replies];
  let held = "";
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    const known = (held.match(/"state":"asked"/g) ?? []).length;
    held += piece;
    const asked = Array.from(held.matchAll(/"id":"(mcp_[0-9a-f]+)"[^\n]*"state":"asked"/g)).slice(known);
    for (const [, id] of replies.length > 0 ? asked : []) {
      assertEquals(await server.ask("/mcp/consent", { id, allow: left.shift() }), {});
      assertEquals((await server.post("/mcp/consent", { id, allow: true })).status, 404); // a question has one answer
    }
  }
  const events = eventsOf(held).map(({ data }) => data);
  assertEquals(events.at(-1), "[DONE]");
  const choices = events.flatMap(({ choices = [] }) => choices);
  return {
    text: choices.map(({ delta }) => delta.content ?? "").join(""),
    calls: events.filter(({ object }) => object === "mcp.call")
      .map(({ round, tool, state, result }) =>
        [round, tool, state, ...(result === undefined ? [] : [result])].join(" ")
      ),
    reason: choices.at(-1).finish_reason,
    events,
  };
}

/** The SDK leaves timers of two seconds after each end; mcp_tools_test.ts looks for processes. */
const test = async (name: string, fn: () => Promise<void>): Promise<void> =>
  Deno.test({ ...await needing(name, "mcp sdk"), fn, sanitizeOps: false, sanitizeResources: false });

await test("calls are made when the page allows them, and the model goes on with their results", async () => {
  await using started = await start([
    [{ reasoning: "Hm. " }, { text: "Let me see." }, call("s__echo", { text: "one" }), call("s__fail")],
    [call("s__echo", { text: 2 }), call("s__none"), call("s__echo", { text: "no" })],
    [{ text: "Well." }],
  ]);
  const { server, engine } = started;
  const { text, calls, reason, events } = await chat(server, [true, true, false]);
  assertEquals([text, reason], ["Let me see.Well.", "stop"]);
  assertEquals(calls, [
    "1 echo asked",
    "1 echo running",
    "1 echo done one",
    "1 fail asked",
    "1 fail running",
    '1 fail failed {"error":"the disk is full"}',
    '2 echo failed {"error":"arguments.text is 2, expected string"}',
    events.find(({ name, state }) => name === "s__none" && state === "failed") && calls[7],
    "2 echo asked",
    '2 echo failed {"error":"the user did not allow this call"}',
  ]);
  assert(calls[7].startsWith('2 s__none failed {"error":"there is no function'), calls[7]);
  const first = events.find(({ object }) => object === "mcp.call");
  assertEquals([first.name, first.server, first.arguments], ["s__echo", "s", '{"text":"one"}']);
  assertEquals(events.at(-2).usage.completion_tokens, 4 + 3 + 1);
  assertEquals(engine.requests.length, 3);
  const offered = engine.requests[0].tools as readonly { readonly function: { readonly name: string } }[];
  assertEquals(offered.map(({ function: { name } }) => name).slice(0, 2), ["s__echo", "s__where"]);
  const conversation = engine.requests[2].prompt as readonly mx.lm.ChatMessage[];
  assertEquals(conversation.map(({ role, content }) => [role, content]).slice(0, 4), [
    ["user", "Do it"],
    ["assistant", "Let me see."],
    ["tool", "one"],
    ["tool", '{"error":"the disk is full"}'],
  ]);
  assertEquals(conversation[1].tool_calls!.map(({ id }) => id), [
    conversation[2].tool_call_id,
    conversation[3].tool_call_id,
  ]);
});

await test("--mcp-allow needs no question; rounds have a limit; the list says what is allowed", async () => {
  const again = new Array(9).fill([call("s__echo", { text: "a" })]);
  await using started = await start(again, { allowed: ["s.echo"], maxRounds: 3 });
  const { server, engine } = started;
  const { calls, reason } = await chat(server);
  assertEquals(calls, ["1 echo running", "1 echo done a", "2 echo running", "2 echo done a"]);
  assertEquals([reason, engine.requests.length], ["tool_calls", 3]);
  const { servers } = await (await fetch(`${server.url}/mcp`)).json();
  assertEquals(servers.map(({ name, error }: Record<string, unknown>) => [name, error]), [["s", null]]);
  assertEquals(servers[0].tools.slice(0, 2), [
    { name: "echo", description: "Does echo", allowed: true },
    { name: "where", description: "Does where", allowed: false },
  ]);
});

await test("tools of API clients stay theirs: no server's tool is offered or called there", async () => {
  await using started = await start([[call("s__echo", { text: "a" })]], { allowed: ["all"] });
  const { server, engine } = started;
  const tools = [{ type: "function", function: { name: "mine" } }];
  const { choices } = await server.ask("/v1/chat/completions", { ...ASK, tools });
  assertEquals(choices[0].finish_reason, "tool_calls");
  assertEquals(engine.requests.length, 1);
  assertEquals((engine.requests[0].tools as typeof tools).map((one) => one.function.name), ["mine"]);
  const wrong = await server.post("/mcp/chat", { ...ASK, tools });
  assertEquals([wrong.status, (await wrong.json()).error.param], [400, "tools"]);
  const page = await fetch(`${server.url}/mcp/consent`, { method: "POST", headers: { origin: "https://example.org" } });
  assertEquals(page.status, 403);
  await page.body?.cancel();
});

await test("a server without --mcp has no tools; a client that goes refuses its question, and so does the end of the server", async () => {
  await using without = await TestServer.start({ engines: { scripted: () => new ScriptedEngine(() => []) } });
  assertEquals(await (await fetch(`${without.url}/mcp`)).json(), { servers: [] });
  const none = await without.post("/mcp/chat", ASK);
  assertEquals([none.status, (await none.json()).error.message], [
    404,
    "This server offers no tools: start it with --mcp FILE",
  ]);
  const started = await start([[call("s__echo", { text: "a" })], [{ text: "Well." }]]);
  const { server, engine } = started;
  const stop = new AbortController();
  const left = await server.post("/mcp/chat", ASK, { signal: stop.signal });
  const reader = left.body!.getReader();
  for (let seen = ""; !seen.includes("asked");) seen += new TextDecoder().decode((await reader.read()).value);
  stop.abort();
  await reader.read().catch(() => {});
  await new Promise((r) => setTimeout(r, 50));
  assertEquals([engine.requests.length, engine.running], [1, 0]); // no further round
  const waiting = chat(server, []);
  for (let i = 0; i < 200 && engine.requests.length < 2; i++) await new Promise((r) => setTimeout(r, 10));
  await new Promise((r) => setTimeout(r, 50));
  const [{ calls, text }] = await Promise.all([waiting, started[Symbol.asyncDispose]()]);
  assertEquals([text, calls.at(-1)], ["Well.", '1 echo failed {"error":"the user did not allow this call"}']);
});
