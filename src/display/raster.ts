/**
 * Matrices as pixels: made smaller if they are large, coloured by a map.
 *
 * @module
 */

import { type ColorMap, colorOf } from "./color.ts";

/** A matrix in row-major order. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly values: ArrayLike<number>;
}

/** The least and the greatest finite value; undefined if there is none. */
export function extent(values: ArrayLike<number>): readonly [number, number] | undefined {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : undefined;
}

/** A matrix of at most `most` rows and columns: the means of blocks, without values that are not finite. */
export function shrink(matrix: Matrix, most: number): Matrix {
  const rows = Math.min(matrix.rows, most);
  const columns = Math.min(matrix.columns, most);
  if (rows === matrix.rows && columns === matrix.columns) return matrix;
  const values = new Float64Array(rows * columns);
  const edges = (count: number, of: number): number[] =>
    Array.from({ length: count + 1 }, (_, i) => Math.floor(i * of / count));
  const [ys, xs] = [edges(rows, matrix.rows), edges(columns, matrix.columns)];
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      let [sum, count] = [0, 0];
      for (let y = ys[r]; y < ys[r + 1]; y++) {
        for (let x = xs[c]; x < xs[c + 1]; x++) {
          const value = matrix.values[y * matrix.columns + x];
          if (!Number.isFinite(value)) continue;
          sum += value;
          count++;
        }
      }
      values[r * columns + c] = count > 0 ? sum / count : NaN;
    }
  }
  return { rows, columns, values };
}

/** Where a value lies between two others, 0 to 1; the middle if those are equal. */
export function share(value: number, [low, high]: readonly [number, number]): number {
  return high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5; // halves: the difference of extremes is infinite
}

/** The pixels of a matrix; NaN is transparent, infinities have the colours of the ends. */
export function pixels({ rows, columns, values }: Matrix, range: readonly [number, number], map: ColorMap): Uint8Array {
  const rgba = new Uint8Array(rows * columns * 4);
  for (let i = 0; i < rows * columns; i++) {
    if (Number.isNaN(values[i])) continue;
    rgba.set(colorOf(map, values[i] === Infinity ? 1 : values[i] === -Infinity ? 0 : share(values[i], range)), i * 4);
    rgba[i * 4 + 3] = 255;
  }
  return rgba;
}

/** Each pixel as `factor` by `factor` of them, for programs that would blur what they enlarge. */
export function enlarge(rgba: Uint8Array, columns: number, rows: number, factor: number): Uint8Array {
  const [from, width] = [new Uint32Array(rgba.buffer, rgba.byteOffset, columns * rows), columns * factor];
  const to = new Uint32Array(width * rows * factor);
  for (let r = 0; r < rows; r++) {
    for (let x = 0; x < width; x++) to[r * factor * width + x] = from[r * columns + Math.floor(x / factor)];
    for (let i = 1; i < factor; i++) {
      to.copyWithin((r * factor + i) * width, r * factor * width, (r * factor + 1) * width);
    }
  }
  return new Uint8Array(to.buffer);
}
