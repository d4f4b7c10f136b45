/**
 * Safetensors files array by array: the header without the values, and writing with one array in memory at a time.
 *
 * @module
 */

import { FileError, InputFile } from "../../../ffi/file.ts";
import type { Dtype } from "../../graph/dtype.ts";
import type { Shape } from "../../graph/shape.ts";
import { sizeOf } from "../../graph/shape.ts";
import { writeFile } from "./pieces.ts";
import { DTYPE_NAMES, type Entry, failFile, readHeader } from "./safetensors.ts";
import { make, type Tensor } from "../tensor/tensor.ts";

/** A file whose header was read and checked. */
export interface StoredArrays {
  /** The arrays by name. */
  readonly entries: ReadonlyMap<string, Entry>;
  /** Strings by name. */
  readonly metadata: Readonly<Record<string, string>>;
  /** An array of the file, read when it is needed; reading is an error if the file changed since. */
  tensor(entry: Entry): Tensor;
  /** Reads the bytes of some arrays at once. */
  bytes(entries: readonly Entry[]): Uint8Array<ArrayBuffer>[];
}

/** Reads the header of a file. Throws an {@link ArrayError} with code "file" that says what is wrong. */
export function openSafetensors(given: string): StoredArrays {
  const { path, version, dataStart, entries, metadata } = readHeader(given);
  return {
    entries: new Map(entries.map((entry) => [entry.name, entry])),
    metadata,
    tensor: ({ shape, dtype, begin }) =>
      make("file", [], [...shape], dtype, { path, byteOffset: dataStart + begin, version }),
    bytes: (list) => {
      try {
        using file = new InputFile(path);
        if (file.version !== version) failFile(given, "changed since its header was read");
        return list.map(({ begin, end }) => {
          const out = new Uint8Array(end - begin);
          file.readInto(out, dataStart + begin);
          return out;
        });
      } catch (error) {
        if (error instanceof FileError) failFile(given, error.message);
        throw error;
      }
    },
  };
}

/** An array on its way into a file. */
export interface SavedArray {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: Shape;
  /** Its bytes; asked for once, when those before it are written. */
  readonly pieces: () => Iterable<Uint8Array>;
}

/**
 * Writes arrays under another name, which then becomes `path`: the file appears whole or not at all. Names must be different. The header
 * has them in the given order; their data begin with the largest dtypes, as Hugging Face writes them, so each array lies aligned.
 * Throws an {@link ArrayError} with code "file".
 */
export function writeSafetensors(
  path: string,
  arrays: readonly SavedArray[],
  metadata: Readonly<Record<string, string>>,
): void {
  const order = arrays.toSorted((a, b) => b.dtype.bytes - a.dtype.bytes);
  const offsets = new Map<SavedArray, readonly [begin: number, end: number]>();
  let at = 0;
  for (const array of order) {
    const begin = at;
    at += sizeOf(array.shape) * array.dtype.bytes;
    offsets.set(array, [begin, at]);
  }
  const rows = arrays.map((array) => {
    const { name, dtype, shape } = array;
    return [name, { dtype: DTYPE_NAMES.get(dtype), shape, data_offsets: offsets.get(array) }] as const;
  });
  const header = Object.fromEntries<unknown>([["__metadata__", metadata], ...rows]);
  // Spaces fill up to a multiple of 8, so that data may be mapped.
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(0x20);
  padded.set(text);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(padded.length), true);
  const content = function* (): Generator<Uint8Array> {
    yield length;
    yield padded;
    for (const { pieces } of order) yield* pieces();
  };
  writeFile(path, content());
}
