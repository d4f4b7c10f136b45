/**
 * Tables of vectors.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Dtype, RankOf, Tensor, TensorLike, Up } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import type { QuantizationMode } from "../graph/quantization.ts";
import { QuantizedEmbedding } from "./quantized.ts";

/**
 * A learned vector for each whole number below `numEmbeddings`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const table = new mx.nn.Embedding(10, 4);
 * table.forward(mx.array([1, 7], mx.int32)).shape; // [2, 4]
 * ```
 */
export class Embedding extends Module {
  /** (numEmbeddings, dims) */
  weight: Tensor;

  /** Takes the number of vectors and their size. */
  constructor(numEmbeddings: number, dims: number);
  /** Takes the table (numEmbeddings, dims). */
  constructor(arrays: { readonly weight: Tensor });
  constructor(given: number | { readonly weight: Tensor }, dims: number = 0) {
    super();
    this.weight = typeof given === "number"
      ? mx.random.normal([given, dims], null, null, Math.sqrt(1 / dims))
      : given.weight;
  }

  /** Integers x (…) → vectors (…, dims), of the dtype of the table unless another is asked for. */
  override forward<X extends TensorLike>(x: X, dtype?: Dtype): Tensor<any, Up<RankOf<X>>>;
  override forward(x: TensorLike, dtype: Dtype = this.weight.dtype): Tensor {
    return scoped((): Tensor => mx.take(this.weight, x, 0).astype(dtype));
  }

  /** x (…, dims) → (…, numEmbeddings): products with all vectors, the head of a model with tied weights. */
  asLinear(x: Tensor): Tensor {
    return scoped((): Tensor => mx.matmul(x, this.weight.T));
  }

  /** A table of the same vectors, quantized; see {@link quantize}. Throws a ValueError if `quantizeInput`: it is given integers. */
  toQuantized(
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
    quantizeInput: boolean = false,
  ): QuantizedEmbedding {
    if (quantizeInput) throw new mx.ValueError("Embedding cannot quantize its input, which is integers");
    return QuantizedEmbedding.fromEmbedding(this, groupSize, bits, mode);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return this.weight.shape.join(", ");
  }
}
