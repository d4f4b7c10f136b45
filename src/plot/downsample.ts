/**
 * Fewer points that look the same, so that a drawing does not grow with the data.
 *
 * @module
 */

/** Pieces of a long line, of which each keeps its first, least, greatest and last value. */
const PIECES = 500;
const MAX_POINTS = 4000;

/** Indices of the points of a line that are drawn: all, or of each of some pieces the first, least, greatest and last. */
export function lineIndices(y: ArrayLike<number>): number[] {
  const count = y.length;
  if (count <= 4 * PIECES) return Array.from({ length: count }, (_, i) => i);
  const kept: number[] = [];
  for (let piece = 0; piece < PIECES; piece++) {
    const [start, end] = [Math.floor(piece * count / PIECES), Math.floor((piece + 1) * count / PIECES)];
    let [low, high, gap] = [start, start, -1];
    for (let i = start; i < end; i++) {
      if (Number.isNaN(y[i])) gap = i;
      if (!(y[low] <= y[i])) low = i;
      if (!(y[high] >= y[i])) high = i;
    }
    const all = [start, low, high, end - 1, ...(gap < 0 ? [] : [gap])];
    kept.push(...new Set(all.sort((a, b) => a - b)));
  }
  return kept;
}

/** Indices of the points of a cloud that are drawn: all, or some, evenly taken. */
export function pointIndices(count: number): number[] {
  const drawn = Math.min(count, MAX_POINTS);
  return Array.from({ length: drawn }, (_, i) => Math.floor(i * count / drawn));
}

/** The values at some indices. */
export function pick(values: ArrayLike<number>, indices: readonly number[]): Float64Array {
  return Float64Array.from(indices, (i) => values[i]);
}
