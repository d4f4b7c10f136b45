/**
 * Converts model directories as mlx-lm does: other dtypes, quantization, and back. Available as `mx.lm.convert`.
 *
 * Weights, index and config.json equal those of `mlx_lm.convert` to the byte. The tokenizer's files are copied unchanged, while
 * mlx-lm has transformers write them anew. Tensors are converted one after another, some rows at a time.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { FileError } from "../../../ffi/file.ts";
import { checkFree } from "../../../ffi/output_folder.ts";
import type { StoredTensor } from "../../array/files/stored.ts";
import * as mx from "../../array/mod.ts";
import { interruptible } from "../host.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { type CodeMode, QUANTIZATION_MODES } from "../../graph/quantization.ts";
import { isOfDraftHead } from "../config/decoder.ts";
import type { Quantization } from "../config/model.ts";
import { quantizationOf } from "../config/stored_format.ts";
import { newConfig, tokenizerFiles } from "./files.ts";
import { type Job, jobsOf, type Source, stackSources } from "./jobs.ts";
import { writeModelFolder } from "./model_folder.ts";
import { checkConvertOptions, checkSource, type ConvertOptions, describeConversion } from "./options.ts";
import { runJobs } from "./stream.ts";
import { isEmbedded, provideEmbedded } from "../checkpoint/embedded.ts";
import { LlmError } from "../error.ts";
import { modelDirectory } from "../hub.ts";
import { parseName } from "../hub/name.ts";
import type { WeightModule } from "../layers/modules.ts";
import { describeFolder } from "../load.ts";
import type { Architecture } from "../models/mod.ts";
import { filesWithDraft, storesDraftHead } from "../checkpoint/draft_file.ts";
import { weightFiles } from "../checkpoint/shards.ts";
import { readTensors, storedOf } from "../checkpoint/directory.ts";
import { openCheckpoint } from "../checkpoint/open.ts";
import { GgufCheckpoint } from "../checkpoint/gguf/checkpoint.ts";
import { convertGguf } from "./from_gguf.ts";
import { convertToGguf } from "./to_gguf.ts";
import type { Converted } from "./files.ts";
import { openWeights, withPrefix } from "../checkpoint/weights.ts";
import { checkShards, modelFiles } from "../checkpoint/model_files.ts";

export type { ConvertOptions } from "./options.ts";
export type { QuantPredicate, QuantRecipe } from "./recipes.ts";

export type { Converted } from "./files.ts";

/**
 * Writes a model in another form: with `quantize` its matrices in 2 to 8 bits, with `dequantize` dense again, with `dtype` in other
 * floats. `model` is a folder or a name of the Hugging Face Hub, `out` a folder that does not exist yet. It appears whole when all is
 * written, and the weights, their index and config.json are those of Python's `mlx_lm.convert`, byte for byte.
 *
 * A head that drafts tokens is kept in a file of its own, mtp.safetensors, which mlx-lm does not read. It is in no figure of the result.
 *
 * A GGUF file becomes such a folder too, with its codes as they load, or dense with `dequantize`. `dtype: mx.float32` keeps all digits.
 *
 * `gguf` writes a GGUF file for llama.cpp into the folder, of a model in either form.
 *
 * Throws an {@link LlmError} that says what is wrong with the model, an option or the output; nothing is written then.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { bitsPerWeight } = await mx.lm.convert("Qwen/Qwen3-0.6B", "qwen3-4bit", { quantize: true, qBits: 4 });
 * const { model, tokenizer } = await mx.lm.load("qwen3-4bit");
 * ```
 */
export function convert(
  model: string | URL,
  out: string | URL,
  options: ConvertOptions = {},
): Promise<Converted> {
  return interruptible(options, (heeding) => convertModel(model, out, heeding));
}

async function convertModel(
  model: string | URL,
  out: string | URL,
  options: ConvertOptions,
): Promise<Converted> {
  checkConvertOptions(options);
  using embedded = isEmbedded(model) ? await provideEmbedded(options.signal) : undefined;
  const [given, target] = [embedded?.path ?? model, out].map((path) =>
    path instanceof URL && path.protocol === "file:" ? fileURLToPath(path) : path
  );
  if (typeof given !== "string") throw new LlmError("option", `convert() expected a model directory: found ${given}`);
  if (typeof target !== "string" || target === "") {
    throw new LlmError("option", `convert() expected an output folder: found ${quoted(target)}`);
  }
  return await writing(target, async () => {
    checkFree(target); // before anything is downloaded
    const path = await modelDirectory(given, {
      revision: options.revision,
      onProgress: options.onDownload,
      onSmallFiles: (folder) => checkSource(folder, describeFolder(folder, undefined), options),
      signal: options.signal,
    });
    const checkpoint = openCheckpoint(path, undefined);
    const opening = mx.openAhead(options.device);
    try {
      if (options.gguf !== undefined) return await convertToGguf(checkpoint, target, options.gguf, options, opening);
      if (checkpoint instanceof GgufCheckpoint) return await convertGguf(checkpoint, target, options, opening);
      const repo = path === given ? undefined : parseName(given)?.repo;
      return await convertFolder(path, repo, target, options, opening);
    } finally {
      await opening;
    }
  });
}

