/**
 * Low-rank adaptation (arXiv 2106.09685): a frozen layer and beside it the product of two narrow matrices, which are trained.
 *
 * Fields have the names that adapters of mlx-lm give to arrays.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import * as nn from "../../nn/mod.ts";
import { QuantizedMatrix } from "../../nn/quantized.ts";
import type { SwitchLinear } from "../layers/switch_linear.ts";

/** Settings of an adapted layer. */
export interface LoRAOptions {
  /** Columns of the first matrix and rows of the second; default 8. */
  readonly r?: number;
  /** The share of the layer's input that becomes 0 before the matrices while training; default 0. */
  readonly dropout?: number;
  /** Factor of their product; default 20. */
  readonly scale?: number;
}

/** A linear layer that can be adapted. */
export type AnyLinear = nn.Linear | nn.QuantizedLinear;
/** A table of vectors that can be adapted. */
export type AnyEmbedding = nn.Embedding | nn.QuantizedEmbedding;

/** Settings with their defaults. Throws a ValueError if they cannot be. */
export function loraSettings(op: string, { r = 8, dropout = 0, scale = 20 }: LoRAOptions): Required<LoRAOptions> {
  if (!Number.isInteger(r) || r < 1) throw new mx.ValueError(`${op} expected a rank of at least 1: found ${r}`);
  if (!Number.isFinite(scale)) throw new mx.ValueError(`${op} expected a scale: found ${scale}`);
  return { r, dropout, scale };
}

/** Whether the matrix of a layer is quantized. */
function isQuantized<T extends nn.Module>(layer: T): layer is T & QuantizedMatrix {
  return layer instanceof QuantizedMatrix;
}

/** The dense matrix (rows, columns) of a layer: a quantized one in `dtype`, default that of its scales. */
export function denseWeight(layer: AnyLinear | AnyEmbedding, dtype?: Dtype): Tensor {
  if (!isQuantized(layer)) return layer.weight;
  const { weight, scales, biases, groupSize, bits, mode } = layer;
  if (biases === undefined) return mx.dequantize(weight, scales, null, groupSize, bits, { mode, dtype });
  const [s, b] = [scales, biases].map((x) => x.astype(dtype ?? x.dtype));
  return mx.dequantize(weight, s, b, groupSize, bits);
}

/** Rows and columns of the matrix of a layer, or of each one of a stack. */
export function sizesOf(layer: nn.Module & { readonly weight: Tensor }): readonly [rows: number, columns: number] {
  const [rows, columns] = layer.weight.shape.slice(-2);
  return [rows, isQuantized(layer) ? columns * 32 / layer.bits : columns];
}

/** The first matrix, uniform within 1 / sqrt(rows), and the second one, zeros: the layer computes what it did before. */
export function lowRank(rows: number, r: number, columns: number): readonly [a: Tensor, b: Tensor] {
  const bound = 1 / Math.sqrt(rows);
  return [mx.random.uniform(-bound, bound, [rows, r]), mx.zeros([r, columns])];
}

/** A dense layer, or its quantized form in the format of `like`: dense too in a mode that nothing quantizes to. */
export function inFormatOf<T extends nn.Linear | nn.Embedding | SwitchLinear>(
  like: nn.Module,
  dense: T,
): T | ReturnType<T["toQuantized"]> {
  if (!isQuantized(like) || like.mode === "symmetric") return dense;
  return dense.toQuantized(like.groupSize, like.bits, like.mode) as ReturnType<T["toQuantized"]>;
}

/** A linear layer with another matrix (outputs, inputs), quantized as `like` is unless `dequantize` says no. */
export function linearWith(like: AnyLinear, weight: Tensor, dequantize: boolean): AnyLinear {
  const fused = new nn.Linear({ weight, ...(like.bias && { bias: like.bias }) });
  return dequantize ? fused : inFormatOf(like, fused) as AnyLinear;
}

/** A table with other vectors, quantized as `like` is unless `dequantize` says no. */
export function embeddingWith(like: AnyEmbedding, weight: Tensor, dequantize: boolean): AnyEmbedding {
  const fused = new nn.Embedding({ weight });
  return dequantize ? fused : inFormatOf(like, fused);
}

/**
 * A linear layer and a low-rank product: `linear(x) + scale * (x @ lora_a) @ lora_b`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const linear = new mx.nn.Linear(8, 4);
 * const adapted = mx.lm.tuner.LoRALinear.fromBase(linear, { r: 2 });
 * adapted.forward(mx.ones([1, 8])).shape; // [1, 4]
 * adapted.fuse().weight.shape; // [4, 8]: one layer again
 * ```
 */
