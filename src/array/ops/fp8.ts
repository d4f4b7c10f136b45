/**
 * Eight-bit floats (e4m3: sign, four bits of exponent, three of mantissa, no infinities) in uint8 codes. Codes are read from a table of
 * the 256 values. They are made by exact arithmetic in float32: shifts by powers of two and one rounding to even.
 *
 * @module
 */

import { bfloat16, checkDtype, type Dtype, type DtypeName, float32, uint32, uint8 } from "../../graph/dtype.ts";
import { DtypeError } from "../../graph/error.ts";
import { add, divide, greaterEqual, less, multiply, rightShift, where } from "./binary.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import { array } from "./creation.ts";
import { take } from "./gather.ts";
import { astype } from "./movement.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import type { RankOf } from "../tensor/types.ts";
import { abs, round } from "./unary.ts";

/** The largest number of the format. */
const LARGEST = 448;
/** Steps between numbers of the smallest exponents, the subnormal ones among them, are 2^-9. */
const STEPS = 512;
/** Exponents above those: each doubles the step. */
const DOUBLINGS = 14;

/** The numbers that the codes 0 to 255 stand for. */
function values(): number[] {
  return Array.from({ length: 256 }, (_, code) => {
    const [sign, exponent, mantissa] = [code >> 7, (code >> 3) & 15, code & 7];
    if (exponent === 15 && mantissa === 7) return NaN;
    const steps = exponent === 0 ? mantissa : (8 + mantissa) * 2 ** (exponent - 1);
    return (sign ? -1 : 1) * steps / STEPS;
  });
}

/**
 * The codes (uint8) of the e4m3 numbers next to those of a float array, ties to even. Numbers larger than 448, infinities and
 * NaN become ±448.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.toFp8(mx.array([1, -2.3, 1000])).tolist(); // [56, 193, 126]
 * ```
 */
export function toFp8<A extends TensorLike>(x: A): Tensor<"uint8", RankOf<A>> {
  const node = toNode("toFp8", x);
  if (node.dtype.kind !== "float") {
    throw new DtypeError(`toFp8() takes float arrays only: found ${node.dtype.name}, use astype(mx.float32)`);
  }
  return scoped("toFp8", (): AnyTensor => {
    const a: AnyTensor = astype(wrap(node), float32);
    const size: AnyTensor = abs(a);
    // Not less: NaN too.
    const steps: AnyTensor = multiply(where(less(size, LARGEST), size, LARGEST), STEPS);
    let exponent: AnyTensor = astype(greaterEqual(steps, 16), uint32);
    for (let i = 1; i < DOUBLINGS; i++) {
      exponent = add(exponent, astype(greaterEqual(steps, 16 * 2 ** i), uint32));
    }
    // 2^-exponent, exact where a division of floats may not be.
    const scale = multiply(astype(rightShift(array(2 ** DOUBLINGS, uint32), exponent), float32), 2 ** -DOUBLINGS);
    const code = add(astype(round(multiply(steps, scale)), uint32), multiply(exponent, 8));
    // The reciprocal tells -0 from 0.
    const negative = less(where(less(size, 1), divide(1, a), a), 0);
    return astype(add(code, multiply(astype(negative, uint32), 128)), uint8);
  });
}

/**
 * The numbers that e4m3 codes stand for, in a float dtype, default bfloat16. Codes 127 and 255 are NaN.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.fromFp8(mx.array([56, 193], mx.uint8), mx.float32).tolist(); // [1, -2.25]
 * ```
 */
export function fromFp8<A extends TensorLike, N extends DtypeName = "bfloat16">(
  x: A,
  dtype: Dtype<N> = bfloat16 as unknown as Dtype<N>,
): Tensor<N, RankOf<A>> {
  const node = toNode("fromFp8", x);
  checkDtype(dtype, "fromFp8");
  if (dtype.kind !== "float") {
    throw new DtypeError(`fromFp8() gives float arrays only: found dtype ${dtype.name}`);
  }
  if (node.dtype !== uint8) {
    throw new DtypeError(`fromFp8() takes uint8 codes only: found ${node.dtype.name}, use astype(mx.uint8)`);
  }
  return scoped("fromFp8", (): AnyTensor => take(array(values(), dtype), wrap(node)));
}
