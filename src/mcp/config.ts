/**
 * The file that names MCP servers, in the form of Claude Desktop and LM Studio:
 *
 *     { "mcpServers": { "files": { "command": "npx", "args": ["-y", "server"] }, "web": { "url": "https://…" } } }
 *
 * Fields of other programs are ignored, but for `disabled`.
 *
 * @module
 */

import { FileError, readFile } from "../../ffi/file.ts";
import { quoted, shownPath } from "../graph/error.ts";
import { McpError } from "./error.ts";

/** What all servers have. */
interface Named {
  readonly name: string;
  /** Names of the tools that are offered. Default all. */
  readonly tools?: readonly string[];
}

/** A server that is a program. */
export interface StdioConfig extends Named {
  readonly command: string;
  readonly args: readonly string[];
  /** Variables of its environment besides PATH, HOME and the like. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** A server that is asked over streamable HTTP. */
export interface HttpConfig extends Named {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/** A server. */
export type McpConfig = StdioConfig | HttpConfig;

const MAX_BYTES = 2 ** 20;

/** Transports that some programs name in `type`, and that are no streamable HTTP. */
const OLD_TRANSPORT = "sse";

/** The servers of a file. Throws an {@link McpError} with code "config" that names the file, the place and what would be right. */
export function readMcpConfig(path: string): readonly McpConfig[] {
  const fail = (what: string, cause?: unknown): never => {
    throw new McpError("config", `${shownPath(path)} ${what}`, { cause });
  };
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(readFile(path, MAX_BYTES)));
  } catch (cause) {
    return fail(cause instanceof FileError ? cause.message : `is no JSON: ${(cause as Error).message}`, cause);
  }
  const expected = 'expected {"mcpServers": {NAME: {"command": …} or {"url": …}}}';
  if (!isObject(value) || !isObject(value.mcpServers)) {
    return fail(`has no "mcpServers" with servers by name: ${expected}`);
  }
  const servers = Object.entries(value.mcpServers);
  if (servers.length === 0) fail(`names no server: ${expected}`);
  return servers.filter(([, server]) => !isObject(server) || server.disabled !== true)
    .map(([name, server]) => serverOf(name, server, (what) => fail(`has mcpServers.${shownPath(name)}${what}`)));
}

type Fail = (what: string) => never;

function serverOf(name: string, server: unknown, fail: Fail): McpConfig {
  if (!isObject(server)) return fail(` ${quoted(server)}, expected an object with "command" or "url"`);
  const { command, url, type, tools } = server;
  if (name === "") fail(" without a name");
  if ((command === undefined) === (url === undefined)) {
    fail(command === undefined ? ' without "command" or "url"' : ' with "command" and "url", expected one of them');
  }
  const common = { name, ...(tools !== undefined && { tools: texts(tools, "tools", fail) }) };
  if (url === undefined) {
    if (typeof command !== "string" || command === "") fail(`.command ${quoted(command)}, expected a program`);
    const { args = [], env = {}, cwd } = server;
    if (cwd !== undefined && typeof cwd !== "string") fail(`.cwd ${quoted(cwd)}, expected a folder`);
    return {
      ...common,
      command: command as string,
      args: texts(args, "args", fail),
      env: record(env, "env", fail),
      ...(cwd !== undefined && { cwd: cwd as string }),
    };
  }
  if (type === OLD_TRANSPORT) fail('.type "sse": expected a server of streamable HTTP, which replaced it');
  const address = typeof url === "string" ? URL.parse(url) : null;
  if (address === null || !/^https?:$/.test(address.protocol)) {
    return fail(`.url ${quoted(url)}, expected an address with http:// or https://`);
  }
  return { ...common, url: address, headers: record(server.headers ?? {}, "headers", fail) };
}

function texts(value: unknown, field: string, fail: Fail): readonly string[] {
  if (Array.isArray(value) && value.every((text) => typeof text === "string")) return value;
  return fail(`.${field} ${quoted(value)}, expected a list of texts`);
}

function record(value: unknown, field: string, fail: Fail): Readonly<Record<string, string>> {
  if (!isObject(value)) return fail(`.${field} ${quoted(value)}, expected an object of texts`);
  const wrong = Object.keys(value).find((key) => typeof value[key] !== "string");
  if (wrong !== undefined) fail(`.${field}.${shownPath(wrong)} that is no text: put it into quotation marks`);
  return value as Record<string, string>;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
