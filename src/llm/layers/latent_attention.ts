/**
 * Latent attention (arXiv 2405.04434). A cache holds one vector of each position for all heads, and rotated features of keys that heads
 * share too. A step of one token maps its queries to that vector and attends to it; longer passes make the keys and values of each head.
 *
 * Shapes: B batch, T tokens, S positions, H heads, R features of the vector, P rotated features.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module, type RoPE } from "../../nn/mod.ts";
import type { DecoderConfig, LatentConfig } from "../config/decoder.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { type HeadLayer, multiLinear } from "./multi_linear.ts";
import type { Pass } from "./pass.ts";
import { forwardInDtype, type Layer, linear, rmsNorm } from "./stored.ts";

/** What attention multiplies. */
interface Heads {
  /** (B, H, T, D) */
  readonly q: Tensor;
  /** (B, H or 1, S, D) */
  readonly k: Tensor;
  /** (B, H or 1, S, features of values) */
  readonly v: Tensor;
}

/** Latent attention of one layer. */
export class LatentAttention extends Module {
  /** (…, hidden) → (…, H * D), where queries are projected at once. */
  q_proj?: Layer;
  /** (…, hidden) → (…, features of what queries are made of), where they are not. */
  q_a_proj?: Layer;
  /** The norm of those. */
  q_a_layernorm?: Layer;
  /** What makes queries of them, (…, H * D). */
  q_b_proj?: Layer;
  /** (…, hidden) → (…, R + P) */
  kv_a_proj_with_mqa: Layer;
  /** The norm of the vector. */
  kv_a_layernorm: Layer;
  /** Maps the queries of each head to the vector. */
  embed_q: HeadLayer;
  /** Makes the values of each head of the vector. */
  unembed_out: HeadLayer;
  /** (…, H * features of values) → (…, hidden) */
  o_proj: Layer;
  /** Rotary positions of pairs of neighbours. */
  rope: RoPE;
  readonly #config: DecoderConfig;
  readonly #latent: LatentConfig;
  readonly #layer: number;

  /** Takes its modules below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number, rope: RoPE | undefined) {
    super();
    const { hiddenSize, heads, headDim, latent, qkvBias, outputBias } = config;
    const { rank, queryRank, plainDim, valueDim } = latent!;
    this.#config = config;
    this.#latent = latent!;
    this.#layer = layer;
    if (queryRank === undefined) this.q_proj = linear(weights, `${path}.q_proj`, hiddenSize, heads * headDim);
    else {
      this.q_a_proj = linear(weights, `${path}.q_a_proj`, hiddenSize, queryRank, qkvBias);
      this.q_a_layernorm = rmsNorm(weights, `${path}.q_a_layernorm`, queryRank, config);
      this.q_b_proj = linear(weights, `${path}.q_b_proj`, queryRank, heads * headDim);
    }
    const both = rank + headDim - plainDim;
    this.kv_a_proj_with_mqa = linear(weights, `${path}.kv_a_proj_with_mqa`, hiddenSize, both, qkvBias);
    this.kv_a_layernorm = rmsNorm(weights, `${path}.kv_a_layernorm`, rank, config);
    this.embed_q = multiLinear(weights, `${path}.embed_q`, heads, plainDim, rank);
    this.unembed_out = multiLinear(weights, `${path}.unembed_out`, heads, rank, valueDim);
    this.o_proj = linear(weights, `${path}.o_proj`, heads * valueDim, hiddenSize, outputBias);
    this.rope = rope!;
  }

  /** (B, T, hidden) → (B, T, hidden); row t has the position pass.offset + t. Without a cache it sees the rows up to its own. */
  override forward(x: Tensor, cache: Cache | undefined, pass: Pass): Tensor {
    const [B, T] = x.shape;
    const { heads, headDim, scoreScale = headDim ** -0.5 } = this.#config;
    const { rank, plainDim } = this.#latent;
    const rotate = (y: Tensor): Tensor => this.rope.forward(y, pass.offset);
    const [plain, turned] = mx.split(this.#queries(x), [plainDim], -1);
    const [compressed, position] = mx.split(forwardInDtype(this.kv_a_proj_with_mqa, x), [rank], -1);
    const vector = forwardInDtype(this.kv_a_layernorm, compressed).reshape(B, 1, T, rank);
    const own = { keys: vector, values: rotate(position.reshape(B, 1, T, headDim - plainDim)), lengths: undefined };
    const held = cache?.update(this.#layer, own.keys, own.values) ?? own;
    const { keys, values, lengths } = held;
    const make = T === 1 ? this.#absorbed : this.#expanded;
    const { q, k, v } = make.call(this, plain, rotate(turned), keys, values);
    const mask = pass.mask(undefined, held);
    const y = mx.fast.scaledDotProductAttention(q, k, v, { scale: scoreScale, mask, lengths });
    const each = T === 1 ? this.unembed_out.forward(y) : y;
    return forwardInDtype(this.o_proj, each.transpose(0, 2, 1, 3).reshape(B, T, heads * this.#latent.valueDim));
  }

  /** (B, T, hidden) → (B, H, T, D) */
  #queries(x: Tensor): Tensor {
    const [B, T] = x.shape;
    const { heads, headDim } = this.#config;
    const q = this.q_proj
      ? forwardInDtype(this.q_proj, x)
      : forwardInDtype(this.q_b_proj!, forwardInDtype(this.q_a_layernorm!, forwardInDtype(this.q_a_proj!, x)));
    return q.reshape(B, T, heads, headDim).transpose(0, 2, 1, 3);
  }

  /** Queries mapped to the vectors (B, 1, S, R), which are keys and values of all heads. */
  #absorbed(plain: Tensor, turned: Tensor, vectors: Tensor, positions: Tensor): Heads {
    return {
      q: mx.concatenate([this.embed_q.forward(plain), turned], -1),
      k: mx.concatenate([vectors, positions], -1),
      v: vectors,
    };
  }

  /** Keys and values of each head, made of the vectors. */
  #expanded(plain: Tensor, turned: Tensor, given: Tensor, positions: Tensor): Heads {
    const vectors = given.astype(plain.dtype);
    const keys = this.embed_q.transposed(vectors);
    const [B, H, S] = keys.shape;
    const shared = mx.broadcastTo(positions.astype(plain.dtype), [B, H, S, positions.shape[3]]);
    return {
      q: mx.concatenate([plain, turned], -1),
      k: mx.concatenate([keys, shared], -1),
      v: this.unembed_out.forward(vectors),
    };
  }
}
