/**
 * Eigenvalues and eigenvectors. The last two axes are matrices, those before them a batch.
 *
 * A matrix with NaN or an infinity gives NaN in all results.
 *
 * @module
 */

import { complex64 } from "../../graph/dtype.ts";
import { quoted, ValueError } from "../../graph/error.ts";
import { real } from "../ops/complex.ts";
import type { TensorLike } from "../tensor/convert.ts";
import { factorize, matrixNode, sizes } from "./factorize.ts";
import type { Values } from "./factors.ts";
import type { Floating } from "../tensor/results.ts";
import { scoped } from "../tensor/scope.ts";
import type { AnyTensor, Tensor } from "../tensor/tensor.ts";
import type { Down, RankOf } from "../tensor/types.ts";

/** Which triangle of symmetric matrices is read. */
export type Triangle = "L" | "U" | "l" | "u";

const TRIANGLES: readonly Triangle[] = ["L", "U", "l", "u"];

function symmetric(op: string, a: TensorLike, triangle: Triangle, flag: boolean): AnyTensor[] {
  const node = matrixNode(op, a, { square: true, complex: true });
  if (!TRIANGLES.includes(triangle)) {
    throw new ValueError(`${op}() expected the triangle "L" or "U": found ${quoted(triangle)}`);
  }
  const [m, n] = sizes(node);
  const upper = triangle.toUpperCase() === "U";
  return scoped((): AnyTensor[] => {
    const [values, ...vectors] = factorize({ fn: "eigh", flag, upper }, [node], flag ? [[n]] : [[n], [m, n]]);
    return [real(values), ...vectors];
  });
}

/**
 * Eigenvalues (…, n) of symmetric matrices, ascending, and eigenvectors (…, n, n) as columns of length 1; also of Hermitian matrices of
 * complex64, whose eigenvalues are float32. Only the triangle that is named is read. Throws a DtypeError for dtypes other than float32, float64
 * and complex64, a ShapeError for matrices that are not square.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [values, vectors] = mx.linalg.eigh([[2, 1], [1, 2]]);
 * values.tolist(); // [1, 3]
 * vectors.shape; // [2, 2]
 * ```
 */
export function eigh<A extends TensorLike>(a: A, UPLO: Triangle = "L"): [Values<A>, Floating<A>] {
  return symmetric("eigh", a, UPLO, false) as [AnyTensor, AnyTensor];
}

/** Eigenvalues of symmetric and Hermitian matrices, ascending: see {@link eigh}. */
export function eigvalsh<A extends TensorLike>(a: A, UPLO: Triangle = "L"): Values<A> {
  return symmetric("eigvalsh", a, UPLO, true)[0];
}

/** Complex numbers for each matrix of a batch. */
type Spectrum<A> = Tensor<"complex64", Down<RankOf<A>>>;

function general(op: string, a: TensorLike, flag: boolean): AnyTensor[] {
  const node = matrixNode(op, a, { square: true, complex: true });
  const [m, n] = sizes(node);
  return scoped(() => factorize({ fn: "eig", flag }, [node], flag ? [[n]] : [[n], [m, n]], complex64));
}

/**
 * Eigenvalues (…, n) and eigenvectors (…, n, n), as columns of length 1, of square matrices of float32, float64 or complex64; complex64
 * always. Non-real eigenvalues of real matrices come in conjugate pairs, the one above the real axis first. A matrix may have fewer than
 * n independent eigenvectors; some columns are then nearly parallel. Throws a DtypeError for other dtypes, a ShapeError for matrices that
 * are not square.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [values, vectors] = mx.linalg.eig([[0, -1], [1, 0]]);
 * mx.imag(values).tolist(); // [1, -1]
 * vectors.dtype === mx.complex64; // true
 * ```
 */
export function eig<A extends TensorLike>(a: A): [Spectrum<A>, Tensor<"complex64", RankOf<A>>] {
  return general("eig", a, false) as [AnyTensor, AnyTensor];
}

/** Eigenvalues of square matrices, complex64: see {@link eig}. */
export function eigvals<A extends TensorLike>(a: A): Spectrum<A> {
  return general("eigvals", a, true)[0];
}
