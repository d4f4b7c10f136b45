/**
 * Products: of matrices, and contractions that are written in terms of them.
 *
 * @module
 */

import { conjugate } from "../ops/complex.ts";
import {
  checkDtype,
  complex64,
  type Dtype,
  float32,
  isDtype,
  isWide,
  promote,
  promoteScalar,
} from "../../graph/dtype.ts";
import { DtypeError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { add, multiply } from "../ops/binary.ts";
import {
  castNode,
  fullNode,
  type TensorLike,
  toInteger,
  toList,
  toNode,
  toNumber,
  toOperands,
} from "../tensor/convert.ts";
import {
  astype,
  axisOf,
  broadcastNode,
  diagonal,
  expandNode,
  flatten,
  reshape,
  reshapeNode,
  transpose,
} from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Arithmetic, Product } from "../tensor/results.ts";
import type { Down, Larger, ProductRank, Promoted, RankOf } from "../tensor/types.ts";

function needFloat(op: string, dtype: Dtype): void {
  checkDtype(dtype, op);
  if (dtype.kind !== "float" && dtype.kind !== "complex") {
    throw new DtypeError(`${op}() takes float arrays only: found ${dtype.name}, use astype(mx.float32)`);
  }
}

/**
 * Matrix product over the last two axes; leading axes broadcast. A vector on the left is a row, on the right a column, and
 * that axis goes. Float dtypes only.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.matmul([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist(); // [[2, 1], [4, 3]]
 * ```
 */
export function matmul<A extends TensorLike, B extends TensorLike>(a: A, b: B): Product<A, B> {
  const operands = [toNode("matmul", a), toNode("matmul", b)];
  const dtype = promote(operands[0].dtype, operands[1].dtype);
  needFloat("matmul", dtype);
  return wrap(productNode("matmul", operands, dtype, dtype));
}

/** The product of two nodes, integers among them cast to the float type `meet` first; its elements are of `dtype`. */
function productNode(op: string, operands: readonly Node[], meet: Dtype, dtype: Dtype): Node {
  // Kernels read float operands of different dtypes as they are: a cast would copy a whole weight matrix.
  const kept = (node: Node): boolean => node.dtype.kind === "float" && meet.kind === "float";
  const [x, y] = operands.map((node) => kept(node) ? node : castNode(node, meet));
  if (x.shape.length === 0 || y.shape.length === 0) {
    throw new ShapeError(`${op}() takes no 0-dimensional arrays: use multiply()`);
  }
  const left = x.shape.length === 1 ? expandNode(x, [0]) : x;
  const right = y.shape.length === 1 ? expandNode(y, [1]) : y;
  const [m, k] = left.shape.slice(-2);
  const [k2, n] = right.shape.slice(-2);
  const lead = broadcastShapes(left.shape.slice(0, -2), right.shape.slice(0, -2));
  if (k !== k2 || !lead) {
    throw new ShapeError(
      `${op}() cannot multiply ${formatShape(x.shape)} by ${formatShape(y.shape)}: inner or batch sizes differ`,
    );
  }
  const rank = lead.length + 2;
  const wide = (node: Node): Node => expandNode(node, Array.from({ length: rank - node.shape.length }, (_, i) => i));
  const product = dtype.kind === "complex"
    ? complexProduct(wide(left), wide(right), [...lead, m, n])
    : makeNode("matmul", [wide(left), wide(right)], [...lead, m, n], dtype, {});
  const shape = [...lead, ...(x.shape.length === 1 ? [] : [m]), ...(y.shape.length === 1 ? [] : [n])];
  return reshapeNode(product, shape);
}

/** The product of complex matrices, from four of their parts. */
function complexProduct(a: Node, b: Node, shape: Shape): Node {
  const part = (x: Node, fn: string): Node => makeNode("elementwise", [x], x.shape, float32, { fn });
  const [[ar, ai], [br, bi]] = [a, b].map((x) => ["real", "imag"].map((fn) => part(x, fn)));
  const product = (x: Node, y: Node): Node => makeNode("matmul", [x, y], shape, float32, {});
  const real = makeNode("elementwise", [product(ar, br), product(ai, bi)], shape, float32, { fn: "subtract" });
  const imaginary = makeNode("elementwise", [product(ar, bi), product(ai, br)], shape, float32, { fn: "add" });
  const pairs = [real, imaginary].map((x) => reshapeNode(x, [...shape, 1]));
  const joined = makeNode("concatenate", pairs, [...shape, 2], float32, { axis: shape.length });
  return reshapeNode(makeNode("bitcast", [joined], [...shape, 1], complex64, {}), shape);
}

