/**
 * Whether arrays are equal or nearly so.
 *
 * @module
 */

import { checkOptions } from "../../graph/options.ts";
import { sameShape } from "../../graph/shape.ts";
import { add, equal, lessEqual, logicalAnd, logicalOr, multiply, subtract, where } from "./binary.ts";
import { type TensorLike, toNode, toOperands } from "../tensor/convert.ts";
import { all } from "./reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import { abs, isinf, isnan } from "./unary.ts";
import type { Comparison } from "../tensor/results.ts";

/** How close `isclose` and `allclose` want values. */
export interface CloseOptions {
  /** Whether NaN equals NaN. */
  readonly equalNan?: boolean;
}

const CLOSE_OPTIONS = { equalNan: true } as const satisfies Record<keyof CloseOptions, true>;

/** Elementwise |a - b| <= atol + rtol * |b|; equal infinities are close. */
export function isclose<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
  rtol: number = 1e-5,
  atol: number = 1e-8,
  options: CloseOptions = {},
): Comparison<A, B> {
  checkOptions("isclose", options, CLOSE_OPTIONS);
  return scoped("isclose", (): AnyTensor => {
    const near = lessEqual(abs(subtract(a, b)), add(multiply(abs(b), rtol), atol));
    const infinite = logicalOr(isinf(a), isinf(b));
    const result = where(infinite, equal(a, b), near);
    return options.equalNan ? logicalOr(result, logicalAnd(isnan(a), isnan(b))) : result;
  });
}

/** Whether all elements are close: see {@link isclose}. A 0-dimensional bool. */
export function allclose(
  a: TensorLike,
  b: TensorLike,
  rtol: number = 1e-5,
  atol: number = 1e-8,
  options: CloseOptions = {},
): Tensor<"bool", 0> {
  checkOptions("allclose", options, CLOSE_OPTIONS);
  return scoped("allclose", (): AnyTensor => all(isclose(a, b, rtol, atol, options)));
}

/** Whether two arrays have the same shape and equal elements. A 0-dimensional bool. */
export function arrayEqual(a: TensorLike, b: TensorLike, equalNan: boolean = false): Tensor<"bool", 0> {
  const [x, y] = toOperands("arrayEqual", [a, b]);
  if (!sameShape(x.shape, y.shape)) return wrap(toNode("arrayEqual", false));
  return scoped("arrayEqual", (): AnyTensor => {
    const [s, t] = [wrap(x), wrap(y)];
    const same = equal(s, t);
    return all(equalNan ? logicalOr(same, logicalAnd(isnan(s), isnan(t))) : same);
  });
}
