/**
 * A model directory as mlx-lm lays it out: config.json, tokenizer.json and safetensors.
 *
 * @module
 */

import { join } from "node:path";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { MAX_TENSORS } from "../../array/files/safetensors.ts";
import { storedRows, type StoredTensor, storedTensors, storedWhole } from "../../array/files/stored.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { TOOL_TEMPLATE } from "../chat/template.ts";
import { Fields } from "../config/fields.ts";
import { type GenerationConfig, readGenerationConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import { findTokenizer } from "../tokenizer/formats.ts";
import { type Checkpoint, FOLDER_TERMS, type TokenizerTexts } from "./checkpoint.ts";
import { filesWithDraft } from "./draft_file.ts";
import { type ArrayLimits, partPath, partRows, partsOfRows, splitName } from "./row_parts.ts";
import { weightFiles } from "./shards.ts";
import { Checksums, type Verify } from "./verify.ts";
import { checkShards, filesRead, type ModelFile, readModelBytes, readModelFile } from "./model_files.ts";

/** A checkpoint in a folder. */
export class DirectoryCheckpoint implements Checkpoint {
  readonly path: string;
  readonly terms = FOLDER_TERMS;
  readonly #names: readonly string[];
  readonly #files: readonly string[];
  readonly #sums: Checksums | undefined;

  /** Finds the files of weights among `names`, the names of the folder's files. `drafts`: that of the draft head too. */
  constructor(path: string, names: readonly string[], verify: Verify | undefined, drafts: boolean) {
    this.path = path;
    this.#names = names;
    this.#files = (drafts ? filesWithDraft : weightFiles)(path, names);
    this.#sums = Checksums.of(path, verify, [...filesRead(names), ...this.#files]);
  }

  readConfig(): { readonly fields: Fields; readonly file: string } {
    const file = `${this.path}/config.json`;
    const text = readModelFile(this.path, "config.json", this.#sums);
    if (text === undefined) {
      throw new LlmError("config", `${file} does not exist: ${this.path} is not a model directory`);
    }
    return { fields: Fields.parse(text, file), file };
  }

  readGenerationConfig(): GenerationConfig {
    const text = readModelFile(this.path, "generation_config.json", this.#sums);
    return readGenerationConfig(text, `${this.path}/generation_config.json`);
  }

  async checkFiles(signal: AbortSignal | undefined): Promise<void> {
    checkShards(this.path, this.#files, this.#names);
    await this.#sums?.checkFiles(this.#files, signal);
  }

  readTokenizer(): TokenizerTexts {
    const text = (name: ModelFile): string | undefined => readModelFile(this.path, name, this.#sums);
    const [config, chatTemplate, toolTemplate] = [
      "tokenizer_config.json",
      "chat_template.jinja",
      TOOL_TEMPLATE,
    ] as const;
    return {
      ...findTokenizer(this.path, (name) => readModelBytes(this.path, name, this.#sums)),
      config: text(config),
      chatTemplate: text(chatTemplate),
      toolTemplate: text(toolTemplate),
    };
  }

  tensors(_exact: boolean, most?: ArrayLimits): Map<string, Tensor> {
    return readTensors(this.path, this.#files, most);
  }

  note(): undefined {
    return undefined;
  }

  finish(): void {
    this.#sums?.finish();
  }
}

/** The tensors of files in a folder by name, none of them read; those that are too large in parts of rows, see row_parts.ts. */
export function readTensors(dir: string, files: readonly string[], most?: ArrayLimits): Map<string, Tensor> {
  const found = new Map<string, StoredTensor>();
  const from = new Map<string, string>();
  for (const file of files) {
    for (const stored of storedOf(join(dir, file))) {
      const other = from.get(stored.name);
      if (other !== undefined) {
        const both = [other, file].map(shownPath).join(" and ");
        throw new LlmError("weights", `${shownPath(dir)}: ${quoted(stored.name)} is in both ${both}`);
      }
      from.set(stored.name, file);
      found.set(stored.name, stored);
    }
    if (found.size > MAX_TENSORS) {
      throw new LlmError("weights", `${shownPath(dir)} has more than ${MAX_TENSORS} tensors`);
    }
  }
  const made = new Map<string, Tensor>();
  for (const [name, stored] of found) {
    try {
      for (const [own, tensor] of arraysOf(name, stored, found, most)) {
        untrack(tensor);
        made.set(own, tensor);
      }
    } catch (cause) {
      mx.dispose([...made.values()]);
      if (!(cause instanceof mx.ArrayError)) throw cause;
      const file = join(dir, from.get(name)!);
      throw new LlmError(
        "weights",
        `${shownPath(file)}: ${quoted(name)} is larger than an array may be: ${cause.message}`,
      );
    }
  }
  return made;
}

/** A stored tensor, or its parts by their names. Scales and biases have the parts of their codes. */
function arraysOf(
  name: string,
  stored: StoredTensor,
  all: ReadonlyMap<string, StoredTensor>,
  most: ArrayLimits | undefined,
): (readonly [name: string, tensor: Tensor])[] {
  const { path, end } = splitName(name);
  const { shape, dtype } = all.get(`${path}.weight`) ?? stored;
  const rows = partRows({ shape, elementBytes: dtype.bytes }, most);
  if (rows === undefined) return [[name, storedWhole(stored)]];
  const parts = partsOfRows(stored.shape[0], rows);
  return parts.map((part, i) => [`${partPath(path, i)}${end}`, storedRows(stored, part.first, part.rows)]);
}

/** The tensors of a file. */
export function storedOf(path: string): StoredTensor[] {
  try {
    return storedTensors(path);
  } catch (cause) {
    if (cause instanceof mx.ArrayError) throw new LlmError("weights", cause.message);
    throw cause;
  }
}
