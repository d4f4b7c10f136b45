/**
 * Tools of MCP servers: real servers of the SDK as child processes and over HTTP, what calls of them give, and that none is left.
 */

import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import type * as ClientSdk from "@modelcontextprotocol/client";
import type * as StdioSdk from "@modelcontextprotocol/client/stdio";
import { withOptions } from "../../scripts/support/options.ts";
import { type McpConfig, readMcpConfig } from "../../src/mcp/config.ts";
import { Connection } from "../../src/mcp/connection.ts";
import { Consent } from "../../src/mcp/consent.ts";
import { McpError } from "../../src/mcp/error.ts";
import type { Sdk, SdkClient } from "../../src/mcp/sdk.ts";
import { McpTools } from "../../src/mcp/tools.ts";
import { needing } from "../support/needs.ts";
import { HttpMcpServer, isRunning, mcpProgram } from "../support/processes/mcp_server.ts";

/** The SDK leaves timers of two seconds after each end, which keep no program from ending. The tests look for processes themselves. */
const LOOSE = { sanitizeOps: false, sanitizeResources: false } as const;

/** A test of the SDK, on systems where it can be run. */
async function test(name: string, fn: () => Promise<void>, runs = true): Promise<void> {
  const need = await needing(name, "mcp sdk");
  Deno.test({ ...need, ignore: need.ignore || !runs, fn, ...LOOSE });
}

/** Fails to compile where the SDK is not what src/mcp/sdk.ts says. */
const _sdk = (client: typeof ClientSdk, stdio: typeof StdioSdk): Sdk => ({ ...client, ...stdio });

const stdio = (name: string, ...modes: readonly string[]): McpConfig => ({ name, ...mcpProgram(...modes), env: {} });

const http = (name: string, { url }: HttpMcpServer, word = "word"): McpConfig => ({
  name,
  url: new URL(url),
  headers: { authorization: `Bearer ${word}` },
});

/** The result of a call, or "error: " and the message of its error. */
async function call(tools: McpTools, name: string, given = {}, signal?: AbortSignal): Promise<string> {
  const found = tools.tools.find((one) => one.name === name)!;
  try {
    return String(await found.run(given, signal ? { signal } : {}));
  } catch (error) {
    signal?.throwIfAborted();
    if (!(error instanceof McpError)) throw error;
    return `error: ${error.message}`;
  }
}

/** What is the same of a program and over HTTP. */
async function checkCalls(tools: McpTools, server: string): Promise<void> {
  assertEquals(await call(tools, `${server}__echo`, { text: "né\n2" }), "né\n2");
  assertEquals(await call(tools, `${server}__fail`), "error: the disk is full");
  assertMatch(await call(tools, `${server}__error`), new RegExp(`^error: ${server}: .*no such thing$`));
  assertEquals((await call(tools, `${server}__parts`)).split("\n"), [
    "seen",
    "[image: image/png, 5 bytes, which a model of text cannot read]",
    "[audio: audio/wav, 4 bytes, which a model of text cannot read]",
    "[resource a.txt: file:///a.txt]",
    "inner",
    "[resource file:///c.bin: application/zip, 3 bytes, which is no text]",
  ]);
  assertEquals(await call(tools, `${server}__structured`), '{"degrees":21}');
  const long = await call(tools, `${server}__long`);
  assertEquals(long, `${"é".repeat(500)}\n[cut: 100000 bytes, of which these are the first 1001]`);
  assertEquals(await call(tools, `${server}__hang`), `error: ${server} did not answer within 0.5 s`);
  assertEquals(await call(tools, `${server}__echo`, { text: "well" }), "well"); // after an error and a timeout
  const stop = new AbortController();
  const stopped = call(tools, `${server}__hang`, {}, stop.signal);
  stop.abort(new Error("stop"));
  await assertRejects(() => stopped, Error, "stop");
}

await test("servers over stdio and HTTP: tools of all pages under names of their own, results of all kinds, limits", async () => {
  await using web = await HttpMcpServer.start();
  const configs = [stdio("a", "x"), http("b", web), { ...stdio("c"), tools: ["echo", "pid"] }, {
    ...stdio("a.b"),
    tools: ["echo"],
  }, { ...stdio("a_b"), tools: ["echo"] }];
  await using tools = await McpTools.open(configs, { timeoutMs: 500, maxBytes: 1001 });
  assertEquals([...tools.failures.values()], []);
  const names = tools.tools.map(({ name }) => name);
  const all = ["echo", "where", "pid", "fail", "error", "hang", "die", "parts", "structured", "long", "grow"];
  assertEquals(names, [
    ...all.map((name) => `a__${name}`),
    ...all.map((name) => `b__${name}`),
    ...["c__echo", "c__pid", "a_b__echo", "a_b__echo_2"],
  ]);
  const { description, parameters, server, tool } = tools.tools[0];
  assertEquals([description, server, tool], ["Does echo", "a", "echo"]);
  assertEquals(parameters, { type: "object", properties: { text: { type: "string" } }, required: ["text"] });
  await checkCalls(tools, "a");
  await checkCalls(tools, "b");
});

