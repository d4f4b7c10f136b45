/**
 * Elementwise functions of one array. Each is a row of shaders/include/elementwise.h, or composed of others where that loses nothing.
 *
 * @module
 */

import { isFloating } from "../graph/dtype.ts";
import { divide, multiply, where } from "./binary.ts";
import { type TensorLike, toInteger, toNode } from "./convert.ts";
import { apply, toFloat } from "./elementwise.ts";
import { scoped } from "./scope.ts";
import { astype } from "./movement.ts";
import { nodeOf, type Tensor, wrap } from "./tensor.ts";

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
export function abs(a: TensorLike): Tensor {
  return apply("abs", "same", a);
}

/** Elementwise -a. Bool is refused: use `logicalNot`. */
export function negative(a: TensorLike): Tensor {
  return apply("negative", "signed", a);
}

/** Elementwise sign: -1, 0 or 1; 0 for NaN. */
export function sign(a: TensorLike): Tensor {
  return apply("sign", "same", a);
}

/** Elementwise a * a. */
export function square(a: TensorLike): Tensor {
  return apply("square", "same", a);
}

/** Elementwise square root. Integers give float32. */
export function sqrt(a: TensorLike): Tensor {
  return apply("sqrt", "float", a);
}

/** Elementwise 1 / sqrt(a). Integers give float32. */
export function rsqrt(a: TensorLike): Tensor {
  return apply("rsqrt", "float", a);
}

/** Elementwise 1 / a. Integers give float32. */
export function reciprocal(a: TensorLike): Tensor {
  return apply("reciprocal", "float", a);
}

/** Elementwise exponential. Integers give float32. */
export function exp(a: TensorLike): Tensor {
  return apply("exp", "float", a);
}

/** Elementwise exp(a) - 1, exact near 0. Integers give float32. */
export function expm1(a: TensorLike): Tensor {
  return apply("expm1", "float", a);
}

/** Elementwise natural logarithm. Integers give float32. */
export function log(a: TensorLike): Tensor {
  return apply("log", "float", a);
}

/** Elementwise logarithm to base 2. Integers give float32. */
export function log2(a: TensorLike): Tensor {
  return apply("log2", "float", a);
}

/** Elementwise logarithm to base 10. Integers give float32. */
export function log10(a: TensorLike): Tensor {
  return apply("log10", "float", a);
}

/** Elementwise log(1 + a), exact near 0. Integers give float32. */
export function log1p(a: TensorLike): Tensor {
  return apply("log1p", "float", a);
}

/** Elementwise sine of any number. Integers give float32. */
export function sin(a: TensorLike): Tensor {
  return apply("sin", "float", a);
}

/** Elementwise cosine of any number. Integers give float32. */
export function cos(a: TensorLike): Tensor {
  return apply("cos", "float", a);
}

/** Elementwise tangent of any number. Integers give float32. */
export function tan(a: TensorLike): Tensor {
  return apply("tan", "float", a);
}

/** Elementwise inverse sine. Integers give float32. */
export function arcsin(a: TensorLike): Tensor {
  return apply("arcsin", "float", a);
}

/** Elementwise inverse cosine. Integers give float32. */
export function arccos(a: TensorLike): Tensor {
  return apply("arccos", "float", a);
}

/** Elementwise inverse tangent. Integers give float32. */
export function arctan(a: TensorLike): Tensor {
  return apply("arctan", "float", a);
}

/** Elementwise hyperbolic sine. Integers give float32. */
export function sinh(a: TensorLike): Tensor {
  return apply("sinh", "float", a);
}

/** Elementwise hyperbolic cosine. Integers give float32. */
export function cosh(a: TensorLike): Tensor {
  return apply("cosh", "float", a);
}

/** Elementwise hyperbolic tangent. Integers give float32. */
export function tanh(a: TensorLike): Tensor {
  return apply("tanh", "float", a);
}

/** Elementwise inverse hyperbolic sine. Integers give float32. */
export function arcsinh(a: TensorLike): Tensor {
  return apply("arcsinh", "float", a);
}

