/**
 * Quantizes 256 weights to a block of Q4_K or Q6_K as ggml's reference does, bit for bit. Each product and sum is rounded to float32, in
 * its order. Layouts: ggml-common.h of https://github.com/ggml-org/ggml; the search for scales: ggml-quants.c there.
 *
 * @module
 */

import { float16Bits, float16Value } from "../../graph/dtype.ts";

/** Weights of a block. */
export const K_BLOCK = 256;

const single = Math.fround;
/** Step between the scales that are tried. */
const STEP = single(0.1);

/** 1.5 * 2^23: float32 numbers near it are whole. */
const WHOLE = 12582912;

/** The nearest whole number, of two the even one, of a number below 2^22. */
function nearest(x: number): number {
  return single(x + WHOLE) - WHOLE;
}

function clamped(x: number, least: number, most: number): number {
  return x > least ? x < most ? x : most : least;
}

// ---- Q4_K: scale * code - minimum, in groups of 32 ----------------------------------------------------------------------

const MINIMUM_GROUP = 32;
const MINIMUM_LEVELS = 15;
/** Further scales that are tried, from one level below on. */
const MINIMUM_STEPS = 20;

/** Codes that the search tries. */
const tried = new Uint8Array(MINIMUM_GROUP);
const importance = new Float32Array(MINIMUM_GROUP);

/** The sum of squares of what codes miss, by importance. */
function missed(x: Float32Array, codes: Uint8Array, scale: number, least: number): number {
  let sum = 0;
  for (let i = 0; i < MINIMUM_GROUP; i++) {
    const off = single(single(single(scale * codes[i]) + least) - x[i]);
    sum = single(sum + single(importance[i] * single(off * off)));
  }
  return sum;
}

/** Writes the codes of a group; gives their scale, and the minimum to take away. */
function fitMinimum(x: Float32Array, codes: Uint8Array): readonly [scale: number, minimum: number] {
  let squares = 0;
  for (const value of x) squares = single(squares + single(value * value));
  const typical = single(Math.sqrt(single(squares / MINIMUM_GROUP)));
  let [least, most] = [x[0], x[0]];
  let [sumW, sumX] = [0, 0];
  for (let i = 0; i < MINIMUM_GROUP; i++) {
    const w = importance[i] = single(typical + Math.abs(x[i]));
    if (x[i] < least) least = x[i];
    if (x[i] > most) most = x[i];
    sumW = single(sumW + w);
    sumX = single(sumX + single(w * x[i]));
  }
  if (least > 0) least = 0;
  if (most === least) {
    codes.fill(0);
    return [0, -least];
  }
  // Of the range above the least value, which moves with the best fit.
  const coded = (to: Uint8Array, inverse: number): void => {
    for (let i = 0; i < MINIMUM_GROUP; i++) {
      to[i] = clamped(nearest(single(inverse * single(x[i] - least))), 0, MINIMUM_LEVELS);
    }
  };
  const inverse = single(MINIMUM_LEVELS / single(most - least));
  let scale = single(1 / inverse);
  coded(codes, inverse);
  let error = missed(x, codes, scale, least);
  for (let step = 0; step <= MINIMUM_STEPS; step++) {
    coded(tried, single(single(single(-1 + single(STEP * step)) + MINIMUM_LEVELS) / single(most - least)));
    let [sumL, sumL2, sumXL] = [0, 0, 0];
    for (let i = 0; i < MINIMUM_GROUP; i++) {
      const weighted = single(importance[i] * tried[i]);
      sumL = single(sumL + weighted);
      sumL2 = single(sumL2 + single(weighted * tried[i]));
      sumXL = single(sumXL + single(weighted * x[i]));
    }
    const determinant = single(single(sumW * sumL2) - single(sumL * sumL));
    if (!(determinant > 0)) continue;
    let ownScale = single(single(single(sumW * sumXL) - single(sumX * sumL)) / determinant);
    let ownLeast = single(single(single(sumL2 * sumX) - single(sumL * sumXL)) / determinant);
    if (ownLeast > 0) [ownLeast, ownScale] = [0, single(sumXL / sumL2)];
    const ownError = missed(x, tried, ownScale, ownLeast);
    if (!(ownError < error)) continue;
    codes.set(tried);
    [error, scale, least] = [ownError, ownScale, ownLeast];
  }
  return [scale, -least];
}

