/**
 * Grouped-query attention (arXiv 2305.13245) with rotary positions over what a cache holds.
 *
 * Shapes: B batch, T tokens, H query or key/value heads, D head size.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import type { Cache } from "../kv_cache.ts";
import type { Weights } from "../weights.ts";
import { Linear } from "./linear.ts";
import { RmsNorm } from "./rms_norm.ts";
import type { Rope } from "./rope.ts";

/** Attention of one layer, with or without biases and norms of queries and keys. */
export class Attention {
  readonly #config: DecoderConfig;
  readonly #q: Linear;
  readonly #k: Linear;
  readonly #v: Linear;
  readonly #o: Linear;
  readonly #qNorm: RmsNorm | undefined;
  readonly #kNorm: RmsNorm | undefined;
  readonly #rope: Rope;

  /** Takes q_proj, k_proj, v_proj and o_proj below `path`, and q_norm and k_norm where there are some. */
  constructor(config: DecoderConfig, weights: Weights, path: string, rope: Rope) {
    const { hiddenSize, heads, kvHeads, headDim, qkNorm, qkvBias, outputBias, rmsNormEps } = config;
    this.#config = config;
    this.#q = new Linear(weights, `${path}.q_proj`, hiddenSize, heads * headDim, qkvBias);
    this.#k = new Linear(weights, `${path}.k_proj`, hiddenSize, kvHeads * headDim, qkvBias);
    this.#v = new Linear(weights, `${path}.v_proj`, hiddenSize, kvHeads * headDim, qkvBias);
    this.#o = new Linear(weights, `${path}.o_proj`, heads * headDim, hiddenSize, outputBias);
    if (qkNorm) {
      this.#qNorm = new RmsNorm(weights, `${path}.q_norm`, headDim, rmsNormEps);
      this.#kNorm = new RmsNorm(weights, `${path}.k_norm`, headDim, rmsNormEps);
    }
    this.#rope = rope;
    weights.drop(`${path}.rotary_emb`); // frequencies, which early checkpoints hold
  }

  /** (B, T, hidden) → (B, T, hidden); row t has the position offset + t. */
  forward(x: Tensor, layer: number, cache: Cache | undefined, offset: number | Tensor): Tensor {
    const [B, T] = x.shape;
    const { heads, kvHeads, headDim } = this.#config;
    // (B, T, H * D) → (B, H, T, D)
    const split = (y: Tensor, H: number, norm?: RmsNorm): Tensor => {
      const each = y.reshape(B, T, H, headDim);
      return (norm?.forward(each) ?? each).transpose(0, 2, 1, 3);
    };
    const q = this.#rope.forward(split(this.#q.forward(x), heads, this.#qNorm), offset);
    const k = this.#rope.forward(split(this.#k.forward(x), kvHeads, this.#kNorm), offset);
    const v = split(this.#v.forward(x), kvHeads);

    const { keys, values, lengths } = cache?.update(layer, k, v) ?? { keys: k, values: v, lengths: undefined };
    const y = mx.fast.scaledDotProductAttention(q, keys, values, {
      scale: headDim ** -0.5,
      mask: T > 1 ? "causal" : null,
      lengths,
    });
    return this.#o.forward(y.transpose(0, 2, 1, 3).reshape(B, T, heads * headDim));
  }
}
