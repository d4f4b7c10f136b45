/**
 * What vkmx uses of the MCP SDK's client, which npm has. It is loaded when the first server is asked for.
 *
 * @module
 */

import { McpError } from "./error.ts";

/** The package, in the version of deno.json. */
export const SDK = "npm:@modelcontextprotocol/client@2.4.0";

/** A tool as a server lists it. */
export interface ListedTool {
  readonly name: string;
  readonly description?: string | undefined;
  readonly inputSchema: Readonly<Record<string, unknown>>;
}

/** A part of the result of a call. */
export interface ContentPart {
  readonly type: string;
  readonly text?: unknown;
  readonly data?: unknown;
  readonly mimeType?: unknown;
  readonly name?: unknown;
  readonly uri?: unknown;
  readonly resource?: unknown;
}

/** The result of a call. */
export interface CallResult {
  readonly content?: readonly ContentPart[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean | undefined;
}

/** Limits of a request. */
export interface RequestOptions {
  /** Milliseconds. */
  readonly timeout?: number;
  readonly signal?: AbortSignal;
}

/** A connection to a server. */
export interface Transport {
  /** Of a program: what it writes to stderr. */
  readonly stderr?: unknown;
  /** Of a program that runs. */
  readonly pid?: number | null;
  close(): Promise<void>;
}

/** A client of one server. */
export interface SdkClient {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  connect(transport: Transport, options?: RequestOptions): Promise<void>;
  /** The tools of all pages. */
  listTools(params?: undefined, options?: RequestOptions): Promise<{ readonly tools: readonly ListedTool[] }>;
  callTool(
    call: { readonly name: string; readonly arguments: Record<string, unknown> },
    options?: RequestOptions,
  ): Promise<CallResult>;
  close(): Promise<void>;
}

/** Called when a server's list has changed; the SDK asks for the new one. */
export type OnToolsChanged = (error: Error | null, tools: readonly ListedTool[] | null) => void;

/** The parts of the SDK. */
export interface Sdk {
  readonly Client: new (
    info: { readonly name: string; readonly version: string },
    options: { readonly listChanged: { readonly tools: { readonly onChanged: OnToolsChanged } } },
  ) => SdkClient;
  readonly StdioClientTransport: new (server: {
    readonly command: string;
    readonly args: string[];
    readonly env: Record<string, string>;
    readonly cwd?: string;
    readonly stderr: "pipe";
  }) => Transport;
  readonly StreamableHTTPClientTransport: new (
    url: URL,
    options: { readonly requestInit: { readonly headers: Record<string, string> } },
  ) => Transport;
}

/** Loads the SDK. Throws an {@link McpError} if npm's package cannot be had. */
export async function loadSdk(): Promise<Sdk> {
  try {
    // Variables: the registry is asked only when these lines run.
    const [client, stdio] = [SDK, `${SDK}/stdio`];
    return { ...await import(client), ...await import(stdio) };
  } catch (cause) {
    throw new McpError("sdk", `${SDK} cannot be loaded: ${(cause as Error).message.split("\n")[0]}`, { cause });
  }
}
