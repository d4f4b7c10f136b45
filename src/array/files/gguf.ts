/**
 * The header of GGUF files, versions 2 and 3: metadata by key, then names, sizes, types and offsets of tensors.
 *
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Everything is checked against the size of the file before anything is
 * allocated for it.
 *
 * @module
 */

import type { InputFile } from "../../../ffi/file.ts";
import * as dt from "../../graph/dtype.ts";
import type { Dtype } from "../../graph/dtype.ts";
import { quoted } from "../../graph/error.ts";
import { GGUF_TYPES, type GgufType } from "./gguf_types.ts";
import { opened } from "./safetensors.ts";

/** "GGUF". */
export const MAGIC = 0x46554747;
/** The version that is written. */
export const VERSION = 3;
/** Where data begins, and each tensor: a multiple of this unless the metadata say another. */
export const ALIGNMENT = 32;
/** The key of another alignment. */
const ALIGNMENT_KEY = "general.alignment";

const MAX_TENSORS = 100_000;
const MAX_PAIRS = 100_000;
const MAX_NAME = 2 ** 16;
const MAX_STRING = 2 ** 20;
const MAX_LIST = 2 ** 24;
const MAX_RANK = 8;
const MAX_ALIGNMENT = 2 ** 20;
/** Most elements of a quantized tensor, ten times as many as the largest published one has: work on its pieces is prepared. */
const MAX_QUANTIZED = 2 ** 35;
const CHUNK = 2 ** 20;

/** Codes of metadata: 8 is a string, 9 a list. */
export const STRING = 8;
/** Code of a list. */
export const LIST = 9;
/** Dtypes of numbers in metadata, by code; float64 becomes float32. */
export const VALUES: readonly (Dtype | undefined)[] = [
  dt.uint8,
  dt.int8,
  dt.uint16,
  dt.int16,
  dt.uint32,
  dt.int32,
  dt.float32,
  dt.bool,
  undefined,
  undefined,
  dt.uint64,
  dt.int64,
];
const FLOAT64 = 12;

/** A number, or a list of them, as bytes. */
export interface GgufNumbers {
  /** Element type. */
  readonly dtype: Dtype;
  /** No axes for a number, one for a list. */
  readonly shape: readonly number[];
  /** Little-endian elements. */
  readonly bytes: Uint8Array;
}

/** A value of the metadata. */
export type GgufValue = string | readonly string[] | GgufNumbers;

/** A tensor of a file. */
export interface GgufTensor {
  readonly name: string;
  readonly type: GgufType;
  /** Sizes, the last axis varies fastest. */
  readonly shape: readonly number[];
  /** Where it begins in the file, and its bytes. */
  readonly byteOffset: number;
  readonly bytes: number;
}

/** The fields of a header. */
export interface GgufHeader {
  /** The absolute path, links resolved. */
  readonly path: string;
  /** The version of the file that it was read from. */
  readonly version: string;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensor[];
}

const DECODER = new TextDecoder();

/** Reads one value after the other. */
class Cursor {
  #chunk: Uint8Array = new Uint8Array(0);
  #start = 0;
  at = 0;

  constructor(readonly file: InputFile, readonly fail: (what: string) => never) {}

  bytes(count: number): Uint8Array {
    if (this.at + count > this.file.size) this.fail(`is cut off in its header, at byte ${this.file.size}`);
    if (this.at + count > this.#start + this.#chunk.length) {
      this.#start = this.at;
      this.#chunk = this.file.read(this.at, Math.max(count, Math.min(CHUNK, this.file.size - this.at)));
    }
    const out = this.#chunk.subarray(this.at - this.#start, this.at - this.#start + count);
    this.at += count;
    return out;
  }

  u32(): number {
    const bytes = this.bytes(4);
    return new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  }

  /** A number of things, or an offset. */
  u64(what: string, most: number): number {
    const bytes = this.bytes(8);
    const value = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
    return value <= BigInt(most) ? Number(value) : this.fail(`has ${value} as ${what}: at most ${most} is allowed`);
  }

  string(what: string, most: number): string {
    return DECODER.decode(this.bytes(this.u64(`the length of ${what}`, most)));
  }
}

/** Reads and checks the header of a file. Throws an {@link ArrayError} with code "file" that says what is wrong. */
export function readGguf(given: string): GgufHeader {
  return opened(given, parse);
}

function parse(file: InputFile, fail: (what: string) => never): GgufHeader {
  const cursor = new Cursor(file, fail);
  if (file.size < 24) fail("is too short for a GGUF file");
  if (cursor.u32() !== MAGIC) fail("is no GGUF file");
  const version = cursor.u32();
  if (version !== 2 && version !== 3) {
    fail(`has version ${version} of GGUF: 2 and 3 are known${version >>> 16 ? ", in little-endian order" : ""}`);
  }
  const count = cursor.u64("its number of tensors", MAX_TENSORS);
  const pairs = cursor.u64("its number of metadata", MAX_PAIRS);
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < pairs; i++) {
    const key = cursor.string("a key", MAX_NAME);
    if (metadata.has(key)) fail(`has the metadata ${quoted(key)} twice`);
    metadata.set(key, readValue(cursor, key));
  }
  const list = Array.from({ length: count }, () => readTensor(cursor));
  const alignment = alignmentOf(metadata, fail);
  const dataStart = Math.ceil(cursor.at / alignment) * alignment;
  const tensors = list.map((tensor) => ({ ...tensor, byteOffset: dataStart + tensor.byteOffset }));
  checkTensors(tensors, alignment, file.size, fail);
  return { path: file.resolve(), version: file.version, metadata, tensors };
}

