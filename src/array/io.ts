/**
 * Arrays in safetensors files.
 *
 * Loading reads the header only and checks all of it; each array stays a range of the file until something needs its
 * values, which then go straight to the device. Saving writes under another name and renames.
 *
 * @module
 */

import { FileError, InputFile, writeWhole } from "../../ffi/file.ts";
import * as dt from "../graph/dtype.ts";
import type { Dtype } from "../graph/dtype.ts";
import { ArrayError, ValueError } from "../graph/error.ts";
import { sizeOf } from "../graph/shape.ts";
import { readNode } from "../schedule/realize.ts";
import { make, nodeOf, Tensor } from "./tensor.ts";

/** Arrays by name. */
export type NamedTensors = Record<string, Tensor>;

/** Arrays in nested objects and lists; names join with dots in files. */
export type TensorTree = Tensor | readonly TensorTree[] | { readonly [name: string]: TensorTree };

const MAX_HEADER = 100_000_000;
/** First bytes of the text that stands for a large file in a repository. */
const LFS_POINTER = "version ";
const MAX_RANK = 8;

/** Dtypes of the format; 8-bit floats load as their bytes. */
const DTYPES: Readonly<Record<string, Dtype>> = {
  BOOL: dt.bool,
  U8: dt.uint8,
  U16: dt.uint16,
  U32: dt.uint32,
  I8: dt.int8,
  I16: dt.int16,
  I32: dt.int32,
  F16: dt.float16,
  BF16: dt.bfloat16,
  F32: dt.float32,
  F8_E4M3: dt.uint8,
  F8_E5M2: dt.uint8,
  F8_E8M0: dt.uint8,
};
const WIDE = ["F64", "I64", "U64", "C64"];

const NAMES: ReadonlyMap<Dtype, string> = new Map(
  Object.entries(DTYPES).filter(([name]) => !name.startsWith("F8")).map(([name, dtype]) => [dtype, name]),
);

/** One tensor of a file. */
interface Entry {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: number[];
  /** Range of its bytes, counted from the end of the header. */
  readonly begin: number;
  readonly end: number;
}

interface Header {
  readonly path: string;
  /** Where the data begins in the file. */
  readonly dataStart: number;
  readonly entries: readonly Entry[];
  readonly metadata: Record<string, string>;
}

function fail(path: string, what: string, cause?: unknown): never {
  throw new ArrayError("file", `${path}: ${what}`, { cause });
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message.split("\n")[0] : String(error);
}

function readHeader(given: string): Header {
  try {
    using file = new InputFile(given);
    return parseHeader(given, file);
  } catch (error) {
    if (error instanceof FileError) fail(given, error.message, error);
    throw error;
  }
}

function parseHeader(given: string, file: InputFile): Header {
  const { size } = file;
  const path = file.resolve();
  const start = file.read(0, Math.min(8, size));
  if (start.length < 8) fail(given, "is too short for a safetensors file");
  if (new TextDecoder().decode(start) === LFS_POINTER) {
    fail(given, 'is what Git LFS leaves in place of a file: "git lfs pull" fetches it');
  }
  const length = Number(new DataView(start.buffer, start.byteOffset).getBigUint64(0, true));
  if (length > MAX_HEADER) {
    fail(given, `is no safetensors file: its header would have ${length} bytes, at most ${MAX_HEADER} are allowed`);
  }
  if (8 + length > size) fail(given, `is cut off: its header has ${length} bytes, the file ${size}`);
  const bytes = file.read(8, length);
  if (bytes[0] !== 0x7b) fail(given, `is no safetensors file: its header does not begin with "{"`);
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    fail(given, `has a header that is not JSON: ${reason(error)}`, error);
  }
  if (!isRecord(json)) fail(given, "has a header that is not an object");
  const { __metadata__: metadata = {}, ...tensors } = json;
  if (!isRecord(metadata) || Object.values(metadata).some((v) => typeof v !== "string")) {
    fail(given, "has metadata that are not strings by name");
  }
  const dataStart = 8 + length;
  const entries = Object.entries(tensors).map(([name, info]) => readEntry(given, name, info, size - dataStart));
  checkOverlap(given, entries);
  return { path, dataStart, entries, metadata: metadata as Record<string, string> };
}

function isSize(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function readEntry(path: string, name: string, info: unknown, available: number): Entry {
  const bad = (what: string): never => fail(path, `tensor "${name}" ${what}`);
  if (!isRecord(info)) return bad("is not described by an object");
  const { dtype: code, shape, data_offsets: offsets } = info;
  if (typeof code !== "string") return bad("has no dtype");
  if (WIDE.includes(code)) return bad(`has dtype ${code}, which is not supported: convert it to 32 bits`);
  const dtype = Object.hasOwn(DTYPES, code) ? DTYPES[code] : bad(`has an unknown dtype "${code}"`);
  if (!Array.isArray(shape) || !shape.every(isSize)) return bad("has a shape that is not a list of sizes");
  if (shape.length > MAX_RANK) return bad(`has ${shape.length} axes: at most ${MAX_RANK} are allowed`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    return bad("has no data_offsets [begin, end]");
  }
  const [begin, end] = offsets;
  const bytes = sizeOf(shape) * dtype.bytes;
  if (!Number.isSafeInteger(bytes)) return bad(`has a shape [${shape}] that is too large`);
  if (end < begin || end - begin !== bytes) {
    return bad(`of shape [${shape}] and dtype ${code} needs ${bytes} bytes: its offsets give ${end - begin}`);
  }
  if (end > available) return bad(`ends at byte ${end} of the data, and the file has ${available}: it is cut off`);
  return { name, dtype, shape, begin, end };
}

function checkOverlap(path: string, entries: readonly Entry[]): void {
  const order = entries.filter((e) => e.end > e.begin).sort((a, b) => a.begin - b.begin);
  for (let i = 1; i < order.length; i++) {
    if (order[i].begin < order[i - 1].end) fail(path, `tensors "${order[i - 1].name}" and "${order[i].name}" overlap`);
  }
}

/**
 * The arrays of a safetensors file by name. Only the header is read; values are read when they are needed, so the file must
 * stay as it is. 64-bit dtypes are refused, 8-bit floats load as uint8.
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
  const header = readHeader(path);
  const found: NamedTensors = {};
  for (const { name, shape, dtype, begin } of header.entries) {
    // Assigned as an own property whatever the name, "__proto__" included.
    Object.defineProperty(found, name, {
      value: make("file", [], shape, dtype, { path: header.path, byteOffset: header.dataStart + begin }),
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
  const header: Record<string, unknown> = { __metadata__: { format: "mlx", ...metadata } };
  let at = 0;
  for (const [name, tensor] of list) {
    if (Object.hasOwn(header, name)) throw new ValueError(`saveSafetensors() got the name "${name}" twice`);
    header[name] = { dtype: NAMES.get(tensor.dtype), shape: tensor.shape, data_offsets: [at, at + tensor.nbytes] };
    at += tensor.nbytes;
  }
  // Spaces fill up to a multiple of 8, so that data may be mapped.
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(0x20);
  padded.set(text);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(padded.length), true);
  const pieces = function* (): Generator<Uint8Array> {
    yield length;
    yield padded;
    for (const [, tensor] of list) yield readNode(nodeOf(tensor));
  };
  try {
    writeWhole(path, pieces());
  } catch (error) {
    if (error instanceof ArrayError) throw error;
    fail(path, `cannot be written: ${reason(error)}`, error);
  }
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
