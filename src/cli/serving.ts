/**
 * One run of `serve`: in this process or by replicas, what it says, and how it ends.
 *
 * @module
 */

import type { LogEntry } from "../server/server.ts";
import type { Flags } from "./flags.ts";
import { note } from "./output.ts";
import type { Program } from "./program.ts";
import { SERVE_FLAGS, type ServeValues, servingOf } from "./serving/flags.ts";
import { type Tell, teller } from "./serving/log.ts";
import { openServer } from "./serving/one_server.ts";
import { openFront } from "./serving/replicas.ts";

const ABOUT =
  `Serves models over HTTP with the APIs of OpenAI, Anthropic and ollama. When it is ready, one line on stderr has its
address. After SIGTERM or Ctrl-C it answers the requests that are there and ends.
A model is loaded when a request asks for it, the first one at the start. --replicas serves on several GPUs.
See docs/server.md.`;

/** The help text of `serve`. */
export const SERVE = {
  name: "vkmx serve",
  about: ABOUT,
  flags: SERVE_FLAGS,
  examples: [
    "",
    "--model Qwen/Qwen3-0.6B-MLX-4bit --port 8000",
    "--model Qwen/Qwen3-0.6B-MLX-4bit --model models/Qwen3-8B-4bit --unload-after 300",
    "--model Qwen/Qwen3-8B-MLX-4bit --speculate ngrams",
    "--model Qwen/Qwen3-8B-MLX-4bit --replicas auto",
    "--model Qwen/Qwen3-32B-MLX-4bit --device vulkan:0,vulkan:1",
    "--host 0.0.0.0 --api-key secret",
    "--mcp mcp.json --mcp-allow files.read_file",
  ],
} as const satisfies Program<Flags>;

/** What answers: a server of this process, or a front of replicas. */
interface Answering {
  readonly url: string;
  /** Where it computes, as the first line says it and as JSON has it. */
  readonly where: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly tools: { readonly names: readonly string[]; readonly line: string } | undefined;
  drain(): Promise<void>;
}

/** Serves until a signal ends it. Returns the exit code. */
export async function serve(values: ServeValues): Promise<number> {
  const { json = false } = values;
  const { models, isOpen } = servingOf(values);
  const tell = teller(json);
  const stopped = onSignals();
  const onRequest = (entry: LogEntry): void => tell("request", { ...rounded(entry) });
  const answering = values.replicas === undefined
    ? await inThisProcess(values, tell, onRequest)
    : await byReplicas(values, tell, onRequest);
  const { url, where, fields, tools } = answering;
  const names = [...models.keys()];
  tell("ready", { url, models: names, ...fields }, `vkmx serves ${names.join(", ")} ${where} at ${url}`);
  if (tools !== undefined) tell("mcp", { tools: tools.names }, tools.line);
  if (isOpen) {
    const message = "every machine that reaches this address may ask: --api-key sets a key";
    tell("warning", { message }, message);
  }
  await stopped;
  await answering.drain();
  tell("end", {});
  return 0;
}

type OnRequest = (entry: LogEntry) => void;

async function inThisProcess(values: ServeValues, tell: Tell, onRequest: OnRequest): Promise<Answering> {
  const { server: { url }, device, tools, drain } = await openServer(values, { tell, onRequest });
  return { url, where: `on ${device}`, fields: { device }, tools, drain };
}

async function byReplicas(values: ServeValues, tell: Tell, onRequest: OnRequest): Promise<Answering> {
  const { front, ready: { tools } } = await openFront(values, { tell, onRequest });
  const { url, devices } = front;
  const count = devices.length === 1 ? "1 replica" : `${devices.length} replicas`;
  const where = `by ${count} on ${[...new Set(devices)].join(", ")}`;
  return { url, where, fields: { devices }, tools, drain: () => front.drain() };
}

/** Resolves at the first SIGTERM or SIGINT; a second one ends the process. */
function onSignals(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let count = 0;
  const signals = Deno.build.os === "windows"
    ? [["SIGINT", 130]] as const
    : [["SIGINT", 130], ["SIGTERM", 143]] as const;
  for (const [signal, code] of signals) {
    Deno.addSignalListener(signal, () => {
      if (++count > 1) Deno.exit(code);
      note("[answers the requests that are there, and ends; a second signal ends at once]\n");
      resolve();
    });
  }
  return promise;
}

function rounded(entry: LogEntry): LogEntry {
  return { ...entry, milliseconds: Math.round(entry.milliseconds * 1000) / 1000 };
}
