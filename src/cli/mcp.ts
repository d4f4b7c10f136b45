/**
 * The tools of MCP servers on the command line: flags, the start of the servers, and how a call is shown.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import { exactJson } from "../graph/exact_json.ts";
import { quoted, shownPath, withoutMarks } from "../graph/error.ts";
import { type McpConfig, readMcpConfig } from "../mcp/config.ts";
import { Consent } from "../mcp/consent.ts";
import { DEFAULT_LIMITS, type McpTool, McpTools } from "../mcp/tools.ts";
import { type Flags, UsageError, type Values } from "./flags.ts";

/** Flags of commands that offer tools. */
export const MCP_FLAGS = {
  "mcp": {
    value: "FILE",
    help: "offer the tools of the MCP servers that a JSON file names (none)",
    meant: ["mcp-config", "mcp-servers", "tools"],
  },
  "mcp-allow": {
    value: "NAMES",
    help: "call without a question: all, or servers and server.tool with commas between them (none)",
  },
  "mcp-rounds": {
    value: "N",
    help: "most answers to one message, the last of which makes no call (16)",
    range: [1, 1000],
    whole: true,
  },
  "mcp-timeout": { value: "SECONDS", help: "most time of a call (60)", range: [0.001, 86_400] },
  "mcp-bytes": {
    value: "N",
    help: "most bytes of a call's result; the rest is cut off (32768)",
    range: [1, 2 ** 20],
    whole: true,
  },
} as const satisfies Flags;

const DEFAULT_ROUNDS = 16;

/** Servers that run, and what their tools may do. */
export interface McpHost extends AsyncDisposable {
  /** The tools that the servers offer now. */
  readonly tools: McpTools;
  /** Tools that need no question. */
  readonly consent: Consent;
  /** Most answers to one message. */
  readonly maxRounds: number;
}

/**
 * Starts the servers of --mcp; undefined without it. `warn` gets a line of each server that does not start. Throws a {@link UsageError}
 * for flags that do not fit, and an McpError for a wrong file.
 */
export async function openMcp(
  values: Values<typeof MCP_FLAGS>,
  { warn, signal }: { readonly warn: (line: string) => void; readonly signal?: AbortSignal },
): Promise<McpHost | undefined> {
  const { mcp: path, "mcp-timeout": seconds, "mcp-bytes": maxBytes, "mcp-rounds": maxRounds = DEFAULT_ROUNDS } = values;
  if (path === undefined) {
    const needless = Object.keys(MCP_FLAGS).find((name) => values[name as keyof typeof MCP_FLAGS] !== undefined);
    if (needless !== undefined) throw new UsageError(`--${needless} needs --mcp FILE`);
    return undefined;
  }
  const configs = readMcpConfig(path);
  const allowed = (values["mcp-allow"] ?? "").split(",").map((name) => name.trim()).filter((name) => name !== "");
  const unknown = allowed.find((name) => name !== "all" && !configs.some((config) => isOf(name, config)));
  if (unknown !== undefined) {
    const names = configs.map(({ name }) => name).join(", ");
    throw new UsageError(
      `--mcp-allow is ${quoted(unknown)}, expected all, or one of ${names}, or its tool as server.tool`,
    );
  }
  const tools = await McpTools.open(configs, {
    timeoutMs: seconds === undefined ? DEFAULT_LIMITS.timeoutMs : 1000 * seconds,
    maxBytes: maxBytes ?? DEFAULT_LIMITS.maxBytes,
    ...(signal && { signal }),
  });
  for (const { message } of tools.failures.values()) warn(`${message}: its tools are not offered`);
  return {
    tools,
    consent: new Consent(allowed),
    maxRounds,
    [Symbol.asyncDispose]: () => tools[Symbol.asyncDispose](),
  };
}

/** Whether a name is that of a server or of a tool of it. */
function isOf(name: string, config: McpConfig): boolean {
  return name === config.name || name.startsWith(`${config.name}.`);
}

/** How many tools each server offers, in a few words. */
export function describeTools({ servers, tools }: McpTools): string {
  const counts = servers.map((server) => [server, tools.filter((tool) => tool.server === server).length] as const);
  return `tools of ${counts.map(([server, count]) => `${server} (${count})`).join(", ")}`;
}

/** Most characters of arguments in a question, which has to show what is asked. */
const ASKED = 4000;
/** … in the line of a call that was made. */
const SHOWN = 80;

/** A call as a question shows it. */
export function describeCall({ server, tool }: Pick<McpTool, "server" | "tool">, given: unknown): string {
  return `${nameOf(server, tool)}(${shortened(exactJson(given), ASKED)})`;
}

/** A call that was made, on a line. */
export function describeRun(run: lm.ToolRun, found: Pick<McpTool, "server" | "tool"> | undefined): string {
  const name = found ? nameOf(found.server, found.tool) : shownPath(run.name);
  const what = run.ok
    ? `${new TextEncoder().encode(run.result).length} bytes`
    : `failed, ${shortened(run.result, SHOWN)}`;
  return `[${name}(${shortened(exactJson(run.arguments), SHOWN)}): ${what}]`;
}

function nameOf(server: string, tool: string): string {
  return `${shownPath(server)}.${shownPath(tool)}`;
}

/** A text of JSON as a terminal may show it. */
function shortened(json: string, most: number): string {
  const shown = withoutMarks(json);
  if (shown.length <= most) return shown;
  return `${shown.slice(0, most)}… and ${shown.length - most} more characters`;
}