await test("a program gets its folder and variables, and none of the other variables of vkmx", async () => {
  const cwd = await Deno.realPath(await Deno.makeTempDir());
  try {
    using _options = withOptions({ env: { MCP_SECRET: "secret" } });
    await using tools = await McpTools.open([{ ...stdio("s"), env: { MCP_WORD: "hello" }, cwd } as McpConfig]);
    assertEquals(await call(tools, "s__where"), `${cwd} hello no secret`);
  } finally {
    await Deno.remove(cwd);
  }
});

Deno.test("a program that ends slowly leaves the one that was started after it", LOOSE, async () => {
  // Clients that each give a malformed result to their first call, and whose end takes until `ended` resolves.
  const ended = Promise.withResolvers<void>();
  const open = new Set<object>();
  class Client implements SdkClient {
    onclose = (): void => {};
    #calls = 0;
    connect(): Promise<void> {
      open.add(this);
      return Promise.resolve();
    }
    listTools = () => Promise.resolve({ tools: [] });
    callTool = ({ name }: { readonly name: string }) =>
      this.#calls++ === 0 && name === "wrong"
        ? Promise.reject(Object.assign(new Error("malformed"), { code: "INVALID_RESULT" }))
        : Promise.resolve({ content: [] });
    async close(): Promise<void> {
      await ended.promise;
      if (open.delete(this)) this.onclose();
    }
  }
  class HttpTransport {
    close = (): Promise<void> => Promise.resolve();
  }
  const sdk = { Client, StdioClientTransport: HttpTransport, StreamableHTTPClientTransport: HttpTransport };
  const connection = new Connection({ name: "s", url: new URL("http://127.0.0.1/"), headers: {} }, sdk);
  const failing = connection.call("wrong", {}, {});
  failing.catch(() => {});
  await new Promise((done) => setTimeout(done)); // it ends its connection now
  await connection.call("right", {}, {});
  assertEquals(open.size, 2);
  ended.resolve();
  await assertRejects(() => failing, McpError, "malformed");
  await connection.call("right", {}, {});
  assertEquals(open.size, 1);
  await connection[Symbol.asyncDispose]();
  assertEquals(open.size, 0);
});

await test("a server that dies is started again by the next call, and a changed list is seen", async () => {
  await using web = await HttpMcpServer.start();
  await using tools = await McpTools.open([stdio("s"), http("h", web)]);
  const before = await call(tools, "s__pid");
  assertMatch(await call(tools, "s__die"), /^error: s: .*; its last words are "a last word"$/);
  const after = await call(tools, "s__pid");
  assert(before !== after && /^\d+$/.test(after), `${before} ${after}`);
  await web.forget();
  assertMatch(await call(tools, "h__echo", { text: "a" }), /^error: h: /);
  assertEquals(await call(tools, "h__echo", { text: "b" }), "b");
  const names = () => tools.tools.map(({ name }) => name);
  assert(!names().includes("s__grown"));
  assertEquals(await call(tools, "s__grow"), "grown");
  for (let i = 0; i < 200 && !names().includes("s__grown"); i++) await new Promise((r) => setTimeout(r, 10));
  assertEquals(await call(tools, "s__grown"), "new");
});

await test("servers that do not start are told apart, and the others work", async () => {
  await using web = await HttpMcpServer.start();
  const configs: McpConfig[] = [
    stdio("broken", "broken"),
    { name: "missing", command: "vkmx-no-such-program", args: [], env: {} },
    http("refused", web, "wrong"),
    { name: "gone", url: new URL("http://127.0.0.1:1/mcp"), headers: {} },
    { ...stdio("homeless"), cwd: "/no/such/folder" } as McpConfig,
    { name: "text", command: import.meta.filename!, args: [], env: {} },
    stdio("well"),
  ];
  await using tools = await McpTools.open(configs);
  assertEquals([...tools.failures.keys()], ["broken", "missing", "refused", "gone", "homeless", "text"]);
  const messages = Array.from(tools.failures.values(), ({ message }) => message);
  assertMatch(messages[0], /^broken does not start: .*; its last words are "configuration missing: TOKEN"$/);
  assertEquals(messages[1], "missing does not start: there is no such program");
  assertMatch(messages[2], /^refused does not start: .*403/);
  assertMatch(messages[3], /^gone does not start: /);
  const either = 'there is no such program, or its "cwd" /no/such/folder does not exist';
  assertEquals(messages[4], `homeless does not start: ${either}`);
  assertEquals(messages[5], "text does not start: its program may not be run: look at the permissions of the file");
  assert(messages.every((message) => !message.includes("\n")));
  assertEquals(await call(tools, "well__echo", { text: "a" }), "a");
});

