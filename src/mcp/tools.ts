/**
 * The tools of several MCP servers as functions that a model may call.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import { exactJson } from "../graph/exact_json.ts";
import type { McpConfig } from "./config.ts";
import { Connection } from "./connection.ts";
import { McpError } from "./error.ts";
import { resultText } from "./result.ts";
import { type ListedTool, loadSdk } from "./sdk.ts";

/** A tool of a server. Its `name` for the model is `server__tool`, so that tools of two servers may have one name. */
export interface McpTool extends lm.Tool<Record<string, unknown>> {
  /** The server by its name in the configuration. */
  readonly server: string;
  /** The tool by the server's name for it. */
  readonly tool: string;
}

/** Limits of calls. */
export interface McpLimits {
  /** Milliseconds of a call. Default 60,000. */
  readonly timeoutMs?: number;
  /** Bytes of a result in UTF-8; what is over it is cut off. Default 32,768. */
  readonly maxBytes?: number;
}

/** Default of {@link McpLimits}. */
export const DEFAULT_LIMITS = { timeoutMs: 60_000, maxBytes: 32_768 } as const satisfies McpLimits;

/** The servers of a configuration. They run until this is disposed. */
export class McpTools implements AsyncDisposable {
  readonly #connections: readonly Connection[];
  readonly #limits: Required<McpLimits>;
  /** Why servers did not start, by their names. */
  readonly failures: ReadonlyMap<string, McpError>;

  private constructor(
    connections: readonly Connection[],
    limits: Required<McpLimits>,
    failures: ReadonlyMap<string, McpError>,
  ) {
    this.#connections = connections;
    this.#limits = limits;
    this.failures = failures;
  }

  /**
   * Starts all servers. One that does not start is among the {@link McpTools.failures} and has no tools. Throws an {@link McpError} if the
   * SDK cannot be loaded, or the signal's reason.
   */
  static async open(
    configs: readonly McpConfig[],
    { signal, ...limits }: McpLimits & { readonly signal?: AbortSignal } = {},
  ): Promise<McpTools> {
    const sdk = await loadSdk();
    const connections = configs.map((config) => new Connection(config, sdk));
    const failures = new Map<string, McpError>();
    const opened = new McpTools(connections, { ...DEFAULT_LIMITS, ...limits }, failures);
    const started = await Promise.allSettled(connections.map((one) => one.start(signal ? { signal } : {})));
    for (const [i, result] of started.entries()) {
      if (result.status === "fulfilled") continue;
      if (result.reason instanceof McpError) failures.set(configs[i].name, result.reason);
      else {
        await opened[Symbol.asyncDispose]();
        throw result.reason;
      }
    }
    return opened;
  }

  /** Names of the servers. */
  get servers(): readonly string[] {
    return this.#connections.map(({ config }) => config.name);
  }

  /** The tools that the servers offer now: a server may change its list. */
  get tools(): readonly McpTool[] {
    const taken = new Set<string>();
    return this.#connections.flatMap((connection) =>
      connection.tools.map((listed) => this.#toolOf(connection, listed, taken))
    );
  }

  #toolOf(connection: Connection, listed: ListedTool, taken: Set<string>): McpTool {
    const { name: server } = connection.config;
    const { timeoutMs: timeout, maxBytes } = this.#limits;
    const { $schema: _, ...parameters } = listed.inputSchema;
    const name = freeName(`${server}__${listed.name}`, taken);
    return {
      name,
      server,
      tool: listed.name,
      ...(listed.description !== undefined && { description: listed.description }),
      parameters: parameters as lm.JsonSchema,
      run: async (given, { signal }) => {
        const plain = JSON.parse(exactJson(given)); // the SDK's messages have no bigints
        const result = await connection.call(listed.name, plain, { timeout, ...(signal && { signal }) });
        const text = resultText(result, maxBytes);
        if (result.isError) throw new McpError("call", text);
        return text;
      },
    };
  }

  /** Ends all servers. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#connections.map((one) => one[Symbol.asyncDispose]()));
  }
}

/** A name of letters, digits, `_` and `-`, as all families write one, that no other tool has. */
function freeName(wanted: string, taken: Set<string>): string {
  const plain = wanted.replaceAll(/[^A-Za-z0-9_-]/g, "_");
  let name = plain;
  for (let i = 2; taken.has(name); i++) name = `${plain}_${i}`;
  taken.add(name);
  return name;
}
