/**
 * Models with the fine-tuning fused into their weights, as directories like any other: `mlx_lm.fuse`.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { FileError } from "../../../ffi/file.ts";
import { checkFree, OutputFolder } from "../../../ffi/output_folder.ts";
import { tensorPieces } from "../../array/files/pieces.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { interruptible } from "../host.ts";
import { checkOptions } from "../arguments.ts";
import { newConfig, newIndex, newReadme, tokenizerFiles } from "../convert/files.ts";
import { bytesOf } from "../convert/jobs.ts";
import { MAX_SHARD_BYTES, ShardFiles, shardsOf } from "../convert/shard_files.ts";
import { isEmbedded, provideEmbedded } from "../checkpoint/embedded.ts";
import { LlmError } from "../error.ts";
import { modelDirectory } from "../hub.ts";
import { parseName } from "../hub/name.ts";
import { describeFolder, load, type LoadOptions } from "../load.ts";
import { readModelFile } from "../checkpoint/weights.ts";
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
    const loaded = await load(from, { ...loading, adapterPath });
    using made = loaded.model;
    return mx.withDevice(loaded.device, () => {
      const fused = fuseLayers(made, dequantize);
      if (dequantize) dequantizeLayers(made);
      const { prefix, textFields, movedFields } = describeFolder(from, undefined);
      const named = { textFields, movedFields };
      const own = Object.entries(mx.utils.treeFlatten(made.parameters(), "", null, {}) as Record<string, Tensor>);
      const arrays = Object.fromEntries(own.map(([name, array]) => [prefix + name, array]));
      const repo = from === given ? undefined : parseName(given)?.repo;
      return { path: out, fused, bytes: writeModel(from, out, arrays, dequantize, named, repo) };
    });
  } catch (cause) {
    if (cause instanceof FileError) throw new LlmError("output", `${shownPath(out)} ${cause.message}`);
    throw cause;
  }
}

/** Writes arrays with the other files of a model; gives their bytes. */
function writeModel(
  from: string,
  out: string,
  arrays: Readonly<Record<string, Tensor>>,
  dense: boolean,
  named: Pick<ReturnType<typeof describeFolder>, "textFields" | "movedFields">,
  repo: string | undefined,
): number {
  const outputs = Object.entries(arrays).map(([name, { dtype, shape }]) => ({ name, dtype, shape: [...shape] }));
  const shards = shardsOf(outputs, MAX_SHARD_BYTES);
  const bytes = outputs.reduce((sum, output) => sum + bytesOf(output), 0);
  const description = {
    file: `${from}/config.json`,
    text: readModelFile(from, "config.json")!,
    generation: readModelFile(from, "generation_config.json"),
    dtype: undefined,
    base: undefined,
    rows: new Map(),
    dense,
    ...named,
  };
  const parameters = outputs.reduce((sum, { shape }) => sum + shape.reduce((product, n) => product * n, 1), 0);
  const texts: Record<string, Uint8Array> = {
    "config.json": newConfig(description),
    "model.safetensors.index.json": newIndex(shards, bytes, parameters),
    ...tokenizerFiles(from),
    "README.md": newReadme(repo),
  };
  using folder = OutputFolder.make(out, bytes + Object.values(texts).reduce((sum, { length }) => sum + length, 0));
  {
    using files = new ShardFiles(folder, shards);
    for (const [name, array] of Object.entries(arrays)) {
      let at = 0;
      for (const piece of tensorPieces(array)) {
        files.write(name, piece, at);
        at += piece.length;
      }
    }
    files.sync();
  }
  for (const [name, text] of Object.entries(texts)) folder.write(name, text);
  folder.finish();
  return bytes;
}
