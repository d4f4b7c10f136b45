/**
 * Matrices of a model, dense or quantized. A layer takes its tensors from {@link Weights} by path when it is built, which is where
 * their shapes are checked, and computes with plain array functions.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { QuantizedMatrix, Weights } from "../weights.ts";

/** A quantized matrix, or a dense one. */
export type Matrix = QuantizedMatrix | { readonly weight: Tensor; readonly quantization: undefined };

/** Takes `<path>.weight` (rows, cols), or its codes, scales and biases. */
export function takeMatrix(weights: Weights, path: string, rows: number, cols: number): Matrix {
  const quantization = weights.quantization(path);
  if (quantization === undefined) {
    return { weight: weights.take(`${path}.weight`, [rows, cols], "float"), quantization };
  }
  const { bits, groupSize } = quantization;
  const matrix = {
    weight: weights.take(`${path}.weight`, [rows, cols * bits / 32], "codes"),
    scales: weights.take(`${path}.scales`, [rows, cols / groupSize], "float"),
    biases: weights.take(`${path}.biases`, [rows, cols / groupSize], "float"),
    quantization,
  };
  weights.matrices.push(matrix);
  return matrix;
}

/** x @ matrix.T, in the dtype of x. */
export function project(x: Tensor, matrix: Matrix): Tensor {
  if (matrix.quantization === undefined) return mx.matmul(x, matrix.weight.T).astype(x.dtype);
  const { weight, scales, biases, quantization: { groupSize, bits } } = matrix;
  return mx.quantizedMatmul(x, weight, scales, biases, true, groupSize, bits).astype(x.dtype);
}