/** Writes a block of Q4_K, 144 bytes. */
export function quantizeQ4K(x: Float32Array, out: Uint8Array): void {
  const groups = K_BLOCK / MINIMUM_GROUP;
  const codes = new Uint8Array(K_BLOCK);
  const part = <T extends Float32Array | Uint8Array>(of: T, j: number): T =>
    of.subarray(j * MINIMUM_GROUP, (j + 1) * MINIMUM_GROUP) as T;
  const fits = Array.from({ length: groups }, (_, j) => fitMinimum(part(x, j), part(codes, j)));
  const largest = [0, 1].map((of) => fits.reduce((most, fit) => Math.max(most, fit[of]), 0));
  const inverses = largest.map((most) => most > 0 ? single(63 / most) : 0);
  const [d, minimum] = largest.map((most) => float16Bits(single(most / 63)));
  new DataView(out.buffer, out.byteOffset).setUint16(0, d, true);
  new DataView(out.buffer, out.byteOffset).setUint16(2, minimum, true);
  const packed = out.subarray(4, 16);
  packed.fill(0);
  fits.forEach((fit, j) => {
    const [scale, least] = fit.map((factor, of) => Math.min(63, nearest(single(inverses[of] * factor)) & 255));
    if (j < 4) {
      packed[j] |= scale;
      packed[j + 4] |= least;
    } else {
      packed[j + 4] = scale & 15 | (least & 15) << 4;
      packed[j - 4] |= scale >> 4 << 6;
      packed[j] |= least >> 4 << 6;
    }
    const step = single(float16Value(d) * scale);
    if (step === 0) return;
    const away = single(float16Value(minimum) * least);
    for (let i = j * MINIMUM_GROUP; i < (j + 1) * MINIMUM_GROUP; i++) {
      codes[i] = clamped(nearest(single(single(x[i] + away) / step)), 0, MINIMUM_LEVELS);
    }
  });
  for (let i = 0; i < K_BLOCK / 2; i++) {
    const at = (i >> 5) * 64 + (i & 31);
    out[16 + i] = codes[at] | codes[at + 32] << 4;
  }
}

// ---- Q6_K: scale * (code - 32), in groups of 16 -------------------------------------------------------------------------

const SYMMETRIC_GROUP = 16;
/** Codes are whole numbers of -32 to 31. */
const MIDDLE = 32;
/** Groups without a larger value are 0. */
const LEAST = single(1e-15);
/** Scales that are tried on each side of the first. */
const SYMMETRIC_STEPS = 9;

/** Writes the codes of a group and gives their scale. */
function fitSymmetric(x: Float32Array, codes: Uint8Array): number {
  let most = 0;
  for (const value of x) if (Math.abs(value) > Math.abs(most)) most = value;
  if (Math.abs(most) < LEAST) {
    codes.fill(0);
    return 0;
  }
  const code = (value: number, inverse: number): number =>
    clamped(nearest(single(inverse * value)), -MIDDLE, MIDDLE - 1);
  let [scale, best] = [0, 0];
  for (let turn = 0; turn <= 2 * SYMMETRIC_STEPS; turn++) {
    // The first scale, then those from the least to the largest.
    const step = turn === 0 ? 0 : turn <= SYMMETRIC_STEPS ? turn - 1 - SYMMETRIC_STEPS : turn - SYMMETRIC_STEPS;
    const inverse = single(-single(MIDDLE + single(STEP * step)) / most);
    let [sumXL, sumL2] = [0, 0];
    for (let i = 0; i < SYMMETRIC_GROUP; i++) {
      const l = code(x[i], inverse);
      const w = single(x[i] * x[i]);
      sumXL = single(sumXL + single(single(w * x[i]) * l));
      sumL2 = single(sumL2 + single(single(w * l) * l));
    }
    if (turn > 0 && !(sumL2 > 0 && single(sumXL * sumXL) > single(best * sumL2))) continue;
    for (let i = 0; i < SYMMETRIC_GROUP; i++) codes[i] = MIDDLE + code(x[i], inverse);
    scale = sumL2 !== 0 ? single(sumXL / sumL2) : 0;
    best = single(scale * sumXL);
  }
  return scale;
}

/** Writes a block of Q6_K, 210 bytes. */
export function quantizeQ6K(x: Float32Array, out: Uint8Array): void {
  const codes = new Uint8Array(K_BLOCK);
  const part = <T extends Float32Array | Uint8Array>(of: T, j: number): T =>
    of.subarray(j * SYMMETRIC_GROUP, (j + 1) * SYMMETRIC_GROUP) as T;
  const scales = Array.from(
    { length: K_BLOCK / SYMMETRIC_GROUP },
    (_, j) => fitSymmetric(part(x, j), part(codes, j)),
  );
  const largest = scales.reduce((most, scale) => Math.abs(scale) > Math.abs(most) ? scale : most, 0);
  out.fill(0);
  if (Math.abs(largest) < LEAST) return;
  const inverse = single(-128 / largest);
  const d = float16Bits(single(1 / inverse));
  const view = new DataView(out.buffer, out.byteOffset);
  view.setUint16(208, d, true);
  scales.forEach((own, j) => {
    const scale = Math.min(127, nearest(single(inverse * own)));
    view.setInt8(192 + j, scale);
    const step = single(float16Value(d) * scale);
    if (step === 0) return;
    for (let i = j * SYMMETRIC_GROUP; i < (j + 1) * SYMMETRIC_GROUP; i++) {
      codes[i] = MIDDLE + clamped(nearest(single(x[i] / step)), -MIDDLE, MIDDLE - 1);
    }
  });
  for (let i = 0; i < K_BLOCK / 4; i++) {
    const [of, l] = [i >> 5, i & 31];
    const [a, b, c, e] = [0, 32, 64, 96].map((at) => codes[of * 128 + at + l]);
    out[of * 64 + l] = a & 15 | (c & 15) << 4;
    out[of * 64 + 32 + l] = b & 15 | (e & 15) << 4;
    out[128 + i] = a >> 4 | b >> 4 << 2 | c >> 4 << 4 | e >> 4 << 6;
  }
}
