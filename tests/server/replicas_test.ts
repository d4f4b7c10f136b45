/**
 * A front of replicas whose replies the test writes. It shows which one a request goes to, and what becomes of it if replicas refuse,
 * hang or end.
 */

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { type Arrived, FakeFront, until } from "../support/server/fake_replicas.ts";
import { eventsOf } from "../support/server/served.ts";

const CHAT = "/v1/chat/completions";
const ASK = { messages: [{ role: "user", content: "Hi" }] };

function sendJson({ response }: Arrived, value: unknown, status = 200, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
}

function begin({ response }: Arrived, type = "text/event-stream; charset=utf-8"): void {
  response.writeHead(200, { "content-type": type, "cache-control": "no-cache" });
  response.flushHeaders();
}

const BUSY = { error: { message: "full", type: "server_error", param: null, code: "server_busy" } };

Deno.test("a reply comes as the replica sends it, and the request as the client sends it, with the replica's key", async () => {
  let seen: Arrived | undefined;
  await using fake = await FakeFront.start((arrived) => {
    seen = arrived;
    sendJson(arrived, { said: "ä€😀" }, 418, { "x-of-replica": "yes", "retry-after": "7" });
  }, { apiKey: "secret", cors: ["http://page"] });
  const body = JSON.stringify({ messages: "ä€😀", other: [1] });
  const headers = { authorization: "Bearer secret", origin: "http://page" };
  const response = await fake.post(CHAT, body, { headers });
  assertEquals([response.status, await response.json()], [418, { said: "ä€😀" }]);
  assertEquals(response.headers.get("x-of-replica"), "yes");
  assertEquals(response.headers.get("retry-after"), "7");
  assertEquals(response.headers.get("access-control-allow-origin"), "http://page");
  const { method, path, body: got, authorization, replica } = seen!;
  assertEquals([method, path, got, authorization], ["POST", CHAT, body, `Bearer key ${replica.number}`]);
});

Deno.test("limits, keys, origins and paths are the front's: no replica sees what is refused", async () => {
  let seen = 0;
  await using fake = await FakeFront.start((arrived) => (seen++, sendJson(arrived, {})), {
    apiKey: "secret",
    onError: (error) => assert(false, String(error)),
  });
  const key = { authorization: "Bearer secret" };
  const refused = async (path: string, body: unknown, headers: Record<string, string>): Promise<unknown[]> => {
    const response = await fake.post(path, body, { headers });
    return [response.status, (await response.json()).error.code];
  };
  assertEquals(await refused(CHAT, ASK, {}), [401, "invalid_api_key"]);
  assertEquals(await refused(CHAT, ASK, { ...key, origin: "http://page" }), [403, "origin_not_allowed"]);
  assertEquals(await refused(CHAT, "x".repeat(2 ** 20 + 1), key), [413, null]);
  assertEquals(await refused("/v1/chat", ASK, key), [404, "not_found"]);
  assertEquals(await refused("/v1/models", ASK, key), [405, "method_not_allowed"]);
  const connection = await Deno.connect({ hostname: "127.0.0.1", port: Number(new URL(fake.front.url).port) });
  const before = seen;
  const request =
    `GET /v1/responses/../../metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer secret\r\nconnection: close\r\n\r\n`;
  await connection.write(new TextEncoder().encode(request));
  const text = await new Response(connection.readable).text();
  assertStringIncludes(text, "HTTP/1.1 404");
  assertEquals(seen, before);
  await (await fake.post(CHAT, "{", { headers: key })).body?.cancel();
  assertEquals(seen, before + 1, "a replica says what is wrong with a body");
});

Deno.test("a full replica's requests go to others; if all are full, the reply says so", async () => {
  const full = new Set([0]);
  await using fake = await FakeFront.start((arrived) =>
    full.has(arrived.replica.number)
      ? sendJson(arrived, BUSY, 503, { "retry-after": "1" })
      : sendJson(arrived, { by: arrived.replica.number })
  );
  for (let i = 0; i < 4; i++) assertEquals(await (await fake.post(CHAT, ASK)).json(), { by: 1 });
  full.add(1);
  const response = await fake.post(CHAT, ASK);
  assertEquals([response.status, response.headers.get("retry-after"), await response.json()], [503, "1", BUSY]);
});

