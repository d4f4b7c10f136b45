/**
 * Matrices that methods of linear algebra fail on, and how far results are off.
 *
 * @module
 */

import { generator } from "./oracle.ts";

/** Rounding of float32. */
export const EPSILON: number = 2 ** -24;

/** Rows. */
export type Matrix = number[][];

/** A matrix of float32 by its elements. */
export const matrix = (m: number, n: number, f: (i: number, j: number) => number): Matrix =>
  Array.from({ length: m }, (_, i) => Array.from({ length: n }, (_, j) => Math.fround(f(i, j))));
export const identity = (n: number): Matrix => matrix(n, n, (i, j) => i === j ? 1 : 0);
export const turned = (a: Matrix): Matrix => (a[0] ?? []).map((_, j) => a.map((row) => row[j]));
export const product = (a: Matrix, b: Matrix): Matrix => {
  const columns = turned(b);
  return a.map((row) => columns.map((column) => row.reduce((sum, v, k) => sum + v * column[k], 0)));
};
export const scaledBy = (a: Matrix, values: readonly number[]): Matrix =>
  a.map((row) => row.map((v, j) => v * values[j]));
export const size = (a: Matrix): number => Math.sqrt(a.flat().reduce((sum, v) => sum + v * v, 0));

/** How far two matrices are apart, in roundings of float32 relative to the first. */
export function apart(a: Matrix, b: Matrix): number {
  return size(a.map((row, i) => row.map((v, j) => v - b[i][j]))) / (size(a) || 1) / EPSILON;
}

const next = generator(11);
/** Elements in -1…1. */
export const random = (m: number, n: number): Matrix => matrix(m, n, () => 2 * next() - 1);
const low = (n: number, rank: number): Matrix =>
  product(random(n, rank), random(rank, n)).map((row) => row.map(Math.fround));

/** Square matrices that methods fail on; sizes around those of the blocks. */
export const HARD: Readonly<Record<string, Matrix>> = {
  "one element": [[-3]],
  "zeros": matrix(5, 5, () => 0),
  "the identity": identity(33),
  "drawn, 31": random(31, 31),
  "drawn, 49": random(49, 49),
  "drawn, 97": random(97, 97),
  "Hilbert's": matrix(12, 12, (i, j) => 1 / (i + j + 1)),
  "of rank 3": low(40, 3),
  "of ones": matrix(34, 34, () => 1),
  "graded": matrix(24, 24, (i, j) => 10 ** (-(i + j) / 2) * (1 + next())),
  "tiny": matrix(9, 9, () => 1e-37 * (next() - 0.5)),
  "huge": matrix(9, 9, () => 1e37 * (next() - 0.5)),
  "of two eigenvalues": matrix(20, 20, (i, j) => i === j ? (i % 2 ? 2 : 1) : 0),
  "a cycle": matrix(16, 16, (i, j) => (i + 1) % 16 === j ? 1 : 0),
};

/** Half of the sum with the transpose. */
export const symmetric = (a: Matrix): Matrix => matrix(a.length, a.length, (i, j) => (a[i][j] + a[j][i]) / 2);