/** Elementwise inverse hyperbolic cosine. Integers give float32. */
export function arccosh(a: TensorLike): Tensor {
  return apply("arccosh", "float", a);
}

/** Elementwise inverse hyperbolic tangent. Integers give float32. */
export function arctanh(a: TensorLike): Tensor {
  return apply("arctanh", "float", a);
}

/** Elementwise error function. Integers give float32. */
export function erf(a: TensorLike): Tensor {
  return apply("erf", "float", a);
}

/** Elementwise inverse of `erf`. Integers give float32. */
export function erfinv(a: TensorLike): Tensor {
  return apply("erfinv", "float", a);
}

/** Elementwise 1 / (1 + exp(-a)). Integers give float32. */
export function sigmoid(a: TensorLike): Tensor {
  return apply("sigmoid", "float", a);
}

/** Elementwise smallest whole number that is not below a. Integers stay. */
export function ceil(a: TensorLike): Tensor {
  return apply("ceil", "round", a);
}

/** Elementwise largest whole number that is not above a. Integers stay. */
export function floor(a: TensorLike): Tensor {
  return apply("floor", "round", a);
}

/** Elementwise whole part of a, towards 0. Integers stay. */
export function trunc(a: TensorLike): Tensor {
  return apply("trunc", "round", a);
}

/** Elementwise inversion of all bits; of bool the negation. Floats are refused. */
export function bitwiseInvert(a: TensorLike): Tensor {
  return apply("bitwiseInvert", "bits", a);
}

/** Elementwise whether a is 0 (bool). */
export function logicalNot(a: TensorLike): Tensor {
  return apply("logicalNot", "bool", a);
}

/** Elementwise whether a is NaN (bool). */
export function isnan(a: TensorLike): Tensor {
  return apply("isnan", "bool", a);
}

/** Elementwise whether a is infinite (bool). */
export function isinf(a: TensorLike): Tensor {
  return apply("isinf", "bool", a);
}

/** Elementwise whether a is +infinity (bool). */
export function isposinf(a: TensorLike): Tensor {
  return apply("isposinf", "bool", a);
}

/** Elementwise whether a is -infinity (bool). */
export function isneginf(a: TensorLike): Tensor {
  return apply("isneginf", "bool", a);
}

/** Elementwise whether a is neither infinite nor NaN (bool). */
export function isfinite(a: TensorLike): Tensor {
  return apply("isfinite", "bool", a);
}

/** Elementwise angle in degrees of an angle in radians. */
export function degrees(a: TensorLike): Tensor {
  return scoped(() => multiply(toFloat("degrees", a), 180 / Math.PI));
}

/** Elementwise angle in radians of an angle in degrees. */
export function radians(a: TensorLike): Tensor {
  return scoped(() => multiply(toFloat("radians", a), Math.PI / 180));
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
export function round(a: TensorLike, decimals: number = 0): Tensor {
  const node = toNode("round", a);
  const whole = !isFloating(node.dtype);
  if (toInteger("round", "decimals", decimals) === 0 || (whole && decimals > 0)) {
    return apply("round", "round", wrap(node));
  }
  return scoped(() => {
    const scale = 10 ** Math.abs(decimals);
    const scaled = decimals > 0 ? multiply(wrap(node), scale) : divide(wrap(node), scale);
    const rounded = apply("round", "round", scaled);
    const result = decimals > 0 ? divide(rounded, scale) : multiply(rounded, scale);
    return astype(result, node.dtype);
  });
}

/** Elementwise with NaN and infinities replaced; by default by 0 and the largest finite values of the dtype. */
export function nanToNum(a: TensorLike, nan: number = 0, posinf?: number, neginf?: number): Tensor {
  return scoped(() => {
    const x = wrap(toNode("nanToNum", a));
    if (!isFloating(x.dtype)) return wrap(nodeOf(x));
    const most = LARGEST[x.dtype.name as keyof typeof LARGEST];
    const finite = where(isposinf(x), posinf ?? most, where(isneginf(x), neginf ?? -most, x));
    return where(isnan(x), nan, finite);
  });
}

/** Largest finite value of each float type. */
const LARGEST = { float16: 65504, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38 } as const;
