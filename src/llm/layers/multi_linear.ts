/**
 * A linear map for each head, as mlx-lm's MultiLinear.
 *
 * Shapes: B batch, H heads, T tokens.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { QuantizationMode } from "../../graph/quantization.ts";
import { Module } from "../../nn/mod.ts";
import { quantized, QuantizedMatrix } from "../../nn/quantized.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { takeMatrix } from "./stored.ts";

/** A map for each head, and the one by the transposed matrices. */
export type HeadLayer = Module & {
  /** (B, H or 1, T, inputs) → (B, H, T, outputs) */
  forward(x: Tensor): Tensor;
  /** (B, H or 1, T, outputs) → (B, H, T, inputs) */
  transposed(x: Tensor): Tensor;
};

/** Dense maps. */
export class MultiLinear extends Module {
  /** (H, outputs, inputs) */
  weight: Tensor;

  /** Takes the array. */
  constructor({ weight }: { readonly weight: Tensor }) {
    super();
    this.weight = weight;
  }

  /** See {@link HeadLayer}. */
  override forward(x: Tensor): Tensor {
    return mx.matmul(x, this.weight.swapaxes(-1, -2)).astype(x.dtype);
  }

  /** See {@link HeadLayer}. */
  transposed(x: Tensor): Tensor {
    return mx.matmul(x, this.weight).astype(x.dtype);
  }

  /** Maps with these weights, quantized; see `mx.nn.quantize`. */
  toQuantized(groupSize?: number, bits?: number, mode?: QuantizationMode): QuantizedMultiLinear {
    return new QuantizedMultiLinear(quantized("MultiLinear", this.weight, groupSize, bits, mode));
  }
}

/** Maps whose matrices are quantized: (H, outputs, inputs * bits / 32) codes. */
export class QuantizedMultiLinear extends QuantizedMatrix {
  /** Maps with these weights, dense. */
  toDense(): MultiLinear {
    const { weight, scales, biases = null, groupSize, bits, mode } = this;
    return new MultiLinear({ weight: mx.dequantize(weight, scales, biases, groupSize, bits, { mode }) });
  }

  /** See {@link HeadLayer}. */
  override forward(x: Tensor): Tensor {
    return this.#times(x, true);
  }

  /** See {@link HeadLayer}. */
  transposed(x: Tensor): Tensor {
    return this.#times(x, false);
  }

  #times(x: Tensor, transpose: boolean): Tensor {
    const { weight, scales, biases = null, groupSize, bits, mode } = this;
    return mx.quantizedMatmul(x, weight, scales, biases, transpose, groupSize, bits, mode).astype(x.dtype);
  }
}

/** Takes `<path>.weight` (heads, outputs, inputs), or its codes, scales and biases. */
export function multiLinear(
  weights: Weights,
  path: string,
  heads: number,
  inputs: number,
  outputs: number,
): HeadLayer {
  const matrix = takeMatrix(weights, path, [heads, outputs], inputs);
  return "scales" in matrix ? new QuantizedMultiLinear(matrix) : new MultiLinear(matrix);
}
