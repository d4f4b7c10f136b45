/**
 * A connection to one MCP server. A program that ended, or an address that did not answer, is asked anew with the next call.
 *
 * @module
 */

import { endProcess, killProcess, onExit } from "../../ffi/exit.ts";
import { VERSION } from "../../ffi/version.ts";
import { quoted, shownPath } from "../graph/error.ts";
import type { McpConfig } from "./config.ts";
import { McpError } from "./error.ts";
import type { CallResult, ListedTool, RequestOptions, Sdk, SdkClient, Transport } from "./sdk.ts";

/** Milliseconds in which a server has to be there: npx may download it first. */
const START_MS = 60_000;
/** Characters that are kept of what a program writes to stderr. */
const MAX_STDERR = 2000;

/** A connection that is open. */
interface Link {
  readonly client: SdkClient;
  readonly transport: Transport;
  /** Kills the child process where vkmx ends without closing it. */
  readonly atExit: Disposable;
  /** Whether the child process has ended, or the address is asked no more. */
  ended: boolean;
}

/** A connection that is open or on its way, for as long as a call waits for it. */
interface Opening {
  readonly link: Promise<Link>;
  /** Ends what is on its way. */
  readonly end: AbortController;
  waiting: number;
}

/** One server. */
export class Connection implements AsyncDisposable {
  readonly config: McpConfig;
  readonly #sdk: Sdk;
  #opening: Opening | undefined;
  #closed = false;
  #tools: readonly ListedTool[] = [];
  #stderr = "";

  constructor(config: McpConfig, sdk: Sdk) {
    this.config = config;
    this.#sdk = sdk;
  }

  /** The tools that the server listed last, but for those that the configuration leaves out. */
  get tools(): readonly ListedTool[] {
    const { tools } = this.config;
    return tools === undefined ? this.#tools : this.#tools.filter(({ name }) => tools.includes(name));
  }

  /** Connects and asks for the tools. Throws an {@link McpError} that says what the server did. */
  async start({ signal }: RequestOptions = {}): Promise<void> {
    await this.#connected(this.#opened(), signal);
  }

  /** Makes a call. Throws an {@link McpError} if the server does not answer in time or with an error, or the signal's reason. */
  async call(
    name: string,
    given: Record<string, unknown>,
    { timeout = START_MS, signal }: RequestOptions,
  ): Promise<CallResult> {
    const opening = this.#opened();
    const { client } = await this.#connected(opening, signal);
    try {
      return await client.callTool({ name, arguments: given }, { timeout, ...(signal && { signal }) });
    } catch (cause) {
      signal?.throwIfAborted();
      const { code, message } = cause as Error & { readonly code?: unknown };
      if (code === "REQUEST_TIMEOUT") {
        throw new McpError("call", `${this.config.name} did not answer within ${timeout / 1000} s`, { cause });
      }
      // JSON-RPC errors have a number: the connection is well. After others, such as those of HTTP, the next call connects anew.
      if (typeof code !== "number") await this.#drop(opening);
      throw new McpError("call", `${this.config.name}: ${message}${this.#lastWords}`, { cause });
    }
  }

