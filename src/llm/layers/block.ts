/**
 * One layer of a decoder: attention or what takes its place, and a feed-forward part. Each is between norms and beside a residual connection.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { geluApprox, Module, type RoPE } from "../../nn/mod.ts";
import { type DecoderConfig, MODULE_NAMES, type ModuleNames, type NormPlacement } from "../config/decoder.ts";
import { kindOf, type LayerKind } from "../config/layer_kinds.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Attention } from "./attention.ts";
import { DeltaNet } from "./delta_net.ts";
import { Experts } from "./experts.ts";
import { RoutedExperts, ScaledRouter } from "./experts_beside.ts";
import { LatentAttention } from "./latent_attention.ts";
import { Mlp } from "./mlp.ts";
import type { Pass } from "./pass.ts";
import type { Sharder } from "./shard.ts";
import { ShortConv } from "./short_conv.ts";
import { forwardInDtype, type Layer, linear, rmsNorm } from "./stored.ts";

/** The names that checkpoints have for the norms of a layer. */
type NormName =
  | ModuleNames["mixerNorm"]
  | ModuleNames["mlpNorm"]
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
  pre: ({ mixerNorm, mlpNorm }) => ({ beforeAttention: mixerNorm, beforeMlp: mlpNorm }),
  post: () => ({ afterAttention: "post_attention_layernorm", afterMlp: "post_feedforward_layernorm" }),
  both: ({ mixerNorm }) => ({
    beforeAttention: mixerNorm,
    afterAttention: "post_attention_layernorm",
    beforeMlp: "pre_feedforward_layernorm",
    afterMlp: "post_feedforward_layernorm",
  }),
} as const satisfies Record<NormPlacement, (names: ModuleNames) => NormPlaces>;

/** The module of a layer that mixes tokens, by its kind. */
const MIXERS = { attention: "self_attn", conv: "conv", deltaNet: "linear_attn" } as const satisfies Record<
  LayerKind,
  keyof Block
>;

const MAX_FLOAT16 = 65504;

/** A layer. */
export class Block extends Module {
  /** Attention. */
  self_attn?: Attention | LatentAttention;
  /** A short convolution. */
  conv?: ShortConv;
  /** A gated delta net. */
  linear_attn?: DeltaNet;
  /** The feed-forward part. */
  mlp?: Mlp | Experts;
  /** The feed-forward part, by the name that it has in some families. */
  block_sparse_moe?: Experts;
  /** The feed-forward part, with experts or without, by the name that it has in other families. */
  feed_forward?: Mlp | Experts;
  /** The norm before attention. */
  input_layernorm?: Layer;
  /** The norm after attention, or the one before the feed-forward part where that is the only other one. */
  post_attention_layernorm?: Layer;
  /** The norm before the feed-forward part, where there is one after attention. */
  pre_feedforward_layernorm?: Layer;
  /** The norm after the feed-forward part. */
  post_feedforward_layernorm?: Layer;
  /** The norm before attention or the convolution, by the name that it has in some families. */
  operator_norm?: Layer;
  /** The norm before the feed-forward part, by the name that it has there. */
  ffn_norm?: Layer;
  readonly #mixer: typeof MIXERS[LayerKind];
  /** The router of experts beside the feed-forward part. */
  router?: ScaledRouter;
  /** Those experts. */
  experts?: RoutedExperts;
  /** The norm after the dense part, where there are experts beside it. */
  post_feedforward_layernorm_1?: Layer;
  /** The norm after those experts. */
  post_feedforward_layernorm_2?: Layer;
  /** The norm before them. */
  pre_feedforward_layernorm_2?: Layer;
  /** (…, hidden) → (…, size), in families whose layers add vectors of tokens. */
  per_layer_input_gate?: Layer;
  /** (…, size) → (…, hidden) */
  per_layer_projection?: Layer;
  /** The norm of what those vectors add. */
  post_per_layer_input_norm?: Layer;
  /** A factor of the result of the layer, (1,). */
  layer_scalar?: Tensor;
  readonly #places: NormPlaces;
  readonly #residualScale: number;
  readonly #clips: boolean;

