/**
 * MCP servers for tests: a program over stdio, and one over HTTP in the test's process. Their tests need "mcp sdk" of needs.ts.
 *
 * @module
 */

import { fileURLToPath } from "node:url";

/** The program; it loads the SDK from npm. */
const PROGRAM = fileURLToPath(new URL("mcp_program.ts", import.meta.url));

/** A session of a client over HTTP. */
interface Session {
  handleRequest(request: Request): Promise<Response>;
  close(): Promise<void>;
}

/** Begins a session; the callback gets it with its id once the client has that. */
type OpenSession = (onOpen: (id: string, session: Session) => void) => Promise<Session>;

/** The arguments of `deno` that run the program. */
export function mcpProgram(
  ...modes: readonly string[]
): { readonly command: string; readonly args: readonly string[] } {
  const args = ["run", "-A", "--quiet", "--no-check", "--no-lock", "--no-config", PROGRAM, ...modes];
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
  readonly #openSession: OpenSession;
  readonly #sessions = new Map<string, Session>();
  readonly #http: Deno.HttpServer<Deno.NetAddr>;
  /** Requests without the right header. */
  refused = 0;

  private constructor(openSession: OpenSession, port: number) {
    this.#openSession = openSession;
    this.#http = Deno.serve({ hostname: "127.0.0.1", port, onListen: () => {} }, (request) => this.#reply(request));
  }

  /** Loads the SDK and listens; port 0 takes a free one. */
  static async start(port = 0): Promise<HttpMcpServer> {
    const { openSession } = await import("./mcp_program.ts");
    return new HttpMcpServer(openSession, port);
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
    const session = await this.#openSession((id, opened) => void this.#sessions.set(id, opened));
    return await session.handleRequest(request);
  }

  /** Forgets all sessions, as a server does that was started again. */
  async forget(): Promise<void> {
    for (const session of this.#sessions.values()) await session.close();
    this.#sessions.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.forget();
    await this.#http.shutdown();
  }
}