/**
 * beta * c + alpha * (a @ b), added up in float32, or in complex64, and rounded once. c broadcasts to the shape of the product. A matrix that
 * is multiplied by 0 is not read.
 */
export function addmm<C extends TensorLike, A extends TensorLike, B extends TensorLike>(
  c: C,
  a: A,
  b: B,
  alpha: number = 1,
  beta: number = 1,
): Tensor<Promoted<Product<A, B>, C>, ProductRank<RankOf<A>, RankOf<B>>> {
  for (const [name, value] of [["alpha", alpha], ["beta", beta]] as const) toNumber("addmm", name, value);
  const operands = [toNode("addmm", a), toNode("addmm", b)];
  const both = promote(operands[0].dtype, operands[1].dtype);
  const weak = typeof c === "number" || typeof c === "boolean";
  const dtype = weak ? promoteScalar(both, c) : promote(both, toNode("addmm", c).dtype);
  needFloat("addmm", dtype);
  const base = castNode(toNode("addmm", c, weak ? dtype : undefined), dtype);
  const accumulator = isWide(dtype) ? dtype : float32;
  const product = productNode("addmm", operands, dtype, accumulator);
  const common = broadcastShapes(base.shape, product.shape);
  if (!common || !sameShape(common, product.shape)) {
    throw new ShapeError(
      `addmm() cannot broadcast c of shape ${formatShape(base.shape)} to the product's shape ${
        formatShape(product.shape)
      }`,
    );
  }
  return scoped("addmm", (): AnyTensor => {
    const wide = wrap(castNode(broadcastNode(base, product.shape), accumulator));
    const times = (x: AnyTensor, factor: number): AnyTensor => factor === 1 ? x : multiply(x, factor);
    const [left, right] = [times(wide, beta), times(wrap(product), alpha)];
    const sum = beta === 0 ? right : alpha === 0 ? left : add(left, right);
    return astype(alpha === 0 && beta === 0 ? wrap(fullNode(0, product.shape, dtype)) : sum, dtype);
  });
}

/** Sum of products over the last axes of both arrays; with a 0-dimensional array the product. */
export function inner<A extends TensorLike, B extends TensorLike>(a: A, b: B): Tensor<Promoted<A, B>> {
  const [x, y] = toOperands("inner", [a, b]);
  if (x.shape.length === 0 || y.shape.length === 0) return multiply(wrap(x), wrap(y)) as AnyTensor;
  return scoped("inner", (): AnyTensor => tensordot(wrap(x), wrap(y), [[-1], [-1]]) as AnyTensor) as AnyTensor;
}

/** All products of the elements of two flattened arrays, as a matrix. */
export function outer<A extends TensorLike, B extends TensorLike>(a: A, b: B): Tensor<Promoted<A, B>, 2> {
  return scoped("outer", (): AnyTensor => {
    const [x, y] = toOperands("outer", [a, b]).map((n) => flatten(wrap(n)));
    return multiply(reshape(x, [-1, 1]), y);
  });
}

/**
 * Sum of products along an axis, which has one size in both arrays; the other axes broadcast. An axis that counts from the end
 * must be the same axis of both. Complex numbers of `a` are conjugated.
 */
export function vecdot<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
  axis: number = -1,
): Tensor<Promoted<A, B>, Down<Larger<RankOf<A>, RankOf<B>>>> {
  const [x, y] = toOperands("vecdot", [a, b]);
  const shapes = `${formatShape(x.shape)} and ${formatShape(y.shape)}`;
  if (x.shape.length === 0 || y.shape.length === 0) {
    throw new ShapeError(`vecdot() takes no 0-dimensional arrays: found shapes ${shapes}`);
  }
  const at = axisOf("vecdot", axis, x.shape);
  if (axisOf("vecdot", axis, y.shape) !== at) {
    throw new ShapeError(`vecdot() axis ${axis} is not the same axis of both arrays: found shapes ${shapes}`);
  }
  if (x.shape[at] !== y.shape[at]) {
    throw new ShapeError(`vecdot() expected one size along axis ${axis}: found shapes ${shapes}`);
  }
  return scoped(
    "vecdot",
    (): AnyTensor => sum(multiply(x.dtype.kind === "complex" ? conjugate(wrap(x)) : wrap(x), wrap(y)), at),
  );
}

