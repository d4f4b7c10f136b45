/**
 * Models with the fine-tuning fused into their weights, as directories like any other: `mlx_lm.fuse`.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { FileError } from "../../../ffi/file.ts";
import { checkFree } from "../../../ffi/output_folder.ts";
import { tensorPieces } from "../../array/files/pieces.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { interruptible } from "../host.ts";
import { checkOptions } from "../arguments.ts";
import { type Converted, newConfig, tokenizerFiles } from "../convert/files.ts";
import { writeModelFolder } from "../convert/model_folder.ts";
import { isEmbedded, provideEmbedded } from "../checkpoint/embedded.ts";
import { LlmError } from "../error.ts";
import { modelDirectory } from "../hub.ts";
import { parseName } from "../hub/name.ts";
import { describeFolder, load, type Loaded, type LoadOptions } from "../load.ts";
import { filesWithDraft, storesDraftHead } from "../checkpoint/draft_file.ts";
import { wholeName } from "../checkpoint/row_parts.ts";
import { modelFiles, readModelFile } from "../checkpoint/model_files.ts";
import { dequantizeLayers, fuseLayers } from "./layers.ts";

/** Options of {@link fuse}. */
export interface FuseOptions extends Pick<LoadOptions, "device" | "onDownload" | "onProgress" | "signal"> {
  /** Whether the model is written dense; default false. */
  readonly dequantize?: boolean;
}

const FUSE_OPTIONS = {
  dequantize: true,
  device: true,
  onDownload: true,
  onProgress: true,
  signal: true,
} as const satisfies Record<keyof FuseOptions, true>;

/** The result of {@link fuse}. */
export interface Fused {
  /** The folder. */
  readonly path: string;
  /** Layers whose adapters went into their weights. */
  readonly fused: number;
  /** Bytes of all tensors. */
  readonly bytes: number;
}

/**
 * Fuses the adapters of a folder into a model's layers, or puts in its fully trained parameters, and writes the model. The model is
 * a folder or a name of the Hugging Face Hub. `out` must not exist yet, and appears whole. Layers that were quantized are quantized
 * again unless `dequantize`.
 *
 * Throws an {@link LlmError} that says what is wrong with the model, the adapters or the output.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * await mx.lm.tuner.fuse("Qwen/Qwen3-0.6B-MLX-4bit", "adapters", "fused_model");
 * const { model, tokenizer } = await mx.lm.load("fused_model");
 * ```
 */
export function fuse(
  model: string | URL,
  adapterPath: string,
  out: string,
  options: FuseOptions = {},
): Promise<Fused> {
  return interruptible(options, (heeding) => fuseModel(model, adapterPath, out, heeding));
}

async function fuseModel(
  model: string | URL,
  adapterPath: string,
  out: string,
  options: FuseOptions,
): Promise<Fused> {
  checkOptions("fuse", options, FUSE_OPTIONS);
  const { dequantize = false, onDownload, ...loading } = options;
  if (typeof out !== "string" || out === "") {
    throw new LlmError("option", `fuse() expected an output folder: found ${quoted(out)}`);
  }
  try {
    checkFree(out);
    using embedded = isEmbedded(model) ? await provideEmbedded(options.signal) : undefined;
    const given = embedded?.path ?? (model instanceof URL ? fileURLToPath(model) : model);
    const from = await modelDirectory(given, { onProgress: onDownload, signal: options.signal });
    const draftHead = storesDraftHead(from, filesWithDraft(from, modelFiles(from)), describeFolder(from, undefined));
    const loaded = await load(from, { ...loading, adapterPath, draftHead });
    using made = loaded.model;
    const fused = mx.withDevice(loaded.device, () => {
      const layers = fuseLayers(made, dequantize);
      if (dequantize) dequantizeLayers(made);
      return layers;
    });
    const repo = from === given ? undefined : parseName(given)?.repo;
    const { signal } = options;
    const { bytes } = await writeModel(made, from, out, { dequantize, repo, device: loaded.device, signal });
    return { path: out, fused, bytes };
  } catch (cause) {
    if (cause instanceof FileError) throw new LlmError("output", `${shownPath(out)} ${cause.message}`);
    throw cause;
  }
}

/** Writes a model with the other files of the folder that it was loaded from. */
function writeModel(
  model: Loaded["model"],
  from: string,
  out: string,
  { dequantize = false, repo, device, signal }: Pick<FuseOptions, "dequantize" | "signal"> & {
    readonly repo: string | undefined;
    readonly device: string;
  },
): Promise<Converted> {
  const architecture = describeFolder(from, undefined);
  const { prefix, textFields, movedFields } = architecture;
  const own = Object.entries(mx.utils.treeFlatten(model.parameters(), "", null, {}) as Record<string, Tensor>);
  const arrays = new Map<string, Tensor[]>(); // those of a table in parts under the name of the whole
  for (const [name, array] of own) {
    const whole = prefix + (wholeName(name) ?? name);
    arrays.set(whole, [...arrays.get(whole) ?? [], array]);
  }
  const config = newConfig({
    file: `${from}/config.json`,
    text: readModelFile(from, "config.json")!,
    generation: readModelFile(from, "generation_config.json"),
    dtype: undefined,
    base: undefined,
    rows: new Map(),
    dense: dequantize,
    textFields,
    movedFields,
  });
  const outputs = Array.from(arrays, ([name, parts]) => {
    const [{ dtype, shape }] = parts;
    return { name, dtype, shape: parts.length > 1 ? [rowsOf(parts), ...shape.slice(1)] : [...shape] };
  });
  const modules = architecture.modules({ head: arrays.has(`${prefix}lm_head.weight`), draftHead: false });
  const tokenizer = tokenizerFiles(from);
  return writeModelFolder(out, { outputs, prefix, modules, config, tokenizer, repo, signal }, (files) => {
    mx.withDevice(device, () => {
      for (const [name, parts] of arrays) {
        let at = 0;
        for (const piece of parts.values().flatMap(tensorPieces)) {
          files.write(name, piece, at);
          at += piece.length;
        }
      }
    });
  });
}

function rowsOf(parts: readonly Tensor[]): number {
  return parts.reduce((sum, { shape }) => sum + shape[0], 0);
}
