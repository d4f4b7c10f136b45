/**
 * Two replicas of the embedded model answer as one server does, on every endpoint. What one of them keeps is found, and a prompt goes to
 * the one that has read its beginning. The replicas are servers of this process.
 */

import { assert, assertEquals } from "@std/assert";
import { VERSION } from "../../ffi/version.ts";
import * as mx from "../../mod.ts";
import { Consent } from "../../src/mcp/consent.ts";
import { McpTools } from "../../src/mcp/tools.ts";
import { Front } from "../../src/server/replicas/front.ts";
import { ROUTES } from "../../src/server/routes.ts";
import { askAlone, askTogether } from "../../scripts/soak/clients.ts";
import { needing } from "../support/needs.ts";
import { mcpProgram } from "../support/processes/mcp_server.ts";
import { until } from "../support/server/fake_replicas.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer, type TestServerOptions, TINY } from "../support/server/served.ts";
import { TIER } from "../support/tier.ts";

const COUNT = TIER === "full" ? 100 : 20;

/** A front of two servers. */
async function startFront(options: TestServerOptions = {}): Promise<AsyncDisposable & { readonly front: Front }> {
  const servers: TestServer[] = [];
  const key = crypto.randomUUID();
  const front = await Front.start({
    hostname: "127.0.0.1",
    port: 0,
    version: VERSION,
    models: Object.keys(options.engines ?? { [TINY]: 0 }),
    describe: () => mx.lm.inspect(mx.lm.EMBEDDED_MODEL),
    count: 2,
    start: async (number) => {
      const server = servers[number] = await TestServer.start({ ...options, apiKey: key });
      const { promise: ended, resolve } = Promise.withResolvers<string>();
      const drain = (): void => void server[Symbol.asyncDispose]().then(() => resolve("it ended"));
      const closeQuestions = (): void => server.server.closeQuestions();
      return { url: server.url, key, device: "cpu", ended, closeQuestions, drain, kill: drain };
    },
    onError: (error) => {
      throw error;
    },
  });
  return { front, [Symbol.asyncDispose]: () => front.drain() };
}

const MESSAGES = [{ role: "user", content: "What is 17 + 25?" }];
const SHORT = { max_tokens: 6, temperature: 0 };
const OLLAMA = { options: { num_predict: 6, temperature: 0 } };

const ANTHROPIC = { "anthropic-version": "2023-06-01" };

type Asked = readonly [path: string, body?: Record<string, unknown>, method?: string, headers?: Record<string, string>];

/** A request for every endpoint, with streams and errors. `ID` is that of the response that was kept last. */
const REQUESTS: readonly Asked[] = [
  ["/"],
  ["/v1/models"],
  [`/v1/models/${TINY}`],
  ["/v1/models/none"],
  ["/v1/chat/completions", { ...SHORT, messages: MESSAGES }],
  ["/v1/chat/completions", { ...SHORT, messages: MESSAGES, stream: true, stream_options: { include_usage: true } }],
  ["/v1/chat/completions", { ...SHORT, messages: MESSAGES, model: "none", stream: true }],
  ["/v1/chat/completions", { messages: 1 }],
  ["/v1/completions", { ...SHORT, prompt: "Once upon a time", stream: true }],
  ["/v1/completions", { ...SHORT, prompt: "Once", logprobs: 2 }],
  ["/v1/responses", { input: "Hi", max_output_tokens: 6, temperature: 0, stream: true }],
  ["/v1/responses", { input: "What is 17 + 25?", max_output_tokens: 6, temperature: 0 }],
  ["/v1/responses/ID"],
  ["/v1/responses", { input: "And 1 + 1?", max_output_tokens: 6, temperature: 0, previous_response_id: "ID" }],
  ["/v1/responses", { input: "And 1 + 1?", previous_response_id: "resp_none" }],
  ["/v1/responses", { input: "And 1 + 1?", previous_response_id: 1 }],
  ["/v1/responses/ID/input_items?order=asc&limit=1"],
  ["/v1/responses/ID/input_items?limit=0"],
  ["/v1/responses/input_tokens", { input: "And 1 + 1?", previous_response_id: "ID" }],
  ["/v1/responses/ID", undefined, "DELETE"],
  ["/v1/responses/ID", undefined, "DELETE"],
  ["/v1/messages", { ...SHORT, messages: MESSAGES }],
  ["/v1/messages", { ...SHORT, messages: MESSAGES, stream: true }],
  ["/v1/messages", { messages: MESSAGES }],
  ["/v1/messages/count_tokens", { messages: MESSAGES }],
  ["/v1/embeddings", { input: "a cat" }],
  ["/api/chat", { ...OLLAMA, messages: MESSAGES }],
  ["/api/chat", { ...OLLAMA, messages: MESSAGES, stream: false }],
  ["/api/chat", {}],
  ["/api/generate", { ...OLLAMA, prompt: "Hi" }],
  ["/api/generate", { ...OLLAMA, model: "none", prompt: "Hi" }],
  ["/api/embed", { input: ["a", "b"] }],
  ["/api/embeddings", { prompt: "a" }],
  ["/api/tags"],
  ["/api/show", { model: TINY }],
  ["/api/pull", { model: TINY }],
  ["/api/version"],
  ["/mcp"],
  ["/mcp/chat", { messages: MESSAGES }],
  ["/mcp/consent", { id: "mcp_none", allow: true }],
  ["/tokenize", { content: "a cat" }],
  ["/detokenize", { tokens: [1, 2, 3] }],
  ["/apply-template", { messages: MESSAGES }],
  ["/v1/chat/completions", { messages: 1 }, "POST", ANTHROPIC],
  ["/v1/responses/none", undefined, "GET", ANTHROPIC],
  ["/v1/models/none", undefined, "GET", ANTHROPIC],
];

