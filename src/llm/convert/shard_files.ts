/**
 * The weights of a new model as mlx-lm lays them out. Each file holds at most some bytes, in the model's order; its tensors have the
 * order and the header that MLX writes. The layout is known before the first value is, so each tensor is written to its place as
 * it comes.
 *
 * @module
 */

import type { OutputFile, OutputFolder } from "../../../ffi/output_folder.ts";
import { DTYPE_NAMES } from "../../array/files/safetensors.ts";
import { DRAFT_FILE } from "../checkpoint/draft_file.ts";
import { isOfDraftHead } from "../config/decoder.ts";
import { bytesOf, type Output } from "./jobs.ts";
import { byCodePoints } from "./python_json.ts";
import { unorderedMapOrder } from "./unordered_map.ts";

/** Most bytes of a file: mlx-lm's 5 GB, which are binary ones. */
export const MAX_SHARD_BYTES: number = 5 * 2 ** 30;

/** A file of weights. */
export interface Shard {
  readonly name: string;
  /** The bytes before the values. */
  readonly header: Uint8Array;
  /** Where each tensor begins in the file. */
  readonly offsets: ReadonlyMap<string, number>;
}

/** The files of a model. */
export interface ModelFiles {
  /** Those that mlx-lm writes too, which the index names. */
  readonly shards: readonly Shard[];
  /** With the one of the head that drafts tokens, if there is one. */
  readonly all: readonly Shard[];
  /** Bytes of the tensors of `shards`. */
  readonly bytes: number;
  /** Bytes of `all`, headers included. */
  readonly size: number;
}

/** The files of tensors whose names begin with `prefix`; those of the head that drafts tokens have a file of their own. */
export function modelFilesOf(outputs: readonly Output[], prefix: string, most: number): ModelFiles {
  const isDraft = ({ name }: Output): boolean => isOfDraftHead(name.slice(prefix.length));
  const [own, ofDraft] = [outputs.filter((output) => !isDraft(output)), outputs.filter(isDraft)];
  const shards = shardsOf(own, most);
  const all = ofDraft.length > 0 ? [...shards, laidOut(DRAFT_FILE, ofDraft)] : shards;
  const sum = (of: readonly Output[]): number => of.reduce((sum, output) => sum + bytesOf(output), 0);
  const headers = all.reduce((sum, { header }) => sum + header.length, 0);
  return { shards, all, bytes: sum(own), size: sum(outputs) + headers };
}

/** The files that tensors come to lie in; a tensor that is larger than a file may be has one to itself. */
function shardsOf(outputs: readonly Output[], most: number): Shard[] {
  const groups: Output[][] = [];
  let size = 0;
  for (const output of outputs) {
    const bytes = bytesOf(output);
    if (groups.length === 0 || size + bytes > most) {
      groups.push([]);
      size = 0;
    }
    groups.at(-1)!.push(output);
    size += bytes;
  }
  const digits = (count: number): string => String(count).padStart(5, "0");
  return groups.map((group, i) => {
    const single = groups.length === 1;
    const name = single ? "model.safetensors" : `model-${digits(i + 1)}-of-${digits(groups.length)}.safetensors`;
    return laidOut(name, group);
  });
}

function laidOut(name: string, outputs: readonly Output[]): Shard {
  const byName = new Map(outputs.map((output) => [output.name, output]));
  const begins = new Map<string, number>();
  let end = 0;
  for (const key of unorderedMapOrder([...byName.keys()])) {
    begins.set(key, end);
    end += bytesOf(byName.get(key)!);
  }
  // Keys are sorted and nothing is padded, as the JSON library of MLX writes it; names go through as UTF-8.
  const rows = [...byName.keys()].sort(byCodePoints).map((key) => {
    const output = byName.get(key)!;
    const begin = begins.get(key)!;
    const entry = {
      data_offsets: [begin, begin + bytesOf(output)],
      dtype: DTYPE_NAMES.get(output.dtype),
      shape: output.shape,
    };
    return `${JSON.stringify(key)}:${JSON.stringify(entry)}`;
  });
  const text = new TextEncoder().encode(`{${[`"__metadata__":{"format":"mlx"}`, ...rows].join()}}`);
  const header = new Uint8Array(8 + text.length);
  new DataView(header.buffer).setBigUint64(0, BigInt(text.length), true);
  header.set(text, 8);
  const offsets = new Map(Array.from(begins, ([key, begin]) => [key, header.length + begin]));
  return { name, header, offsets };
}

/** The files of a folder while they are written. */
export class ShardFiles implements Disposable {
  readonly #files: readonly OutputFile[];
  readonly #places = new Map<string, { readonly file: OutputFile; readonly offset: number }>();

  /** Makes the files and writes what stands before the values. */
  constructor(folder: OutputFolder, shards: readonly Shard[]) {
    const files: OutputFile[] = [];
    this.#files = files;
    try {
      for (const { name, header, offsets } of shards) {
        const file = folder.file(name);
        files.push(file);
        file.write(header, 0);
        for (const [tensor, offset] of offsets) this.#places.set(tensor, { file, offset });
      }
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  /** Writes bytes of a tensor from its byte `at` on. */
  write(tensor: string, bytes: Uint8Array, at: number): void {
    const { file, offset } = this.#places.get(tensor)!;
    file.write(bytes, offset + at);
  }

  /** Returns when all bytes are on the disk. */
  sync(): void {
    for (const file of this.#files) file.sync();
  }

  /** Closes the files. */
  [Symbol.dispose](): void {
    for (const file of this.#files) file[Symbol.dispose]();
  }
}
