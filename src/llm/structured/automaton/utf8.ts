/**
 * Sets of code points as sequences of byte ranges in UTF-8.
 *
 * @module
 */

import type { CodePoints } from "../grammar/code_points.ts";

/** First and last byte. */
export type ByteRange = readonly [first: number, last: number];

/** Last code points of one, two, three and four bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, 0x10ffff];
const MAX_CONTINUATION = 0x3f;

/** The byte sequences of a set: each takes one byte of each of its ranges. */
export function utf8Ranges(set: CodePoints): readonly (readonly ByteRange[])[] {
  const out: ByteRange[][] = [];
  for (let i = 0; i < set.length; i += 2) addRange(set[i], set[i + 1], out);
  return out;
}

function addRange(first: number, last: number, out: ByteRange[][]): void {
  const border = LAST_OF_LENGTH.find((point) => first <= point)!;
  if (last > border) {
    addRange(first, border, out);
    return addRange(border + 1, last, out);
  }
  // Ranges of bytes are independent of one another where all bytes after the first different one run over all values.
  for (let length = LAST_OF_LENGTH.indexOf(border); length > 0; length--) {
    const low = (1 << 6 * length) - 1;
    if ((first & ~low) === (last & ~low)) continue;
    if ((first & low) !== 0) {
      addRange(first, first | low, out);
      return addRange((first | low) + 1, last, out);
    }
    if ((last & low) !== low) {
      addRange(first, (last & ~low) - 1, out);
      return addRange(last & ~low, last, out);
    }
  }
  const [from, to] = [utf8(first), utf8(last)];
  out.push(from.map((byte, i) => [byte, to[i]]));
}

function utf8(point: number): number[] {
  const length = LAST_OF_LENGTH.findIndex((last) => point <= last) + 1;
  if (length === 1) return [point];
  const continuations = Array.from(
    { length: length - 1 },
    (_, i) => 0x80 | ((point >> 6 * (length - 2 - i)) & MAX_CONTINUATION),
  );
  const mark = (0xff << (8 - length)) & 0xff;
  return [mark | (point >> 6 * (length - 1)), ...continuations];
}
