/**
 * Systems of equations, inverses and determinants, of factorizations.
 *
 * @module
 */

import { float32 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import { checkOptions } from "../../graph/options.ts";
import { broadcastShapes, formatShape } from "../../graph/shape.ts";
import { equal, greater, multiply, notEqual, where } from "../ops/binary.ts";
import { castNode, type TensorLike, toNode, toOperands } from "../tensor/convert.ts";
import { arange, zeros } from "../ops/creation.ts";
import { toFloat } from "../ops/elementwise.ts";
import { checkFloat, checkMatrix, factorize, factorsOf, matrixNode } from "./factorize.ts";
import { svd } from "./factors.ts";
import { broadcastNode, diagonal, expandDims, reshapeNode, swapaxes } from "../ops/movement.ts";
import { matmul } from "./products.ts";
import { max, prod, sum } from "../ops/reduce.ts";
import type { Floating } from "../tensor/results.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Down, FloatOf, NameOf, Promoted, RankOf } from "../tensor/types.ts";
import { abs, log, reciprocal, sign } from "../ops/unary.ts";

/** A number for each matrix of a batch. */
type Determinant<A> = Tensor<FloatOf<NameOf<A>>, Down<Down<RankOf<A>>>>;
/** The type of a solution. */
type Solution<A, B> = Tensor<FloatOf<Promoted<A, B>>>;

/**
 * Inverses of square matrices (…, n, n); NaN if one is singular.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.inv([[2, 0], [0, 4]]).tolist(); // [[0.5, 0], [0, 0.25]]
 * ```
 */
export function inv<A extends TensorLike>(a: A): Floating<A> {
  const node = matrixNode("inv", a, { square: true });
  return scoped("inv", () => factorize({ fn: "solve" }, [node], [node.shape.slice(-2)])[0]);
}

/** Inverses of lower triangular matrices, or of `upper` ones; the other triangle is not read, and 0 in the result. */
export function triInv<A extends TensorLike>(a: A, upper: boolean = false): Floating<A> {
  const node = matrixNode("triInv", a, { square: true });
  return scoped("triInv", () => factorize({ fn: "solve_triangular", flag: upper }, [node], [node.shape.slice(-2)])[0]);
}

/** Inverses of positive matrices from their factors by {@link cholesky}: L, or U where `upper`. */
export function choleskyInv<A extends TensorLike>(a: A, upper: boolean = false): Floating<A> {
  matrixNode("choleskyInv", a, { square: true });
  return scoped("choleskyInv", (): AnyTensor => {
    const factor = triInv(a, upper);
    const across = swapaxes(factor, -1, -2);
    return upper ? matmul(factor, across) : matmul(across, factor);
  });
}

/** Singular values below so many times the largest, the larger size and the rounding of the dtype count as 0. */
const RANK_MARGIN = 10;

/**
 * Moore-Penrose pseudoinverses (…, n, m), from singular values. Those below 10 · max(m, n) · ε times the largest count as 0.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.pinv([[1], [1]]).tolist(); // [[0.5, 0.5]]
 * ```
 */
export function pinv<A extends TensorLike>(a: A): Floating<A> {
  const node = matrixNode("pinv", a);
  const [m, n] = node.shape.slice(-2);
  const k = Math.min(m, n);
  return scoped("pinv", (): AnyTensor => {
    if (node.shape.includes(0)) return zeros([...node.shape.slice(0, -2), n, m], node.dtype);
    const [u, s, vt] = svd(wrap(node)) as readonly AnyTensor[];
    const epsilon = node.dtype === float32 ? 2 ** -23 : 2 ** -52;
    const least = multiply(max(s, -1, true), RANK_MARGIN * Math.max(m, n) * epsilon);
    const inverse = where(greater(s, least), reciprocal(s), 0);
    const first = (x: AnyTensor, axis: number): AnyTensor => x.split([k], axis)[0];
    const v = swapaxes(first(vt, -2), -1, -2);
    return matmul(multiply(v, expandDims(inverse, -2)), swapaxes(first(u, -1), -1, -2));
  });
}

function system(op: string, a: TensorLike, b: TensorLike, fn: "solve" | "solve_triangular", flag: boolean): AnyTensor {
  checkMatrix(op, toNode(op, a).shape, true);
  const [left, right] = toOperands(op, [a, b]);
  checkFloat(op, left.dtype);
  const n = left.shape[left.shape.length - 1];
  const vector = right.shape.length === 1;
  const columns = vector ? reshapeNode(right, [...right.shape, 1]) : right;
  if (right.shape.length === 0 || columns.shape[columns.shape.length - 2] !== n) {
    throw new ShapeError(
      `${op}() expected a right side of ${n} rows for ${formatShape(left.shape)}: found ${formatShape(right.shape)}`,
    );
  }
  const batch = broadcastShapes(left.shape.slice(0, -2), columns.shape.slice(0, -2));
  if (!batch) {
    throw new ShapeError(`${op}() cannot broadcast ${formatShape(left.shape)} and ${formatShape(right.shape)}`);
  }
  const cols = columns.shape[columns.shape.length - 1];
  const inputs = [broadcastNode(left, [...batch, n, n]), broadcastNode(columns, [...batch, n, cols])];
  return factorize({ fn, flag }, inputs, [vector ? [n] : [n, cols]])[0];
}

/**
 * x with a x = b for square matrices a (…, n, n) and right sides b (n,) or (…, n, k); batches broadcast. NaN if a matrix is
 * singular.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.solve([[2, 0], [0, 4]], [2, 2]).tolist(); // [1, 0.5]
 * ```
 */
export function solve<A extends TensorLike, B extends TensorLike>(a: A, b: B): Solution<A, B> {
  return scoped("solve", () => system("solve", a, b, "solve", false));
}

/** Options of {@link solveTriangular}. */
export interface SolveTriangularOptions {
  /** Whether the matrices are upper triangular. Default false. */
  readonly upper?: boolean;
}

const SOLVE_TRIANGULAR_OPTIONS = { upper: true } as const satisfies Record<keyof SolveTriangularOptions, true>;

/** x with a x = b for lower triangular matrices a, or upper ones: see {@link solve}. The other triangle is not read. */
export function solveTriangular<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
  options: SolveTriangularOptions | boolean = {},
): Solution<A, B> {
  if (typeof options === "object") checkOptions("solveTriangular", options, SOLVE_TRIANGULAR_OPTIONS);
  const upper = typeof options === "boolean" ? options : options.upper ?? false;
  return scoped("solveTriangular", () => system("solveTriangular", a, b, "solve_triangular", upper));
}

