/**
 * Arrays in safetensors files.
 *
 * Loading reads the header only (`safetensors.ts`); each array stays a range of the file until something needs its
 * values, which then go straight to the device. Saving writes under another name and renames.
 *
 * @module
 */

import { quoted, ValueError } from "../graph/error.ts";
import { MAX_NAME, MAX_STRING, MAX_TENSORS, readHeader } from "./safetensors.ts";
import { writeSafetensors } from "./safetensors_file.ts";
import { storedBytes, storedTensors } from "./stored.ts";
import { make, Tensor } from "./tensor.ts";

/** Arrays by name. */
export type NamedTensors = Record<string, Tensor>;

/** Arrays in nested objects and lists; names join with dots in files. */
export type TensorTree = Tensor | readonly TensorTree[] | { readonly [name: string]: TensorTree };

/**
 * The arrays of a safetensors file by name. Only the header is read; values are read when they are needed, and reading them is an
 * error where the file changed since. 64-bit dtypes are refused, 8-bit floats load as uint8.
 *
 * Throws an {@link ArrayError} with code "file" for a file that is not exactly what the format says: tensors that overlap, leave a gap
 * or occur twice, more than 100,000 of them, names above 64 KB.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = await Deno.makeTempFile({ suffix: ".safetensors" });
 * mx.saveSafetensors(path, { w: mx.ones([2, 2]) });
 * const { w } = mx.loadSafetensors(path);
 * w.tolist(); // [[1, 1], [1, 1]]
 * ```
 */
export function loadSafetensors(path: string): NamedTensors {
  const found: NamedTensors = {};
  for (const { name, shape, dtype, place } of storedTensors(path)) {
    // Assigned as an own property whatever the name, "__proto__" included.
    Object.defineProperty(found, name, {
      value: make("file", [], [...shape], dtype, place),
      enumerable: true,
      writable: true,
      configurable: true,
    });
  }
  return found;
}

/** The metadata of a safetensors file: strings by name. */
export function safetensorsMetadata(path: string): Record<string, string> {
  return readHeader(path).metadata;
}

/** Arrays of a tree with their names: keys and list indices joined by dots. */
function* named(tree: TensorTree, prefix: string): Generator<[string, Tensor]> {
  if (tree instanceof Tensor) {
    if (prefix === "") {
      throw new ValueError("saveSafetensors() expected arrays by name: found one array without a name");
    }
    yield [prefix, tree];
    return;
  }
  if (typeof tree !== "object" || tree === null) {
    throw new ValueError(`saveSafetensors() expected arrays only: found ${tree} at "${prefix}"`);
  }
  for (const [key, value] of Object.entries(tree)) yield* named(value, prefix === "" ? key : `${prefix}.${key}`);
}

/** Throws where the file would be one that {@link loadSafetensors} refuses. */
function checkSavable(names: readonly string[], texts: readonly string[]): void {
  if (names.length > MAX_TENSORS) {
    throw new ValueError(`saveSafetensors() got ${names.length} arrays: a file holds at most ${MAX_TENSORS}`);
  }
  const check = (text: string, most: number): void => {
    if (!text.isWellFormed()) throw new ValueError(`saveSafetensors() got half a surrogate pair in ${quoted(text)}`);
    const bytes = new TextEncoder().encode(JSON.stringify(text)).length - 2;
    if (bytes <= most) return;
    throw new ValueError(
      `saveSafetensors() got a text of ${bytes} bytes, at most ${most} are allowed: ${quoted(text)}`,
    );
  };
  for (const name of names) check(name, MAX_NAME);
  for (const text of texts) check(text, MAX_STRING);
}

/**
 * Saves arrays by name; those in nested objects and lists get names such as "layers.0.weight". Metadata are strings, with
 * {"format": "mlx"} added as mlx-lm writes it. The file appears whole or not at all.
 */
export function saveSafetensors(
  path: string,
  arrays: TensorTree,
  metadata: Readonly<Record<string, string>> = {},
): void {
  for (const [name, value] of Object.entries(metadata)) {
    if (typeof value !== "string") {
      throw new ValueError(`saveSafetensors() expected strings in metadata: found ${value} at "${name}"`);
    }
  }
  const list = [...named(arrays, "")];
  const texts = Object.entries(metadata).flat();
  checkSavable(list.map(([name]) => name), texts);
  const names = new Set(["__metadata__"]);
  for (const [name] of list) {
    if (names.has(name)) throw new ValueError(`saveSafetensors() got the name "${name}" twice`);
    names.add(name);
  }
  const saved = list.map(([name, tensor]) => ({
    name,
    dtype: tensor.dtype,
    shape: tensor.shape,
    read: () => storedBytes(tensor),
  }));
  writeSafetensors(path, saved, { format: "mlx", ...metadata });
}

function needSafetensors(op: string, path: string): void {
  if (!path.endsWith(".safetensors")) {
    throw new ValueError(`${op}() knows files by their ending: expected .safetensors, found ${path}`);
  }
}

/** Loads a file by its ending: `.safetensors`. */
export function load(path: string): NamedTensors {
  needSafetensors("load", path);
  return loadSafetensors(path);
}

/** Saves arrays to a file by its ending: `.safetensors`. */
export function save(path: string, arrays: TensorTree, metadata: Readonly<Record<string, string>> = {}): void {
  needSafetensors("save", path);
  saveSafetensors(path, arrays, metadata);
}
