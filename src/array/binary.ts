/**
 * Elementwise functions of two and three arrays, which broadcast. Dtypes meet as in MLX; JavaScript numbers are weak.
 *
 * @module
 */

import { castNode, type TensorLike, toNode, toOperands } from "./convert.ts";
import { apply, broadcastOf } from "./elementwise.ts";
import { scoped } from "./scope.ts";
import { make, type Tensor, wrap } from "./tensor.ts";
import * as dt from "../graph/dtype.ts";

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
export function add(a: TensorLike, b: TensorLike): Tensor {
  return apply("add", "same", a, b);
}

/** Elementwise a - b. */
export function subtract(a: TensorLike, b: TensorLike): Tensor {
  return apply("subtract", "same", a, b);
}

/** Elementwise a * b. */
export function multiply(a: TensorLike, b: TensorLike): Tensor {
  return apply("multiply", "same", a, b);
}

/** Elementwise a / b; integers give float32. */
export function divide(a: TensorLike, b: TensorLike): Tensor {
  return apply("divide", "float", a, b);
}

/** Elementwise remainder of a / b with the sign of b. */
export function remainder(a: TensorLike, b: TensorLike): Tensor {
  return apply("remainder", "same", a, b);
}

/** Elementwise a / b rounded down; of integers a divisor of 0 gives 0. */
export function floorDivide(a: TensorLike, b: TensorLike): Tensor {
  return apply("floorDivide", "same", a, b);
}

/** Elementwise a raised to b. Integers with a negative exponent give 0, as in MLX. */
export function power(a: TensorLike, b: TensorLike): Tensor {
  return apply("power", "same", a, b);
}

/** Elementwise larger of a and b; NaN wins. */
export function maximum(a: TensorLike, b: TensorLike): Tensor {
  return apply("maximum", "same", a, b);
}

/** Elementwise smaller of a and b; NaN wins. */
export function minimum(a: TensorLike, b: TensorLike): Tensor {
  return apply("minimum", "same", a, b);
}

/** Elementwise log(exp(a) + exp(b)) without overflow; integers give float32. */
export function logaddexp(a: TensorLike, b: TensorLike): Tensor {
  return apply("logaddexp", "float", a, b);
}

/** Elementwise angle of the point (b, a); integers give float32. */
export function arctan2(a: TensorLike, b: TensorLike): Tensor {
  return apply("arctan2", "float", a, b);
}

/** Elementwise a == b (bool). */
export function equal(a: TensorLike, b: TensorLike): Tensor {
  return apply("equal", "bool", a, b);
}

/** Elementwise a != b (bool). */
export function notEqual(a: TensorLike, b: TensorLike): Tensor {
  return apply("notEqual", "bool", a, b);
}

/** Elementwise a < b (bool). */
export function less(a: TensorLike, b: TensorLike): Tensor {
  return apply("less", "bool", a, b);
}

/** Elementwise a <= b (bool). */
export function lessEqual(a: TensorLike, b: TensorLike): Tensor {
  return apply("lessEqual", "bool", a, b);
}

/** Elementwise a > b (bool). */
export function greater(a: TensorLike, b: TensorLike): Tensor {
  return apply("greater", "bool", a, b);
}

/** Elementwise a >= b (bool). */
export function greaterEqual(a: TensorLike, b: TensorLike): Tensor {
  return apply("greaterEqual", "bool", a, b);
}

/** Elementwise whether a and b are both not 0 (bool). */
export function logicalAnd(a: TensorLike, b: TensorLike): Tensor {
  return apply("logicalAnd", "bool", a, b);
}

/** Elementwise whether a or b is not 0 (bool). */
export function logicalOr(a: TensorLike, b: TensorLike): Tensor {
  return apply("logicalOr", "bool", a, b);
}

/** Elementwise and of the bits; floats are refused. */
export function bitwiseAnd(a: TensorLike, b: TensorLike): Tensor {
  return apply("bitwiseAnd", "bits", a, b);
}

/** Elementwise or of the bits; floats are refused. */
export function bitwiseOr(a: TensorLike, b: TensorLike): Tensor {
  return apply("bitwiseOr", "bits", a, b);
}

/** Elementwise exclusive or of the bits; floats are refused. */
export function bitwiseXor(a: TensorLike, b: TensorLike): Tensor {
  return apply("bitwiseXor", "bits", a, b);
}

/** Elementwise a shifted left by b bits; floats are refused. */
export function leftShift(a: TensorLike, b: TensorLike): Tensor {
  return apply("leftShift", "shift", a, b);
}

/** Elementwise a shifted right by b bits; floats are refused. */
export function rightShift(a: TensorLike, b: TensorLike): Tensor {
  return apply("rightShift", "shift", a, b);
}

/** Elementwise whether exactly one of a and b is not 0 (bool). */
export function logicalXor(a: TensorLike, b: TensorLike): Tensor {
  const isZero = (value: TensorLike): Tensor => apply("logicalNot", "bool", value);
  return scoped(() => notEqual(isZero(a), isZero(b)));
}

/** Quotient and remainder: [floorDivide(a, b), remainder(a, b)]. */
export function divmod(a: TensorLike, b: TensorLike): [Tensor, Tensor] {
  return [floorDivide(a, b), remainder(a, b)];
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
export function where(condition: TensorLike, x: TensorLike, y: TensorLike): Tensor {
  const test = castNode(toNode("where", condition), dt.bool);
  const [a, b] = toOperands("where", [x, y]);
  return make("elementwise", [test, a, b], broadcastOf("where", [test, a, b]), a.dtype, { fn: "select" });
}

/** Elementwise a limited to aMin…aMax; null leaves a side open. */
export function clip(a: TensorLike, aMin: TensorLike | null, aMax: TensorLike | null): Tensor {
  return scoped(() => {
    const low = aMin === null ? wrap(toNode("clip", a)) : maximum(a, aMin);
    return aMax === null ? low : minimum(low, aMax);
  });
}
