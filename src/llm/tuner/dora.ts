/**
 * Weight-decomposed low-rank adaptation (arXiv 2402.09353): the direction of each row is adapted by a low-rank product, its length
 * is trained by itself.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import * as nn from "../../nn/mod.ts";
import {
  type AnyLinear,
  denseWeight,
  embeddingWith,
  linearWith,
  type LoRAOptions,
  loraSettings,
  lowRank,
  sizesOf,
} from "./lora.ts";

/** Lengths of the rows of a matrix (rows, columns), in at least float32: (rows,). */
function lengths(weight: Tensor): Tensor {
  return mx.linalg.norm(weight, null, 1);
}

/** Rows of a matrix scaled to other lengths (rows,). */
function rescaled(weight: Tensor, m: Tensor): Tensor {
  return mx.multiply(mx.expandDims(mx.divide(m, lengths(weight)), 1), weight);
}

/** A linear layer whose rows have directions adapted as by {@link LoRALinear} and trained lengths `m`. */
export class DoRALinear extends nn.Module {
  /** The layer that is adapted. */
  linear: AnyLinear;
  /** Dropout of the input while training. */
  dropout: nn.Dropout;
  /** The factor of the product. */
  readonly scale: number;
  /** Lengths of the rows: (outputs,) */
  m: Tensor;
  /** (inputs, r) */
  lora_a: Tensor;
  /** (r, outputs) */
  lora_b: Tensor;

  /** Takes the sizes of the last axis before and after, the settings, and whether there is a bias. */
  constructor(inputDims: number, outputDims: number, options: LoRAOptions = {}, bias: boolean = false) {
    super();
    const { r, dropout, scale } = loraSettings("DoRALinear", options);
    this.linear = new nn.Linear(inputDims, outputDims, bias);
    this.m = lengths(this.linear.weight);
    this.dropout = new nn.Dropout(dropout);
    this.scale = scale;
    [this.lora_a, this.lora_b] = lowRank(inputDims, r, outputDims);
  }

  /** A layer that computes what `linear` does until it is trained. */
  static fromBase(linear: AnyLinear, options: LoRAOptions = {}): DoRALinear {
    const [outputs, inputs] = sizesOf(linear);
    const made = new DoRALinear(inputs, outputs, options);
    made.linear = linear;
    made.m = lengths(denseWeight(linear, mx.float32).astype(mx.float32));
    return made;
  }

  /** x (…, inputs) → (…, outputs) */
  override forward(x: Tensor): Tensor {
    const weight = denseWeight(this.linear, x.dtype);
    const z = mx.matmul(mx.matmul(this.dropout.forward(x), this.lora_a), this.lora_b);
    const out = mx.add(mx.matmul(x, weight.T), mx.multiply(z, this.scale).astype(x.dtype));
    const adapted = mx.add(weight, mx.matmul(mx.multiply(this.lora_b.T, this.scale), this.lora_a.T));
    const scaled = mx.multiply(mx.divide(this.m, mx.stopGradient(lengths(adapted))).astype(x.dtype), out);
    return this.linear.bias ? mx.add(scaled, this.linear.bias) : scaled;
  }

  /** One layer that computes the same when it is not trained; quantized if the adapted one is, unless `dequantize`. */
  fuse(dequantize: boolean = false): AnyLinear {
    const weight = denseWeight(this.linear);
    const delta = mx.matmul(mx.multiply(this.lora_b.T, this.scale), this.lora_a.T);
    const fused = rescaled(mx.add(weight, delta.astype(weight.dtype)), this.m);
    return linearWith(this.linear, fused.astype(weight.dtype), dequantize);
  }
}

/** A table of vectors with directions adapted as by {@link LoRAEmbedding} and trained lengths `m`. Not of quantized tables. */
export class DoRAEmbedding extends nn.Module {
  /** The table that is adapted. */
  embedding: nn.Embedding;
  /** Dropout while training. */
  dropout: nn.Dropout;
  /** The factor of the product. */
  readonly scale: number;
  /** Lengths of the vectors: (vectors,) */
  m: Tensor;
  /** (vectors, r) */
  lora_a: Tensor;
  /** (r, dims) */
  lora_b: Tensor;

  /** Takes the number of vectors, their size, and the settings. */
  constructor(numEmbeddings: number, dims: number, options: LoRAOptions = {}) {
    super();
    const { r, dropout, scale } = loraSettings("DoRAEmbedding", options);
    this.embedding = new nn.Embedding(numEmbeddings, dims);
    this.m = lengths(this.embedding.weight);
    this.dropout = new nn.Dropout(dropout);
    this.scale = scale;
    [this.lora_a, this.lora_b] = lowRank(numEmbeddings, r, dims);
  }

  /** A table that gives what `embedding` does until it is trained. Throws a ValueError if that is quantized. */
  static fromBase(embedding: nn.Embedding, options: LoRAOptions = {}): DoRAEmbedding {
    if (!(embedding instanceof nn.Embedding)) {
      throw new mx.ValueError("DoRAEmbedding adapts tables that are not quantized: use LoRA, or a model that is dense");
    }
    const [vectors, dims] = sizesOf(embedding);
    const made = new DoRAEmbedding(vectors, dims, options);
    made.embedding = embedding;
    made.m = lengths(embedding.weight);
    return made;
  }

  /** Integers x (…) → vectors (…, dims) */
  override forward(x: Tensor): Tensor {
    const y = this.embedding.forward(x);
    const z = mx.matmul(mx.multiply(mx.take(this.lora_a, x, 0), this.scale), this.lora_b);
    const out = mx.add(y, this.dropout.forward(z).astype(y.dtype));
    const length = mx.stopGradient(mx.linalg.norm(mx.add(y, z), null, -1));
    return mx.multiply(mx.expandDims(mx.divide(mx.take(this.m, x, 0), length), -1), out);
  }

  /** x (…, dims) → (…, vectors): the head of a model with tied weights. */
  asLinear(x: Tensor): Tensor {
    const y = this.embedding.asLinear(x);
    const z = mx.matmul(mx.matmul(this.dropout.forward(x), this.lora_b.T), this.lora_a.T);
    const out = mx.add(y, mx.multiply(z, this.scale).astype(x.dtype));
    const adapted = mx.add(this.embedding.weight, mx.matmul(mx.multiply(this.lora_a, this.scale), this.lora_b));
    return mx.multiply(mx.divide(this.m, mx.stopGradient(lengths(adapted))), out);
  }

  /** One table that gives the same when it is not trained. */
  fuse(): nn.Embedding {
    const { weight } = this.embedding;
    const delta = mx.matmul(mx.multiply(this.lora_a, this.scale), this.lora_b);
    const fused = rescaled(mx.add(weight, delta.astype(weight.dtype)), this.m);
    return embeddingWith(this.embedding, fused, true) as nn.Embedding;
  }
}
