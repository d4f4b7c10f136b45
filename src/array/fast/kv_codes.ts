/**
 * Keys and values in 8 bits, by primitives; src/graph/kv_codes.ts has the format.
 *
 * @module
 */

import { type Dtype, float32, int32, uint32 } from "../../graph/dtype.ts";
import { CODED_FEATURES, EXPONENTS, FEATURE_BITS, KV_CODES, LEAST_POWER, MAX_CODE } from "../../graph/kv_codes.ts";
import * as op from "../ops/binary.ts";
import { array } from "../ops/creation.ts";
import { take } from "../ops/gather.ts";
import { astype, expandDims, reshape } from "../ops/movement.ts";
import { max, sum } from "../ops/reduce.ts";
import { abs, isnan, round } from "../ops/unary.ts";
import { view } from "../ops/view.ts";
import type { Tensor } from "../tensor/tensor.ts";

const ALL_EXPONENTS = Array.from({ length: EXPONENTS }, (_, e) => e);
/** Step of each exponent. */
const STEPS = ALL_EXPONENTS.map((e) => 2 ** (e + LEAST_POWER));
/** Magnitudes from which on each exponent but the last one is too small. */
const LIMITS = STEPS.slice(0, -1).map((step) => (MAX_CODE + 0.5) * step);
/** The place of each feature in a word. */
const PLACES = Array.from({ length: CODED_FEATURES }, (_, i) => FEATURE_BITS * i);

/** The codes (…, D) of floats (…, D). D is a multiple of 4. */
export function encodeKv(features: Tensor): Tensor {
  const { shape } = features;
  const fours = reshape(astype(features, float32), [...shape.slice(0, -1), -1, CODED_FEATURES]);
  const x = op.where(isnan(fours), 0, fours);
  const tooSmall = op.greaterEqual(expandDims(max(abs(x), -1), -1), array(LIMITS, float32));
  const e = sum(astype(tooSmall, int32), -1);
  const steps = expandDims(take(array(STEPS, float32), e, 0), -1);
  const m = astype(round(op.clip(op.divide(x, steps), -MAX_CODE, MAX_CODE)), int32);
  const bits = op.bitwiseAnd(view(m, uint32), array(2 ** FEATURE_BITS - 1, uint32));
  const codes = sum(op.leftShift(bits, array(PLACES, uint32)), -1);
  const word = op.bitwiseOr(codes, op.leftShift(astype(e, uint32), array(FEATURE_BITS * CODED_FEATURES, uint32)));
  return view(word, KV_CODES);
}

/** The floats of a dtype (…, D) that codes (…, D) stand for. */
export function decodeKv(codes: Tensor, dtype: Dtype): Tensor {
  const words = expandDims(view(codes, uint32), -1);
  const bits = op.bitwiseAnd(op.rightShift(words, array(PLACES, uint32)), array(2 ** FEATURE_BITS - 1, uint32));
  const m = op.subtract(astype(op.bitwiseXor(bits, array(MAX_CODE + 1, uint32)), float32), MAX_CODE + 1);
  const steps = take(array(STEPS, float32), op.rightShift(words, array(FEATURE_BITS * CODED_FEATURES, uint32)), 0);
  return astype(reshape(op.multiply(m, steps), codes.shape), dtype);
}
