/** Which calls a connection to an MCP server serves while it is on its way, and when it ends. The client is the test's own. */

import { assertEquals, assertRejects } from "@std/assert";
import { Connection } from "../../src/mcp/connection.ts";
import type { RequestOptions, Sdk } from "../../src/mcp/sdk.ts";

/** Clients that connect when the test says so, and a connection of them. */
function connecting(): {
  readonly connection: Connection;
  readonly connects: PromiseWithResolvers<void>[];
  closed: number;
} {
  const state = { connects: [] as PromiseWithResolvers<void>[], closed: 0 };
  class Client {
    connect(_: unknown, { signal }: RequestOptions): Promise<void> {
      const connect = Promise.withResolvers<void>();
      signal!.addEventListener("abort", () => connect.reject(signal!.reason));
      state.connects.push(connect);
      return connect.promise;
    }
    listTools = () => Promise.resolve({ tools: [] });
    callTool = ({ name }: { readonly name: string }) => Promise.resolve({ content: [{ type: "text", text: name }] });
    close = () => Promise.resolve(void state.closed++);
  }
  class Transport {
    close = () => Promise.resolve();
  }
  const sdk = { Client, StreamableHTTPClientTransport: Transport } as unknown as Sdk;
  const connection = new Connection({ name: "test", url: new URL("http://127.0.0.1:1"), headers: {} } as never, sdk);
  return Object.assign(state, { connection });
}

Deno.test("a call that is aborted leaves a connection on its way to the calls that wait with it", async () => {
  const one = connecting();
  const stop = new AbortController();
  const first = one.connection.call("first", {}, { signal: stop.signal });
  const second = one.connection.call("second", {}, { signal: new AbortController().signal });
  const third = one.connection.call("third", {}, {});
  stop.abort(new Error("stopped"));
  await assertRejects(() => first, Error, "stopped");
  one.connects[0].resolve();
  assertEquals((await second).content, [{ type: "text", text: "second" }]);
  assertEquals((await third).content, [{ type: "text", text: "third" }]);
  assertEquals([one.connects.length, one.closed], [1, 0]);
  // An open connection outlives all calls.
  const late = new AbortController();
  await one.connection.call("fourth", {}, { signal: late.signal });
  late.abort();
  await one.connection.call("fifth", {}, {});
  assertEquals([one.connects.length, one.closed], [1, 0]);
  await one.connection[Symbol.asyncDispose]();
  assertEquals(one.closed, 1);
});

Deno.test("a connection that no call waits for any more ends, and the next call connects anew", async () => {
  const one = connecting();
  const stops = [new AbortController(), new AbortController()];
  const calls = stops.map(({ signal }, i) => one.connection.call(`call ${i}`, {}, { signal }));
  const after = stops.map((stop, i) => {
    stop.abort(new Error(`stop ${i}`));
    return assertRejects(() => calls[i], Error, `stop ${i}`);
  });
  const next = one.connection.call("next", {}, {});
  await Promise.all(after);
  await assertRejects(
    () => one.connection.call("late", {}, { signal: AbortSignal.abort(new Error("before")) }),
    Error,
    "before",
  );
  one.connects[1].resolve();
  assertEquals((await next).content, [{ type: "text", text: "next" }]);
  assertEquals([one.connects.length, one.closed], [2, 1]);
  await one.connection[Symbol.asyncDispose]();
  assertEquals(one.closed, 2);
});

Deno.test("a connection ends if its last call is aborted at the moment when it is open", async () => {
  for (let moments = 0; moments < 16; moments++) {
    const one = connecting();
    const stop = new AbortController();
    const call = one.connection.call("call", {}, { signal: stop.signal }).catch(() => {});
    one.connects[0].resolve();
    for (let moment = 0; moment < moments; moment++) await Promise.resolve();
    stop.abort(new Error("stopped"));
    await call;
    await one.connection[Symbol.asyncDispose]();
    assertEquals(one.closed, 1, `aborted after ${moments} moments`);
  }
});

Deno.test("closing ends a connection on its way, and the calls that wait for it", async () => {
  const one = connecting();
  const calls = ["first", "second"].map((name) =>
    assertRejects(() => one.connection.call(name, {}, {}), Error, "has been closed")
  );
  await one.connection[Symbol.asyncDispose]();
  await Promise.all(calls);
  assertEquals([one.connects.length, one.closed], [1, 1]);
  await assertRejects(() => one.connection.call("late", {}, {}), Error, "has been closed");
});
