/**
 * One layer of a decoder: attention and a feed-forward part, each after a norm and beside a residual connection.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module, type RoPE } from "../../nn/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Attention } from "./attention.ts";
import { Mlp } from "./mlp.ts";
import { forwardInDtype, type Layer, rmsNorm } from "./stored.ts";

/** A pre-norm layer. */
export class Block extends Module {
  /** Attention. */
  self_attn: Attention;
  /** The feed-forward part. */
  mlp: Mlp;
  /** The norm before attention. */
  input_layernorm: Layer;
  /** The norm before the feed-forward part. */
  post_attention_layernorm: Layer;

  /** Takes self_attn, mlp and the norms before them below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, rope: RoPE) {
    super();
    const { hiddenSize, rmsNormEps } = config;
    this.self_attn = new Attention(config, weights, `${path}.self_attn`, rope);
    this.mlp = new Mlp(config, weights, `${path}.mlp`);
    this.input_layernorm = rmsNorm(weights, `${path}.input_layernorm`, hiddenSize, rmsNormEps);
    this.post_attention_layernorm = rmsNorm(weights, `${path}.post_attention_layernorm`, hiddenSize, rmsNormEps);
  }

  /** (B, T, hidden) → (B, T, hidden); row t has the position offset + t. Keys and values go to the place `layer` of the cache. */
  override forward(x: Tensor, layer: number, cache: Cache | undefined, offset: number | Tensor): Tensor {
    const h = mx.add(x, this.self_attn.forward(forwardInDtype(this.input_layernorm, x), layer, cache, offset));
    return mx.add(h, this.mlp.forward(forwardInDtype(this.post_attention_layernorm, h)));
  }
}
