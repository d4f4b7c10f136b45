/**
 * MCP servers for tests, made with the SDK's server side: a program over stdio, and one over HTTP in the test's process.
 *
 * As a program: `deno run -A mcp_server.ts [stubborn|silent|broken|old]`. "stubborn" ignores the end of its input and SIGTERM, "silent"
 * never answers, "broken" ends at once with an error.
 *
 * @module
 */

import { Server, WebStandardStreamableHTTPServerTransport } from "npm:@modelcontextprotocol/server@2.4.0";
import { StdioServerTransport } from "npm:@modelcontextprotocol/server@2.4.0/stdio";

/** A tool that a test's server lists. */
interface Listed {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: { readonly type: "object"; readonly [field: string]: unknown };
}

const tool = (name: string, properties: Record<string, unknown> = {}, required: readonly string[] = []): Listed => ({
  name,
  description: `Does ${name}`,
  inputSchema: { $schema: "https://json-schema.org/draft/2020-12/schema", type: "object", properties, required },
});

const text = (value: string) => ({ content: [{ type: "text" as const, text: value }] });

/** What calls give. Some never come to that. */
const RESULTS: Readonly<Record<string, (given: Record<string, unknown>, server: Server) => unknown>> = {
  echo: ({ text: said }) => text(String(said)),
  where: () =>
    text(`${Deno.cwd()} ${Deno.env.get("MCP_WORD") ?? "no word"} ${Deno.env.get("MCP_SECRET") ?? "no secret"}`),
  pid: () => text(String(Deno.pid)),
  fail: () => ({ ...text("the disk is full"), isError: true }),
  error: () => {
    throw new Error("no such thing");
  },
  hang: () => new Promise(() => {}),
  die: () => {
    console.error("a last word");
    Deno.exit(3);
  },
  parts: () => ({
    content: [
      { type: "text", text: "seen" },
      { type: "image", data: btoa("12345"), mimeType: "image/png" },
      { type: "audio", data: btoa("1234"), mimeType: "audio/wav" },
      { type: "resource_link", uri: "file:///a.txt", name: "a.txt" },
      { type: "resource", resource: { uri: "file:///b.txt", mimeType: "text/plain", text: "inner" } },
      { type: "resource", resource: { uri: "file:///c.bin", mimeType: "application/zip", blob: btoa("123") } },
    ],
  }),
  structured: () => ({ content: [], structuredContent: { degrees: 21 } }),
  long: () => text("é".repeat(50_000)),
  grow: async (_, server) => {
    grown = true;
    await server.sendToolListChanged();
    return text("grown");
  },
  grown: () => text("new"),
};

let grown = false;

/** A server with these tools, three to a page. */
function makeServer(): Server {
  const server = new Server({ name: "test", version: "1.0.0" }, { capabilities: { tools: { listChanged: true } } });
  server.setRequestHandler("tools/list", ({ params }) => {
    const names = Object.keys(RESULTS).filter((name) => name !== "grown" || grown);
    const from = Number(params?.cursor ?? 0);
    const tools = names.slice(from, from + 3).map((name) =>
      name === "echo" ? tool(name, { text: { type: "string" } }, ["text"]) : tool(name)
    );
    return { tools, ...(from + 3 < names.length && { nextCursor: String(from + 3) }) };
  });
  server.setRequestHandler("tools/call", async ({ params }) => {
    // deno-lint-ignore no-explicit-any -- results of all kinds
    return await RESULTS[params.name](params.arguments ?? {}, server) as any;
  });
  return server;
}

/** The arguments of `deno` that run this file as a program. */
export function mcpProgram(
  ...modes: readonly string[]
): { readonly command: string; readonly args: readonly string[] } {
  const args = ["run", "-A", "--quiet", "--no-check", "--no-lock", "--no-config", import.meta.filename!, ...modes];
  return { command: Deno.execPath(), args };
}

/** Whether a process runs, on Linux. */
export function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

/** A server over HTTP, whose requests need the header `authorization: Bearer word`. */
export class HttpMcpServer implements AsyncDisposable {
  readonly #sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();
  readonly #http: Deno.HttpServer<Deno.NetAddr>;
  /** Requests without the right header. */
  refused = 0;

  /** Listens; port 0 takes a free one. */
  constructor(port = 0) {
    this.#http = Deno.serve({ hostname: "127.0.0.1", port, onListen: () => {} }, (request) => this.#reply(request));
  }

  /** Its port. */
  get port(): number {
    return this.#http.addr.port;
  }

  /** Its address. */
  get url(): string {
    return `http://127.0.0.1:${this.port}/mcp`;
  }

  async #reply(request: Request): Promise<Response> {
    if (request.headers.get("authorization") !== "Bearer word") {
      this.refused++;
      return new Response("no", { status: 403 });
    }
    const id = request.headers.get("mcp-session-id");
    const found = id === null ? undefined : this.#sessions.get(id);
    if (found) return await found.handleRequest(request);
    if (id !== null) return new Response("no such session", { status: 404 });
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => crypto.randomUUID(),
      onsessioninitialized: (session) => void this.#sessions.set(session, transport),
    });
    await makeServer().connect(transport);
    return await transport.handleRequest(request);
  }

  /** Forgets all sessions, as a server does that was started again. */
  async forget(): Promise<void> {
    for (const transport of this.#sessions.values()) await transport.close();
    this.#sessions.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.forget();
    await this.#http.shutdown();
  }
}

if (import.meta.main) {
  const [mode] = Deno.args;
  if (mode === "broken") {
    console.error("starting\nconfiguration missing: TOKEN");
    Deno.exit(1);
  }
  if (mode === "stubborn") {
    Deno.addSignalListener("SIGTERM", () => {});
    Deno.addSignalListener("SIGINT", () => {});
    setInterval(() => {}, 1000);
  }
  if (mode === "silent") setInterval(() => {}, 1000);
  else await makeServer().connect(new StdioServerTransport());
}
