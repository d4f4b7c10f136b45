/**
 * ZIP archives as .npz files are: members stored or deflated, the ZIP64 fields for those above 4 GB.
 *
 * Reading trusts the central directory only and checks it against the size of the file. Writing goes piece by piece, with sizes and
 * checksums after each member (PKWARE's APPNOTE 6.3, 4.3.9 and 4.5.3).
 *
 * @module
 */

import { crc32, deflateRawSync } from "node:zlib";
import type { InputFile } from "../../../ffi/file.ts";
import { quoted } from "../../graph/error.ts";

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const END64 = 0x06064b50;
const LOCATOR64 = 0x07064b50;
const DESCRIPTOR = 0x08074b50;
const LOCAL_BYTES = 30;
const CENTRAL_BYTES = 46;
const END_BYTES = 22;
const LOCATOR64_BYTES = 20;
const END64_BYTES = 56;
const MAX_COMMENT = 2 ** 16 - 1;
const FULL32 = 0xffffffff;
const FULL16 = 0xffff;
/** Bit of a member's flags: encrypted; its sizes follow its content; its name is UTF-8. */
const ENCRYPTED = 1, SIZES_FOLLOW = 8, UTF8 = 0x800;
const STORED = 0, DEFLATED = 8;
/** The version that is needed to read ZIP64 fields, and 1 January 1980: what NumPy writes. */
const VERSION = 45, DATE = 0x21;

const MAX_MEMBERS = 100_000;
const MAX_DIRECTORY = 2 ** 26;

/** A member of an archive. */
export interface Member {
  /** Its name. */
  readonly name: string;
  /** Whether it is deflated. */
  readonly deflated: boolean;
  /** Where its content begins in the file, and how many bytes lie there. */
  readonly begin: number;
  readonly length: number;
  /** Bytes and CRC-32 of the content, inflated. */
  readonly size: number;
  readonly crc: number;
}

class Fields {
  readonly #view: DataView;
  constructor(readonly bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
  u16 = (at: number): number => this.#view.getUint16(at, true);
  u32 = (at: number): number => this.#view.getUint32(at, true);
  u64 = (at: number): number => Number(this.#view.getBigUint64(at, true));
}

/** The members of an archive. `fail` throws what is wrong with it. */
export function readZip(file: InputFile, fail: (what: string) => never): Member[] {
  const { begin, length, count } = findDirectory(file, fail);
  if (count > MAX_MEMBERS) fail(`has ${count} members: at most ${MAX_MEMBERS} are allowed`);
  if (length > MAX_DIRECTORY) fail(`has a directory of ${length} bytes: at most ${MAX_DIRECTORY} are allowed`);
  if (begin + length > file.size) fail("is cut off: its directory lies after its end");
  const fields = new Fields(file.read(begin, length));
  const members: Member[] = [];
  const names = new Set<string>();
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + CENTRAL_BYTES > length || fields.u32(at) !== CENTRAL) fail("has a damaged directory");
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((field) => fields.u16(at + field));
    const end = at + CENTRAL_BYTES + nameBytes + extraBytes + commentBytes;
    if (end > length) fail("has a damaged directory");
    const encoded = fields.bytes.subarray(at + CENTRAL_BYTES, at + CENTRAL_BYTES + nameBytes);
    const name = new TextDecoder().decode(encoded);
    if (names.has(name)) fail(`has the member ${quoted(name)} twice`);
    names.add(name);
    members.push(readMember(file, fields, at, name, begin, (what) => fail(`member ${quoted(name)} ${what}`)));
    at = end;
  }
  let last = 0;
  for (const { name, begin: first, length: bytes } of members.toSorted((a, b) => a.begin - b.begin)) {
    if (first < last) fail(`member ${quoted(name)} overlaps another`);
    last = first + bytes;
  }
  return members;
}

function findDirectory(
  file: InputFile,
  fail: (what: string) => never,
): { readonly begin: number; readonly length: number; readonly count: number } {
  const start = Math.max(0, file.size - END_BYTES - MAX_COMMENT);
  const tail = new Fields(file.read(start, file.size - start));
  let at = tail.bytes.length - END_BYTES;
  while (at >= 0 && !(tail.u32(at) === END && at + END_BYTES + tail.u16(at + 20) === tail.bytes.length)) at--;
  if (at < 0) fail("is no .npz file, or is cut off: it has no directory of a ZIP archive");
  const locator = start + at - LOCATOR64_BYTES;
  if (locator >= 0) {
    const fields = new Fields(file.read(locator, LOCATOR64_BYTES));
    if (fields.u32(0) === LOCATOR64) {
      const end = fields.u64(8);
      if (end + END64_BYTES > locator) fail("has a damaged directory");
      const end64 = new Fields(file.read(end, END64_BYTES));
      if (end64.u32(0) !== END64) fail("has a damaged directory");
      return { begin: end64.u64(48), length: end64.u64(40), count: end64.u64(32) };
    }
  }
  return { begin: tail.u32(at + 16), length: tail.u32(at + 12), count: tail.u16(at + 10) };
}