/** Endpoints whose replies differ, which other tests look at. */
const OTHERS = ["/health", "/metrics", "/api/ps"];

/** What of a reply is the same on every server: without ids, times, and what was cached before. */
function lasting(text: string): string {
  return text.replaceAll(/[a-z]+[_-][0-9a-f]{32}/g, "ID")
    .replaceAll(/"(created|created_at|completed_at|\w+_duration)":\d+/g, '"$1":0')
    .replaceAll(/"(created_at|modified_at)":"[^"]*"/g, '"$1":""')
    .replaceAll(/"(cached_tokens|input_tokens|cache_read_input_tokens)":\d+/g, '"$1":0');
}

Deno.test("two replicas answer every endpoint as one server does", async () => {
  const routeOf = (path: string): string =>
    path.replace(/\?.*/, "").replace(/^\/v1\/models\/.*/, "/v1/models/**").replace(/\/(ID|none)\b/, "/*");
  const asked = new Set(REQUESTS.map(([path]) => routeOf(path)));
  assertEquals([...new Set([...asked, ...OTHERS])].sort(), [...new Set(ROUTES.map(({ path }) => path))].sort());
  await using one = await TestServer.start();
  await using two = await startFront();
  const replies = async (url: string): Promise<unknown[]> => {
    const found: unknown[] = [];
    let id = "";
    for (const [path, body, method = body ? "POST" : "GET", headers] of REQUESTS) {
      const text = body && JSON.stringify(body).replace('"ID"', JSON.stringify(id));
      const response = await fetch(url + path.replace(/\bID\b/, id), {
        method,
        ...(text && { body: text }),
        ...(headers && { headers }),
      });
      const reply = await response.text();
      id = /"id":"(resp_\w+)"/.exec(reply)?.[1] ?? id;
      const named = ["content-type", "cache-control", "content-security-policy", "x-accel-buffering"];
      found.push([method, path, response.status, named.map((name) => response.headers.get(name)), lasting(reply)]);
    }
    return found;
  };
  const [expected, found] = [await replies(one.url), await replies(two.front.url)];
  for (const [i, reply] of found.entries()) assertEquals(reply, expected[i]);
});

Deno.test("a prompt goes to the replica that has read its beginning", async () => {
  await using two = await startFront();
  const turns = ["the sea", "the moon"].map((what) => [{
    role: "user",
    content: `Tell me about ${what}. `.repeat(40),
  }]);
  const ask = async (messages: readonly unknown[], stream = false): Promise<number> => {
    const body = JSON.stringify({ ...SHORT, messages, stream, stream_options: { include_usage: true } });
    const text = await (await fetch(`${two.front.url}/v1/chat/completions`, { method: "POST", body })).text();
    return Number(/"cached_tokens":(\d+)/.exec(text)![1]);
  };
  const more = [{ role: "assistant", content: "It is big." }, { role: "user", content: "And what else?" }];
  const fresh = [await ask(turns[0]), await ask(turns[1])];
  assert(fresh.every((count) => count < 20), `${fresh}`);
  // In the other order, so that taking turns would find nothing.
  const again = [await ask([...turns[1], ...more], true), await ask([...turns[0], ...more])];
  assert(again.every((count) => count > 200), `${again} tokens were cached`);
  const metrics = await (await fetch(`${two.front.url}/metrics`)).text();
  for (const replica of [0, 1]) {
    assert(metrics.includes(`vkmx_replica_requests_total{replica="${replica}",reason="prefix"} 1\n`), metrics);
  }
  const sum = fresh.concat(again).reduce((a, b) => a + b);
  assert(metrics.includes(`vkmx_cached_tokens_total{model="${TINY}"} ${sum}\n`), metrics);
});

