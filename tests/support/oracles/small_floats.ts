/**
 * Small floats by their definitions, for oracles: what codes stand for, and the nearest codes by looking at all of them.
 *
 * @module
 */

/** Bits and group of the modes. */
export const SMALL_FLOATS = {
  mxfp4: { bits: 4, group: 32 },
  mxfp8: { bits: 8, group: 32 },
  nvfp4: { bits: 4, group: 16 },
} as const;

/** Modes whose codes are small floats. */
export type SmallFloatMode = keyof typeof SMALL_FLOATS;

/** The number of a sign, `exponent` bits and `mantissa` bits, without infinities. */
function number(code: number, exponent: number, mantissa: number): number {
  const sign = code >> (exponent + mantissa) ? -1 : 1;
  const power = (code >> mantissa) & (2 ** exponent - 1);
  const rest = code & (2 ** mantissa - 1);
  const bias = 2 ** (exponent - 1) - 1;
  return sign * (power === 0 ? rest * 2 ** (1 - bias) : (2 ** mantissa + rest) * 2 ** (power - bias)) / 2 ** mantissa;
}

/** The number of a code. */
export function smallNumber(mode: SmallFloatMode, code: number): number {
  return mode === "mxfp8" ? number(code, 4, 3) : number(code, 2, 1);
}

/** The number of a scale. */
export function smallScale(mode: SmallFloatMode, code: number): number {
  return mode === "nvfp4" ? number(code, 4, 3) : 2 ** (code - 127);
}

const E4M3 = Array.from({ length: 127 }, (_, code) => number(code, 4, 3));
const E2M1 = Array.from({ length: 8 }, (_, code) => number(code, 2, 1));

/** The number of a list next to a size; of two, the one whose code is `even`, or else the smaller. */
function nearest(list: readonly number[], size: number, even: boolean): number {
  let best = 0;
  list.forEach((value, code) => {
    const [distance, least] = [Math.abs(value - size), Math.abs(list[best] - size)];
    if (distance < least || (even && distance === least && code % 2 === 0)) best = code;
  });
  return list[best];
}

/** A group of float32 numbers as quantization keeps it. */
export function quantizeSmallFloats(mode: SmallFloatMode, w: Float64Array): Float64Array {
  const f = Math.fround;
  const most = f(w.reduce((a, b) => Math.max(a, Math.abs(b)), 0) / (mode === "mxfp8" ? 448 : 6));
  const scale = mode === "nvfp4" ? nearest(E4M3, most, true) : most === 0 ? 1 : 2 ** Math.ceil(f(Math.log2(most)));
  return w.map((x) => {
    if (scale === 0) return 0;
    const size = Math.abs(f(x / scale));
    const found = mode === "mxfp8" ? nearest(E4M3, size, true) : nearest(E2M1, size, false);
    return Math.sign(x) * found * scale;
  });
}
