/**
 * Linear maps.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { DtypeName, Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import type { LinearArrays } from "./arrays.ts";
import { Module } from "./module.ts";
import { pythonBool } from "./print.ts";
import type { QuantizationMode } from "../graph/quantization.ts";
import { QQLinear, QuantizedLinear } from "./quantized.ts";

/** The identity. Arguments are accepted and ignored, so that it can stand for any layer. */
export class Identity extends Module {
  /** Takes anything. */
  constructor(..._settings: readonly unknown[]) {
    super();
  }

  /** x itself. */
  override forward<N extends DtypeName, R extends number>(x: Tensor<N, R>): Tensor<N, R> {
    return x;
  }
}

/**
 * x @ weight.T + bias, along the last axis. Weights are drawn uniformly within 1 / sqrt(inputDims), or given.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.Linear(4, 2);
 * layer.forward(mx.ones([3, 4])).shape; // [3, 2]
 *
 * const given = new mx.nn.Linear({ weight: mx.array([[1, 2]]) });
 * given.forward(mx.array([3, 4])).tolist(); // [11]
 * ```
 */
export class Linear extends Module {
  /** (outputDims, inputDims) */
  weight: Tensor;
  /** (outputDims,); not there without a bias. */
  bias?: Tensor;

  /** Takes the sizes of the last axis before and after, and whether there is a bias. */
  constructor(inputDims: number, outputDims: number, bias?: boolean);
  /** Takes the arrays. */
  constructor(arrays: LinearArrays);
  constructor(given: number | LinearArrays, outputDims: number = 0, bias: boolean = true) {
    super();
    const arrays = typeof given === "number" ? drawn(given, outputDims, bias) : given;
    this.weight = arrays.weight;
    if (arrays.bias) this.bias = arrays.bias;
  }

  /** x (…, inputDims) → (…, outputDims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const { weight, bias } = this;
    return scoped((): Tensor => bias ? mx.addmm(bias, x, weight.T) : mx.matmul(x, weight.T));
  }

  /**
   * A quantized layer with this one's weights and bias. With `quantizeInput` it is a {@link QQLinear}, which also quantizes its input
   * and has no bias. See {@link quantize}.
   */
  toQuantized(groupSize?: number, bits?: number, mode?: QuantizationMode, quantizeInput?: false): QuantizedLinear;
  toQuantized(
    groupSize: number | undefined,
    bits: number | undefined,
    mode: QuantizationMode | undefined,
    quantizeInput: boolean | undefined,
  ): QuantizedLinear | QQLinear;
  toQuantized(
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
    quantizeInput: boolean = false,
  ): QuantizedLinear | QQLinear {
    if (quantizeInput) return QQLinear.fromLinear(this, groupSize, bits, mode ?? "affine");
    return QuantizedLinear.fromLinear(this, groupSize, bits, mode);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const [outputs, inputs] = this.weight.shape;
    return `input_dims=${inputs}, output_dims=${outputs}, bias=${pythonBool(this.bias !== undefined)}`;
  }
}

/** Arrays that are drawn uniformly within 1 / sqrt(inputDims). */
function drawn(inputDims: number, outputDims: number, bias: boolean): LinearArrays {
  const scale = Math.sqrt(1 / inputDims);
  const weight = mx.random.uniform(-scale, scale, [outputDims, inputDims]);
  return bias ? { weight, bias: mx.random.uniform(-scale, scale, [outputDims]) } : { weight };
}

/** x1 @ weight[o] @ x2 + bias[o] for each output o, along the last axes of two arrays. */
export class Bilinear extends Module {
  /** (outputDims, input2Dims, input1Dims) */
  weight: Tensor;
  /** (outputDims,); not there without a bias. */
  bias?: Tensor;

  /** Takes the sizes of the last axes, and whether there is a bias. */
  constructor(input1Dims: number, input2Dims: number, outputDims: number, bias: boolean = true) {
    super();
    const scale = Math.sqrt(1 / input1Dims);
    this.weight = mx.random.uniform(-scale, scale, [outputDims, input2Dims, input1Dims]);
    if (bias) this.bias = mx.random.uniform(-scale, scale, [outputDims]);
  }

  /** x1 (…, input1Dims) and x2 (…, input2Dims), whose other axes are the same → (…, outputDims) */
  override forward<R extends number>(x1: Tensor<any, R>, x2: Tensor<any, R>): Tensor<any, R>;
  override forward(x1: Tensor, x2: Tensor): Tensor {
    const { weight, bias } = this;
    const [outputs, second, first] = weight.shape;
    return scoped((): Tensor => {
      const rows = mx.matmul(mx.reshape(x1, [-1, first]), mx.reshape(weight, [outputs * second, first]).T);
      const matrices = mx.swapaxes(mx.reshape(rows, [-1, outputs, second]), -2, -1);
      const y = mx.matmul(mx.reshape(x2, [-1, 1, second]), matrices).reshape([...x1.shape.slice(0, -1), outputs]);
      return bias ? mx.add(y, bias) : y;
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const [outputs, second, first] = this.weight.shape;
    const sizes = `input1_dims=${first}, input2_dims=${second}, output_dims=${outputs}`;
    return `${sizes}, bias=${pythonBool(this.bias !== undefined)}`;
  }
}