Deno.test("a request goes on elsewhere if its replica ends before a byte of the answer", async () => {
  // Three of a whole reply: before its headers, after them, and in the middle. Three of a stream: the last one is within an event.
  const deaths: ((arrived: Arrived) => void)[] = [
    () => {},
    (
      arrived,
    ) => (arrived.response.writeHead(200, { "content-type": "application/json" }), arrived.response.flushHeaders()),
    (arrived) => void arrived.response.writeHead(200, { "content-type": "application/json" }).write('{"by":'),
    (arrived) => begin(arrived),
    (arrived) => (begin(arrived), arrived.response.write(": ping\n\n")),
    (arrived) => (begin(arrived), arrived.response.write('data: {"half')),
  ];
  for (const [i, death] of deaths.entries()) {
    let first = true;
    await using fake = await FakeFront.start(async (arrived) => {
      if (arrived.path === "/v1/embeddings") return sendJson(arrived, {});
      if (!first) {
        if (i < 3) return sendJson(arrived, { by: "other" });
        begin(arrived);
        return void arrived.response.end('data: {"by":"other"}\n\ndata: [DONE]\n\n');
      }
      first = false;
      death(arrived);
      await new Promise((resolve) => setTimeout(resolve, 50));
      arrived.replica.die();
    });
    for (let k = 0; k < 4; k++) await (await fake.post("/v1/embeddings", {})).text(); // connections that were used before
    const response = await fake.post(CHAT, ASK);
    assertEquals(response.status, 200, `case ${i}`);
    const text = await response.text();
    if (i < 3) assertEquals(JSON.parse(text), { by: "other" });
    else assertEquals(eventsOf(text).map(({ data }) => data), [{ by: "other" }, "[DONE]"], `case ${i}`);
    await until("it is started again", () => fake.events.some(({ event }) => event === "restarted"));
    assertEquals(fake.events.map(({ event }) => event), ["ended", "restarted"]);
  }
});

Deno.test("a stream that ends in the middle has an error of its API last, and no part of an event", async () => {
  const rows: readonly [path: string, body: unknown, type: string, piece: string, last: unknown][] = [
    [CHAT, ASK, "text/event-stream", 'data: {"a":1}\n\n', {
      data: { error: { message: MESSAGE, type: "server_error", param: null, code: "server_unavailable" } },
    }],
    ["/v1/messages", ASK, "text/event-stream", 'event: a\ndata: {"a":1}\n\n', {
      name: "error",
      data: { type: "error", error: { type: "overloaded_error", message: MESSAGE } },
    }],
    [
      "/v1/responses",
      { input: "Hi" },
      "text/event-stream",
      'event: a\ndata: {"type":"a","sequence_number":41,"text":"\\"sequence_number\\":7"}\n\n',
      {
        name: "error",
        data: { type: "error", sequence_number: 42, code: "server_unavailable", message: MESSAGE, param: null },
      },
    ],
    ["/api/chat", ASK, "application/x-ndjson", '{"a":1}\n', { error: MESSAGE }],
  ];
  for (const [path, body, type, piece, last] of rows) {
    await using fake = await FakeFront.start(async (arrived) => {
      begin(arrived, type);
      arrived.response.write(piece);
      await new Promise((resolve) => setTimeout(resolve, 30));
      arrived.response.write('data: {"cut');
      await new Promise((resolve) => setTimeout(resolve, 30));
      arrived.replica.die();
    });
    const response = await fake.post(path, body);
    const text = await response.text();
    assert(!text.includes("cut"), text);
    assertStringIncludes(text, piece);
    const rest = text.slice(piece.length);
    assertEquals(type === "application/x-ndjson" ? JSON.parse(rest) : eventsOf(rest)[0], last);
  }
});

const MESSAGE = "The replica that was answering has ended: try again";

