/**
 * Elementwise functions of one array. Each is a row of shaders/include/elementwise.h, or composed of others where that loses nothing.
 *
 * @module
 */

import { isFloating } from "../../graph/dtype.ts";
import { DtypeError } from "../../graph/error.ts";
import { divide, multiply, where } from "./binary.ts";
import { type TensorLike, toInteger, toNode } from "../tensor/convert.ts";
import { apply, toFloat } from "./elementwise.ts";
import { scoped } from "../tensor/scope.ts";
import { astype } from "./movement.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Floating, Same } from "../tensor/results.ts";
import type { RankOf } from "../tensor/types.ts";

/**
 * Elementwise absolute value; the dtype stays.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.abs(mx.array([-1.5, 2])).tolist(); // [1.5, 2]
 * ```
 */
export function abs<A extends TensorLike>(a: A): Same<A> {
  return apply("abs", "same", a);
}

/** Elementwise -a. Bool is refused: use `logicalNot`. */
export function negative<A extends TensorLike>(a: A): Same<A> {
  return apply("negative", "signed", a);
}

/** Elementwise sign: -1, 0 or 1; 0 for NaN. */
export function sign<A extends TensorLike>(a: A): Same<A> {
  return apply("sign", "same", a);
}

/** Elementwise +a: the values as they are. */
export function positive<A extends TensorLike>(a: A): Same<A> {
  return wrap(toNode("positive", a));
}

/** Elementwise a * a. */
export function square<A extends TensorLike>(a: A): Same<A> {
  return apply("square", "same", a);
}

/** Elementwise square root. Integers give float32. */
export function sqrt<A extends TensorLike>(a: A): Floating<A> {
  return apply("sqrt", "float", a);
}

/** Elementwise 1 / sqrt(a). Integers give float32. */
export function rsqrt<A extends TensorLike>(a: A): Floating<A> {
  return apply("rsqrt", "float", a);
}

/** Elementwise 1 / a. Integers give float32. */
export function reciprocal<A extends TensorLike>(a: A): Floating<A> {
  return apply("reciprocal", "float", a);
}

/** Elementwise exponential. Integers give float32. */
export function exp<A extends TensorLike>(a: A): Floating<A> {
  return apply("exp", "float", a);
}

/** Elementwise exp(a) - 1, exact near 0. Integers give float32. */
export function expm1<A extends TensorLike>(a: A): Floating<A> {
  return apply("expm1", "float", a);
}

/** Elementwise natural logarithm. Integers give float32. */
export function log<A extends TensorLike>(a: A): Floating<A> {
  return apply("log", "float", a);
}

/** Elementwise logarithm to base 2. Integers give float32. */
export function log2<A extends TensorLike>(a: A): Floating<A> {
  return apply("log2", "float", a);
}

/** Elementwise logarithm to base 10. Integers give float32. */
export function log10<A extends TensorLike>(a: A): Floating<A> {
  return apply("log10", "float", a);
}

/** Elementwise log(1 + a), exact near 0. Integers give float32. */
export function log1p<A extends TensorLike>(a: A): Floating<A> {
  return apply("log1p", "float", a);
}

/** Elementwise sine of any number. Integers give float32. */
export function sin<A extends TensorLike>(a: A): Floating<A> {
  return apply("sin", "float", a);
}

/** Elementwise cosine of any number. Integers give float32. */
export function cos<A extends TensorLike>(a: A): Floating<A> {
  return apply("cos", "float", a);
}

/** Elementwise tangent of any number. Integers give float32. */
export function tan<A extends TensorLike>(a: A): Floating<A> {
  return apply("tan", "float", a);
}

/** Elementwise inverse sine. Integers give float32. */
export function arcsin<A extends TensorLike>(a: A): Floating<A> {
  return apply("arcsin", "float", a);
}

/** Elementwise inverse cosine. Integers give float32. */
export function arccos<A extends TensorLike>(a: A): Floating<A> {
  return apply("arccos", "float", a);
}

/** Elementwise inverse tangent. Integers give float32. */
export function arctan<A extends TensorLike>(a: A): Floating<A> {
  return apply("arctan", "float", a);
}

/** Elementwise hyperbolic sine. Integers give float32. */
export function sinh<A extends TensorLike>(a: A): Floating<A> {
  return apply("sinh", "float", a);
}

/** Elementwise hyperbolic cosine. Integers give float32. */
export function cosh<A extends TensorLike>(a: A): Floating<A> {
  return apply("cosh", "float", a);
}

/** Elementwise hyperbolic tangent. Integers give float32. */
export function tanh<A extends TensorLike>(a: A): Floating<A> {
  return apply("tanh", "float", a);
}

/** Elementwise inverse hyperbolic sine. Integers give float32. */
export function arcsinh<A extends TensorLike>(a: A): Floating<A> {
  return apply("arcsinh", "float", a);
}

/** Elementwise inverse hyperbolic cosine. Integers give float32. */
export function arccosh<A extends TensorLike>(a: A): Floating<A> {
  return apply("arccosh", "float", a);
}

