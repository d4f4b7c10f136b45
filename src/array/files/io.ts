/**
 * Arrays in files: safetensors here, NumPy's formats and GGUF in `files/`, and the choice among them by a path's ending.
 *
 * Loading reads headers only; each array stays a range of the file until something needs its values, which then go straight to
 * the device. Saving writes under another name and renames.
 *
 * @module
 */

import { quoted, ValueError } from "../../graph/error.ts";
import { checkOptions } from "../../graph/options.ts";
import { type GgufMetadata, loadGguf, loadGgufWithMetadata, saveGguf } from "./gguf_file.ts";
import { byName, namedList, type NamedTensors, type TensorTree } from "./named.ts";
import { loadNpy, loadNpz, saveNpy, savez } from "./npz.ts";
import { tensorPieces } from "./pieces.ts";
import { MAX_NAME, MAX_STRING, MAX_TENSORS, readHeader } from "./safetensors.ts";
import { writeSafetensors } from "./safetensors_file.ts";
import { storedTensors, storedWhole } from "./stored.ts";
import { Tensor } from "../tensor/tensor.ts";

export { type GgufMetadata, loadGguf, type SavedMetadata, saveGguf } from "./gguf_file.ts";
export type { NamedTensors, TensorTree } from "./named.ts";
export { loadNpy, loadNpz, savez, savezCompressed } from "./npz.ts";

/**
 * The arrays of a safetensors file by name. Only the header is read; values are read when they are needed, and reading them is an
 * error if the file changed since. 8-bit floats load as uint8, see `mx.fromFp8`.
 *
 * Throws an {@link ArrayError} with code "file" for a file that does not follow the format exactly. Tensors must not overlap, leave a gap
 * or occur twice. At most 100,000 tensors and names of 64 KB are allowed.
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
  return byName(
    storedTensors(path).map((stored) => [stored.name, storedWhole(stored)]),
  );
}

/** The metadata of a safetensors file: strings by name. */
export function safetensorsMetadata(path: string): Record<string, string> {
  return readHeader(path).metadata;
}

/** Throws if the file would be one that {@link loadSafetensors} refuses. */
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
  const list = namedList("saveSafetensors", arrays);
  const texts = Object.entries(metadata).flat();
  checkSavable(list.map(([name]) => name), texts);
  if (list.some(([name]) => name === "__metadata__")) {
    throw new ValueError('saveSafetensors() got the name "__metadata__", which the format keeps for itself');
  }
  const saved = list.map(([name, tensor]) => ({
    name,
    dtype: tensor.dtype,
    shape: tensor.shape,
    pieces: () => tensorPieces(tensor),
  }));
  writeSafetensors(path, saved, { format: "mlx", ...metadata });
}

/** Names of the formats of files. */
export type FileFormat = "safetensors" | "npz" | "npy" | "gguf";

/** The functions for files of a format. */
interface Format {
  readonly load: (path: string) => Tensor | NamedTensors;
  /** Undefined if files have no metadata. */
  readonly withMetadata: ((path: string) => readonly [NamedTensors, GgufMetadata]) | undefined;
  readonly save: (path: string, arrays: TensorTree, metadata: Readonly<Record<string, string>>) => void;
}

/** Formats by the ending of a path. */
const FORMATS: Readonly<Record<FileFormat, Format>> = {
  safetensors: {
    load: loadSafetensors,
    withMetadata: (path) => [loadSafetensors(path), safetensorsMetadata(path)],
    save: saveSafetensors,
  },
  npz: {
    load: loadNpz,
    withMetadata: undefined,
    save: (path, arrays, metadata) => {
      refuseMetadata("npz", metadata);
      savez(path, byName(namedList("save", arrays)));
    },
  },
  npy: {
    load: loadNpy,
    withMetadata: undefined,
    save: (path, array, metadata) => {
      refuseMetadata("npy", metadata);
      if (!(array instanceof Tensor)) {
        throw new ValueError("save() expected one array for a .npy file: use .npz for several");
      }
      saveNpy(path, array);
    },
  },
  gguf: { load: loadGguf, withMetadata: loadGgufWithMetadata, save: saveGguf },
};

function refuseMetadata(format: FileFormat, metadata: object): void {
  if (Object.keys(metadata).length > 0) {
    throw new ValueError(`save() cannot store metadata in a .${format} file: use .safetensors`);
  }
}

/** The format of a file by its ending. */
export type FormatOf<P extends string> = P extends `${string}.${infer E}` ? E extends FileFormat ? E : FormatOf<E>
  : FileFormat;

/** The contents of a file of a format. */
export type Loaded<P extends string> = string extends P ? Tensor | NamedTensors
  : FormatOf<P> extends "npy" ? Tensor
  : FormatOf<P> extends "npz" | "safetensors" | "gguf" ? NamedTensors
  : Tensor | NamedTensors;

/** Options of {@link load}. */
export interface LoadOptions {
  /** The format, where the path does not end so. */
  readonly format?: FileFormat;
  /** Whether the metadata are wanted too. */
  readonly returnMetadata?: boolean;
}

const LOAD_OPTIONS = { format: true, returnMetadata: true } as const satisfies Record<keyof LoadOptions, true>;

function formatOf(op: string, path: string, format?: string): FileFormat {
  const name = format ?? /\.([^./\\]*)$/.exec(path)?.[1] ?? "";
  if (Object.hasOwn(FORMATS, name)) return name as FileFormat;
  const endings = Object.keys(FORMATS).map((known) => `.${known}`).join(", ");
  throw new ValueError(`${op}() knows files by their ending: expected ${endings}, found ${quoted(format ?? path)}`);
}

/**
 * Loads a file by its ending: an array of a `.npy` file, arrays by name of `.safetensors`, `.npz` and `.gguf` files. With
 * `returnMetadata` a pair of the arrays and the metadata of a `.safetensors` or `.gguf` file. Where the type of the path does not
 * tell its ending, {@link loadNpy} and its like say what they give.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const folder = await Deno.makeTempDir();
 * mx.save(`${folder}/x.npy`, mx.arange(3));
 * mx.load(`${folder}/x.npy`).tolist(); // [0, 1, 2]
 * ```
 */
export function load(
  path: string,
  options: LoadOptions & { readonly returnMetadata: true },
): [arrays: NamedTensors, metadata: GgufMetadata];
/** Loads a file of a format that its path does not tell. */
export function load<F extends FileFormat>(path: string, options: { readonly format: F }): Loaded<`.${F}`>;
/** Loads a file by its ending. */
export function load<const P extends string>(path: P, options?: LoadOptions): Loaded<P>;
export function load(path: string, options: LoadOptions = {}): unknown {
  checkOptions("load", options, LOAD_OPTIONS);
  const format = formatOf("load", path, options.format);
  const { load, withMetadata } = FORMATS[format];
  if (!options.returnMetadata) return load(path);
  if (!withMetadata) throw new ValueError(`load() finds no metadata in a .${format} file`);
  return withMetadata(path);
}

/**
 * Saves arrays to a file by its ending: one array to `.npy`, which is also added to a path without a known ending. Arrays by name go to
 * `.safetensors`, `.npz` and `.gguf`. Metadata go into `.safetensors` and `.gguf` files. The file appears whole or not at all.
 */
export function save(path: string, arrays: TensorTree, metadata: Readonly<Record<string, string>> = {}): void {
  const known = Object.keys(FORMATS).some((name) => path.endsWith(`.${name}`));
  const named = known || !(arrays instanceof Tensor) ? path : `${path}.npy`;
  FORMATS[formatOf("save", named)].save(named, arrays, metadata);
}
