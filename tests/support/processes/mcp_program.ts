/**
 * An MCP server for tests, made with the SDK's server side. mcp_server.ts runs it as a program over stdio, or in a test's process over HTTP.
 *
 * As a program: `deno run -A mcp_program.ts [stubborn|silent|broken]`. "stubborn" ignores the end of its input and SIGTERM, "silent"
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

/** Begins a session over HTTP; `onOpen` gets its id once the client has it. */
export async function openSession(
  onOpen: (id: string, session: WebStandardStreamableHTTPServerTransport) => void,
): Promise<WebStandardStreamableHTTPServerTransport> {
  const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: () => crypto.randomUUID(),
    onsessioninitialized: (id) => onOpen(id, transport),
  });
  await makeServer().connect(transport);
  return transport;
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
