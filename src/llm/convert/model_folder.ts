/**
 * Writes a model as a folder in mlx-lm's layout: weights in shards, their index, config.json, the tokenizer's files and a card.
 *
 * @module
 */

import { OutputFolder } from "../../../ffi/output_folder.ts";
import { countParameters, type WeightModule } from "../layers/modules.ts";
import { type Converted, newIndex, newReadme } from "./files.ts";
import type { Output } from "./jobs.ts";
import { MAX_SHARD_BYTES, modelFilesOf, ShardFiles } from "./shard_files.ts";

/** What a folder is to hold. */
export interface NewModel {
  /** Its tensors in the model's order. */
  readonly outputs: readonly Output[];
  /** What the names of tensors begin with, before those of the model's modules. Default "". */
  readonly prefix?: string;
  /** The modules of the model, whose parameters are counted. */
  readonly modules: readonly WeightModule[];
  /** The text of config.json. */
  readonly config: Uint8Array;
  /** The files of the tokenizer by name. */
  readonly tokenizer: Readonly<Record<string, Uint8Array>>;
  /** The model of the hub that it was made of. */
  readonly repo?: string | undefined;
  /** Bytes that mlx-lm counts besides the tensors. Default 0. */
  readonly tableBytes?: number;
  /** Most bytes of a file. Default {@link MAX_SHARD_BYTES}. */
  readonly maxShardBytes?: number | undefined;
  /** Stops the writing. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Writes a folder, which appears whole or not at all. `fill` writes the values of all tensors. Throws a `FileError` whose message goes
 * after the path.
 */
export async function writeModelFolder(
  path: string,
  model: NewModel,
  fill: (files: ShardFiles, bytes: number) => void | Promise<void>,
): Promise<Converted> {
  const { outputs, prefix = "", modules, config, tokenizer, repo, tableBytes = 0, maxShardBytes = MAX_SHARD_BYTES } =
    model;
  const parameters = countParameters(modules);
  const { shards, all, bytes, size } = modelFilesOf(outputs, prefix, maxShardBytes);
  const texts: Readonly<Record<string, Uint8Array>> = {
    "config.json": config,
    "model.safetensors.index.json": newIndex(shards, bytes, parameters),
    ...tokenizer,
    "README.md": newReadme(repo),
  };
  using folder = OutputFolder.make(path, Object.values(texts).reduce((sum, { length }) => sum + length, size));
  {
    using files = new ShardFiles(folder, all);
    await fill(files, bytes);
    files.sync();
  }
  for (const [name, text] of Object.entries(texts)) folder.write(name, text);
  model.signal?.throwIfAborted();
  folder.finish();
  return {
    path,
    files: [...all.map(({ name }) => name), ...Object.keys(texts)].sort(),
    bytes,
    parameters,
    bitsPerWeight: (bytes + tableBytes) * 8 / parameters,
  };
}
