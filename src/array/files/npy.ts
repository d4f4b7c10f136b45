/**
 * The header of NumPy's .npy format, versions 1 to 3. It has a magic number, a length and a Python dictionary with dtype, order of
 * axes and shape. The values follow.
 *
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. bfloat16 is "V2", as MLX writes it.
 *
 * @module
 */

import * as dt from "../../graph/dtype.ts";
import type { Dtype } from "../../graph/dtype.ts";
import { quoted } from "../../graph/error.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";

const MAGIC = Uint8Array.of(0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59);
/** Bytes before the length of the header. */
const VERSION_END = 8;
const MAX_HEADER = 2 ** 20;
const MAX_RANK = 32; // NumPy's own limit before version 2

/** Dtypes by what follows the byte order in "descr". */
const DTYPES: Readonly<Record<string, Dtype>> = {
  b1: dt.bool,
  u1: dt.uint8,
  u2: dt.uint16,
  u4: dt.uint32,
  u8: dt.uint64,
  i1: dt.int8,
  i2: dt.int16,
  i4: dt.int32,
  i8: dt.int64,
  f2: dt.float16,
  f4: dt.float32,
  f8: dt.float64,
  c8: dt.complex64,
  V2: dt.bfloat16,
};

const NAMES: ReadonlyMap<Dtype, string> = new Map(Object.entries(DTYPES).map(([name, dtype]) => [dtype, name]));

/** The fields of a header. */
export interface NpyHeader {
  /** Element type. */
  readonly dtype: Dtype;
  /** Whether the first axis varies fastest. */
  readonly fortran: boolean;
  /** Whether the bytes of an element are turned: big-endian. */
  readonly bigEndian: boolean;
  /** Sizes of the axes. */
  readonly shape: Shape;
  /** Where the values begin. */
  readonly dataStart: number;
}

/** Reads bytes of the source of a header; fewer than `length` if it ends before. */
export type ReadBytes = (offset: number, length: number) => Uint8Array;

/** Reads and checks a header. `fail` throws what is wrong with it. */
export function readNpyHeader(read: ReadBytes, fail: (what: string) => never): NpyHeader {
  const start = read(0, VERSION_END + 4);
  if (start.length < VERSION_END + 2 || MAGIC.some((byte, i) => start[i] !== byte)) fail("is no .npy file");
  const major = start[MAGIC.length];
  if (major < 1 || major > 3) fail(`has version ${major} of the .npy format: 1, 2 and 3 are known`);
  const lengthBytes = major === 1 ? 2 : 4;
  if (start.length < VERSION_END + lengthBytes) fail("is cut off in its header");
  const words = new DataView(start.buffer, start.byteOffset);
  const length = major === 1 ? words.getUint16(VERSION_END, true) : words.getUint32(VERSION_END, true);
  if (length > MAX_HEADER) fail(`has a header of ${length} bytes: at most ${MAX_HEADER} are allowed`);
  const text = read(VERSION_END + lengthBytes, length);
  if (text.length < length) fail("is cut off in its header");
  const dataStart = VERSION_END + lengthBytes + length;
  return { ...parseHeader(new TextDecoder(major === 3 ? "utf-8" : "latin1").decode(text), fail), dataStart };
}

/** A pair of the dictionary: its key and its value, which is a text, True, False or a tuple of sizes. */
const PAIR =
  /^\s*(['"])(\w+)\1\s*:\s*(?:(['"])([^'"\\]*)\3|(True|False)|\(\s*((?:\d+L?\s*,\s*)*(?:\d+L?)?)\s*\))\s*(,|\}\s*$)/;

function parseHeader(text: string, fail: (what: string) => never): Omit<NpyHeader, "dataStart"> {
  const header = text.trim();
  if (!header.startsWith("{")) fail(`has a header that is no dictionary: ${quoted(header)}`);
  const values = new Map<string, string>();
  let rest = header.slice(1);
  while (rest !== "") {
    const pair = PAIR.exec(rest);
    if (!pair) {
      const objects = /'descr'\s*:\s*\[/.test(rest);
      return fail(
        objects
          ? "has records of several dtypes, which no array has"
          : `has a header that is not understood: ${quoted(header)}`,
      );
    }
    const [all, , key, , string, flag, tuple, end] = pair;
    if (values.has(key)) fail(`has ${quoted(key)} twice in its header`);
    values.set(key, string ?? flag ?? `(${tuple})`);
    rest = rest.slice(all.length);
    if (end !== "," && rest !== "") fail(`has a header that is not understood: ${quoted(header)}`);
    if (end === "," && rest.trim() === "}") rest = "";
  }
  const value = (key: string): string => values.get(key) ?? fail(`has no ${quoted(key)} in its header`);
  const [descr, order, sizes] = ["descr", "fortran_order", "shape"].map(value);
  const name = descr.slice(1);
  const known = "<>|=".includes(descr[0] ?? " ") && Object.hasOwn(DTYPES, name);
  const dtype = known ? DTYPES[name] : fail(`has the dtype ${quoted(descr)}, which no array has`);
  if (order !== "True" && order !== "False") fail("has a fortran_order that is neither True nor False");
  if (!sizes.startsWith("(")) fail("has a shape that is no tuple");
  const shape = sizes.slice(1, -1).split(",").filter((size) => size.trim() !== "").map((size) => parseInt(size));
  if (shape.length > MAX_RANK) fail(`has ${shape.length} axes: at most ${MAX_RANK} are allowed`);
  if (!Number.isSafeInteger(sizeOf(shape) * dtype.bytes) || !shape.every(Number.isSafeInteger)) {
    fail(`has a shape ${sizes} that is too large`);
  }
  return { dtype, fortran: order === "True", bigEndian: descr[0] === ">" && dtype.bytes > 1, shape };
}

/** The header of an array in the order of its last axis, as NumPy pads it: values begin at a multiple of 64 bytes. */
export function npyHeader(dtype: Dtype, shape: Shape): Uint8Array {
  const order = dtype.bytes === 1 ? "|" : "<";
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
  const text = `{'descr': '${order}${NAMES.get(dtype)}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const before = VERSION_END + 2;
  const length = Math.ceil((before + text.length + 1) / 64) * 64 - before;
  const out = new Uint8Array(before + length);
  out.set(MAGIC);
  out.set([1, 0, length & 255, length >> 8], MAGIC.length);
  out.set(new TextEncoder().encode(text.padEnd(length - 1) + "\n"), before);
  return out;
}