/** Elementwise inverse hyperbolic tangent. Integers give float32. */
export function arctanh<A extends TensorLike>(a: A): Floating<A> {
  return apply("arctanh", "float", a);
}

/** Elementwise error function. Integers give float32. */
export function erf<A extends TensorLike>(a: A): Floating<A> {
  return apply("erf", "float", a);
}

/** Elementwise inverse of `erf`. Integers give float32. */
export function erfinv<A extends TensorLike>(a: A): Floating<A> {
  return apply("erfinv", "float", a);
}

/** Elementwise 1 / (1 + exp(-a)). Integers give float32. */
export function sigmoid<A extends TensorLike>(a: A): Floating<A> {
  return apply("sigmoid", "float", a);
}

/** Elementwise smallest whole number that is not below a. Integers stay. */
export function ceil<A extends TensorLike>(a: A): Same<A> {
  return apply("ceil", "round", a);
}

/** Elementwise largest whole number that is not above a. Integers stay. */
export function floor<A extends TensorLike>(a: A): Same<A> {
  return apply("floor", "round", a);
}

/** Elementwise whole part of a, towards 0. Integers stay. */
export function trunc<A extends TensorLike>(a: A): Same<A> {
  return apply("trunc", "round", a);
}

/** Elementwise inversion of all bits; of bool the negation. Floats are refused. */
export function bitwiseInvert<A extends TensorLike>(a: A): Same<A> {
  return apply("bitwiseInvert", "bits", a);
}

/** Elementwise whether a is 0 (bool). */
export function logicalNot<A extends TensorLike>(a: A): Tensor<"bool", RankOf<A>> {
  return apply("logicalNot", "bool", a);
}

/** Elementwise whether a is NaN (bool). */
export function isnan<A extends TensorLike>(a: A): Tensor<"bool", RankOf<A>> {
  return apply("isnan", "bool", a);
}

/** Elementwise whether a is infinite (bool). */
export function isinf<A extends TensorLike>(a: A): Tensor<"bool", RankOf<A>> {
  return apply("isinf", "bool", a);
}

/** Elementwise whether a is +infinity (bool). */
export function isposinf<A extends TensorLike>(a: A): Tensor<"bool", RankOf<A>> {
  return apply("isposinf", "bool", a);
}

/** Elementwise whether a is -infinity (bool). */
export function isneginf<A extends TensorLike>(a: A): Tensor<"bool", RankOf<A>> {
  return apply("isneginf", "bool", a);
}

/** Elementwise whether a is neither infinite nor NaN (bool). */
export function isfinite<A extends TensorLike>(a: A): Tensor<"bool", RankOf<A>> {
  return apply("isfinite", "bool", a);
}

/** Elementwise angle in degrees of an angle in radians. */
export function degrees<A extends TensorLike>(a: A): Floating<A> {
  return scoped("degrees", (): AnyTensor => multiply(toFloat("degrees", a), 180 / Math.PI));
}

/** Elementwise angle in radians of an angle in degrees. */
export function radians<A extends TensorLike>(a: A): Floating<A> {
  return scoped("radians", (): AnyTensor => multiply(toFloat("radians", a), Math.PI / 180));
}

/**
 * Elementwise rounding to a number of decimals, halves to even. Negative decimals round to tens, hundreds, ….
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.round([0.5, 1.5, 2.25]).tolist(); // [0, 2, 2]
 * ```
 */
export function round<A extends TensorLike>(a: A, decimals: number = 0): Same<A> {
  const node = toNode("round", a);
  const whole = !isFloating(node.dtype) && node.dtype.kind !== "complex";
  if (toInteger("round", "decimals", decimals) === 0 || (whole && decimals > 0)) {
    return apply("round", "round", wrap(node));
  }
  return scoped("round", (): AnyTensor => {
    const scale = 10 ** Math.abs(decimals);
    const scaled = decimals > 0 ? multiply(wrap(node), scale) : divide(wrap(node), scale);
    const rounded = apply("round", "round", scaled);
    const result = decimals > 0 ? divide(rounded, scale) : multiply(rounded, scale);
    return astype(result, node.dtype);
  });
}

/** Elementwise with NaN and infinities replaced; by default by 0 and the largest finite values of the dtype. */
export function nanToNum<A extends TensorLike>(a: A, nan: number = 0, posinf?: number, neginf?: number): Same<A> {
  return scoped("nanToNum", (): AnyTensor => {
    const x = wrap(toNode("nanToNum", a));
    if (x.dtype.kind === "complex") throw new DtypeError("nanToNum() does not take complex64: use its real and imag");
    if (!isFloating(x.dtype)) return wrap(nodeOf(x));
    const most = LARGEST[x.dtype.name as keyof typeof LARGEST];
    const finite = where(isposinf(x), posinf ?? most, where(isneginf(x), neginf ?? -most, x));
    return where(isnan(x), nan, finite);
  });
}

/** Largest finite value of each float type. */
const LARGEST = {
  float16: 65504,
  bfloat16: 3.3895313892515355e38,
  float32: 3.4028234663852886e38,
  float64: Number.MAX_VALUE,
} as const;