  /** The connection that is open or on its way, or a new one. */
  #opened(): Opening {
    if (this.#closed) throw this.#closedError;
    if (this.#opening) return this.#opening;
    const end = new AbortController();
    const link = this.#connect(end.signal, () => this.#forget(opening));
    const opening: Opening = { link, end, waiting: 0 };
    link.catch(() => this.#forget(opening));
    return this.#opening = opening;
  }

  get #closedError(): McpError {
    return new McpError("call", `${this.config.name} has been closed`);
  }

  /** Waits for a connection. A call that is aborted leaves it to the others that wait; without any it ends. */
  async #connected(opening: Opening, signal: AbortSignal | undefined): Promise<Link> {
    opening.waiting++;
    const aborted = Promise.withResolvers<never>();
    const abort = (): void => {
      if (--opening.waiting > 0) return aborted.reject(signal!.reason);
      this.#forget(opening);
      opening.end.abort(signal!.reason); // the link rejects with it when all has ended
    };
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    try {
      const link = await Promise.race([opening.link, aborted.promise]);
      if (opening.end.signal.aborted) { // when it was open already, which this call sees only now
        await close(link);
        throw opening.end.signal.reason;
      }
      opening.waiting = Infinity; // it is open, whatever becomes of calls
      return link;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Has the next call connect anew, unless that was done since. */
  #forget(opening: Opening): void {
    if (this.#opening === opening) this.#opening = undefined;
  }

  async #connect(signal: AbortSignal, onEnd: () => void): Promise<Link> {
    this.#stderr = "";
    const transport = this.#transport();
    const client = new this.#sdk.Client({ name: "vkmx", version: VERSION }, {
      listChanged: {
        tools: {
          onChanged: (_, tools) => {
            if (tools !== null) this.#tools = tools;
          },
        },
      },
    });
    const link: Link = { client, transport, atExit: onExit(() => endNow(link)), ended: false };
    client.onclose = () => {
      link.ended = true;
      link.atExit[Symbol.dispose]();
      onEnd();
    };
    try {
      await client.connect(transport, { timeout: START_MS, signal });
      const { tools } = await client.listTools(undefined, { timeout: START_MS, signal });
      this.#tools = tools;
    } catch (cause) {
      await close(link);
      signal.throwIfAborted();
      throw new McpError(
        "start",
        `${this.config.name} does not start: ${reasonOf(cause, this.config)}${this.#lastWords}`,
        {
          cause,
        },
      );
    }
    return link;
  }

  #transport(): Transport {
    const { config } = this;
    if ("url" in config) {
      const requestInit = { headers: { ...config.headers } };
      return new this.#sdk.StreamableHTTPClientTransport(config.url, { requestInit });
    }
    const { command, args, env, cwd } = config;
    const transport = new this.#sdk.StdioClientTransport({
      command,
      args: [...args],
      env: { ...env },
      ...(cwd !== undefined && { cwd }),
      stderr: "pipe",
    });
    const stderr = transport.stderr as { on(event: "data", listener: (bytes: Uint8Array) => void): void };
    const text = new TextDecoder();
    stderr.on("data", (bytes) => {
      this.#stderr = (this.#stderr + text.decode(bytes, { stream: true })).slice(-MAX_STDERR);
    });
    return transport;
  }

  /** The last line that a program wrote to stderr, for messages. */
  get #lastWords(): string {
    const line = this.#stderr.trim().split("\n").at(-1)!.trim();
    return line === "" ? "" : `; its last words are ${quoted(line)}`;
  }

  /** Ends a connection. One that another call has opened since goes on. */
  async #drop(opening: Opening): Promise<void> {
    this.#forget(opening);
    await opening.link.then(close, () => {});
  }

  /** Ends the connection, also one on its way, and the program: its stdin is closed, and signals follow after two seconds each. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    const opening = this.#opening;
    if (!opening) return;
    if (opening.waiting < Infinity) opening.end.abort(this.#closedError); // on its way, which may take long
    await this.#drop(opening);
  }
}

async function close(link: Link): Promise<void> {
  const { client, transport, atExit } = link;
  const pid = transport.pid ?? undefined;
  await client.close().catch(() => {});
  await transport.close().catch(() => {}); // a client that never connected does not close it
  // The transport's own SIGKILL does nothing in Deno 2.9, whose ChildProcess takes the SIGTERM before it for the end.
  if (!link.ended && pid !== undefined) killProcess(pid);
  atExit[Symbol.dispose]();
}

function reasonOf(cause: unknown, config: McpConfig): string {
  const { message, code } = cause as Error & { readonly code?: unknown };
  const cwd = "command" in config ? config.cwd : undefined;
  // The system tells a missing folder like a missing program.
  const folder = cwd === undefined ? "" : `, or its "cwd" ${shownPath(cwd)} does not exist`;
  if (code === "ENOENT") return `there is no such program${folder}`;
  if (code === "EACCES") return "its program may not be run: look at the permissions of the file";
  const { status } = (cause as { readonly data?: { readonly status?: unknown } }).data ?? {};
  return message.replaceAll(/\s*\n\s*/g, " ") + (status === undefined ? "" : ` (status ${status})`);
}

/** Ends a child process where vkmx ends without closing it. */
function endNow({ transport: { pid }, ended }: Link): void {
  if (!ended && typeof pid === "number") endProcess(pid);
}