Deno.test("a request that ends each replica ends two, and none that is left is asked", async () => {
  let asked = 0;
  await using fake = await FakeFront.start((arrived) => (asked++, arrived.replica.die()), { count: 4, pauseMs: 5000 });
  const response = await fake.post(CHAT, ASK);
  assertEquals([response.status, response.headers.get("retry-after")], [503, "1"]);
  assertEquals((await response.json()).error.code, "server_unavailable");
  assertEquals(asked, 2);
  assertEquals((await fetch(`${fake.front.url}/health`).then((r) => r.json())).replicas.length, 4);
});

Deno.test("a client that goes ends its request at the replica, and counts no more", async () => {
  const closed = Promise.withResolvers<void>();
  await using fake = await FakeFront.start((arrived) => {
    if (arrived.path !== CHAT) return sendJson(arrived, { by: arrived.replica.number });
    arrived.response.on("close", () => closed.resolve());
    begin(arrived);
    arrived.response.write('data: {"a":1}\n\n');
  });
  const gone = new AbortController();
  const response = await fake.post(CHAT, ASK, { signal: gone.signal });
  const reader = response.body!.getReader();
  await reader.read();
  const next = async (): Promise<number> => (await (await fake.post("/v1/embeddings", {})).json()).by;
  assertEquals([await next(), await next()], [1, 1], "replica 0 is busy");
  gone.abort();
  await closed.promise;
  await reader.cancel().catch(() => {});
  assertEquals([await next(), await next()], [0, 1]);
});

Deno.test("one that does not answer is killed; one that ends is started again after pauses that grow", async () => {
  let fails = 0;
  const times: number[] = [];
  await using fake = await FakeFront.start((arrived) => sendJson(arrived, { by: arrived.replica.number }), {
    deadMs: 100,
    pauseMs: 40,
    onStart: () => {
      times.push(performance.now());
      if (fails-- > 0) throw new Error("it does not start");
    },
  });
  fails = 2;
  fake.replicas[1].isHealthy = false;
  await until("it serves again", () => fake.events.some(({ event }) => event === "restarted"));
  assertEquals(fake.replicas[1].orders, ["kill"]);
  assertEquals(fake.events.map(({ replica, event }) => `${replica} ${event}`), [
    "1 unresponsive",
    "1 ended",
    "1 failed",
    "1 failed",
    "1 restarted",
  ]);
  const [, , third, fourth, fifth] = times;
  assert(fourth - third >= 75 && fifth - fourth >= 155, `pauses of ${fourth - third} and ${fifth - fourth} ms`);
  const { status, replicas } = await (await fetch(`${fake.front.url}/health`)).json();
  assertEquals([status, replicas], ["ok", [
    { replica: 0, status: "ok", restarts: 0 },
    { replica: 1, status: "ok", restarts: 1 },
  ]]);
});

Deno.test("without a replica requests and health are 503, to be tried again", async () => {
  await using fake = await FakeFront.start((arrived) => sendJson(arrived, {}), { count: 1, pauseMs: 5000 });
  fake.replicas[0].die();
  await until("its end is seen", () => fake.events.length > 0);
  const paths = [["GET", "/health"], ["POST", CHAT], ["GET", "/v1/responses/resp_1"], ["POST", "/api/chat"]];
  for (const [method, path] of paths) {
    const response = await fetch(fake.front.url + path, { method, ...(method === "POST" && { body: "{}" }) });
    assertEquals([response.status, response.headers.get("retry-after")], [503, "1"], path);
    await response.body?.cancel();
  }
  assertEquals((await fetch(`${fake.front.url}/v1/models`).then((r) => r.json())).data[0].id, "fake");
});

Deno.test("if one does not start, the others end and the error says why", async () => {
  const killed: number[] = [];
  await assertRejects(
    () =>
      FakeFront.start(() => {}, {
        count: 3,
        start: async (number) => {
          if (number === 1) throw new Error("replica 1 did not start: no room");
          await Promise.resolve();
          const ended = Promise.withResolvers<string>();
          const kill = (): void => (killed.push(number), ended.resolve("killed"));
          const [closeQuestions, drain] = [(): void => {}, (): void => {}];
          return { url: "", key: "", device: "", ended: ended.promise, kill, closeQuestions, drain };
        },
      }),
    Error,
    "replica 1 did not start: no room",
  );
  assertEquals(killed.sort(), [0, 2]);
});

