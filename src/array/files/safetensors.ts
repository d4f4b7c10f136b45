/**
 * The header of a safetensors file, checked as strictly as the format is defined.
 *
 * Eight bytes of length, JSON that names every tensor, then the data: each byte of it belongs to exactly one tensor. Files that the
 * format's own library refuses are refused here. Beyond that a name may not occur twice, and the header begins with its brace. There are
 * limits that no published file comes near. Everything is checked against the size of the file before anything is allocated.
 *
 * @module
 */

import { FileError, InputFile } from "../../../ffi/file.ts";
import * as dt from "../../graph/dtype.ts";
import type { Dtype } from "../../graph/dtype.ts";
import { ArrayError, quoted, shownPath } from "../../graph/error.ts";
import { exceedsObjects, JsonReader } from "./json_reader.ts";

const MAX_HEADER = 100_000_000;
/** Most tensors of a file, and of all files of a model. */
export const MAX_TENSORS = 100_000;
/** Fewest bytes of a header that a tensor takes. */
const MIN_ENTRY = '"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}'.length;
/** Bytes in which tensors are counted before they are read. */
const COUNTED = 2 ** 23;
/** Most bytes of a name as it is written in a header. */
export const MAX_NAME = 2 ** 16;
/** Most bytes of any other text there. */
export const MAX_STRING = 2 ** 20;
const MAX_RANK = 8;
const MAX_METADATA = 10_000;
/** First bytes of the text that stands for a large file in a repository. */
const LFS_POINTER = "version ";

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
  I64: dt.int64,
  U64: dt.uint64,
  F64: dt.float64,
  C64: dt.complex64,
  F8_E4M3: dt.uint8,
  F8_E5M2: dt.uint8,
  F8_E8M0: dt.uint8,
  F8_E4M3FNUZ: dt.uint8,
  F8_E5M2FNUZ: dt.uint8,
};

/** Dtypes of the format that are not loaded, and what to do about it. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  F4: "convert it to U8 or F16",
  F6_E2M3: "convert it to U8 or F16",
  F6_E3M2: "convert it to U8 or F16",
};

/** Names of dtypes in the format. */
export const DTYPE_NAMES: ReadonlyMap<Dtype, string> = new Map(
  Object.entries(DTYPES).filter(([name]) => !name.startsWith("F8")).map(([name, dtype]) => [dtype, name]),
);

/** One tensor of a file. */
export interface Entry {
  /** Its name. */
  readonly name: string;
  /** Dtype that it loads as. */
  readonly dtype: Dtype;
  /** Its shape. */
  readonly shape: readonly number[];
  /** Range of its bytes, counted from the end of the header. */
  readonly begin: number;
  /** The place after its last byte. */
  readonly end: number;
}