function readMember(
  file: InputFile,
  fields: Fields,
  at: number,
  name: string,
  directory: number,
  fail: (what: string) => never,
): Member {
  const [flags, method] = [fields.u16(at + 8), fields.u16(at + 10)];
  if (flags & ENCRYPTED) fail("is encrypted");
  if (method !== STORED && method !== DEFLATED) fail(`is compressed by method ${method}: 0 and 8 are known`);
  let [size, length, local] = [fields.u32(at + 24), fields.u32(at + 20), fields.u32(at + 42)];
  // Fields that are full are in the ZIP64 field, in this order.
  const extra = at + CENTRAL_BYTES + fields.u16(at + 28);
  const extraEnd = extra + fields.u16(at + 30);
  for (let from = extra; from + 4 <= extraEnd; from += 4 + fields.u16(from + 2)) {
    if (fields.u16(from) !== 1) continue;
    let value = from + 4;
    const end = Math.min(extraEnd, value + fields.u16(from + 2));
    const next = (old: number): number => {
      if (old !== FULL32) return old;
      if (value + 8 > end) fail("has damaged sizes");
      value += 8;
      return fields.u64(value - 8);
    };
    size = next(size);
    length = next(length);
    local = next(local);
  }
  if (local + LOCAL_BYTES > directory) fail("lies after the end of the file");
  const header = new Fields(file.read(local, LOCAL_BYTES));
  if (header.u32(0) !== LOCAL) fail("is not where the directory says");
  const begin = local + LOCAL_BYTES + header.u16(26) + header.u16(28);
  if (begin + length > directory) fail("is cut off");
  if (method === STORED && size !== length) fail("has two sizes");
  return { name, deflated: method === DEFLATED, begin, length, size, crc: fields.u32(at + 16) };
}

/** A member on its way into an archive. */
export interface NewMember {
  readonly name: string;
  /** Bytes of its content. */
  readonly size: number;
  /** The content; asked for once. */
  readonly pieces: () => Iterable<Uint8Array>;
}

/** Numbers as little-endian bytes, each of so many. */
function packed(...numbers: readonly (readonly [bytes: number, value: number])[]): Uint8Array {
  const out = new Uint8Array(numbers.reduce((sum, [bytes]) => sum + bytes, 0));
  let at = 0;
  for (const [bytes, value] of numbers) {
    let rest = BigInt(value);
    for (let i = 0; i < bytes; i++, rest >>= 8n) out[at++] = Number(rest & 255n);
  }
  return out;
}

/** The bytes of an archive; members are deflated if `deflate` says so. */
export function* zipPieces(members: readonly NewMember[], deflate: boolean): Generator<Uint8Array> {
  const directory: Uint8Array[] = [];
  let at = 0;
  const count = (piece: Uint8Array): Uint8Array => {
    at += piece.length;
    return piece;
  };
  const method = deflate ? DEFLATED : STORED;
  const flags = SIZES_FOLLOW | UTF8;
  for (const { name, size, pieces } of members) {
    const begin = at;
    const encoded = new TextEncoder().encode(name);
    // A little below 4 GB: deflated content may be some bytes longer.
    const wide = size > FULL32 - 2 ** 24;
    const sizes: (readonly [number, number])[] = wide ? [[4, FULL32], [4, FULL32]] : [[4, 0], [4, 0]];
    const extra = wide ? packed([2, 1], [2, 16], [8, 0], [8, 0]) : new Uint8Array(0);
    const start = [[2, VERSION], [2, flags], [2, method], [2, 0], [2, DATE]] as const;
    const lengths = [[2, encoded.length], [2, extra.length]] as const;
    yield count(packed([4, LOCAL], ...start, [4, 0], ...sizes, ...lengths));
    yield count(encoded);
    if (wide) yield count(extra);
    let crc = 0;
    const content = at;
    for (const piece of deflate ? [concatBytes(pieces(), size)] : pieces()) {
      crc = crc32(piece, crc);
      yield count(deflate ? deflateRawSync(piece) : piece);
    }
    const length = at - content;
    const bytes = wide ? 8 : 4;
    yield count(packed([4, DESCRIPTOR], [4, crc], [bytes, length], [bytes, size]));
    const far = begin >= FULL32;
    const values: (readonly [number, number])[] = [
      ...(wide ? [[8, size], [8, length]] as const : []),
      ...(far ? [[8, begin]] as const : []),
    ];
    const extra64 = values.length > 0 ? packed([2, 1], [2, 8 * values.length], ...values) : new Uint8Array(0);
    const ends: (readonly [number, number])[] = wide ? [[4, FULL32], [4, FULL32]] : [[4, length], [4, size]];
    directory.push(
      packed([4, CENTRAL], [2, VERSION], ...start, [4, crc], ...ends, [2, encoded.length], [2, extra64.length]),
      packed([2, 0], [2, 0], [2, 0], [4, 0o600 * 2 ** 16], [4, far ? FULL32 : begin]),
      encoded,
      extra64,
    );
  }
  const begin = at;
  for (const piece of directory) yield count(piece);
  const length = at - begin;
  const n = members.length;
  if (n >= FULL16 || at >= FULL32) {
    const end = at;
    yield packed([4, END64], [8, END64_BYTES - 12], [2, VERSION], [2, VERSION], [4, 0], [4, 0], [8, n], [8, n], [
      8,
      length,
    ], [8, begin]);
    yield packed([4, LOCATOR64], [4, 0], [8, end], [4, 1]);
  }
  const most = (value: number, limit: number): number => Math.min(value, limit);
  yield packed([4, END], [2, 0], [2, 0], [2, most(n, FULL16)], [2, most(n, FULL16)], [4, most(length, FULL32)], [
    4,
    most(begin, FULL32),
  ], [2, 0]);
}

function concatBytes(pieces: Iterable<Uint8Array>, size: number): Uint8Array {
  const out = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}
