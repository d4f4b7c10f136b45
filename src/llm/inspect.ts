/**
 * Describes a model directory or GGUF file by its configuration and the headers of its weights: no weight is read and no device opened.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";
import { find } from "../../ffi/store.ts";
import { ArrayError, quoted, shownPath } from "../graph/error.ts";
import { type Entry, readHeader } from "../array/files/safetensors.ts";
import { interruptible } from "./host.ts";
import { checkSignal } from "./abort.ts";
import { checkOptions } from "./arguments.ts";
import { isOfDraftHead } from "./config/decoder.ts";
import type { ModelConfig } from "./config/model.ts";
import { isEmbedded, provideEmbedded } from "./checkpoint/embedded.ts";
import { GgufCheckpoint } from "./checkpoint/gguf/checkpoint.ts";
import { openCheckpoint } from "./checkpoint/open.ts";
import { LlmError } from "./error.ts";
import { countParameters } from "./layers/modules.ts";
import { describeFolder } from "./load.ts";
import { type Architecture, describeModel } from "./models/mod.ts";
import { filesWithDraft } from "./checkpoint/draft_file.ts";
import { Checksums, type Verify } from "./checkpoint/verify.ts";
import { checkShards, filesRead, modelFiles, readModelFile } from "./checkpoint/model_files.ts";

/** Options of {@link inspect}. */
export interface InspectOptions {
  /** Compares the files with their published checksums, as `load` does. */
  readonly verify?: Verify;
  /** Ends comparing. */
  readonly signal?: AbortSignal;
}

/** The module of the head of logits. */
const HEAD = "lm_head";

const INSPECT_OPTIONS = { verify: true, signal: true } as const satisfies Record<keyof InspectOptions, true>;

/** The description of a model by {@link inspect}. */
export interface ModelInfo {
  /** The fields of config.json, or those that a GGUF file has in its metadata. */
  readonly config: ModelConfig;
  /** Parameters as mlx-lm counts them: one that is quantized counts as one. */
  readonly parameters: number;
  /** Bytes of the tensors, those of scales included. */
  readonly weightBytes: number;
  /** Bytes of the head that drafts tokens, which `load` leaves out unless `draftHead`; 0 without one. Others do not count it. */
  readonly draftHeadBytes: number;
  /**
   * Dtypes of stored tensors, the one with most bytes first: "uint32" holds quantized weights. Of a GGUF file they are its types, such as
   * "Q4_K".
   */
  readonly dtypes: readonly string[];
  /** Whether it has a chat template. */
  readonly hasChatTemplate: boolean;
  /** Its files with their bytes, by name. */
  readonly files: readonly { readonly name: string; readonly size: number }[];
}

/**
 * Tells what a model directory or a GGUF file is, without loading it. Throws an {@link LlmError} as `load` does if it cannot be loaded; whether
 * tensors fit the configuration is seen by `load` only.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { config, parameters } = await mx.lm.inspect(mx.lm.EMBEDDED_MODEL);
 * console.log(config.modelType, parameters); // qwen3 8919296
 * ```
 */
export function inspect(model: string | URL, options: InspectOptions = {}): Promise<ModelInfo> {
  return interruptible(options, (heeding) => inspectModel(model, heeding));
}

async function inspectModel(model: string | URL, options: InspectOptions): Promise<ModelInfo> {
  checkOptions("inspect", options, INSPECT_OPTIONS);
  checkSignal(options.signal);
  using embedded = isEmbedded(model) ? await provideEmbedded(options.signal) : undefined;
  const path = embedded?.path ?? (model instanceof URL && model.protocol === "file:" ? fileURLToPath(model) : model);
  if (typeof path !== "string") {
    throw new LlmError("option", `inspect() expected a model directory or a GGUF file: found ${quoted(String(path))}`);
  }
  const checkpoint = openCheckpoint(path, options.verify);
  if (checkpoint instanceof GgufCheckpoint) return await inspectGguf(checkpoint, options);
  const names = modelFiles(path);
  const shards = filesWithDraft(path, names);
  const sums = Checksums.of(path, options.verify, [...filesRead(names), ...shards]);
  const architecture = describeFolder(path, sums);
  checkShards(path, shards, names);
  if (shards.length === 0) throw new LlmError("weights", `${shownPath(path)} has no model*.safetensors`);
  await sums?.checkFiles(shards, options.signal);
  const { prefix, nameOf, mayDraft } = architecture;
  const entries = new Map<string, Entry>();
  let draftHeadBytes = 0;
  for (const entry of shards.flatMap((name) => readEntries(join(path, name)))) {
    const own = nameOf(entry.name); // none of tensors that are left out
    if (own !== undefined && mayDraft && isOfDraftHead(own)) draftHeadBytes += entry.end - entry.begin;
    else if (own !== undefined) entries.set(prefix + own, { ...entry, name: prefix + own });
  }
  const bytes = new Map<string, number>();
  for (const entry of entries.values()) {
    bytes.set(entry.dtype.name, (bytes.get(entry.dtype.name) ?? 0) + entry.end - entry.begin);
  }
  return {
    config: architecture.config,
    parameters: parametersOf(architecture, entries.has(`${prefix}${HEAD}.weight`)),
    weightBytes: bytes.values().reduce((sum, size) => sum + size, 0),
    draftHeadBytes,
    dtypes: Array.from(bytes).toSorted(([, a], [, b]) => b - a).map(([name]) => name),
    hasChatTemplate: hasChatTemplate(path, names, sums),
    files: names.toSorted().map((name) => ({ name, size: find(join(path, name))?.size ?? 0 })),
  };
}

/** The same of a GGUF file. */
async function inspectGguf(checkpoint: GgufCheckpoint, { signal }: InspectOptions): Promise<ModelInfo> {
  const { fields, file } = checkpoint.readConfig();
  const architecture = describeModel(fields, file);
  await checkpoint.checkFiles(signal);
  const { files, hasHead, ...description } = checkpoint.describe();
  const folder = dirname(checkpoint.path);
  return {
    config: architecture.config,
    parameters: parametersOf(architecture, hasHead),
    draftHeadBytes: 0,
    ...description,
    files: files.map((name) => ({ name, size: find(join(folder, name))?.size ?? 0 })),
  };
}

/** Parameters of a model that may be stored without a head. */
function parametersOf({ modules }: Architecture, head: boolean): number {
  return countParameters(modules({ head, draftHead: false }).filter(({ path }) => head || path !== HEAD));
}

function readEntries(path: string): readonly Entry[] {
  try {
    return readHeader(path).entries;
  } catch (cause) {
    if (cause instanceof ArrayError) throw new LlmError("weights", cause.message);
    throw cause;
  }
}

function hasChatTemplate(path: string, names: readonly string[], sums: Checksums | undefined): boolean {
  if (names.includes("chat_template.jinja")) return true;
  const text = readModelFile(path, "tokenizer_config.json", sums);
  if (text === undefined) return false;
  try {
    return (JSON.parse(text) as { readonly chat_template?: unknown } | null)?.chat_template != null;
  } catch {
    throw new LlmError("tokenizer", `${shownPath(join(path, "tokenizer_config.json"))} is no JSON`);
  }
}
