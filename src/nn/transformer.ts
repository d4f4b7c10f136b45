/**
 * Transformers: attention with several heads, and the layers of encoders and decoders.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Dtype, Tensor } from "../array/mod.ts";
import { relu } from "../array/fast/nn.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Dropout } from "./dropout.ts";
import { Linear } from "./linear.ts";
import { Module } from "./module.ts";
import { LayerNorm } from "./normalization.ts";
import { checkpoint as recomputed } from "./value_and_grad.ts";

/** A mask of attention, as `mx.fast.scaledDotProductAttention` takes it. */
export type AttentionMask = Tensor | "causal" | null;

/** A function of one array between linear maps. */
export type ActivationFunction = (x: Tensor) => Tensor;

/**
 * Attention with several heads and learned projections.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const attention = new mx.nn.MultiHeadAttention(8, 2);
 * const x = mx.ones([1, 5, 8]);
 * attention.forward(x, x, x, "causal").shape; // [1, 5, 8]
 * ```
 */
export class MultiHeadAttention extends Module {
  /** Number of heads. */
  readonly numHeads: number;
  /** (dims, queryInputDims) */
  queryProj: Linear;
  /** (dims, keyInputDims) */
  keyProj: Linear;
  /** (valueDims, valueInputDims) */
  valueProj: Linear;
  /** (valueOutputDims, valueDims) */
  outProj: Linear;

  /** Takes the inner size and the number of heads, which divides it. Other sizes default to `dims`; the size of values to that of keys. */
  constructor(
    dims: number,
    numHeads: number,
    queryInputDims: number | null = null,
    keyInputDims: number | null = null,
    valueInputDims: number | null = null,
    valueDims: number | null = null,
    valueOutputDims: number | null = null,
    bias: boolean = false,
  ) {
    super();
    if (dims % numHeads !== 0) {
      throw new mx.ValueError(
        `MultiHeadAttention expected dims to be divisible by numHeads: found ${dims} and ${numHeads}`,
      );
    }
    const keyInputs = keyInputDims ?? dims;
    const values = valueDims ?? dims;
    this.numHeads = numHeads;
    this.queryProj = new Linear(queryInputDims ?? dims, dims, bias);
    this.keyProj = new Linear(keyInputs, dims, bias);
    this.valueProj = new Linear(valueInputDims ?? keyInputs, values, bias);
    this.outProj = new Linear(values, valueOutputDims ?? dims, bias);
  }

  /** queries (B, Tq, …), keys and values (B, Tk, …) → (B, Tq, valueOutputDims) */
  override forward(queries: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask = null): Tensor<any, 3> {
    const projected = [
      this.queryProj.forward(queries),
      this.keyProj.forward(keys),
      this.valueProj.forward(values),
    ];
    const mixed = scoped((): Tensor => {
      const [q, k, v] = projected.map((x) => mx.swapaxes(mx.unflatten(x, -1, [this.numHeads, -1]), 1, 2));
      const scale = Math.sqrt(1 / q.shape[3]);
      const heads = mx.fast.scaledDotProductAttention(q, k, v, { scale, mask });
      return mx.flatten(mx.swapaxes(heads, 1, 2), -2, -1);
    });
    return this.outProj.forward(mixed);
  }

  /** A mask (n, n) that is added to scores to hide later positions: the lowest number of the dtype above the diagonal. */
  static createAdditiveCausalMask(n: number, dtype: Dtype = mx.float32): Tensor {
    return scoped((): Tensor => {
      const indices = mx.arange(n);
      const later = mx.less(mx.expandDims(indices, 1), indices);
      return mx.multiply(later.astype(dtype), mx.finfo(dtype).min);
    });
  }
}

/** Attention to itself and two linear maps, each with a norm and a way around it. */
export class TransformerEncoderLayer extends Module {
  /** Attention of the sequence to itself. */
  attention: MultiHeadAttention;
  /** The norm of the attention. */
  ln1: LayerNorm;
  /** The norm of the linear maps. */
  ln2: LayerNorm;
  /** (mlpDims, dims) */
  linear1: Linear;
  /** (dims, mlpDims) */
  linear2: Linear;
  /** After the attention. */
  dropout1: Dropout;
  /** After the activation. */
  dropout2: Dropout;
  /** Between the linear maps. */
  readonly activation: ActivationFunction;
  /** Whether norms come before attention and feed-forward part, or after the residual sum. */
  readonly normFirst: boolean;

