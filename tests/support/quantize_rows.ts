/**
 * Rows of weights at the edges of affine quantization, the same for the tests and for the reference (reference/quantize.ts).
 *
 * @module
 */

/** Columns of the rows. */
export const COLUMNS = 128;

/** xorshift32 as numbers from -1 to 1, exact in 16-bit floats. */
function numbers(seed: number): () => number {
  let x = seed;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 25) / 64 - 1;
  };
}

/** What rows are made of; each gives the number of a column. */
const ROWS: readonly ((next: () => number, column: number) => number)[] = [
  (next) => next(),
  (next) => next() ** 3,
  (next) => Math.abs(next()) + 1, // all positive
  (next) => -Math.abs(next()) - 1, // all negative
  (next) => Math.round(next() * 8) / 2, // quotients that lie between two codes
  (next) => Math.round(next() * 16) - 16,
  (next) => next() < 0 ? -1 : 1,
  (next) => next() * 2 ** -20, // scales below the least one
  (next) => next() * 2 ** -40,
  (next) => next() * 2 ** 15,
  (_next, column) => column === 5 ? 1 : 0,
  (_next, column) => column === 7 ? -1 : 2 ** -10,
  () => 0,
  () => -0,
  () => 0.5,
  () => -0.5,
];

/** The rows, each kind eight times. */
export function edgeRows(): Float32Array {
  const next = numbers(7);
  return Float32Array.from(
    { length: ROWS.length * 8 * COLUMNS },
    (_, i) => ROWS[Math.floor(i / COLUMNS) % ROWS.length](next, i % COLUMNS),
  );
}
