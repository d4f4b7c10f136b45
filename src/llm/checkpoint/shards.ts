/**
 * Which files of a model directory hold weights. A checkpoint in several files, its shards, has an index from tensors to files.
 * Without an index, names such as model-00001-of-00003.safetensors say how many files there must be. So do those of GGUF files.
 *
 * @module
 */

import { basename, dirname, join } from "node:path";
import { FileError, InputFile } from "../../../ffi/file.ts";
import { JsonReader } from "../../array/files/json_reader.ts";
import { MAX_NAME, MAX_STRING, MAX_TENSORS } from "../../array/files/safetensors.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { LlmError } from "../error.ts";

/** The index of a checkpoint in several files. */
export const INDEX_FILE = "model.safetensors.index.json";
/** Far above that of any model that is published; each tensor takes about 100 bytes. */
const MAX_INDEX = 2 ** 25;

/**
 * The files of a directory that hold weights, in reading order. These are the files that the index names, missing ones included,
 * or every model*.safetensors. An index is ignored if none of its files exists: conversions to another layout, such as mlx-lm's
 * once, leave one. Throws an {@link LlmError} if the index is malformed or names files in other folders.
 */
export function weightFiles(dir: string, names: readonly string[]): string[] {
  const listed = names.filter((name) => /^model.*\.safetensors$/.test(name)).sort();
  const indexed = names.includes(INDEX_FILE) ? readIndex(join(dir, INDEX_FILE)) : [];
  const there = new Set(names);
  return indexed.length > 0 && (listed.length === 0 || indexed.some((name) => there.has(name))) ? indexed : listed;
}

/** Those of a model's weight files that are not there. */
export function missingShards(files: readonly string[], names: readonly string[]): string[] {
  const there = new Set(names);
  const [, start, count] = files.map((name) => /^(.*-)\d{5}-of-(\d{5})\.safetensors$/.exec(name)).find(Boolean) ?? [];
  const counted = Array.from(
    { length: Number(count ?? 0) },
    (_, i) => `${start}${String(i + 1).padStart(5, "0")}-of-${count}.safetensors`,
  );
  return [...new Set([...files, ...counted])].filter((name) => !there.has(name)).sort();
}

/** The files that an index names, in order. */
function readIndex(path: string): string[] {
  const refuse = (what: string): never => {
    throw new LlmError("weights", `${shownPath(path)} ${what}`);
  };
  const files = new Set<string>();
  let maps = 0;
  let tensors = 0;
  try {
    using file = new InputFile(path);
    if (file.size > MAX_INDEX) refuse(`has ${file.size} bytes, at most ${MAX_INDEX} are allowed`);
    const json = new JsonReader(file, 0, file.size, (what, at) => refuse(`${what}, at byte ${at}`));
    if (!json.begins("{")) refuse('is no object with a "weight_map"');
    json.object(MAX_NAME, (key) => {
      if (key !== "weight_map") return json.skip(MAX_STRING);
      if (maps++ > 0) refuse('has "weight_map" twice');
      if (!json.begins("{")) refuse('has a "weight_map" that is not files by name');
      json.object(MAX_NAME, (tensor) => {
        const name = json.begins('"') ? json.string(MAX_STRING) : refuse(`has no file of ${quoted(tensor)}`);
        if (!isPlainName(name)) {
          refuse(`puts ${quoted(tensor)} into ${quoted(name)}, expected a .safetensors file of the same folder`);
        }
        if (++tensors > MAX_TENSORS) refuse(`has more than ${MAX_TENSORS} tensors`);
        files.add(name);
      });
    });
    json.finish();
  } catch (cause) {
    if (cause instanceof FileError) refuse(cause.message);
    throw cause;
  }
  if (maps === 0) refuse('has no "weight_map"');
  return [...files].sort();
}

function isPlainName(file: string): boolean {
  // deno-lint-ignore no-control-regex
  return file.length <= 255 && /^[^/\\:\0-\x1f\x7f-\x9f]+\.safetensors$/.test(file) && !file.startsWith(".");
}

const GGUF = ".gguf";
/** The name of a GGUF file that is one of several. */
const PART = /-(\d{5})-of-(\d{5})\.gguf$/;

/** Whether a path names a GGUF file. */
export function isGguf(path: string): boolean {
  return path.endsWith(GGUF);
}

/** The number of a GGUF file among those of its model, from 1 on. */
export function partNumber(path: string): number {
  return Number(PART.exec(path)?.[1] ?? 1);
}

/** The GGUF files of a model, in order, by the path of any of them. */
export function partsOf(path: string): string[] {
  const name = basename(path);
  const [part, , count] = PART.exec(name) ?? [];
  if (part === undefined) return [path];
  const start = name.slice(0, -part.length);
  return Array.from(
    { length: Number(count) },
    (_, i) => join(dirname(path), `${start}-${String(i + 1).padStart(5, "0")}-of-${count}${GGUF}`),
  );
}