  /** Takes the size, the heads, the feed-forward size (default 4 * dims), the dropout, the activation and the place of norms. */
  constructor(
    dims: number,
    numHeads: number,
    mlpDims: number | null = null,
    dropout: number = 0,
    activation: ActivationFunction = relu,
    normFirst: boolean = true,
  ) {
    super();
    const inner = mlpDims ?? dims * 4;
    this.attention = new MultiHeadAttention(dims, numHeads);
    this.ln1 = new LayerNorm(dims);
    this.ln2 = new LayerNorm(dims);
    this.linear1 = new Linear(dims, inner);
    this.linear2 = new Linear(inner, dims);
    this.dropout1 = new Dropout(dropout);
    this.dropout2 = new Dropout(dropout);
    this.activation = activation;
    this.normFirst = normFirst;
  }

  /** x (B, T, dims) */
  override forward(x: Tensor, mask: AttentionMask = null): Tensor<any, 3> {
    const attend = (y: Tensor): Tensor => this.dropout1.forward(this.attention.forward(y, y, y, mask));
    const map = (y: Tensor): Tensor =>
      this.linear2.forward(this.dropout2.forward(this.activation(this.linear1.forward(y))));
    const attended = residual(x, attend, this.ln1, this.normFirst);
    return residual(attended, map, this.ln2, this.normFirst);
  }
}

/** x plus a part of a layer applied to it, with a norm before the part or after the sum. */
function residual(x: Tensor, part: (y: Tensor) => Tensor, norm: LayerNorm, normFirst: boolean): Tensor {
  return normFirst ? mx.add(x, part(norm.forward(x))) : norm.forward(mx.add(x, part(x)));
}

/** Layers one after the other and a norm after them. */
export class TransformerEncoder extends Module {
  /** The layers in their order. */
  layers: TransformerEncoderLayer[];
  /** The norm after them. */
  ln: LayerNorm;
  /** Whether intermediate arrays of layers are computed again for derivatives. */
  readonly checkpoint: boolean;

  /** Takes the number of layers, their settings as {@link TransformerEncoderLayer} does, and whether they are checkpointed. */
  constructor(
    numLayers: number,
    dims: number,
    numHeads: number,
    mlpDims: number | null = null,
    dropout: number = 0,
    activation: ActivationFunction = relu,
    normFirst: boolean = true,
    checkpoint: boolean = false,
  ) {
    super();
    this.layers = Array.from(
      { length: numLayers },
      () => new TransformerEncoderLayer(dims, numHeads, mlpDims, dropout, activation, normFirst),
    );
    this.ln = new LayerNorm(dims);
    this.checkpoint = checkpoint;
  }

  /** x (B, T, dims) */
  override forward(x: Tensor, mask: AttentionMask = null): Tensor<any, 3> {
    let y = x;
    for (const layer of this.layers) y = this.checkpoint ? recomputed(layer)(y, mask) : layer.forward(y, mask);
    return this.ln.forward(y);
  }
}

/** Self-attention, attention to an encoder's output, and two linear maps, each with a norm and a residual connection. */
export class TransformerDecoderLayer extends Module {
  /** Attention of the sequence to itself. */
  selfAttention: MultiHeadAttention;
  /** Attention to the encoder's output. */
  crossAttention: MultiHeadAttention;
  /** The norm of the attention to itself. */
  ln1: LayerNorm;
  /** The norm of the attention to the encoder. */
  ln2: LayerNorm;
  /** The norm of the linear maps. */
  ln3: LayerNorm;
  /** (mlpDims, dims) */
  linear1: Linear;
  /** (dims, mlpDims) */
  linear2: Linear;
  /** After the attention to itself. */
  dropout1: Dropout;
  /** After the attention to the encoder. */
  dropout2: Dropout;
  /** After the activation. */
  dropout3: Dropout;
  /** Between the linear maps. */
  readonly activation: ActivationFunction;
  /** Whether norms come before attentions and feed-forward part, or after the residual sum. */
  readonly normFirst: boolean;