await test("no program is left after the end, also of those that ignore it, and a start can be stopped", async () => {
  let pids: number[];
  {
    await using tools = await McpTools.open([stdio("s"), stdio("stubborn", "stubborn")]);
    pids = [Number(await call(tools, "s__pid")), Number(await call(tools, "stubborn__pid"))];
    assert(pids.every(isRunning));
  }
  for (let i = 0; i < 100 && pids.some(isRunning); i++) await new Promise((r) => setTimeout(r, 10));
  assertEquals(pids.filter(isRunning), []);
  const stop = new AbortController();
  const opening = McpTools.open([stdio("silent", "silent")], { signal: stop.signal });
  setTimeout(() => stop.abort(new Error("stop")), 300);
  await assertRejects(() => opening, Error, "stop");
}, Deno.build.os === "linux");

Deno.test("a file of servers is read as other programs write it, and a mistake is named with its place", () => {
  const path = Deno.makeTempFileSync({ suffix: ".json" });
  const read = (value: unknown) => {
    Deno.writeTextFileSync(path, typeof value === "string" ? value : JSON.stringify(value));
    return readMcpConfig(path);
  };
  const files = {
    command: "npx",
    args: ["-y", "server-files", "/tmp"],
    env: { TOKEN: "t" },
    type: "stdio",
    autoApprove: [],
  };
  const web = { type: "http", url: "https://example.org/mcp", headers: { Authorization: "Bearer t" }, tools: ["a"] };
  assertEquals(read({ mcpServers: { files, web, off: { command: "x", disabled: true } }, other: 1 }), [
    { name: "files", command: "npx", args: ["-y", "server-files", "/tmp"], env: { TOKEN: "t" } },
    { name: "web", url: new URL("https://example.org/mcp"), headers: { Authorization: "Bearer t" }, tools: ["a"] },
  ]);
  const wrong: readonly (readonly [value: unknown, message: string])[] = [
    ["{", "is no JSON: "],
    [[], 'has no "mcpServers" with servers by name: expected '],
    [{ servers: { a: files } }, 'has no "mcpServers" with servers by name: expected '],
    [{ mcpServers: {} }, "names no server: expected "],
    [{ mcpServers: { a: "npx" } }, 'has mcpServers.a "npx", expected an object with "command" or "url"'],
    [{ mcpServers: { a: {} } }, 'has mcpServers.a without "command" or "url"'],
    [{ mcpServers: { a: { ...files, ...web } } }, 'has mcpServers.a with "command" and "url", expected one of them'],
    [{ mcpServers: { a: { command: 1 } } }, "has mcpServers.a.command 1, expected a program"],
    [{ mcpServers: { a: { command: "x", args: "-y" } } }, 'has mcpServers.a.args "-y", expected a list of texts'],
    [
      { mcpServers: { a: { command: "x", env: { N: 1 } } } },
      "has mcpServers.a.env.N that is no text: put it into quotation marks",
    ],
    [{ mcpServers: { a: { command: "x", cwd: 1 } } }, "has mcpServers.a.cwd 1, expected a folder"],
    [
      { mcpServers: { a: { url: "ftp://x" } } },
      'has mcpServers.a.url "ftp://x", expected an address with http:// or https://',
    ],
    [{ mcpServers: { a: { url: "http://x", type: "sse" } } }, 'has mcpServers.a.type "sse": expected '],
    [
      { mcpServers: { a: { url: "http://x", headers: [] } } },
      "has mcpServers.a.headers [], expected an object of texts",
    ],
  ];
  for (const [value, message] of wrong) {
    const error = assertThrows(() => read(value), McpError);
    assert(error.message.startsWith(`${path} ${message}`), error.message);
    assertEquals(error.code, "config");
  }
  Deno.removeSync(path);
  assertEquals(assertThrows(() => readMcpConfig(path), McpError).message, `${path} does not exist`);
});

Deno.test("consent is for all, for a server, or for a tool", () => {
  const allowed = (list: readonly string[]) =>
    ["a.x", "a.y", "ab.x"].filter((name) => {
      const [server, tool] = name.split(".");
      return new Consent(list).allows({ server, tool });
    });
  assertEquals(allowed([]), []);
  assertEquals(allowed(["all"]), ["a.x", "a.y", "ab.x"]);
  assertEquals(allowed(["a"]), ["a.x", "a.y"]);
  assertEquals(allowed(["a.x", "ab"]), ["a.x", "ab.x"]);
  const consent = new Consent([]);
  consent.add({ server: "a", tool: "x" });
  assert(consent.allows({ server: "a", tool: "x" }) && !consent.allows({ server: "a", tool: "y" }));
});