  /** Takes what mixes tokens, the feed-forward part and the norms around them below `path`, the path of layer number `layer`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number, rope: RoPE | undefined) {
    super();
    const { hiddenSize, norms = "pre", residualScale = 1, clipsResidual = false, names = MODULE_NAMES } = config;
    const { intermediateSize, intermediateSizes, experts, expertsBeside, layerInputs } = config;
    this.#mixer = MIXERS[kindOf(config, layer)];
    const mixerPath = `${path}.${this.#mixer}`;
    const SelfAttention = config.latent ? LatentAttention : Attention;
    if (this.#mixer === "conv") this.conv = new ShortConv(config, weights, mixerPath, layer);
    else if (this.#mixer === "linear_attn") this.linear_attn = new DeltaNet(config, weights, mixerPath, layer);
    else this.self_attn = new SelfAttention(config, weights, mixerPath, layer, rope);
    this.#places = NORMS[norms](names);
    this.#residualScale = residualScale;
    this.#clips = clipsResidual;
    if (experts === undefined || experts.layers?.[layer] === false) {
      const size = intermediateSizes?.[layer] ?? intermediateSize;
      this[names.mlp] = new Mlp({ ...config, intermediateSize: size }, weights, `${path}.${names.mlp}`);
    } else this[experts.names.part] = new Experts(config, experts, weights, `${path}.${experts.names.part}`);
    const norm = (name: string): Layer => rmsNorm(weights, `${path}.${name}`, hiddenSize, config);
    for (const name of Object.values(this.#places) as NormName[]) this[name] = norm(name);
    if (expertsBeside) {
      this.router = new ScaledRouter(config, expertsBeside, weights, `${path}.router`);
      this.experts = new RoutedExperts(config, expertsBeside, weights, `${path}.experts`);
      this.post_feedforward_layernorm_1 = norm("post_feedforward_layernorm_1");
      this.post_feedforward_layernorm_2 = norm("post_feedforward_layernorm_2");
      this.pre_feedforward_layernorm_2 = norm("pre_feedforward_layernorm_2");
    }
    if (layerInputs) {
      const { size } = layerInputs;
      this.per_layer_input_gate = linear(weights, `${path}.per_layer_input_gate`, hiddenSize, size);
      this.per_layer_projection = linear(weights, `${path}.per_layer_projection`, size, hiddenSize);
      this.post_per_layer_input_norm = norm("post_per_layer_input_norm");
    }
    if (config.layerScalars) this.layer_scalar = weights.takeVector(`${path}.layer_scalar`, [1]);
  }

  /**
   * (B, T, hidden) → (B, T, hidden); keys and values, or states, go to this layer's place of the cache. `input` (B, T, size) has the vectors
   * of tokens that the layer adds, if it has some.
   */
  override forward(x: Tensor, cache: Cache | undefined, pass: Pass, input?: Tensor): Tensor {
    const { beforeAttention, afterAttention, beforeMlp, afterMlp } = this.#places;
    const attended = this[this.#mixer]!.forward(this.#normed(beforeAttention, x), cache, pass);
    const h = this.#added(x, this.#normed(afterAttention, attended));
    const feedForward = (this.mlp ?? this.block_sparse_moe ?? this.feed_forward)!;
    const dense = feedForward.forward(this.#normed(beforeMlp, h));
    const y = this.#added(h, this.#normed(afterMlp, this.#withExperts(h, dense)));
    const z = input === undefined ? y : this.#withInput(y, input);
    return this.layer_scalar ? mx.multiply(z, this.layer_scalar.astype(z.dtype)) : z;
  }

  /** Leaves this process its heads and its part of the feed-forward features; `part` is the config with as many. */
  shard(sharder: Sharder, part: DecoderConfig): void {
    (this.self_attn as Attention).shard(sharder, part);
    ((this.mlp ?? this.feed_forward) as Mlp).shard(sharder);
  }

  /** The result of the dense part and that of the experts beside it for h, if there are some. */
  #withExperts(h: Tensor, dense: Tensor): Tensor {
    if (!this.experts) return dense;
    const given = forwardInDtype(this.pre_feedforward_layernorm_2!, h);
    const routed = this.experts.forward(given, this.router!.forward(h));
    return mx.add(
      forwardInDtype(this.post_feedforward_layernorm_1!, dense),
      forwardInDtype(this.post_feedforward_layernorm_2!, routed),
    );
  }

  /** x (B, T, hidden) with what the vectors of tokens (B, T, size) add. */
  #withInput(x: Tensor, input: Tensor): Tensor {
    const gate = mx.multiply(geluApprox(forwardInDtype(this.per_layer_input_gate!, x)), input);
    const projected = forwardInDtype(this.per_layer_projection!, gate);
    return mx.add(x, forwardInDtype(this.post_per_layer_input_norm!, projected));
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