  /** Takes settings as {@link TransformerEncoderLayer} does. */
  constructor(
    dims: number,
    numHeads: number,
    mlpDims: number | null = null,
    dropout: number = 0,
    activation: ActivationFunction = relu,
    normFirst: boolean = true,
  ) {
    super();
    const inner = mlpDims ?? dims * 4;
    this.selfAttention = new MultiHeadAttention(dims, numHeads);
    this.crossAttention = new MultiHeadAttention(dims, numHeads);
    this.ln1 = new LayerNorm(dims);
    this.ln2 = new LayerNorm(dims);
    this.ln3 = new LayerNorm(dims);
    this.linear1 = new Linear(dims, inner);
    this.linear2 = new Linear(inner, dims);
    this.dropout1 = new Dropout(dropout);
    this.dropout2 = new Dropout(dropout);
    this.dropout3 = new Dropout(dropout);
    this.activation = activation;
    this.normFirst = normFirst;
  }

  /** x (B, T, dims), memory (B, Tm, dims) */
  override forward(
    x: Tensor,
    memory: Tensor,
    xMask: AttentionMask = null,
    memoryMask: AttentionMask = null,
  ): Tensor<any, 3> {
    const { normFirst } = this;
    const attend = (y: Tensor): Tensor => this.dropout1.forward(this.selfAttention.forward(y, y, y, xMask));
    const look = (y: Tensor): Tensor =>
      this.dropout2.forward(this.crossAttention.forward(y, memory, memory, memoryMask));
    const map = (y: Tensor): Tensor =>
      this.linear2.forward(this.dropout3.forward(this.activation(this.linear1.forward(y))));
    const attended = residual(x, attend, this.ln1, normFirst);
    return residual(residual(attended, look, this.ln2, normFirst), map, this.ln3, normFirst);
  }
}

/** Layers one after the other and a norm after them. */
export class TransformerDecoder extends Module {
  /** The layers in their order. */
  layers: TransformerDecoderLayer[];
  /** The norm after them. */
  ln: LayerNorm;
  /** Whether intermediate arrays of layers are computed again for derivatives. */
  readonly checkpoint: boolean;

  /** Takes the number of layers, their settings as {@link TransformerDecoderLayer} does, and whether they are checkpointed. */
  constructor(
    numLayers: number,
    dims: number,
    numHeads: number,
    mlpDims: number | null = null,
    dropout: number = 0,
    activation: ActivationFunction = relu,
    normFirst: boolean = true,
    checkpoint: boolean = false,
  ) {
    super();
    this.layers = Array.from(
      { length: numLayers },
      () => new TransformerDecoderLayer(dims, numHeads, mlpDims, dropout, activation, normFirst),
    );
    this.ln = new LayerNorm(dims);
    this.checkpoint = checkpoint;
  }

  /** x (B, T, dims), memory (B, Tm, dims) */
  override forward(
    x: Tensor,
    memory: Tensor,
    xMask: AttentionMask = null,
    memoryMask: AttentionMask = null,
  ): Tensor<any, 3> {
    let y = x;
    for (const layer of this.layers) {
      y = this.checkpoint
        ? recomputed(layer)(y, memory, xMask, memoryMask)
        : layer.forward(y, memory, xMask, memoryMask);
    }
    return this.ln.forward(y);
  }
}

/** An encoder, and a decoder that attends to its output. */
export class Transformer extends Module {
  /** The encoder: `forward(source, sourceMask)`. */
  encoder: Module;
  /** The decoder: `forward(target, memory, targetMask, memoryMask)`. */
  decoder: Module;

  /** Takes sizes and numbers of layers, settings as {@link TransformerEncoder} does, and modules to take in place of encoder and decoder. */
  constructor(
    dims: number = 512,
    numHeads: number = 8,
    numEncoderLayers: number = 6,
    numDecoderLayers: number = 6,
    mlpDims: number | null = null,
    dropout: number = 0,
    activation: ActivationFunction = relu,
    customEncoder: Module | null = null,
    customDecoder: Module | null = null,
    normFirst: boolean = true,
    checkpoint: boolean = false,
  ) {
    super();
    const settings = [dims, numHeads, mlpDims, dropout, activation, normFirst, checkpoint] as const;
    this.encoder = customEncoder ?? new TransformerEncoder(numEncoderLayers, ...settings);
    this.decoder = customDecoder ?? new TransformerDecoder(numDecoderLayers, ...settings);
  }

  /** source (B, Ts, dims), target (B, Tt, dims) → (B, Tt, dims) */
  override forward(
    source: Tensor,
    target: Tensor,
    sourceMask: AttentionMask = null,
    targetMask: AttentionMask = null,
    memoryMask: AttentionMask = null,
  ): Tensor<any, 3> {
    const memory = this.encoder.forward(source, sourceMask);
    return this.decoder.forward(target, memory, targetMask, memoryMask);
  }
}
