/**
 * One layer of a decoder: attention and a feed-forward part, each between norms and beside a residual connection.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module, type RoPE } from "../../nn/mod.ts";
import type { DecoderConfig, NormPlacement } from "../config/decoder.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Attention } from "./attention.ts";
import { Experts } from "./experts.ts";
import { Mlp } from "./mlp.ts";
import type { Pass } from "./pass.ts";
import { forwardInDtype, type Layer, rmsNorm } from "./stored.ts";

/** The names that checkpoints have for the norms of a layer. */
type NormName =
  | "input_layernorm"
  | "post_attention_layernorm"
  | "pre_feedforward_layernorm"
  | "post_feedforward_layernorm";

/** The places of norms: before and after attention, before and after the feed-forward part. */
interface NormPlaces {
  readonly beforeAttention?: NormName;
  readonly afterAttention?: NormName;
  readonly beforeMlp?: NormName;
  readonly afterMlp?: NormName;
}

const NORMS = {
  pre: { beforeAttention: "input_layernorm", beforeMlp: "post_attention_layernorm" },
  post: { afterAttention: "post_attention_layernorm", afterMlp: "post_feedforward_layernorm" },
  both: {
    beforeAttention: "input_layernorm",
    afterAttention: "post_attention_layernorm",
    beforeMlp: "pre_feedforward_layernorm",
    afterMlp: "post_feedforward_layernorm",
  },
} as const satisfies Record<NormPlacement, NormPlaces>;

const MAX_FLOAT16 = 65504;

/** A layer. */
export class Block extends Module {
  /** Attention. */
  self_attn: Attention;
  /** The feed-forward part. */
  mlp?: Mlp | Experts;
  /** The feed-forward part, by the name that it has in some families. */
  block_sparse_moe?: Experts;
  /** The norm before attention. */
  input_layernorm?: Layer;
  /** The norm after attention, or the one before the feed-forward part where that is the only other one. */
  post_attention_layernorm?: Layer;
  /** The norm before the feed-forward part, where there is one after attention. */
  pre_feedforward_layernorm?: Layer;
  /** The norm after the feed-forward part. */
  post_feedforward_layernorm?: Layer;
  readonly #places: NormPlaces;
  readonly #residualScale: number;
  readonly #clips: boolean;

  /** Takes self_attn, the feed-forward part and the norms around them below `path`, the path of layer number `layer`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number, rope: RoPE | undefined) {
    super();
    const { hiddenSize, norms = "pre", residualScale = 1, clipsResidual = false, experts } = config;
    this.self_attn = new Attention(config, weights, `${path}.self_attn`, layer, rope);
    this.#places = NORMS[norms];
    this.#residualScale = residualScale;
    this.#clips = clipsResidual;
    if (experts === undefined || experts.layers?.[layer] === false) this.mlp = new Mlp(config, weights, `${path}.mlp`);
    else this[experts.names.part] = new Experts(config, experts, weights, `${path}.${experts.names.part}`);
    for (const name of Object.values(NORMS[norms])) {
      this[name] = rmsNorm(weights, `${path}.${name}`, hiddenSize, config);
    }
  }

  /** (B, T, hidden) → (B, T, hidden); keys and values go to this layer's place of the cache. */
  override forward(x: Tensor, cache: Cache | undefined, pass: Pass): Tensor {
    const { beforeAttention, afterAttention, beforeMlp, afterMlp } = this.#places;
    const attended = this.self_attn.forward(this.#normed(beforeAttention, x), cache, pass);
    const h = this.#added(x, this.#normed(afterAttention, attended));
    const feedForward = this.mlp ?? this.block_sparse_moe!;
    return this.#added(h, this.#normed(afterMlp, feedForward.forward(this.#normed(beforeMlp, h))));
  }

  /** The result of a norm, or x where there is none. */
  #normed(name: NormName | undefined, x: Tensor): Tensor {
    return name === undefined ? x : forwardInDtype(this[name]!, x);
  }

  #added(residual: Tensor, x: Tensor): Tensor {
    if (this.#clips && residual.dtype === mx.float16) {
      const sum = mx.add(residual.astype(mx.float32), x.astype(mx.float32));
      return mx.clip(sum, -MAX_FLOAT16, MAX_FLOAT16).astype(mx.float16);
    }
    return mx.add(residual, this.#residualScale === 1 ? x : mx.multiply(x, this.#residualScale));
  }
}
