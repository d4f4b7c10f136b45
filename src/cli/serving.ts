/**
 * One run of `serve`: its models, its log, and how it ends.
 *
 * @module
 */

import { basename } from "node:path";
import { environment } from "../../ffi/environment.ts";
import { RuntimeError } from "../../ffi/error.ts";
import { find } from "../../ffi/store.ts";
import { VERSION } from "../../ffi/version.ts";
import { deviceMemory, lm, withDevice } from "../../mod.ts";
import { quoted } from "../graph/error.ts";
import { openModel } from "../server/open.ts";
import { type LogEntry, Server } from "../server/server.ts";
import { useDevice } from "./device.ts";
import { type Flags, UsageError, type Values } from "./flags.ts";
import { loadOptions } from "./loading.ts";
import { describeTools, MCP_FLAGS, openMcp } from "./mcp.ts";
import {
  checkDrafter,
  DEVICE_FLAG,
  DRAFT_MODEL_FLAG,
  draftHeadOf,
  KV_BITS_FLAG,
  kvBitsOf,
  MODEL_FLAG,
  SPECULATION_FLAGS,
  speculationOf,
} from "./model_flags.ts";
import { note } from "./output.ts";
import type { Program } from "./program.ts";

const FLAGS = {
  "model": {
    ...MODEL_FLAG.model,
    help: "model directory, GGUF file or name of the hub; may be given several times (tiny-qwen3)",
    many: true,
  },
  "host": {
    value: "NAME",
    help: "address to listen on; 0.0.0.0 serves other machines too (127.0.0.1)",
    aliases: ["hostname"],
    meant: ["bind", "listen"],
  },
  "port": {
    value: "N",
    short: "p",
    help: "port to listen on; 0 takes a free one (8080)",
    range: [0, 65535],
    whole: true,
  },
  "api-key": {
    value: "KEY",
    help: "the key that requests must have (default: VKMX_API_KEY, else none)",
    meant: ["key"],
  },
  "max-sequences": {
    value: "N",
    help: "most answers that are computed together (64 on a GPU, 16 on the CPU)",
    range: [1, 4096],
    whole: true,
    meant: ["parallel", "np", "max-num-seqs", "num-parallel"],
  },
  "queue": {
    value: "N",
    help: "most requests that wait; more get status 503 (512)",
    range: [0, 1_000_000],
    whole: true,
    meant: ["max-queue"],
  },
  "kv-bytes": {
    value: "N",
    help: "memory for keys and values of all models (default: half of what a GPU has free)",
    range: [1, Number.MAX_SAFE_INTEGER],
    whole: true,
    meant: ["cache-ram", "kv-cache-memory-bytes"],
  },
  ...KV_BITS_FLAG,
  "context": {
    value: "N",
    help: "most tokens of a prompt and its answer (default: the model's context)",
    range: [1, Number.MAX_SAFE_INTEGER],
    whole: true,
    short: "c",
    aliases: ["ctx-size"],
    meant: ["max-model-len", "n-ctx"],
  },
  ...SPECULATION_FLAGS,
  ...DRAFT_MODEL_FLAG,
  "unload-after": {
    value: "SECONDS",
    help: "free a model that no request asked for so long (default: never)",
    range: [0, 1_000_000],
    meant: ["keep-alive", "ttl"],
  },
  "cors": {
    value: "ORIGIN",
    help: 'let web pages of this origin ask, "*" for all; may be given several times',
    many: true,
    meant: ["cors-origin", "allowed-origins"],
  },
  ...MCP_FLAGS,
  ...DEVICE_FLAG,
  "json": { help: "log each request as a JSON object on one line of stderr" },
} as const satisfies Flags;

const ABOUT =
  `Serves models over HTTP with the APIs of OpenAI, Anthropic and ollama. When it is ready, one line on stderr has its
address. After SIGTERM or Ctrl-C it answers the requests that are there and ends.
A model is loaded when a request asks for it, the first one at the start. See docs/server.md.`;

/** The help text of `serve`. */
export const SERVE = {
  name: "vkmx serve",
  about: ABOUT,
  flags: FLAGS,
  examples: [
    "",
    "--model Qwen/Qwen3-0.6B-MLX-4bit --port 8000",
    "--model Qwen/Qwen3-0.6B-MLX-4bit --model models/Qwen3-8B-4bit --unload-after 300",
    "--model Qwen/Qwen3-8B-MLX-4bit --speculate ngrams",
    "--host 0.0.0.0 --api-key secret",
    "--mcp mcp.json --mcp-allow files.read_file",
  ],
} as const satisfies Program<Flags>;

/** Name of the model that is served where none is named. */
const EMBEDDED = "tiny-qwen3";

