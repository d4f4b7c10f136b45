/**
 * Factorizations of matrices: LU, Cholesky, QR, singular values. The last two axes are matrices, those before
 * them a batch.
 *
 * A matrix with NaN or an infinity, or one that has no such factors, gives NaN in all of them.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { add } from "../ops/binary.ts";
import { real } from "../ops/complex.ts";
import type { TensorLike } from "../tensor/convert.ts";
import { eye, tril, triu } from "../ops/creation.ts";
import { factorize, factorsOf, matrixNode, sizes } from "./factorize.ts";
import { broadcastTo, sliceNode } from "../ops/movement.ts";
import type { Floating } from "../tensor/results.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Down, FloatOf, NameOf, RankOf, RealOf } from "../tensor/types.ts";

/** Real numbers for each matrix of a batch, such as its singular values. */
export type Values<A> = Tensor<RealOf<FloatOf<NameOf<A>>>, Down<RankOf<A>>>;
/** Whole numbers for each matrix of a batch. */
type Indices<A> = Tensor<"uint32", Down<RankOf<A>>>;

/**
 * Q with orthonormal columns (…, m, k) and the upper triangular R (…, k, n) with a = Q R; k is the smaller of m and n. Throws a
 * DtypeError or ShapeError if `a` is not made of matrices of float32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [q, r] = mx.linalg.qr([[2, 3], [1, 2]]);
 * mx.matmul(q, r).tolist(); // [[2, 3], [1, 2]]
 * ```
 */
export function qr<A extends TensorLike>(a: A): [Floating<A>, Floating<A>] {
  const node = matrixNode("qr", a);
  const [m, n, k] = sizes(node);
  return scoped("qr", () => factorize({ fn: "qr" }, [node], [[m, k], [k, n]])) as [AnyTensor, AnyTensor];
}

/**
 * Singular value decomposition a = U diag(S) Vt: U (…, m, m), S (…, k) from the largest, Vt (…, n, n), or S alone where `computeUv`
 * is false. Of a matrix that is not square, S belongs to the first columns of U and the first rows of Vt. Of complex64, S is float32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.svd([[3, 0], [0, -4]], false).tolist(); // [4, 3]
 * ```
 */
export function svd<A extends TensorLike>(a: A, computeUv?: true): [Floating<A>, Values<A>, Floating<A>];
/** The singular values alone, from the largest. */
export function svd<A extends TensorLike>(a: A, computeUv: false): Values<A>;
/** Both forms. */
export function svd(a: TensorLike, computeUv: boolean): AnyTensor | [AnyTensor, AnyTensor, AnyTensor];
export function svd(a: TensorLike, computeUv: boolean = true): AnyTensor | [AnyTensor, AnyTensor, AnyTensor] {
  const node = matrixNode("svd", a, { complex: true });
  const [m, n, k] = sizes(node);
  return scoped("svd", () => {
    if (!computeUv) return real(factorize({ fn: "svd", flag: true }, [node], [[k]])[0]) as AnyTensor;
    // Without rows or columns there is nothing to compute, and every basis serves.
    if (k === 0 && m + n > 0) {
      return [identities(node, m), real(factorize({ fn: "svd" }, [node], [[k]])[0]), identities(node, n)];
    }
    const [s, u, vt] = factorize({ fn: "svd" }, [node], [[k], [m, m], [n, n]]);
    return [u, real(s), vt];
  });
}

function identities(node: Node, n: number): AnyTensor {
  return broadcastTo(eye(n, n, 0, node.dtype), [...node.shape.slice(0, -2), n, n]);
}

/**
 * The lower triangular L (…, n, n) with a = L Lᵀ of symmetric positive matrices, or U with a = Uᵀ U where `upper`. Only that triangle
 * of `a` is read. Where `a` is semidefinite to its rounding, columns of zeros stand for the missing ones; others that are not positive
 * give NaN.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linalg.cholesky([[4, 2], [2, 5]]).tolist(); // [[2, 0], [1, 2]]
 * ```
 */
export function cholesky<A extends TensorLike>(a: A, upper: boolean = false): Floating<A> {
  const node = matrixNode("cholesky", a, { square: true });
  const [m, n] = sizes(node);
  return scoped("cholesky", () => factorize({ fn: "cholesky", flag: upper }, [node], [[m, n]])[0]);
}

/**
 * Both triangular factors in one matrix (…, m, n), and the pivots (uint32). The ones on the diagonal of L are left out. Row i was
 * exchanged with row pivots[i], one after the other.
 */
export function luFactor<A extends TensorLike>(a: A): [Floating<A>, Indices<A>] {
  const node = matrixNode("luFactor", a);
  return scoped("luFactor", (): [AnyTensor, AnyTensor] => {
    const [factors, pivots] = factorsOf(node);
    return [factors, pivots.astype(uint32)];
  });
}

/**
 * P, L (…, m, k) and U (…, k, n): `a` is the rows P (uint32) of L, times U. L is lower triangular with ones on its diagonal, U is upper
 * triangular.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [p, l, u] = mx.linalg.lu([[1, 2], [4, 2]]);
 * mx.matmul(mx.take(l, p, 0), u).tolist(); // [[1, 2], [4, 2]]
 * ```
 */
export function lu<A extends TensorLike>(a: A): [Indices<A>, Floating<A>, Floating<A>] {
  const node = matrixNode("lu", a);
  const [m, n, k] = sizes(node);
  return scoped("lu", (): [AnyTensor, AnyTensor, AnyTensor] => {
    const [factors, , order] = factorsOf(node);
    const part = (rows: number, cols: number): AnyTensor => {
      const shape = [...node.shape.slice(0, -2), rows, cols];
      return wrap(sliceNode(nodeOf(factors), shape.map(() => 0), shape.map(() => 1), shape));
    };
    const l = add(tril(part(m, k), -1), eye(m, k, 0, node.dtype));
    return [order.astype(uint32), l, triu(part(k, n))];
  });
}