/** The diagonal of U, and the sign that the exchanges of rows give, of matrices in float32 at least. */
function diagonalOf(op: string, a: TensorLike): { diagonal: AnyTensor; parity: AnyTensor } {
  const given = toNode(op, a);
  checkMatrix(op, given.shape, true);
  if (!["int", "uint", "float", "bool"].includes(given.dtype.kind)) {
    throw new DtypeError(`${op}() takes real numbers: found ${given.dtype.name}`);
  }
  const float = nodeOf(toFloat(op, wrap(given)));
  const node = float.dtype.bytes < float32.bytes ? castNode(float, float32) : float;
  const [factors, pivots] = factorsOf(node);
  const rows = arange(node.shape[node.shape.length - 1]).astype(node.dtype);
  const exchanges = where(notEqual(pivots, rows), -1, 1).astype(node.dtype);
  return { diagonal: diagonal(factors, 0, -2, -1), parity: prod(exchanges, -1) };
}

/**
 * Determinants of square matrices; 1 of those without rows. Integers give float32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.det([[1, 2], [3, 4]]).item(); // -2
 * ```
 */
export function det<A extends TensorLike>(a: A): Determinant<A> {
  return scoped("det", (): AnyTensor => {
    const { diagonal, parity } = diagonalOf("det", a);
    return multiply(prod(diagonal, -1), parity).astype(nodeOf(toFloat("det", a)).dtype);
  });
}

/**
 * Signs and logarithms of the magnitudes of determinants, which do not overflow: 0 and -Infinity of singular matrices.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [sign, logabsdet] = mx.linalg.slogdet([[0, 1], [1, 0]]);
 * sign.item(); // -1
 * logabsdet.item(); // 0
 * ```
 */
export function slogdet<A extends TensorLike>(a: A): [Determinant<A>, Determinant<A>] {
  return scoped("slogdet", (): [AnyTensor, AnyTensor] => {
    const { dtype } = nodeOf(toFloat("slogdet", a));
    const { diagonal, parity } = diagonalOf("slogdet", a);
    const found = multiply(prod(sign(diagonal), -1), parity);
    const size = where(equal(found, 0), -Infinity, sum(log(abs(diagonal)), -1));
    return [found.astype(dtype), size.astype(dtype)];
  });
}