/** Serves until a signal ends it. Returns the exit code. */
export async function serve(values: Values<typeof FLAGS>): Promise<number> {
  const { device, host = "127.0.0.1", port = 8080, json = false } = values;
  const models = namesOf(values.model);
  const apiKey = values["api-key"] ?? environment("VKMX_API_KEY");
  if (apiKey !== undefined && !/^[!-~]+$/.test(apiKey)) {
    throw new UsageError("The API key may have only visible ASCII characters, of which there must be one at least");
  }
  checkDrafter(values);
  const draft = values["draft-model"];
  const speculation = (loaded: lm.DraftModel | undefined): Pick<lm.EngineOptions, "speculation"> =>
    speculationOf(values, loaded);
  if (draft === undefined) speculation(undefined); // says now what does not fit
  const engine = engineOptions(values);
  const { "unload-after": unloadAfter, "kv-bytes": kvBytes } = values;
  const isOpen = apiKey === undefined && !/^(127\.|localhost$|::1$)/.test(host);
  if (values.mcp !== undefined && isOpen) {
    throw new UsageError("--mcp at an address that other machines reach needs --api-key: tools act on this machine");
  }
  const warn = (message: string): void => json ? logJson({ event: "warning", message }) : note(`warning: ${message}\n`);
  await using mcp = await openMcp(values, { warn });
  await useDevice(device, { json, quiet: json });
  const stopped = onSignals();
  let deviceName = "";
  const server = await Server.start({
    hostname: host,
    port,
    version: VERSION,
    models: [...models.keys()],
    apiKey,
    cors: values.cors ?? [],
    mcp,
    unloadAfterMs: unloadAfter === undefined ? undefined : 1000 * unloadAfter,
    memoryBytes: withDevice(device, deviceMemory).available,
    open: async (id, room) => {
      const opened = await openModel(id, models.get(id)!, room, {
        load: { ...(json ? { ...device !== undefined && { device } } : loadOptions(device)), ...draftHeadOf(values) },
        engine,
        draft,
        speculation,
        kvBytes: kvBytes && Math.floor(kvBytes / models.size),
      });
      deviceName = opened.device;
      return opened;
    },
    describe: (id) => describeModel(models.get(id)!),
    onRequest: (entry) => json && logJson({ event: "request", ...rounded(entry) }),
    onError: (error) => {
      const message = messageOf(error);
      if (json) logJson({ event: "error", message });
      else note(`error: ${message}\n`);
    },
  });
  const names = [...models.keys()];
  if (json) logJson({ event: "ready", url: server.url, models: names, device: deviceName });
  else note(`vkmx serves ${names.join(", ")} on ${deviceName} at ${server.url}\n`);
  if (mcp !== undefined) {
    const tools = mcp.tools.tools.map(({ server, tool }) => `${server}.${tool}`);
    if (json) logJson({ event: "mcp", tools });
    else note(`its page offers ${describeTools(mcp.tools)}\n`);
  }
  if (isOpen) {
    const warning = "every machine that reaches this address may ask: --api-key sets a key";
    if (json) logJson({ event: "warning", message: warning });
    else note(`${warning}\n`);
  }
  await stopped;
  await server.drain();
  if (json) logJson({ event: "end" });
  return 0;
}

/** Models by the names that clients ask for: those of the hub as they are, folders and files by their last part without ".gguf". */
function namesOf(given: readonly string[] | undefined): ReadonlyMap<string, string | URL> {
  if (given === undefined) return new Map([[EMBEDDED, lm.EMBEDDED_MODEL]]);
  const models = new Map<string, string>();
  for (const model of given) {
    const name = find(model) ? basename(Deno.realPathSync(model), ".gguf") : model;
    if (models.has(name)) throw new UsageError(`--model names ${quoted(name)} twice: names must differ`);
    models.set(name, model);
  }
  return models;
}

/** What a model is; undefined if its files are not there, or are of no model that can be read. */
async function describeModel(model: string | URL): Promise<lm.ModelInfo | undefined> {
  try {
    return await lm.inspect(model instanceof URL || find(model) ? model : lm.hub.show(model)[0].path);
  } catch (error) {
    if (error instanceof lm.LlmError) return undefined;
    throw error;
  }
}

/** Options of each engine, but for its memory. */
function engineOptions(values: Values<typeof FLAGS>): Omit<lm.EngineOptions, "kvBytes" | "memoryBytes"> {
  const { context: contextSize, queue: maxQueue, "max-sequences": maxSequences } = values;
  return {
    ...(maxSequences !== undefined && { maxSequences }),
    ...(maxQueue !== undefined && { maxQueue }),
    ...kvBitsOf(values),
    ...(contextSize !== undefined && { contextSize }),
  };
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

function messageOf(error: unknown): string {
  const text = error instanceof RuntimeError ? error.detail : error instanceof Error ? error.message : String(error);
  return text.replaceAll(/\s*\n\s*/g, " ");
}

function rounded(entry: LogEntry): LogEntry {
  return { ...entry, milliseconds: Math.round(entry.milliseconds * 1000) / 1000 };
}

function logJson(value: Readonly<Record<string, unknown>>): void {
  note(`${JSON.stringify({ time: new Date().toISOString(), ...value })}\n`);
}
