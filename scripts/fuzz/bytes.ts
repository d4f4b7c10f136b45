/**
 * Mutations that know nothing of a format: bytes flipped, cut, repeated, moved, and put in from a list of those that readers
 * stumble over.
 *
 * @module
 */

import type { Random } from "./random.ts";

/** Longest input; what a reader does with more is a matter of its size caps, which have tests of their own. */
export const MAX_INPUT = 256 * 1024;

const UTF8 = new TextEncoder();

/** Bytes that readers stumble over: ends of text, invalid and overlong UTF-8, byte order marks, terminal escapes, limits of integers. */
const TROUBLE: readonly Uint8Array[] = [
  ...[
    "\0",
    "\n",
    "\r\n",
    "\x1b[2J",
    "\x7f",
    "\u2028",
    "\u202e",
    "\ufeff",
    '"',
    "\\",
    "\\u",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
  ].map(
    (text) => UTF8.encode(text),
  ),
  ...[[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0xff, 0xfe]].map((bytes) =>
    Uint8Array.from(bytes)
  ),
  ...[0n, 1n, 0x7fffffffn, 0x80000000n, 0xffffffffn, 2n ** 53n, 2n ** 63n - 1n, 2n ** 64n - 1n].map(word),
];

/** A whole number as safetensors files begin: 8 bytes, the lowest first. */
export function word(value: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, value, true);
  return bytes;
}

/** Pieces in a row. */
export function join(pieces: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

type Mutation = (bytes: Uint8Array, at: number, length: number, random: Random) => Uint8Array;

/** Puts bytes in place of `length` others. */
function replace(bytes: Uint8Array, at: number, length: number, put: Uint8Array): Uint8Array {
  return join([bytes.subarray(0, at), put, bytes.subarray(at + length)]);
}

const MUTATIONS: readonly Mutation[] = [
  // one bit
  (bytes, at, _, random) => replace(bytes, at, 1, Uint8Array.of((bytes[at] ?? 0) ^ (1 << random.below(8)))),
  // any byte
  (bytes, at, _, random) => replace(bytes, at, 1, Uint8Array.of(random.below(256))),
  // cut out
  (bytes, at, length) => replace(bytes, at, length, new Uint8Array(0)),
  // cut off
  (bytes, at) => bytes.slice(0, at),
  // a part again elsewhere
  (bytes, at, length, random) => replace(bytes, random.below(bytes.length + 1), 0, bytes.slice(at, at + length)),
  // a part over another
  (bytes, at, length, random) => replace(bytes, random.below(bytes.length + 1), length, bytes.slice(at, at + length)),
  // a part many times
  (bytes, at, length, random) =>
    replace(
      bytes,
      at,
      0,
      join(Array<Uint8Array>(1 + random.small(1000)).fill(bytes.slice(at, at + Math.min(length, 100)))),
    ),
  // trouble
  (bytes, at, _, random) => replace(bytes, at, random.pick([0, 1, 8]), random.pick(TROUBLE)),
  // more after the end
  (bytes, _, length, random) => replace(bytes, bytes.length, 0, new Uint8Array(length).fill(random.below(256))),
];

/** A few mutations at random places. */
export function mutateBytes(bytes: Uint8Array, random: Random): Uint8Array {
  for (let count = 1 + random.small(8); count > 0; count--) {
    const at = random.below(bytes.length + 1);
    bytes = random.pick(MUTATIONS)(bytes, at, 1 + random.small(bytes.length - at), random);
  }
  return bytes.length > MAX_INPUT ? bytes.slice(0, MAX_INPUT) : bytes;
}
