/**
 * Norms and the cross product of `mlx.linalg`, composed of reductions, elementwise functions and singular values.
 *
 * @module
 */

import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape } from "../../graph/shape.ts";
import { multiply, notEqual, power, subtract } from "../ops/binary.ts";
import { type TensorLike, toOperands } from "../tensor/convert.ts";
import { zerosLike } from "../ops/creation.ts";
import { toFloat } from "../ops/elementwise.ts";
import { concatenate, split } from "../ops/join.ts";
import { svd } from "./factors.ts";
import { axisOf, reshape, transpose } from "../ops/movement.ts";
import { max, min, sum } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Axis, type Tensor, wrap } from "../tensor/tensor.ts";
import { abs, sqrt, square } from "../ops/unary.ts";
import type { Arithmetic } from "../tensor/results.ts";
import type { FloatOf, NameOf, RankOf, RealOf, Reduced } from "../tensor/types.ts";

/**
 * Kinds of norms. For a vector: p of its p-norm, infinities and 0 included. For a matrix: 1, 2, the infinities and their negatives. "fro"
 * is Frobenius' norm, "nuc" the nuclear norm, which is the sum of the singular values.
 */
export type NormOrder = number | "fro" | "nuc" | null;

/**
 * Norm of vectors along one axis, or of matrices along two. Without `ord` the root of the sum of squares, over any axes;
 * without `axis` over the whole array. Of complex numbers it is float32. 2, -2 and "nuc" of a matrix are of its singular values, which take float32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.norm([3, 4]).item(); // 5
 * mx.linalg.norm([[1, -2], [3, 4]], 1).item(); // 6, the largest sum of a column
 * ```
 */
export function norm<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  ord: NormOrder = null,
  axis: X = null as X,
  keepdims: K = false as K,
): Tensor<RealOf<FloatOf<NameOf<A>>>, Reduced<RankOf<A>, X, K>> {
  return scoped("norm", (): AnyTensor => {
    const given = toFloat("norm", a);
    // Norms of complex numbers are those of their magnitudes, except norms of singular values.
    const x = given.dtype.kind === "complex" ? abs(given) : given;
    if (ord !== null && typeof ord !== "number" && typeof ord !== "string") {
      throw new ValueError(`norm() expected ord to be a number, "fro", "nuc" or null: found ${quoted(ord)}`);
    }
    if (ord === null) return sqrt(sum(square(x), axis, keepdims));
    const axes = axis === null ? x.shape.map((_, i) => i) : [axis].flat().map((i) => axisOf("norm", i, x.shape));
    if (axes.length === 1 && typeof ord === "number") return vectorNorm(x, ord, axes[0], keepdims);
    if (axes.length === 2 && axes[0] !== axes[1]) return matrixNorm(given, x, ord, axes[0], axes[1], keepdims);
    throw new ValueError(
      `norm() with ord ${ord} is over ${
        typeof ord === "number" ? "one axis or " : ""
      }two axes: found ${axes.length} of ${formatShape(x.shape)}`,
    );
  });
}

function vectorNorm(x: Tensor, ord: number, axis: number, keepdims: boolean): Tensor {
  if (ord === Infinity) return max(abs(x), axis, keepdims);
  if (ord === -Infinity) return min(abs(x), axis, keepdims);
  if (ord === 0) return sum(notEqual(x, 0).astype(x.dtype), axis, keepdims);
  if (ord === 1) return sum(abs(x), axis, keepdims);
  if (ord === 2) return sqrt(sum(square(x), axis, keepdims));
  return power(sum(power(abs(x), ord), axis, keepdims), 1 / ord);
}

/** `x` are the elements or, of complex ones, their magnitudes. */
function matrixNorm(
  given: Tensor,
  x: Tensor,
  ord: number | "fro" | "nuc",
  row: number,
  column: number,
  keepdims: boolean,
): Tensor {
  if (ord === "fro") return sqrt(sum(square(x), [row, column], keepdims));
  if (ord === "nuc" || Math.abs(ord) === 2) return spectralNorm(given, ord, row, column, keepdims);
  const [inside, outside] = Math.abs(ord) === 1 ? [row, column] : [column, row];
  const extreme = ord > 0 ? max : min;
  if (Math.abs(ord) !== 1 && Math.abs(ord) !== Infinity) {
    throw new ValueError(`norm() of a matrix has ord 1, -1, 2, -2, Infinity, -Infinity, "fro" or "nuc": found ${ord}`);
  }
  const most = extreme(sum(abs(x), inside, true), outside, true);
  return keepdims ? most : most.squeeze([row, column]);
}

function spectralNorm(x: Tensor, ord: number | "nuc", row: number, column: number, keepdims: boolean): Tensor {
  const rest = x.shape.map((_, i) => i).filter((i) => i !== row && i !== column);
  const values = svd(transpose(x, [...rest, row, column]), false);
  const found: Tensor = ord === "nuc" ? sum(values, -1) : (ord > 0 ? max : min)(values, -1);
  return keepdims ? reshape(found, x.shape.map((d, i) => rest.includes(i) ? d : 1)) : found;
}

/**
 * Cross product of three-dimensional vectors along an axis; if that has size 2, the third component is 0. Other axes broadcast.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.cross([1, 0, 0], [0, 1, 0]).tolist(); // [0, 0, 1]
 * ```
 */
export function cross<A extends TensorLike, B extends TensorLike>(a: A, b: B, axis: number = -1): Arithmetic<A, B> {
  return scoped("cross", (): AnyTensor => {
    const [x, y] = toOperands("cross", [a, b]).map((node) => components(wrap(node), axis));
    const minor = (i: number, j: number): Tensor => subtract(multiply(x[i], y[j]), multiply(x[j], y[i]));
    return concatenate([minor(1, 2), minor(2, 0), minor(0, 1)], axis);
  });
}

/** The three components along an axis, which stays with size 1. */
function components(x: Tensor, axis: number): Tensor[] {
  const size = x.shape[axisOf("cross", axis, x.shape)];
  if (size !== 2 && size !== 3) {
    throw new ShapeError(`cross() expected axis ${axis} of ${formatShape(x.shape)} to have size 2 or 3`);
  }
  const parts = split(x, size, axis);
  return size === 3 ? parts : [...parts, zerosLike(parts[0])];
}
