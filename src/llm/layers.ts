/**
 * Layers that the models share. A layer takes its tensors from {@link Weights} by path when it is built, which is where
 * their shapes are checked, and computes with plain array functions.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Dtype, Tensor } from "../array/mod.ts";
import type { RopeScaling } from "./config.ts";
import type { QuantizedMatrix, Weights } from "./weights.ts";

/** A quantized matrix, or a dense one. */
type Matrix = QuantizedMatrix | { readonly weight: Tensor; readonly quantization: undefined };

function takeMatrix(weights: Weights, path: string, rows: number, cols: number): Matrix {
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
function project(x: Tensor, matrix: Matrix): Tensor {
  if (matrix.quantization === undefined) return mx.matmul(x, matrix.weight.T).astype(x.dtype);
  const { weight, scales, biases, quantization: { groupSize, bits } } = matrix;
  return mx.quantizedMatmul(x, weight, scales, biases, true, groupSize, bits).astype(x.dtype);
}

/** A linear map without bias, quantized or not. */
export class Linear {
  readonly #matrix: Matrix;

  /** Takes `<path>.weight` (outputs, inputs), or its codes, scales and biases. */
  constructor(weights: Weights, path: string, inputs: number, outputs: number) {
    this.#matrix = takeMatrix(weights, path, outputs, inputs);
  }

  /** (…, inputs) → (…, outputs) */
  forward(x: Tensor): Tensor {
    return project(x, this.#matrix);
  }
}

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

/** x / rms(x) * weight over the last axis. */
export class RmsNorm {
  readonly #weight: Tensor;
  readonly #eps: number;

  /** Takes `<path>.weight` (size,). */
  constructor(weights: Weights, path: string, size: number, eps: number) {
    this.#weight = weights.take(`${path}.weight`, [size], "float");
    this.#eps = eps;
  }

  /** Keeps shape and dtype. */
  forward(x: Tensor): Tensor {
    return mx.fast.rmsNorm(x, this.#weight, this.#eps).astype(x.dtype);
  }
}

/** Rotary position embedding over the last axis of (B, H, T, D), half-split, with the scalings of {@link RopeScaling}. */
export class Rope {
  readonly #dims: number;
  readonly #base: number;
  readonly #scale: number;
  readonly #freqs: Tensor | undefined;
  readonly #mscale: number;

  /** `weights` keeps the frequency table that a scaling may need. */
  constructor(weights: Weights, dims: number, base: number, scaling: RopeScaling) {
    this.#dims = dims;
    this.#base = base;
    this.#scale = scaling.type === "linear" ? 1 / scaling.factor : 1;
    const yarn = scaling.type === "yarn" ? yarnTable(dims, base, scaling) : undefined;
    this.#freqs = yarn && weights.own(mx.array(yarn.freqs, mx.float32));
    this.#mscale = yarn?.mscale ?? 1;
  }

  /** Rotates row t by position offset + t; the offset is a number or an int32 array. */
  forward(x: Tensor, offset: number | Tensor): Tensor {
    const input = this.#mscale === 1 ? x : mx.multiply(x, this.#mscale);
    return mx.fast.rope(input, this.#dims, {
      traditional: false,
      base: this.#freqs === undefined ? this.#base : null,
      scale: this.#scale,
      offset,
      freqs: this.#freqs,
    });
  }
}

/** YaRN (arXiv 2309.00071): wavelengths that fit the trained context stay, longer ones are stretched, a ramp between. */
function yarnTable(
  dims: number,
  base: number,
  scaling: Extract<RopeScaling, { type: "yarn" }>,
): { freqs: number[]; mscale: number } {
  const { factor, originalMaxPositionEmbeddings: context, betaFast, betaSlow, mscale, mscaleAllDim } = scaling;
  const correction = (rotations: number): number =>
    dims * Math.log(context / (rotations * 2 * Math.PI)) / (2 * Math.log(base));
  const low = Math.max(Math.floor(correction(betaFast)), 0);
  const high = Math.min(Math.ceil(correction(betaSlow)), dims - 1);
  const width = low === high ? 0.001 : high - low;
  const freqs = Array.from({ length: dims / 2 }, (_, i) => {
    const wavelength = base ** (2 * i / dims);
    const kept = 1 - Math.min(1, Math.max(0, (i - low) / width));
    return factor * wavelength / (factor * kept + 1 - kept);
  });
  const attention = (m: number): number => factor <= 1 ? 1 : 0.1 * m * Math.log(factor) + 1;
  return { freqs, mscale: attention(mscale) / attention(mscaleAllDim) };
}