/**
 * Sum of a diagonal of the matrices of two axes. The default dtype is that of {@link sum}; a dtype may also stand in place of `offset`
 * or the axes.
 */
export function trace(
  a: TensorLike,
  offset: number | Dtype = 0,
  axis1: number | Dtype = 0,
  axis2: number | Dtype = 1,
  dtype?: Dtype | null,
): Tensor {
  if (isDtype(offset)) return trace(a, 0, 0, 1, offset);
  if (isDtype(axis1)) return trace(a, offset, 0, 1, axis1);
  if (isDtype(axis2)) return trace(a, offset, axis1, 1, axis2);
  return scoped("trace", (): AnyTensor => {
    const entries = diagonal(a, offset, axis1, axis2);
    return sum(dtype ? astype(entries, dtype) : entries, -1);
  });
}

/** Kronecker product: every element of `a` times the whole of `b`. Arrays without elements are refused. */
export function kron<A extends TensorLike, B extends TensorLike>(a: A, b: B): Arithmetic<A, B> {
  return scoped("kron", (): AnyTensor => {
    const [x, y] = toOperands("kron", [a, b]);
    if (sizeOf(x.shape) === 0 || sizeOf(y.shape) === 0) {
      throw new ShapeError(
        `kron() takes no arrays without elements: found shapes ${formatShape(x.shape)} and ${formatShape(y.shape)}`,
      );
    }
    const rank = Math.max(x.shape.length, y.shape.length);
    const wide = (shape: Shape): number[] => [...new Array<number>(rank - shape.length).fill(1), ...shape];
    const [xs, ys] = [wide(x.shape), wide(y.shape)];
    const left = wrap(reshapeNode(x, xs.flatMap((d) => [d, 1])));
    const right = wrap(reshapeNode(y, ys.flatMap((d) => [1, d])));
    return reshape(multiply(left, right), xs.map((d, i) => d * ys[i]));
  });
}

/**
 * Contraction of the last `axes` axes of `a` with the first of `b`, or of the listed axes [axes of a, axes of b].
 */
export function tensordot(
  a: TensorLike,
  b: TensorLike,
  axes: number | readonly [readonly number[], readonly number[]] = 2,
): Tensor {
  const [x, y] = toOperands("tensordot", [a, b]);
  const most = Math.min(x.shape.length, y.shape.length);
  if (typeof axes === "number" && !(toInteger("tensordot", "axes", axes) >= 0 && axes <= most)) {
    throw new ValueError(`tensordot() expected axes from 0 to ${most}: found ${quoted(axes)}`);
  }
  const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
  const lists = typeof axes === "number"
    ? [range(x.shape.length - axes, axes), range(0, axes)]
    : toList("tensordot", "two lists of axes, or a number", axes as readonly (readonly number[])[]);
  if (lists.length !== 2) throw new ValueError("tensordot() expected a list of axes for each array");
  const left = toList("tensordot", "axes", lists[0]).map((i) => axisOf("tensordot", i, x.shape));
  const right = toList("tensordot", "axes", lists[1]).map((i) => axisOf("tensordot", i, y.shape));
  if (left.length !== right.length || left.some((i, n) => x.shape[i] !== y.shape[right[n]])) {
    throw new ShapeError(
      `tensordot() cannot contract axes (${left.join(", ")}) of ${formatShape(x.shape)} with (${right.join(", ")}) of ${
        formatShape(y.shape)
      }`,
    );
  }
  const rest = (shape: Shape, used: readonly number[]): number[] =>
    shape.map((_, i) => i).filter((i) => !used.includes(i));
  const [freeX, freeY] = [rest(x.shape, left), rest(y.shape, right)];
  const k = sizeOf(left.map((i) => x.shape[i]));
  const [rows, cols] = [freeX.map((i) => x.shape[i]), freeY.map((i) => y.shape[i])];
  return scoped("tensordot", (): AnyTensor => {
    const p = reshape(transpose(wrap(x), [...freeX, ...left]), [sizeOf(rows), k]);
    const q = reshape(transpose(wrap(y), [...right, ...freeY]), [k, sizeOf(cols)]);
    return reshape(matmul(p, q), [...rows, ...cols]);
  });
}