Deno.test(`${COUNT} clients at once each get the answer that their prompt gets from one server`, async () => {
  await using one = await TestServer.start();
  await using two = await startFront();
  await askTogether(two.front.url, await askAlone(one.url, COUNT));
});

Deno.test("responses are continued, shown and dropped where they are kept", async () => {
  await using two = await startFront();
  const url = `${two.front.url}/v1/responses`;
  const create = async (body: unknown): Promise<{ id: string; usage: { input_tokens: number } }> =>
    await (await fetch(url, { method: "POST", body: JSON.stringify(body) })).json();
  const base = { max_output_tokens: 4, temperature: 0 };
  const kept = await Promise.all(Array.from({ length: 6 }, (_, i) => create({ ...base, input: `What is ${i} + 1?` })));
  const metrics = await (await fetch(`${two.front.url}/metrics`)).text();
  for (const replica of [0, 1]) {
    assert(metrics.includes(`vkmx_replica_answers_total{replica="${replica}",model="${TINY}"} 3\n`), metrics);
  }
  for (const { id, usage } of kept) {
    const next = await create({ ...base, input: "Why?", previous_response_id: id });
    assert(next.usage.input_tokens > usage.input_tokens);
    assertEquals((await (await fetch(`${url}/${id}`)).json()).id, id);
    assertEquals((await (await fetch(`${url}/${id}`, { method: "DELETE" })).json()).deleted, true);
    assertEquals((await fetch(`${url}/${id}`).then((r) => r.text().then(() => r))).status, 404);
  }
});

Deno.test("ollama's requests without a prompt load and unload the model of each replica", async () => {
  await using one = await TestServer.start({ engines: SIZED });
  await using two = await startFront({ engines: SIZED });
  const post = async (url: string, path: string, body: unknown): Promise<number> => {
    const response = await fetch(url + path, { method: "POST", body: JSON.stringify(body) });
    await response.text();
    return response.status;
  };
  const running = async (url: string): Promise<string[]> =>
    (await (await fetch(`${url}/api/ps`)).json()).models.map(({ name }: { name: string }) => name);
  assertEquals([await running(one.url), await running(two.front.url)], [["first"], ["first"]]);
  for (const url of [one.url, two.front.url]) {
    assertEquals(await post(url, "/api/generate", { model: "other" }), 200);
    assertEquals(await running(url), ["first", "other"]);
    assertEquals(await post(url, "/api/chat", { model: "first", keep_alive: 0 }), 200);
    await until("the model is unloaded", async () => (await running(url)).join() === "other");
  }
  const health = await (await fetch(`${two.front.url}/health`)).json();
  assertEquals(health.replicas.length, 2);
});

const SIZED = { first: () => new ScriptedEngine(() => []), other: () => new ScriptedEngine(() => []) };

/** The SDK leaves timers of two seconds after each end. */
const consent = {
  ...await needing("consent reaches the replica that asks, whichever it is", "mcp sdk"),
  sanitizeOps: false,
  sanitizeResources: false,
};

Deno.test(consent, async () => {
  await using tools = await McpTools.open([{ name: "s", ...mcpProgram(), env: {} }], { timeoutMs: 2000 });
  const call = { toolCalls: [{ function: { name: tools.tools[0].name, arguments: {} } }] };
  const engines = {
    scripted: () =>
      new ScriptedEngine(({ prompt }) =>
        (prompt as readonly mx.lm.ChatMessage[]).some(({ role }) => role === "tool") ? [{ text: "done" }] : [call]
      ),
  };
  await using two = await startFront({ engines, mcp: { tools, consent: new Consent([]), maxRounds: 4 } });
  const chat = async (): Promise<string> => {
    const body = JSON.stringify({ messages: MESSAGES });
    const response = await fetch(`${two.front.url}/mcp/chat`, { method: "POST", body });
    let text = "";
    let answered = false;
    for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
      text += piece;
      const [, id] = /"id":"(mcp_[0-9a-f]+)"[^\n]*"state":"asked"/.exec(text) ?? [];
      if (id === undefined || answered) continue;
      answered = true;
      const consent = { method: "POST", body: JSON.stringify({ id, allow: false }) };
      const reply = await fetch(`${two.front.url}/mcp/consent`, consent);
      assertEquals([reply.status, await reply.json()], [200, {}]);
    }
    return text;
  };
  for (const text of await Promise.all([chat(), chat(), chat()])) {
    assert(text.includes('"state":"failed"') && text.includes('"content":"done"'), text);
  }
});
