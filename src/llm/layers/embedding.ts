/**
 * The embedding of tokens.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import type { Weights } from "../weights.ts";
import { type Matrix, project, takeMatrix } from "./matrix.ts";

/** A table of rows, quantized or not, that also serves as the output head where the two are tied. */
export class Embedding {
  readonly #matrix: Matrix;
  readonly #dtype: Dtype;

  /** Takes `<path>.weight` (count, size), or its codes, scales and biases. */
  constructor(weights: Weights, path: string, count: number, size: number) {
    this.#matrix = takeMatrix(weights, path, count, size);
    this.#dtype = weights.dtype;
  }

  /** Integer ids (…) → rows (…, size) in the activation dtype; only the rows asked for are dequantized. */
  forward(ids: Tensor): Tensor {
    const rows = mx.take(this.#matrix.weight, ids, 0);
    if (this.#matrix.quantization === undefined) return rows.astype(this.#dtype);
    const { scales, biases, quantization: { groupSize, bits } } = this.#matrix;
    // dequantize() rounds in the dtype of its scales: that of the activations, so that nothing is lost on the way.
    const [s, b] = [scales, biases].map((table) => mx.take(table, ids, 0).astype(this.#dtype));
    return mx.dequantize(rows, s, b, groupSize, bits);
  }

  /** (…, size) → (…, count): the head of a model with tied weights. */
  asLinear(x: Tensor): Tensor {
    return project(x, this.#matrix);
  }
}
