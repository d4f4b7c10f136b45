/**
 * Nodes of factorizations, and their results as separate arrays.
 *
 * @module
 */

import { complex64, type Dtype, float32, float64 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import { type Factorization, makeNode, type Node } from "../../graph/node.ts";
import { formatShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import { reshapeNode, sliceNode } from "../ops/movement.ts";
import { type AnyTensor, wrap } from "../tensor/tensor.ts";

/** Dtypes that factorizations take; those to eigenvalues and singular values take complex64 as well. */
const REALS: ReadonlySet<Dtype> = new Set<Dtype>([float32, float64]);

/** Refuses a dtype that has no factorization of its kind. */
export function checkFloat(op: string, dtype: Dtype, complex: boolean = false): void {
  if (REALS.has(dtype) || complex && dtype === complex64) return;
  throw new DtypeError(
    `${op}() expected an array of ${
      complex ? "float32, float64 or complex64" : "float32 or float64"
    }: found ${dtype.name}${dtype === complex64 ? "" : ", use astype(mx.float32)"}`,
  );
}

/** Requirements that {@link matrixNode} checks. */
export interface MatrixKind {
  readonly square?: boolean;
  readonly complex?: boolean;
}

/** The node of an array of matrices. Lists and numbers are float32. */
export function matrixNode(op: string, a: TensorLike, { square = false, complex = false }: MatrixKind = {}): Node {
  const node = toNode(op, a);
  checkFloat(op, node.dtype, complex);
  checkMatrix(op, node.shape, square);
  return node;
}

/** Refuses shapes that hold no matrices, or no square ones. */
export function checkMatrix(op: string, shape: Shape, square: boolean): void {
  const rank = shape.length;
  if (rank < 2) throw new ShapeError(`${op}() expected at least 2 axes: found ${formatShape(shape)}`);
  if (square && shape[rank - 1] !== shape[rank - 2]) {
    throw new ShapeError(`${op}() is defined for square matrices: found ${formatShape(shape)}`);
  }
}

/** The results of a factorization, of these shapes for each matrix of the batch, all of one dtype. */
export function factorize(
  attrs: Factorization,
  inputs: readonly Node[],
  shapes: readonly Shape[],
  dtype: Dtype = inputs[0].dtype,
): AnyTensor[] {
  const batch = inputs[0].shape.slice(0, -2);
  const sizes = shapes.map((shape) => sizeOf(shape));
  const length = sizes.reduce((sum, size) => sum + size, 0);
  const all = makeNode("factorization", inputs, [...batch, length], dtype, attrs);
  let at = 0;
  return shapes.map((shape, i) => {
    const starts = [...batch.map(() => 0), at];
    at += sizes[i];
    const part = sliceNode(all, starts, starts.map(() => 1), [...batch, sizes[i]]);
    return wrap(reshapeNode(part, [...batch, ...shape]));
  });
}

/** Rows and columns of matrices, and the smaller of both. */
export function sizes({ shape }: Node): [rows: number, cols: number, least: number] {
  const [rows, cols] = shape.slice(-2);
  return [rows, cols, Math.min(rows, cols)];
}

/** L and U beside each other, the pivots, and the rows of L that the rows of `a` are made of; indices as floats. */
export function factorsOf(node: Node): [AnyTensor, AnyTensor, AnyTensor] {
  const [m, n, k] = sizes(node);
  return factorize({ fn: "lu" }, [node], [[m, n], [k], [m]]) as [AnyTensor, AnyTensor, AnyTensor];
}
