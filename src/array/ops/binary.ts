/**
 * Elementwise functions of two and three arrays, which broadcast. Dtypes meet as in MLX; JavaScript numbers are weak.
 *
 * @module
 */

import { castNode, type TensorLike, toNode, toOperands } from "../tensor/convert.ts";
import { ValueError } from "../../graph/error.ts";
import { apply, broadcastOf } from "./elementwise.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, make, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import * as dt from "../../graph/dtype.ts";
import type { Arithmetic, Clipped, Comparison, Quotient } from "../tensor/results.ts";
import type { Larger, Promoted, RankOf } from "../tensor/types.ts";

/**
 * Elementwise a + b.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.add([[1], [2]], [10, 20]).tolist(); // [[11, 21], [12, 22]]
 * ```
 */
export function add<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("add", "same", a, b);
}

/** Elementwise a - b. */
export function subtract<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("subtract", "same", a, b);
}

/** Elementwise a * b. */
export function multiply<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("multiply", "same", a, b);
}

/** Elementwise a / b; integers give float32. */
export function divide<A extends TensorLike, B extends TensorLike>(a: A, b: B): Quotient<A, B> {
  return apply("divide", "float", a, b);
}

/** Elementwise remainder of a / b with the sign of b. */
export function remainder<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("remainder", "same", a, b);
}

/** Elementwise a / b rounded down; of integers a divisor of 0 gives 0. */
export function floorDivide<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("floorDivide", "same", a, b);
}

/** Elementwise a raised to b. Integers with a negative exponent give 0, as in MLX. */
export function power<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("power", "same", a, b);
}

/** Elementwise larger of a and b; NaN wins. */
export function maximum<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("maximum", "same", a, b);
}

/** Elementwise smaller of a and b; NaN wins. */
export function minimum<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("minimum", "same", a, b);
}

/** Elementwise log(exp(a) + exp(b)) without overflow; integers give float32. */
export function logaddexp<A extends TensorLike, B extends TensorLike>(a: A, b: B): Quotient<A, B> {
  return apply("logaddexp", "float", a, b);
}

/** Elementwise angle of the point (b, a); integers give float32. */
export function arctan2<A extends TensorLike, B extends TensorLike>(a: A, b: B): Quotient<A, B> {
  return apply("arctan2", "float", a, b);
}

/** Elementwise a == b (bool). */
export function equal<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("equal", "bool", a, b);
}

/** Elementwise a != b (bool). */
export function notEqual<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("notEqual", "bool", a, b);
}

/** Elementwise a < b (bool). */
export function less<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("less", "bool", a, b);
}

/** Elementwise a <= b (bool). */
export function lessEqual<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("lessEqual", "bool", a, b);
}

/** Elementwise a > b (bool). */
export function greater<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("greater", "bool", a, b);
}

/** Elementwise a >= b (bool). */
export function greaterEqual<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("greaterEqual", "bool", a, b);
}

/** Elementwise whether a and b are both not 0 (bool). */
export function logicalAnd<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("logicalAnd", "bool", a, b);
}

/** Elementwise whether a or b is not 0 (bool). */
export function logicalOr<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  return apply("logicalOr", "bool", a, b);
}

/** Elementwise and of the bits; floats are refused. */
export function bitwiseAnd<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("bitwiseAnd", "bits", a, b);
}

/** Elementwise or of the bits; floats are refused. */
export function bitwiseOr<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("bitwiseOr", "bits", a, b);
}

/** Elementwise exclusive or of the bits; floats are refused. */
export function bitwiseXor<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("bitwiseXor", "bits", a, b);
}

/** Elementwise a shifted left by b bits; floats are refused. */
export function leftShift<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("leftShift", "shift", a, b);
}

/** Elementwise a shifted right by b bits; floats are refused. */
export function rightShift<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return apply("rightShift", "shift", a, b);
}

/** Elementwise whether exactly one of a and b is not 0 (bool). */
export function logicalXor<A extends TensorLike, B extends TensorLike>(a: A, b: B): Comparison<A, B> {
  const isZero = (value: TensorLike): Tensor => apply("logicalNot", "bool", value);
  return scoped("logicalXor", (): AnyTensor => notEqual(isZero(a), isZero(b)));
}

/** Quotient and remainder: [floorDivide(a, b), remainder(a, b)]. As in MLX neither has a derivative; that of remainder() has. */
export function divmod<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
): [Arithmetic<A, B>, Arithmetic<A, B>] {
  const constant = (value: Tensor): Tensor => {
    const node = nodeOf(value);
    return make("stopGradient", [node], node.shape, node.dtype, {});
  };
  return scoped("divmod", () => [constant(floorDivide(a, b)), constant(remainder(a, b))]);
}

/**
 * Elementwise x where the condition is true (not 0), y elsewhere. All three broadcast.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const a = mx.array([1, -2, 3]);
 * mx.where(mx.greater(a, 0), a, 0).tolist(); // [1, 0, 3]
 * ```
 */
export function where<C extends TensorLike, X extends TensorLike, Y extends TensorLike>(
  condition: C,
  x: X,
  y: Y,
): Tensor<Promoted<X, Y>, Larger<RankOf<C>, Larger<RankOf<X>, RankOf<Y>>>> {
  const test = castNode(toNode("where", condition), dt.bool);
  const [a, b] = toOperands("where", [x, y]);
  return make("elementwise", [test, a, b], broadcastOf("where", [test, a, b]), a.dtype, { fn: "select" });
}

/** Elementwise a limited to aMin…aMax; null leaves one side open. */
export function clip<A extends TensorLike, L extends TensorLike | null, H extends TensorLike | null>(
  a: A,
  aMin: L,
  aMax: H,
): Clipped<A, L, H> {
  if (aMin === null && aMax === null) throw new ValueError("clip() expected aMin or aMax: found null for both");
  return scoped("clip", () => {
    const low = aMin === null ? wrap(toNode("clip", a)) : maximum(a, aMin);
    return (aMax === null ? low : minimum(low, aMax)) as never;
  });
}
