/**
 * Linear maps of experts, stacked: indices choose which of them multiplies a row. As mlx-lm's SwitchLinear.
 *
 * Shapes: E experts, N rows, each with the index of its expert.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { type ExpertMatrices, expertProduct, type RoutedRows } from "../../array/quantized/experts.ts";
import type { QuantizationMode } from "../../graph/quantization.ts";
import { Module, type QuantizedArrays } from "../../nn/mod.ts";
import { quantized, QuantizedMatrix } from "../../nn/quantized.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { takeMatrix } from "./stored.ts";

/** A linear map of each expert: (…, 1, inputs) → (…, 1, outputs). */
export type SwitchLayer = Module & { forward(routed: RoutedRows): Tensor };

/** Dense maps. */
export class SwitchLinear extends Module {
  /** (E, outputs, inputs) */
  weight: Tensor;
  /** (E, outputs); not there without a bias. */
  bias?: Tensor;

  /** Takes the arrays. */
  constructor({ weight, bias }: { readonly weight: Tensor; readonly bias: Tensor | undefined }) {
    super();
    this.weight = weight;
    if (bias) this.bias = bias;
  }

  /** Each row times the matrix of its expert, in the dtype of x. */
  override forward(rows: RoutedRows): Tensor {
    return expertProduct(rows, this.matrices);
  }

  /** Its arrays. */
  get matrices(): ExpertMatrices {
    const { weight, bias } = this;
    return { weight, bias };
  }

  /** Maps with these weights and biases, quantized; see `mx.nn.quantize`. */
  toQuantized(groupSize?: number, bits?: number, mode?: QuantizationMode): QuantizedSwitchLinear {
    const { weight, bias } = this;
    return new QuantizedSwitchLinear({ ...quantized("SwitchLinear", weight, groupSize, bits, mode), bias });
  }
}

/** Maps whose matrices are quantized: (E, outputs, inputs * bits / 32) codes. */
export class QuantizedSwitchLinear extends QuantizedMatrix {
  /** (E, outputs); not there without a bias. */
  bias?: Tensor;

  /** Takes the arrays. */
  constructor(arrays: QuantizedArrays & { readonly bias: Tensor | undefined }) {
    super(arrays);
    if (arrays.bias) this.bias = arrays.bias;
  }

  /** Maps with these weights and biases, dense. */
  toDense(): SwitchLinear {
    const { weight, scales, biases = null, bias, groupSize, bits, mode } = this;
    return new SwitchLinear({ weight: mx.dequantize(weight, scales, biases, groupSize, bits, { mode }), bias });
  }

  /** See {@link SwitchLinear.forward}. */
  override forward(rows: RoutedRows): Tensor {
    return expertProduct(rows, this.matrices);
  }

  /** Its arrays. */
  get matrices(): ExpertMatrices {
    const { weight, scales, biases = null, bias, groupSize, bits, mode } = this;
    return { weight, scales, biases, format: { groupSize, bits, mode }, bias };
  }
}

/** The arrays of maps; undefined for a module that is not one of these. */
export function matricesOf(layer: SwitchLayer): ExpertMatrices | undefined {
  return layer instanceof SwitchLinear || layer instanceof QuantizedSwitchLinear ? layer.matrices : undefined;
}

/** Takes `<path>.weight` (E, outputs, inputs), or its codes, scales and biases, and `<path>.bias` (E, outputs) if it has one. */
export function switchLinear(
  weights: Weights,
  path: string,
  experts: number,
  inputs: number,
  outputs: number,
  bias: boolean,
): SwitchLayer {
  const matrix = takeMatrix(weights, path, [experts, outputs], inputs);
  const arrays = { ...matrix, bias: bias ? weights.takeVector(`${path}.bias`, [experts, outputs]) : undefined };
  return "scales" in arrays ? new QuantizedSwitchLinear(arrays) : new SwitchLinear(arrays);
}
