/**
 * Grouped-query attention (arXiv 2305.13245) with rotary positions over what a cache holds.
 *
 * Shapes: B batch, T tokens, H query or key/value heads, D head size.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module, type RoPE } from "../../nn/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { forwardInDtype, type Layer, linear, rmsNorm } from "./stored.ts";

/** Attention of one layer, with or without biases and norms of queries and keys. */
export class Attention extends Module {
  readonly #config: DecoderConfig;
  /** (…, hidden) → (…, heads * D) */
  q_proj: Layer;
  /** (…, hidden) → (…, kvHeads * D) */
  k_proj: Layer;
  /** (…, hidden) → (…, kvHeads * D) */
  v_proj: Layer;
  /** (…, heads * D) → (…, hidden) */
  o_proj: Layer;
  /** The norm of each head of the queries; not there in families without one. */
  q_norm?: Layer;
  /** The same of the keys. */
  k_norm?: Layer;
  /** Rotary positions. */
  rope: RoPE;

  /** Takes q_proj, k_proj, v_proj and o_proj below `path`, and q_norm and k_norm if there are some. */
  constructor(config: DecoderConfig, weights: Weights, path: string, rope: RoPE) {
    super();
    const { hiddenSize, heads, kvHeads, headDim, qkNorm, qkvBias, outputBias, rmsNormEps } = config;
    this.#config = config;
    this.q_proj = linear(weights, `${path}.q_proj`, hiddenSize, heads * headDim, qkvBias);
    this.k_proj = linear(weights, `${path}.k_proj`, hiddenSize, kvHeads * headDim, qkvBias);
    this.v_proj = linear(weights, `${path}.v_proj`, hiddenSize, kvHeads * headDim, qkvBias);
    this.o_proj = linear(weights, `${path}.o_proj`, heads * headDim, hiddenSize, outputBias);
    if (qkNorm) {
      this.q_norm = rmsNorm(weights, `${path}.q_norm`, headDim, rmsNormEps);
      this.k_norm = rmsNorm(weights, `${path}.k_norm`, headDim, rmsNormEps);
    }
    this.rope = rope;
    weights.drop(`${path}.rotary_emb`); // frequencies, which early checkpoints hold
  }

  /** (B, T, hidden) → (B, T, hidden); row t has the position offset + t. Without a cache it sees the rows up to its own. */
  override forward(x: Tensor, layer: number, cache: Cache | undefined, offset: number | Tensor): Tensor {
    const [B, T] = x.shape;
    const { heads, kvHeads, headDim } = this.#config;
    // (B, T, H * D) → (B, H, T, D)
    const split = (y: Tensor, H: number, norm?: Layer): Tensor => {
      const each = y.reshape(B, T, H, headDim);
      return (norm ? forwardInDtype(norm, each) : each).transpose(0, 2, 1, 3);
    };
    const q = this.rope.forward(split(forwardInDtype(this.q_proj, x), heads, this.q_norm), offset);
    const k = this.rope.forward(split(forwardInDtype(this.k_proj, x), kvHeads, this.k_norm), offset);
    const v = split(forwardInDtype(this.v_proj, x), kvHeads);

    const { keys, values, lengths } = cache?.update(layer, k, v) ?? { keys: k, values: v, lengths: undefined };
    const y = mx.fast.scaledDotProductAttention(q, keys, values, {
      scale: headDim ** -0.5,
      mask: T > 1 ? "causal" : null,
      lengths,
    });
    return forwardInDtype(this.o_proj, y.transpose(0, 2, 1, 3).reshape(B, T, heads * headDim));
  }
}