/** The fields of a file's header. */
export interface Header {
  /** The absolute path, links resolved. */
  readonly path: string;
  /** The version of the file that it was read from; see `InputFile`. */
  readonly version: string;
  /** Where the data begins in the file. */
  readonly dataStart: number;
  /** The tensors in the order of the header. */
  readonly entries: readonly Entry[];
  /** Strings by name. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** Throws the error of a file, on one line. */
export function failFile(path: string, what: string): never {
  throw new ArrayError("file", `${shownPath(path)}: ${what}`);
}

/** Opens a file and describes it. Throws an {@link ArrayError} with code "file", also if `describe` calls `fail`. */
export function opened<T>(given: string, describe: (file: InputFile, fail: (what: string) => never) => T): T {
  try {
    using file = new InputFile(given);
    return describe(file, (what) => failFile(given, what));
  } catch (error) {
    if (error instanceof FileError) failFile(given, error.message);
    throw error;
  }
}

/** Reads and checks the header of a file. Throws an {@link ArrayError} with code "file" that says what is wrong. */
export function readHeader(given: string): Header {
  return opened(given, (file) => parse(given, file));
}

function parse(given: string, file: InputFile): Header {
  const { size, version } = file;
  if (size < 8) failFile(given, "is too short for a safetensors file");
  const start = file.read(0, 8);
  if (new TextDecoder().decode(start) === LFS_POINTER) {
    failFile(given, 'is what Git LFS leaves in place of a file: "git lfs pull" fetches it');
  }
  const length = Number(new DataView(start.buffer, start.byteOffset).getBigUint64(0, true));
  if (length > MAX_HEADER) {
    failFile(given, `is no safetensors file: its header would have ${length} bytes, at most ${MAX_HEADER} are allowed`);
  }
  const dataStart = 8 + length;
  if (dataStart > size) failFile(given, `is cut off: its header has ${length} bytes, the file ${size}`);
  if (length === 0 || file.read(8, 1)[0] !== 0x7b) {
    failFile(given, 'is no safetensors file: its header does not begin with "{"');
  }
  const json = new JsonReader(file, 8, dataStart, (what, at) => {
    failFile(given, `its header ${what}, at byte ${at}`);
  });
  const tooMany = `has more than ${MAX_TENSORS} tensors`;
  // Beside those of the tensors there are the objects of the header and the metadata.
  const counted = Math.min(dataStart, 8 + COUNTED);
  if (counted > MAX_TENSORS * MIN_ENTRY && exceedsObjects(file, 8, counted, MAX_TENSORS + 2)) {
    failFile(given, tooMany);
  }
  const available = size - dataStart;
  const entries = new Map<string, Entry>();
  let metadata: Record<string, string> | undefined;
  json.object(MAX_NAME, (name) => {
    if (name === "__metadata__") {
      if (metadata !== undefined) failFile(given, "has metadata twice");
      metadata = readMetadata(given, json);
      return;
    }
    if (entries.size === MAX_TENSORS) failFile(given, tooMany);
    if (entries.has(name)) failFile(given, `names the tensor ${quoted(name)} twice`);
    entries.set(name, readEntry(given, json, name, available));
  });
  json.finish();
  const list = [...entries.values()];
  checkCover(given, list, available);
  return { path: file.resolve(), version, dataStart, entries: list, metadata: metadata ?? {} };
}

function readMetadata(path: string, json: JsonReader): Record<string, string> {
  const found = new Map<string, string>();
  if (json.null()) return {};
  if (!json.begins("{")) failFile(path, "has metadata that are not strings by name");
  json.object(MAX_STRING, (key) => {
    if (!json.begins('"')) failFile(path, "has metadata that are not strings by name");
    if (found.has(key)) failFile(path, `has the metadata ${quoted(key)} twice`);
    if (found.size === MAX_METADATA) failFile(path, `has more than ${MAX_METADATA} metadata`);
    found.set(key, json.string(MAX_STRING));
  });
  return Object.fromEntries(found);
}

/** The known fields of a tensor while the header is read. */
interface Fields {
  dtype?: string;
  shape?: number[];
  data_offsets?: number[];
}

const NO_SHAPE = "has a shape that is not a list of sizes";
const MANY_AXES = `has more than ${MAX_RANK} axes: at most ${MAX_RANK} are allowed`;
const NO_OFFSETS = "has no data_offsets [begin, end]";

function readEntry(path: string, json: JsonReader, name: string, available: number): Entry {
  const bad = (what: string): never => failFile(path, `tensor ${quoted(name)} ${what}`);
  const sizes = (wrong: string, most: number, above = wrong): number[] => {
    const list: number[] = [];
    if (!json.begins("[")) bad(wrong);
    json.list(() => list.push(list.length === most ? bad(above) : json.whole() ?? bad(wrong)));
    return list;
  };
  if (!json.begins("{")) bad("is not described by an object");
  const fields: Fields = {};
  json.object(MAX_STRING, (key) => {
    if (Object.hasOwn(fields, key)) bad(`has ${quoted(key)} twice`);
    if (key === "dtype") fields.dtype = json.begins('"') ? json.string(MAX_STRING) : bad("has no dtype");
    else if (key === "shape") fields.shape = sizes(NO_SHAPE, MAX_RANK, MANY_AXES);
    else if (key === "data_offsets") fields.data_offsets = sizes(NO_OFFSETS, 2);
    else json.skip(MAX_STRING);
  });
  const { dtype: code, shape, data_offsets: offsets } = fields;
  if (code === undefined) return bad("has no dtype");
  if (shape === undefined) return bad("has no shape");
  if (offsets?.length !== 2) return bad(NO_OFFSETS);
  if (Object.hasOwn(UNSUPPORTED, code)) bad(`has dtype ${code}, which is not supported: ${UNSUPPORTED[code]}`);
  const dtype = Object.hasOwn(DTYPES, code) ? DTYPES[code] : bad(`has an unknown dtype ${quoted(code)}`);
  // Every step is checked, as a 0 after an overflow would hide it.
  const bytes = [...shape, dtype.bytes].reduce((product, size) => {
    const next = product * size;
    return Number.isSafeInteger(next) ? next : bad(`has a shape [${shape}] that is too large`);
  }, 1);
  const [begin, end] = offsets;
  if (end < begin || end - begin !== bytes) {
    bad(`of shape [${shape}] and dtype ${code} needs ${bytes} bytes: its offsets give ${end - begin}`);
  }
  if (end > available) bad(`ends at byte ${end} of the data, and the file has ${available}: it is cut off`);
  return { name, dtype, shape, begin, end };
}

/** Throws unless the tensors lie one after the other and fill the data. */
function checkCover(path: string, entries: readonly Entry[], available: number): void {
  const order = entries.toSorted((a, b) => a.begin - b.begin || a.end - b.end);
  let end = 0;
  let last = "";
  for (const { name, begin, end: next } of order) {
    if (begin < end) failFile(path, `tensors ${quoted(last)} and ${quoted(name)} overlap`);
    if (begin > end) failFile(path, `bytes ${end} to ${begin} of the data belong to no tensor`);
    [end, last] = [next, name];
  }
  if (end < available) failFile(path, `bytes ${end} to ${available} of the data belong to no tensor`);
}
