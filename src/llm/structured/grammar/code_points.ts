/**
 * Sets of Unicode code points, as sorted ranges. Surrogates belong to no set: they do not occur in UTF-8.
 *
 * @module
 */

/** First and last code points of ranges, one after the other: sorted, and with a gap between two ranges. */
export type CodePoints = readonly number[];

/** The largest code point. */
export const MAX_CODE_POINT = 0x10ffff;

/** No code point. */
export const NONE: CodePoints = [];
/** Every code point. */
export const EVERY: CodePoints = [0, 0xd7ff, 0xe000, MAX_CODE_POINT];

/** The union of sets, or the set of ranges in any order: the numbers are first and last code points in turns. */
export function union(...sets: readonly CodePoints[]): CodePoints {
  const ranges: [number, number][] = [];
  for (const set of sets) for (let i = 0; i < set.length; i += 2) ranges.push([set[i], set[i + 1]]);
  ranges.sort((a, b) => a[0] - b[0]);
  const merged: number[] = [];
  for (const [first, last] of ranges) {
    const end = merged.length - 1;
    if (end > 0 && first <= merged[end] + 1) merged[end] = Math.max(merged[end], last);
    else merged.push(first, last);
  }
  return intersection(merged, EVERY);
}

/** Code points that are in both sets. */
export function intersection(a: CodePoints, b: CodePoints): CodePoints {
  const out: number[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const [first, last] = [Math.max(a[i], b[j]), Math.min(a[i + 1], b[j + 1])];
    if (first <= last) out.push(first, last);
    if (a[i + 1] < b[j + 1]) i += 2;
    else j += 2;
  }
  return out;
}

/** Whether a code point is in a set. */
export function contains(set: CodePoints, point: number): boolean {
  for (let i = 0; i < set.length && set[i] <= point; i += 2) if (point <= set[i + 1]) return true;
  return false;
}

/** Code points that are not in a set. */
export function complement(set: CodePoints): CodePoints {
  const out: number[] = [];
  let next = 0;
  for (let i = 0; i < set.length; i += 2) {
    if (set[i] > next) out.push(next, set[i] - 1);
    next = set[i + 1] + 1;
  }
  if (next <= MAX_CODE_POINT) out.push(next, MAX_CODE_POINT);
  return intersection(out, EVERY);
}

/** The set of the code points of a text. */
export function pointsOf(text: string): CodePoints {
  return union(Array.from(text, (char) => char.codePointAt(0)!).flatMap((point) => [point, point]));
}
