/**
 * Keys and values in 8 bits: four neighbouring features of a position share an exponent (block floating point).
 *
 * A word of 32 bits has the four. Feature i is m[i] * 2^(e - 10). Its m has 7 bits in two's complement from bit 7 * i on, from -63 to 63; e is the
 * upper 4 bits. So numbers up to 2016 are there, larger ones become 2016, and the finest step is 2^-10. Among the exponents that
 * hold the largest of the four, the smallest is taken, and each feature is rounded to nearest, ties to even. NaN becomes 0. A word of zeros
 * has zeros, every word has finite numbers, and all of them are exact in float16, bfloat16 and float32.
 *
 * Of normally distributed features the error (root mean square) is 1.05 % of their deviation. In e4m3, which has the same bytes and ends at 448, it is
 * 2.66 %. In int8 with a scale for each head of a position it is 0.65 %, but a large feature then costs the whole head its digits. Where biases
 * of Qwen2.5's kind make 2 of 128 features a hundred times as large, the errors are 14 %, 41 % and 23 %. A kernel that makes a part of
 * a head also need not wait for the largest feature of the others.
 *
 * Pools of pages (kv_layout.ts) have it as {@link KV_CODES}: the bytes of a word stand where its four features would.
 *
 * @module
 */

import { type Dtype, uint8 } from "./dtype.ts";

/** Features that share an exponent. */
export const CODED_FEATURES = 4;
/** Bits of a feature beside the exponent. */
export const FEATURE_BITS = 7;
/** Largest magnitude of m. */
export const MAX_CODE = 2 ** (FEATURE_BITS - 1) - 1;
/** Numbers of e. */
export const EXPONENTS = 16;
/** The power of two of a step where e is 0. */
export const LEAST_POWER = -10;

/** The dtype of pools whose keys and values have such codes. */
export const KV_CODES: Dtype<"uint8"> = uint8;

/** Whether a pool of pages of a dtype has codes: others have the numbers themselves. */
export function isCoded(dtype: Dtype): boolean {
  return dtype === KV_CODES;
}