function alignmentOf(metadata: ReadonlyMap<string, GgufValue>, fail: (what: string) => never): number {
  const value = metadata.get(ALIGNMENT_KEY);
  if (value === undefined) return ALIGNMENT;
  const numbers = value as GgufNumbers;
  const found = numbers.dtype === dt.uint32 && numbers.shape.length === 0
    ? new DataView(numbers.bytes.buffer, numbers.bytes.byteOffset).getUint32(0, true)
    : 0;
  const fits = found >= 8 && found <= MAX_ALIGNMENT && (found & (found - 1)) === 0;
  return fits ? found : fail(`has a ${ALIGNMENT_KEY} that is no power of two from 8 to ${MAX_ALIGNMENT}`);
}

function readValue(cursor: Cursor, key: string): GgufValue {
  const type = cursor.u32();
  if (type === STRING) return cursor.string(`the value of ${quoted(key)}`, MAX_STRING);
  if (type !== LIST) return readNumbers(cursor, key, type, undefined);
  const element = cursor.u32();
  const length = cursor.u64(`the length of the list ${quoted(key)}`, MAX_LIST);
  if (element !== STRING) return readNumbers(cursor, key, element, length);
  const strings: string[] = []; // grows with what is there: a length alone allocates nothing
  for (let i = 0; i < length; i++) strings.push(cursor.string(`a text of ${quoted(key)}`, MAX_STRING));
  return strings;
}

function readNumbers(cursor: Cursor, key: string, type: number, length: number | undefined): GgufNumbers {
  const shape = length === undefined ? [] : [length];
  const count = length ?? 1;
  if (type === FLOAT64) {
    const from = new Float64Array(cursor.bytes(8 * count).slice().buffer);
    return { dtype: dt.float32, shape, bytes: new Uint8Array(Float32Array.from(from).buffer) };
  }
  const dtype = VALUES[type] ?? cursor.fail(`has the unknown type ${type} at the metadata ${quoted(key)}`);
  const bytes = cursor.bytes(count * dtype.bytes).slice();
  if (dtype === dt.bool && bytes.some((byte) => byte > 1)) {
    cursor.fail(`has a boolean that is neither 0 nor 1 at the metadata ${quoted(key)}`);
  }
  return { dtype, shape, bytes };
}

/** A tensor whose offset counts from the beginning of the data. */
function readTensor(cursor: Cursor): GgufTensor {
  const name = cursor.string("the name of a tensor", MAX_NAME);
  const bad = (what: string): never => cursor.fail(`tensor ${quoted(name)} ${what}`);
  const rank = cursor.u32();
  if (rank > MAX_RANK) bad(`has ${rank} axes: at most ${MAX_RANK} are allowed`);
  const shape = Array.from({ length: rank }, () => cursor.u64(`a size of ${quoted(name)}`, Number.MAX_SAFE_INTEGER))
    .reverse();
  const code = cursor.u32();
  const type = GGUF_TYPES.get(code) ?? bad(`has the unknown type ${code}`);
  // Every step is checked, as a 0 after an overflow would hide it.
  const size = shape.reduce((product, size) => {
    const next = product * size;
    return Number.isSafeInteger(next) ? next : bad(`has a shape [${shape}] that is too large`);
  }, 1);
  if (type.block > 1 && (size === 0 || size > MAX_QUANTIZED)) {
    bad(`of type ${type.name} has ${size} elements: 1 to ${MAX_QUANTIZED} are allowed`);
  }
  if ((shape.at(-1) ?? 1) % type.block !== 0) {
    bad(`of type ${type.name} has rows of ${shape.at(-1)}, expected a multiple of ${type.block}`);
  }
  const byteOffset = cursor.u64(`the offset of ${quoted(name)}`, 2 ** 52);
  return { name, type, shape, byteOffset, bytes: size / type.block * type.bytes };
}

function checkTensors(
  tensors: readonly GgufTensor[],
  alignment: number,
  size: number,
  fail: (what: string) => never,
): void {
  const names = new Set<string>();
  let end = 0;
  let last = "";
  for (
    const { name, byteOffset, bytes } of tensors.toSorted((a, b) => a.byteOffset - b.byteOffset || a.bytes - b.bytes)
  ) {
    if (names.has(name)) fail(`names the tensor ${quoted(name)} twice`);
    names.add(name);
    if (byteOffset % alignment !== 0) fail(`tensor ${quoted(name)} begins at no multiple of ${alignment} bytes`);
    if (byteOffset < end) fail(`tensors ${quoted(last)} and ${quoted(name)} overlap`);
    [end, last] = [byteOffset + bytes, name];
    if (end > size) fail(`tensor ${quoted(name)} ends at byte ${end}, and the file has ${size}: it is cut off`);
  }
}