Deno.test("a drain answers what is there, then ends each replica", async () => {
  const held = Promise.withResolvers<Arrived>();
  const fake = await FakeFront.start((arrived) => held.resolve(arrived));
  const response = fake.post(CHAT, ASK);
  const arrived = await held.promise;
  const drained = fake.front.drain();
  await until("no question is asked", () => fake.replicas.every(({ orders }) => orders.includes("close questions")));
  assertEquals(fake.replicas.map(({ orders }) => orders), [["close questions"], ["close questions"]]);
  sendJson(arrived, { late: true });
  assertEquals(await (await response).json(), { late: true });
  await drained;
  for (const { orders } of fake.replicas) assertEquals(orders.at(-1), "drain");
  await assertRejects(() => fetch(`${fake.front.url}/health`), TypeError);
});

Deno.test("where all replicas are asked, one that does not answer is left out", async () => {
  await using fake = await FakeFront.start((arrived) => {
    const { replica, path } = arrived;
    if (replica.number === 0) return;
    if (path === "/api/ps") {
      return sendJson(arrived, { models: [{ name: "a", size: 2, size_vram: 2, expires_at: "1" }] });
    }
    sendJson(arrived, { id: "resp_1" }, arrived.method === "DELETE" ? 404 : 200);
  }, { askMs: 100 });
  const ask = async (path: string, method = "GET"): Promise<unknown> => {
    const response = await fetch(fake.front.url + path, { method });
    return [response.status, await response.json()];
  };
  assertEquals(await ask("/api/ps"), [200, { models: [{ name: "a", size: 2, size_vram: 2, expires_at: "1" }] }]);
  assertEquals(await ask("/v1/responses/resp_1"), [200, { id: "resp_1" }]);
  assertEquals(await ask("/v1/responses/resp_1", "DELETE"), [404, { id: "resp_1" }]);
});

Deno.test("metrics are sums, and by replica; counts of one that has ended stay", async () => {
  const text = (generated: number, running: number): string => {
    const head = "# HELP vkmx_requests_running Now.\n# TYPE vkmx_requests_running gauge\n";
    const rest = "# HELP vkmx_generation_tokens_total All.\n# TYPE vkmx_generation_tokens_total counter\n";
    return `${head}vkmx_requests_running{model="a b"} ${running}\n${rest}vkmx_generation_tokens_total{model="a b"} ${generated}\n`;
  };
  const counts = [10, 5];
  await using fake = await FakeFront.start(({ replica: { number }, path, response }) =>
    path === "/metrics" ? void response.end(text(counts[number], number + 1)) : void response.end("{}")
  );
  const read = async (): Promise<Map<string, number>> => {
    const found = await (await fetch(`${fake.front.url}/metrics`)).text();
    const lines = found.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    return new Map(
      lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ")))]),
    );
  };
  await (await fake.post(CHAT, ASK)).body?.cancel();
  const first = await read();
  assertEquals(first.get('vkmx_requests_running{model="a b"}'), 3);
  assertEquals(first.get('vkmx_generation_tokens_total{model="a b"}'), 15);
  assertEquals(first.get('vkmx_replica_generation_tokens_total{replica="1",model="a b"}'), 5);
  assertEquals(first.get(`vkmx_requests_total{endpoint="${CHAT}",status="200"}`), 1);
  assertEquals(first.get('vkmx_replica_requests_total{replica="0",reason="load"}'), 1);
  assertEquals([0, 1].map((i) => first.get(`vkmx_replica_up{replica="${i}"}`)), [1, 1]);
  counts[1] = 2;
  fake.replicas[1].die();
  await until("it serves again", () => fake.events.some(({ event }) => event === "restarted"));
  const second = await read();
  assertEquals(second.get('vkmx_generation_tokens_total{model="a b"}'), 10 + 5 + 2);
  assertEquals(second.get('vkmx_requests_running{model="a b"}'), 3);
  assertEquals(second.get('vkmx_replica_generation_tokens_total{replica="1",model="a b"}'), 2);
  assertEquals(second.get('vkmx_replica_restarts_total{replica="1"}'), 1);
});