export class LoRALinear extends nn.Module {
  /** The layer that is adapted. */
  linear: AnyLinear;
  /** Dropout of the input while training. */
  dropout: nn.Dropout;
  /** The factor of the product. */
  readonly scale: number;
  /** (inputs, r) */
  lora_a: Tensor;
  /** (r, outputs) */
  lora_b: Tensor;

  /** Takes the sizes of the last axis before and after, the settings, and whether there is a bias. */
  constructor(inputDims: number, outputDims: number, options: LoRAOptions = {}, bias: boolean = false) {
    super();
    const { r, dropout, scale } = loraSettings("LoRALinear", options);
    this.linear = new nn.Linear(inputDims, outputDims, bias);
    this.dropout = new nn.Dropout(dropout);
    this.scale = scale;
    [this.lora_a, this.lora_b] = lowRank(inputDims, r, outputDims);
  }

  /** A layer that computes what `linear` does until it is trained. */
  static fromBase(linear: AnyLinear, options: LoRAOptions = {}): LoRALinear {
    const [outputs, inputs] = sizesOf(linear);
    const made = new LoRALinear(inputs, outputs, options);
    made.linear = linear;
    return made;
  }

  /** x (…, inputs) → (…, outputs) */
  override forward(x: Tensor): Tensor {
    const y = this.linear.forward(x);
    const z = mx.matmul(mx.matmul(this.dropout.forward(x), this.lora_a), this.lora_b);
    return mx.add(y, mx.multiply(z, this.scale).astype(x.dtype));
  }

  /** One layer that computes the same when it is not trained; quantized if the adapted one is, unless `dequantize`. */
  fuse(dequantize: boolean = false): AnyLinear {
    const weight = denseWeight(this.linear);
    const delta = mx.matmul(mx.multiply(this.lora_b.T, this.scale), this.lora_a.T);
    return linearWith(this.linear, mx.add(weight, delta.astype(weight.dtype)), dequantize);
  }
}

/** A table of vectors and a low-rank product: `embedding(x) + scale * lora_a[x] @ lora_b`. */
export class LoRAEmbedding extends nn.Module {
  /** The table that is adapted. */
  embedding: AnyEmbedding;
  /** Dropout while training. */
  dropout: nn.Dropout;
  /** The factor of the product. */
  readonly scale: number;
  /** (vectors, r) */
  lora_a: Tensor;
  /** (r, dims) */
  lora_b: Tensor;

  /** Takes the number of vectors, their size, and the settings. */
  constructor(numEmbeddings: number, dims: number, options: LoRAOptions = {}) {
    super();
    const { r, dropout, scale } = loraSettings("LoRAEmbedding", options);
    this.embedding = new nn.Embedding(numEmbeddings, dims);
    this.dropout = new nn.Dropout(dropout);
    this.scale = scale;
    [this.lora_a, this.lora_b] = lowRank(numEmbeddings, r, dims);
  }

  /** A table that gives what `embedding` does until it is trained. */
  static fromBase(embedding: AnyEmbedding, options: LoRAOptions = {}): LoRAEmbedding {
    const [vectors, dims] = sizesOf(embedding);
    const made = new LoRAEmbedding(vectors, dims, options);
    made.embedding = embedding;
    return made;
  }

  /** Integers x (…) → vectors (…, dims), quantized ones computed in `dtype` if it is given */
  override forward(x: Tensor, dtype?: Dtype): Tensor {
    const y = this.embedding.forward(x, dtype);
    const z = this.dropout.forward(mx.matmul(mx.take(this.lora_a, x, 0), this.lora_b));
    return mx.add(y, mx.multiply(z, this.scale).astype(y.dtype));
  }

  /** x (…, dims) → (…, vectors): the head of a model with tied weights. */
  asLinear(x: Tensor): Tensor {
    const y = this.embedding.asLinear(x);
    const z = mx.matmul(mx.matmul(this.dropout.forward(x), this.lora_b.T), this.lora_a.T);
    return mx.add(y, mx.multiply(z, this.scale).astype(x.dtype));
  }

  /** One table that gives the same when it is not trained; quantized if the adapted one is, unless `dequantize`. */
  fuse(dequantize: boolean = false): AnyEmbedding {
    const weight = denseWeight(this.embedding);
    const delta = mx.matmul(mx.multiply(this.lora_a, this.scale), this.lora_b);
    return embeddingWith(this.embedding, mx.add(weight, delta.astype(weight.dtype)), dequantize);
  }
}
