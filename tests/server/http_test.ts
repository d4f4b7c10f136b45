/**
 * The server as HTTP: keys, origins, limits of size and time, clients that go, and input that is no request.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { yieldToEventLoop } from "../../ffi/turn.ts";
import { lm } from "../../mod.ts";
import { Server } from "../../src/server/server.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { KV_BYTES, TestServer, TINY } from "../support/server/served.ts";

const CHAT = "/v1/chat/completions";
const HI = [{ role: "user", content: "Hi" }];

/** A server whose model says "a" without end, one every few milliseconds, unless told to end. */
async function endless(
  options: Parameters<typeof TestServer.start>[0] = {},
): Promise<{ server: TestServer; engine: ScriptedEngine }> {
  const engine = new ScriptedEngine(async function* ({ maxTokens = 0 }) {
    for (let i = 0; i < maxTokens; i++) {
      yield { text: "a" };
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });
  return { server: await TestServer.start({ engines: { endless: () => engine }, ...options }), engine };
}

/** Waits until something holds. */
async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; !holds(); i++) {
    assert(i < 1000, "it never holds");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A connection on which a test writes what it likes. */
async function connect(server: TestServer, text = ""): Promise<Deno.TcpConn> {
  const { hostname, port } = new URL(server.url);
  const connection = await Deno.connect({ hostname, port: Number(port) });
  await connection.write(new TextEncoder().encode(text));
  return connection;
}

/** All that comes until the other side closes. */
async function readAll(connection: Deno.TcpConn): Promise<string> {
  return await new Response(connection.readable).text().catch(() => "");
}

Deno.test("requests need the key, in the header of either API, but for health", async () => {
  await using server = (await endless({ apiKey: "sesame" })).server;
  const status = async (headers: Record<string, string>): Promise<number> => {
    const response = await fetch(`${server.url}/v1/models`, { headers });
    const { error } = await response.json();
    if (response.status === 401) assertEquals([error.code, error.type], ["invalid_api_key", "authentication_error"]);
    return response.status;
  };
  assertEquals(await status({}), 401);
  assertEquals(await status({ authorization: "Bearer wrong" }), 401);
  assertEquals(await status({ authorization: "Basic sesame" }), 401);
  assertEquals(await status({ authorization: "Bearer sesam" }), 401);
  assertEquals(await status({ authorization: "bearer sesame" }), 200);
  assertEquals(await status({ "x-api-key": "sesame" }), 200);
  assertEquals(await status({ authorization: "Bearer wrong", "x-api-key": "sesame" }), 401);
  const health = await fetch(`${server.url}/health`);
  assertEquals([health.status, await health.json()], [200, { status: "ok" }]);
  await (await fetch(`${server.url}/metrics`)).body?.cancel();
});

Deno.test("paths and methods that are not there have errors of their own", async () => {
  await using server = (await endless()).server;
  const ask = async (method: string, path: string): Promise<unknown[]> => {
    const response = await fetch(server.url + path, { method });
    const { error } = await response.json();
    return [response.status, error.code, response.headers.get("allow")];
  };
  assertEquals(await ask("GET", "/v1/nothing"), [404, "not_found", null]);
  assertEquals(await ask("GET", CHAT), [405, "method_not_allowed", "POST"]);
  assertEquals(await ask("PUT", "/v1/models"), [405, "method_not_allowed", "GET"]);
  assertEquals(await ask("GET", "/v1/models/nothing"), [404, "model_not_found", null]);
  const head = await fetch(`${server.url}/health`, { method: "HEAD" });
  assertEquals(head.status, 200);
});

Deno.test("web pages of other origins may not ask unless they are allowed", async () => {
  const ask = async (
    server: TestServer,
    origin: string,
    method = "GET",
    host?: string,
  ): Promise<[number, string | null]> => {
    const connection = await connect(
      server,
      `${method} /v1/models HTTP/1.1\r\nHost: ${
        host ?? new URL(server.url).host
      }\r\nOrigin: ${origin}\r\nConnection: close\r\n\r\n`,
    );
    const reply = await readAll(connection);
    return [Number(reply.slice(9, 12)), /access-control-allow-origin: (\S+)/i.exec(reply)?.[1] ?? null];
  };
  {
    await using server = (await endless()).server;
    assertEquals(await ask(server, "https://evil.example"), [403, null]);
    assertEquals(await ask(server, "https://evil.example", "OPTIONS"), [403, null]);
    assertEquals(await ask(server, "null"), [403, null]);
    assertEquals(await ask(server, server.url), [200, null]);
    // A page whose host's name leads to this address.
    assertEquals(await ask(server, "http://evil.example", "GET", "evil.example"), [403, null]);
  }
  {
    await using server = (await endless({ cors: ["https://good.example"], apiKey: "k" })).server;
    assertEquals(await ask(server, "https://good.example", "OPTIONS"), [204, "https://good.example"]);
    assertEquals(await ask(server, "https://good.example"), [401, "https://good.example"]);
    assertEquals(await ask(server, "https://good.example.evil.example"), [403, null]);
  }
  await using server = (await endless({ cors: ["*"] })).server;
  assertEquals(await ask(server, "https://any.example"), [200, "*"]);
});

Deno.test("a body of more than a megabyte is status 413, and the connection gets to see it", async () => {
  await using server = (await endless()).server;
  const content = "x".repeat(2 ** 20);
  for (const body of [content, content.repeat(8)]) {
    const response = await server.post(CHAT, { messages: [{ role: "user", content: body }] });
    const { error } = await response.json();
    assertEquals([response.status, error.type], [413, "invalid_request_error"]);
    assert(/1048576 bytes/.test(error.message));
  }
  const fits = JSON.stringify({ messages: HI, max_tokens: 1, user: "" });
  const whole = await server.post(CHAT, fits.replace('""', `"${"x".repeat(2 ** 20 - fits.length)}"`));
  assertEquals(whole.status, 200);
  await whole.body?.cancel();
});

Deno.test("a body that is not read to its end closes its connection, and the next request has another", async () => {
  await using server = (await endless()).server;
  const body = `{"prompt":"${"a".repeat(17 * 2 ** 20)}"}`;
  const response = await fetch(`${server.url}/v1/completions`, { method: "POST", body });
  assertEquals([response.status, response.headers.get("connection")], [413, "close"]);
  await response.text();
  const next = await fetch(`${server.url}/health`, { signal: AbortSignal.timeout(5000) });
  assertEquals([next.status, next.headers.get("connection")], [200, "keep-alive"]);
  await next.text();
});

Deno.test("bodies that are no JSON are status 400", async () => {
  await using server = (await endless()).server;
  const bodies = [
    "",
    "{",
    "[]",
    "7",
    '"a"',
    "null",
    "{}{}",
    "[".repeat(200_000),
    `{"messages":${"[".repeat(500)}${"]".repeat(500)}}`,
  ];
  for (const body of bodies) {
    const response = await server.post(CHAT, body);
    const { error } = await response.json();
    assertEquals([response.status, error.type], [400, "invalid_request_error"], body.slice(0, 20));
  }
  const response = await fetch(server.url + CHAT, { method: "POST", body: new Uint8Array([0x7b, 0xff, 0x7d]) });
  assertEquals([response.status, (await response.json()).error.message], [400, "The body is no UTF-8"]);
});

Deno.test("input that is no HTTP is refused, and the server goes on", async () => {
  await using server = (await endless()).server;
  const inputs: readonly (readonly [input: string, status: string])[] = [
    ["GARBAGE\r\n\r\n", "400"],
    ["GET / HTTP/1.1\r\n\r\n", "400"],
    [`POST ${CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n`, "400"],
    [`POST ${CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}`, "400"],
    [`POST ${CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`, "400"],
    [`GET / HTTP/1.1\r\nHost: x\r\nX: ${"y".repeat(100_000)}\r\n\r\n`, "431"],
    ["GET http://[::bad/ HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n", "404"],
    ["GET /%00%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404"],
  ];
  for (const [input, status] of inputs) {
    const reply = await readAll(await connect(server, input));
    assertEquals(reply.slice(9, 12), status, input.slice(0, 60));
  }
  assertEquals((await server.ask(CHAT, { messages: HI, max_tokens: 2 })).choices[0].message.content, "aa");
});

Deno.test("slow headers, slow bodies and idle connections are closed", async () => {
  await using server = (await endless({ limits: { headersMs: 100, requestMs: 200, idleMs: 150 } })).server;
  const slow = [
    "",
    "GET /health HTTP/1.1\r\nHos",
    `POST ${CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"mess`,
    "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", // answered, then idle
  ];
  const started = performance.now();
  const replies = await Promise.all(
    slow.map(async (text) => (await readAll(await connect(server, text))).slice(9, 12)),
  );
  assert(performance.now() - started < 20_000, "a connection stayed open");
  assertEquals([replies[1], replies[3]], ["408", "200"]);
});

Deno.test("a client that goes ends its answer, streamed or not", async () => {
  const { server, engine } = await endless();
  await using _ = server;
  for (const stream of [true, false]) {
    const body = JSON.stringify({ messages: HI, stream });
    const connection = await connect(
      server,
      `POST ${CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await until(() => engine.running === 1);
    connection.close();
    await until(() => engine.running === 0);
    assert(engine.requests.at(-1)!.signal!.aborted);
  }
  const text = await (await fetch(`${server.url}/metrics`)).text();
  assert(text.includes(`vkmx_requests_total{endpoint="${CHAT}",status="499"} 2`), text);
});

Deno.test("the engine's slot of a client that goes is free for the next one", async () => {
  const engine = ({ model, tokenizer }: lm.Loaded): lm.Engine =>
    new lm.Engine(model, tokenizer, { maxSequences: 1, maxQueue: 0, kvBytes: KV_BYTES });
  await using server = await TestServer.start({ engines: { [TINY]: engine } });
  // Without its EOS tokens the answer goes on to the end of the context.
  const endless = { messages: HI, max_tokens: 4000, logit_bias: { 4089: -100, 4091: -100 } };
  const gone = new AbortController();
  const response = await server.post(CHAT, { ...endless, stream: true }, { signal: gone.signal });
  assertEquals(response.status, 200);
  const full = await server.post(CHAT, { messages: HI, max_tokens: 1 });
  assertEquals([full.status, (await full.json()).error.code, full.headers.get("retry-after")], [
    503,
    "server_busy",
    "1",
  ]);
  gone.abort();
  await response.text().catch(() => {});
  let [status, tries] = [503, 0];
  while (status === 503 && tries++ < 500) {
    const next = await server.post(CHAT, { messages: HI, max_tokens: 1 });
    status = next.status;
    await next.body?.cancel();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assertEquals(status, 200);
});

Deno.test("a client that reads nothing stops its answer, and its connection ends", async () => {
  const engine = new ScriptedEngine(function* () {
    for (;;) yield { text: "a".repeat(10_000) };
  });
  await using server = await TestServer.start({ engines: { fast: () => engine }, limits: { stalledMs: 100 } });
  const body = JSON.stringify({ messages: HI, stream: true });
  const connection = await connect(
    server,
    `POST ${CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await until(() => engine.running === 1);
  await until(() => engine.running === 0);
  connection.close();
});

Deno.test("a drain answers what is there, takes no more, and closes idle connections", async () => {
  const { server, engine } = await endless();
  const idle = await connect(server, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const answer = server.events(CHAT, { messages: HI, max_tokens: 20 });
  await until(() => engine.running === 1);
  const { url } = server;
  const drained = server.server.drain();
  await assertRejects(() => fetch(`${url}/health`));
  const events = await answer;
  assertEquals(events.at(-1)!.data, "[DONE]");
  assertEquals(events.filter(({ data }) => data.choices?.[0].delta.content).length, 20);
  await drained;
  assert((await readAll(idle)).startsWith("HTTP/1.1 200"));
});

Deno.test("an address that cannot be had is named, and what was loaded is freed", async () => {
  await using server = (await endless()).server;
  const { port } = new URL(server.url);
  const engine = new ScriptedEngine(() => []);
  await assertRejects(
    () => TestServer.start({ engines: { other: () => engine }, port: Number(port) }),
    Error,
    `127.0.0.1:${port} cannot be listened on: another program listens there`,
  );
  await assertRejects(
    () =>
      Server.start({
        hostname: "127.0.0.1",
        port: 0,
        version: "0.0.0",
        models: ["x"],
        open: () => Promise.reject(new Error("no such model")),
      }),
    Error,
    "no such model",
  );
});

Deno.test("500 clients at once each get their own answer, whole", async () => {
  const engine = new ScriptedEngine(async function* ({ prompt }) {
    const [{ content }] = prompt as readonly { readonly content: string }[];
    for (const letter of content) {
      yield { text: letter };
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  });
  await using server = await TestServer.start({ engines: { echo: () => engine } });
  const texts = Array.from({ length: 500 }, (_, i) => `${i} ${String.fromCodePoint(0x4e00 + i)}`);
  const answers = await Promise.all(texts.map(async (content) => {
    const events = await server.events(CHAT, { messages: [{ role: "user", content }] });
    return events.map(({ data }) => data.choices?.[0].delta.content ?? "").join("");
  }));
  assertEquals(answers, texts);
});

Deno.test("long work in slices keeps no client waiting: its turns look at sockets", async () => {
  await using server = await TestServer.start({ engines: { none: () => new ScriptedEngine(() => []) } });
  const program = `const times = [];
    for (let i = 0; i < 21; i++) {
      const asked = performance.now();
      await (await fetch("${server.url}/health")).text();
      times.push(performance.now() - asked);
    }
    console.log(times.sort((a, b) => a - b)[10]);`;
  const client = new Deno.Command(Deno.execPath(), { args: ["eval", "--no-config", program] }).output();
  let isDone = false;
  void client.then(() => isDone = true);
  while (!isDone) {
    for (const end = performance.now() + 8; performance.now() < end;);
    await yieldToEventLoop();
  }
  const median = Number(new TextDecoder().decode((await client).stdout));
  assert(median > 0 && median < 60, `the median is ${median} ms`); // turns with timers alone take 105 and more
});
