/**
 * One layer of a decoder: attention and a feed-forward part, each behind a norm and beside a residual connection.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import type { Cache } from "../kv_cache.ts";
import type { Weights } from "../weights.ts";
import { Attention } from "./attention.ts";
import { Mlp } from "./mlp.ts";
import { RmsNorm } from "./rms_norm.ts";
import type { Rope } from "./rope.ts";

/** A pre-norm layer. */
export class Block {
  readonly #attention: Attention;
  readonly #mlp: Mlp;
  readonly #attentionNorm: RmsNorm;
  readonly #mlpNorm: RmsNorm;

  /** Takes self_attn, mlp and the norms in front of them below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, rope: Rope) {
    const { hiddenSize, rmsNormEps } = config;
    this.#attention = new Attention(config, weights, `${path}.self_attn`, rope);
    this.#mlp = new Mlp(config, weights, `${path}.mlp`);
    this.#attentionNorm = new RmsNorm(weights, `${path}.input_layernorm`, hiddenSize, rmsNormEps);
    this.#mlpNorm = new RmsNorm(weights, `${path}.post_attention_layernorm`, hiddenSize, rmsNormEps);
  }

  /** (B, T, hidden) → (B, T, hidden); row t has the position offset + t. */
  forward(x: Tensor, layer: number, cache: Cache | undefined, offset: number | Tensor): Tensor {
    const h = mx.add(x, this.#attention.forward(this.#attentionNorm.forward(x), layer, cache, offset));
    return mx.add(h, this.#mlp.forward(this.#mlpNorm.forward(h)));
  }
}
