/**
 * The files of a model directory as mlx-lm lays it out.
 *
 * @module
 */

import { join } from "node:path";
import { FileError, fileNames, readFile } from "../../../ffi/file.ts";
import { TOOL_TEMPLATE } from "../chat/template.ts";
import { shownPath } from "../../graph/error.ts";
import { listed, LlmError, type LlmErrorCode } from "../error.ts";
import { nameInAddress } from "../hub/name.ts";
import { missingShards } from "./shards.ts";
import type { Checksums } from "./verify.ts";

/** Most bytes of each file of a model directory, far above any that is published, and what its errors are about. */
const MODEL_FILES = {
  "config.json": { most: 2 ** 20, code: "config" },
  "generation_config.json": { most: 2 ** 20, code: "config" },
  "tokenizer.json": { most: 2 ** 27, code: "tokenizer" },
  "tokenizer.model": { most: 2 ** 25, code: "tokenizer" },
  "tekken.json": { most: 2 ** 27, code: "tokenizer" },
  "tokenizer_config.json": { most: 2 ** 24, code: "tokenizer" },
  "chat_template.jinja": { most: 2 ** 18, code: "template" },
  [TOOL_TEMPLATE]: { most: 2 ** 18, code: "template" },
} as const satisfies Record<string, { readonly most: number; readonly code: LlmErrorCode }>;

/** The files of a model directory beside its weights. */
export type ModelFile = keyof typeof MODEL_FILES;

/** Those files of a directory that are read, beside its weights. */
export function filesRead(names: readonly string[]): string[] {
  return names.filter((name) => Object.hasOwn(MODEL_FILES, name));
}

/** Text of a file in a model directory; `undefined` when there is none. Throws an {@link LlmError} as {@link readModelBytes} does. */
export function readModelFile(dir: string, name: ModelFile, sums?: Checksums): string | undefined {
  const bytes = readModelBytes(dir, name, sums);
  if (bytes === undefined) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new LlmError(MODEL_FILES[name].code, `${shownPath(join(dir, name))} is not valid UTF-8`);
  }
}

/**
 * Bytes of a file in a model directory; `undefined` if there is none. An irregular file, or one that is too large
 * for its kind, throws an {@link LlmError} before it is read. A file that does not match `sums` throws one after that.
 */
export function readModelBytes(dir: string, name: ModelFile, sums?: Checksums): Uint8Array | undefined {
  const path = join(dir, name);
  const { most, code } = MODEL_FILES[name];
  try {
    const bytes = readFile(path, most);
    sums?.check(name, bytes);
    return bytes;
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    if (cause.code === "missing") return undefined;
    throw new LlmError(code, `${shownPath(path)} ${cause.message}`);
  }
}

/** Throws if files of weights are not there. */
export function checkShards(dir: string, files: readonly string[], names: readonly string[]): void {
  if (files.length === 0) throw new LlmError("weights", `${shownPath(dir)} has no model*.safetensors`);
  const missing = missingShards(files, names);
  if (missing.length === 0) return;
  throw new LlmError("weights", `${shownPath(dir)} lacks ${listed(missing.map(shownPath))}: download the model again`);
}

/** Names of the files in a model directory. Throws when it is not one that can be read. */
export function modelFiles(dir: string): string[] {
  if (dir === "") throw new LlmError("weights", "The model directory is an empty text: name a folder");
  try {
    return fileNames(dir);
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    const meant = nameInAddress(dir);
    const hint = meant !== undefined
      ? `: did you mean ${meant}?`
      : dir.endsWith(".gguf") && cause.code === "kind"
      ? ": GGUF files are loaded and converted, and only folders are inspected or fused"
      : cause.code === "kind"
      ? ": name the folder that it lies in"
      : cause.code === "missing"
      ? ", and models of the hub have names such as Qwen/Qwen3-0.6B"
      : "";
    throw new LlmError("weights", `The model directory ${shownPath(dir)} ${cause.message}${hint}`);
  }
}