/** Turns the errors of the output's files into those of this module. */
async function writing<T>(out: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (cause) {
    if (cause instanceof FileError) throw new LlmError("output", `${shownPath(out)} ${cause.message}`);
    if (cause instanceof mx.ArrayError && cause.code === "file") {
      throw new LlmError("weights", cause.message); // the source changed
    }
    throw cause;
  }
}

async function convertFolder(
  path: string,
  repo: string | undefined,
  out: string,
  options: ConvertOptions,
  opening: Promise<void>,
): Promise<Converted> {
  const names = modelFiles(path);
  const architecture = describeFolder(path, undefined);
  const drafts = storesDraftHead(path, filesWithDraft(path, names), architecture);
  const files = (drafts ? filesWithDraft : weightFiles)(path, names);
  checkSource(path, architecture, options);
  checkShards(path, files, names);
  const found = new Map(files.flatMap((file) => storedOf(join(path, file))).map((tensor) => [tensor.name, tensor]));
  checkWeights(path, files, architecture, drafts);
  const stored = sourcesOf(found, architecture);

  const { tableBytes, prefix, config: { quantization } } = architecture;
  const modules = architecture.modules({ head: stored.has(`${prefix}lm_head.weight`), draftHead: drafts })
    .map((module) => ({ ...module, path: prefix + module.path }));
  const absent = modules.map(({ path, isArray }) => isArray ? path : `${path}.weight`).find((name) =>
    !stored.has(name)
  );
  if (absent !== undefined) {
    const what = `stores ${quoted(absent)} in its makers' layout, which is loaded but not converted`;
    throw new LlmError("weights", `${shownPath(path)} ${what}: take the model as mlx-lm converted it`);
  }
  const description = describeConversion(path, modules, architecture, options);
  const { dtype, rows } = description;
  const storedAs = ({ path, shape }: WeightModule): Quantization<CodeMode> | undefined =>
    quantization && quantizationOf(path, shape.at(-1)!, quantization, (name) => stored.get(name));
  const quantizedAs = (module: string): Quantization | undefined => {
    const row = rows.get(module)?.row;
    if (row === undefined) return undefined;
    const { defaults } = QUANTIZATION_MODES[row.mode ?? "affine"];
    return { ...row, groupSize: row.groupSize ?? defaults.groupSize };
  };
  const wish = {
    dtype: (path: string) => architecture.keepsDtype(path) ? undefined : dtype,
    quantize: quantizedAs,
    dequantize: (module: WeightModule) => options.dequantize ? storedAs(module) : undefined,
  };
  const jobs: Job[] = modules.flatMap((module) => jobsOf(module, stored, wish));
  const outputs = [...new Set(jobs.flatMap((job) => job.outputs))];
  await opening;
  const { maxShardBytes, signal } = options;
  const counted = modules.filter(({ path }) => !isOfDraftHead(path.slice(prefix.length)));
  const config = newConfig(description);
  const tokenizer = tokenizerFiles(path);
  const made = { outputs, prefix, modules: counted, config, tokenizer, repo, tableBytes, maxShardBytes, signal };
  return await writeModelFolder(out, made, (shardFiles) => runJobs(jobs, shardFiles, options));
}

/** The tensors of a model by mlx-lm's names, stacked where they are stored in parts. */
function sourcesOf(
  found: ReadonlyMap<string, StoredTensor>,
  { nameOf, prefix, stacks, changes }: Architecture,
): ReadonlyMap<string, Source> {
  const own = new Map<string, StoredTensor>();
  for (const [name, tensor] of found) {
    const here = nameOf(name);
    if (here !== undefined) own.set(here, tensor);
  }
  const named = new Map<string, Source>(withPrefix(own));
  for (const stack of stacks) stackSources(named, stack);
  for (const { name, make } of changes((name) => named.get(name)?.shape)) {
    const source = named.get(name);
    if (source) named.set(name, { ...source, change: make });
  }
  return new Map(Array.from(named, ([name, tensor]) => [prefix + name, { ...tensor, name: prefix + name }]));
}

/** Throws unless the tensors are those of the model, as loading it does. */
function checkWeights(path: string, files: readonly string[], architecture: Architecture, drafts: boolean): void {
  using weights = openWeights(path, readTensors(path, files), architecture, mx.float32);
  using _ = architecture.build(weights, drafts);
  weights.finish();
}
