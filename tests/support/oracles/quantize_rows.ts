/**
 * Rows of weights at the edges of quantization, the same for the tests and for the reference (reference/quantize.ts).
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

/** Contents of rows; each gives the number of a column. */
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

/** Halves between the numbers of e2m1, those numbers, and what lies beyond. */
const STEPS = [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 100];

/** Further contents of rows of small floats, beside those of {@link edgeRows}. */
const SMALL_FLOAT_ROWS: readonly ((next: () => number, column: number, row: number) => number)[] = [
  (_next, column) => STEPS[column % STEPS.length] * (column % 2 ? -1 : 1),
  (_next, column, row) => column === 3 ? 6 : STEPS[(column + row) % 15] * (column % 3 ? -1 : 1) / 8,
  (next, column) => column % 32 === 3 ? 448 : next() * 4,
  // Largest numbers around the root of two, where the exponent of a scale goes up.
  (_next, column, row) =>
    column % 16 === 9 ? 6 * Math.SQRT2 * 2 ** (row % 13 - 6) * (1 + (column - 64) / 2 ** 22) : 0.5,
  (_next, column, row) => column % 16 === 9 ? -448 * Math.SQRT2 * 2 ** (row % 7 - 6) * (1 + column / 2 ** 9) : 0.25,
  (next) => next() * 3000, // beyond the largest scale of nvfp4
  (next) => next() * 60000,
  (next) => next() * 2 ** -13,
  (next) => next() < 0 ? -0 : 0,
  (next, column) => column === 40 ? Infinity : next(),
  (next, column) => column === 70 ? -Infinity : column % 5 ? next() : 0,
  (next, column) => column === 99 ? NaN : column % 5 ? next() : -0,
];

/** Rows that only float32 and bfloat16 hold, subnormal numbers among them. */
const FAR_ROWS: readonly ((next: () => number) => number)[] = [
  (next) => next() * 3e38,
  (next) => next() * 2 ** 70,
  (next) => next() * 2 ** -110,
  (next) => next() * 2 ** -124,
  (next) => next() * 2 ** -130,
  (next) => next() * 2 ** -140,
  (next) => next() * 2 ** -146,
];

/** Rows for the modes of small floats: normal numbers. */
export function smallFloatRows(): Float32Array {
  const next = numbers(11);
  const kinds = [...ROWS, ...SMALL_FLOAT_ROWS];
  return Float32Array.from(
    { length: kinds.length * 8 * COLUMNS },
    (_, i) => kinds[Math.floor(i / COLUMNS) % kinds.length](next, i % COLUMNS, Math.floor(i / COLUMNS)),
  );
}

/** Rows of numbers that GPUs may take for 0 or divide less exactly. */
export function farRows(): Float32Array {
  const next = numbers(13);
  return Float32Array.from(
    { length: FAR_ROWS.length * 4 * COLUMNS },
    (_, i) => FAR_ROWS[Math.floor(i / COLUMNS) % FAR_ROWS.length](next),
  );
}

/** Rows of the bytes from 0 to 255 as codes, of `bits` each, and for each row one of the scales, in groups. */
export function everyNumber(
  bits: number,
  groupSize: number,
  scales: readonly number[],
): { readonly codes: Uint8Array; readonly scales: Uint8Array } {
  const groups = 256 * 8 / bits / groupSize;
  return {
    codes: Uint8Array.from({ length: scales.length * 256 }, (_, i) => i),
    scales: Uint8Array.from({ length: scales.length * groups }, (_, i) => scales[Math.floor(i / groups)]),
  };
}
