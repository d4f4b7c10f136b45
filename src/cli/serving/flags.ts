/**
 * The flags of `serve`, and what can be said of them before anything is loaded.
 *
 * @module
 */

import { basename } from "node:path";
import { environment } from "../../../ffi/environment.ts";
import { find } from "../../../ffi/store.ts";
import { lm } from "../../../mod.ts";
import { quoted } from "../../graph/error.ts";
import { type Flags, UsageError, type Values } from "../flags.ts";
import { MCP_FLAGS } from "../mcp.ts";
import {
  checkDrafter,
  DEVICES_FLAGS,
  DRAFT_MODEL_FLAG,
  KV_BITS_FLAG,
  kvBitsOf,
  MODEL_FLAG,
  SPECULATION_FLAGS,
  speculationOf,
} from "../model_flags.ts";

/** Flags of the address; replicas of a server have addresses of their own. */
const FRONT_FLAGS = {
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
  "cors": {
    value: "ORIGIN",
    help: 'let web pages of this origin ask, "*" for all; may be given several times',
    many: true,
    meant: ["cors-origin", "allowed-origins"],
  },
  "replicas": {
    value: "auto|N",
    help: "processes that answer, each with the models: auto for one on each GPU (this process alone)",
    meant: ["data-parallel-size", "dp", "dp-size", "workers"],
  },
} as const satisfies Flags;

/** Flags of `serve`. */
export const SERVE_FLAGS = {
  "model": {
    ...MODEL_FLAG.model,
    help: "model directory, GGUF file or name of the hub; may be given several times (tiny-qwen3)",
    many: true,
  },
  ...FRONT_FLAGS,
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
  ...MCP_FLAGS,
  ...DEVICES_FLAGS,
  "json": { help: "log each request as a JSON object on one line of stderr" },
} as const satisfies Flags;

/** Values of the flags of `serve`. */
export type ServeValues = Values<typeof SERVE_FLAGS>;

/** Name of the model that is served where none is named. */
const EMBEDDED = "tiny-qwen3";

/** What the flags say of the address and the models. */
export interface Serving {
  readonly hostname: string;
  readonly port: number;
  readonly apiKey: string | undefined;
  readonly cors: readonly string[];
  /** Whether every machine that reaches the address may ask. */
  readonly isOpen: boolean;
  /** Where models are, by the names that clients ask for. */
  readonly models: ReadonlyMap<string, string | URL>;
}

/** The address and the models. Throws a {@link UsageError} for flags that do not fit. */
export function servingOf(values: ServeValues): Serving {
  const { host: hostname = "127.0.0.1", port = 8080, cors = [] } = values;
  const models = namesOf(values.model);
  const apiKey = values["api-key"] ?? environment("VKMX_API_KEY");
  if (apiKey !== undefined && !/^[!-~]+$/.test(apiKey)) {
    throw new UsageError("The API key may have only visible ASCII characters, of which there must be one at least");
  }
  checkDrafter(values);
  if (values["draft-model"] === undefined) speculationOf(values, undefined); // says now what does not fit
  engineOptions(values);
  const isOpen = apiKey === undefined && !/^(127\.|localhost$|::1$)/.test(hostname);
  if (values.mcp !== undefined && isOpen) {
    throw new UsageError("--mcp at an address that other machines reach needs --api-key: tools act on this machine");
  }
  return { hostname, port, apiKey, cors, isOpen, models };
}

/** The values that a replica of the server has: those of all flags but its address, key, origins and replicas. */
export function replicaValues(values: ServeValues): ServeValues {
  return Object.fromEntries(Object.entries(values).filter(([name]) => !Object.hasOwn(FRONT_FLAGS, name)));
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
export async function describeModel(model: string | URL): Promise<lm.ModelInfo | undefined> {
  try {
    return await lm.inspect(model instanceof URL || find(model) ? model : lm.hub.show(model)[0].path);
  } catch (error) {
    if (error instanceof lm.LlmError) return undefined;
    throw error;
  }
}

/** Options of each engine, but for its memory. */
export function engineOptions(values: ServeValues): Omit<lm.EngineOptions, "kvBytes" | "memoryBytes"> {
  const { context: contextSize, queue: maxQueue, "max-sequences": maxSequences } = values;
  return {
    ...(maxSequences !== undefined && { maxSequences }),
    ...(maxQueue !== undefined && { maxQueue }),
    ...kvBitsOf(values),
    ...(contextSize !== undefined && { contextSize }),
  };
}
