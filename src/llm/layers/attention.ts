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
import {
  attentionOf,
  type DecoderConfig,
  MODULE_NAMES,
  type ModuleNames,
  type QueryGrowth,
} from "../config/decoder.ts";
import { countAttention } from "../config/layer_kinds.ts";
import type { Cache, KeysValues } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { Pass } from "./pass.ts";
import { type Sharder, shardLayer } from "./shard.ts";
import { forwardInDtype, type Layer, linear, rmsNorm } from "./stored.ts";

/** Attention of one layer, with or without biases and norms of queries and keys. */
export class Attention extends Module {
  #config: DecoderConfig;
  readonly #names: ModuleNames;
  readonly #layer: number;
  /** Its place among the layers that have keys and values. */
  readonly #place: number;
  #attention: ReturnType<typeof attentionOf>;
  /** Whether other layers read the keys and values of this one. */
  readonly #isShared: boolean;
  /** One more logit for each head, in families that have them: (heads,). */
  sinks?: Tensor;
  /** The norm of the queries, by the name that it has in some families. */
  q_layernorm?: Layer;
  /** The same of the keys. */
  k_layernorm?: Layer;
  /** (…, hidden) → (…, (heads + 2 * kvHeads) * D), in families that have one matrix for q_proj, k_proj and v_proj. */
  qkv_proj?: Layer;
  /** (…, hidden) → (…, heads * D), or (…, heads * 2 * D) where each head has a gate after its query. */
  q_proj?: Layer;
  /** (…, hidden) → (…, kvHeads * D); not there in layers that share the keys and values of another. */
  k_proj?: Layer;
  /** (…, hidden) → (…, kvHeads * D); not there either where k_proj gives values too. */
  v_proj?: Layer;
  /** (…, heads * D) → (…, hidden) */
  o_proj?: Layer;
  /** The same, by the name that it has in some families. */
  out_proj?: Layer;
  /** The norm of the queries, of each head or of all together; not there in families without one. */
  q_norm?: Layer;
  /** The norm of the keys, in the same way. */
  k_norm?: Layer;
  /** Rotary positions; not there in layers without positions. */
  rope?: RoPE;

  /** Takes those of q_proj, k_proj, v_proj, qkv_proj, o_proj, q_norm and k_norm below `path` that the layer has. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number, rope: RoPE | undefined) {
    super();
    const { hiddenSize, heads, qkNorm, qkNormWhole, qkvBias, outputBias, layerAttention = [] } = config;
    const attention = attentionOf(config, layer);
    const { kvHeads, headDim, joinedKeysValues, sharesWith } = attention;
    this.#config = config;
    this.#names = config.names ?? MODULE_NAMES;
    this.#layer = layer;
    this.#place = countAttention(config, layer);
    this.#attention = attention;
    this.#isShared = layerAttention.some((other) => other.sharesWith === layer);
    const project = (name: string, count: number): Layer =>
      linear(weights, `${path}.${name}`, hiddenSize, count * headDim, qkvBias);
    if (config.sinks) this.sinks = weights.takeVector(`${path}.sinks`, [heads]);
    if (config.joinedProjections) this.qkv_proj = project("qkv_proj", heads + 2 * kvHeads);
    else {
      this.q_proj = project("q_proj", config.outputGate ? 2 * heads : heads);
      if (sharesWith === undefined) this.k_proj = project("k_proj", kvHeads);
      if (sharesWith === undefined && !joinedKeysValues) this.v_proj = project("v_proj", kvHeads);
    }
    const { output, queryNorm, keyNorm } = this.#names;
    this[output] = linear(weights, `${path}.${output}`, heads * headDim, hiddenSize, outputBias);
    if (qkNorm) {
      const norm = (name: string, count: number): Layer =>
        rmsNorm(weights, `${path}.${name}`, qkNormWhole ? count * headDim : headDim, config);
      this[queryNorm] = norm(queryNorm, heads);
      if (sharesWith === undefined) this[keyNorm] = norm(keyNorm, kvHeads);
    }
    if (rope) this.rope = rope;
    weights.drop(`${path}.rotary_emb`); // frequencies, which early checkpoints hold
  }

  /**
   * (B, T, hidden) → (B, T, hidden); row t of a sequence has the position pass.offset + t. Without a cache it sees the rows up to its own.
   */
  override forward(x: Tensor, cache: Cache | undefined, pass: Pass): Tensor {
    const [B, T] = x.shape;
    const { window, headDim } = this.#attention;
    const { heads, scoreScale = headDim ** -0.5, queryGrowth, scoreCap } = this.#config;
    const [projected, ...own] = this.#projected(x);
    const [queries, gate] = this.#config.outputGate
      ? mx.split(projected.reshape(B, T, heads, -1), 2, -1).map((part) => part.reshape(B, T, heads * headDim))
      : [projected, undefined];
    const rotated = this.#rotated(this.#split(queries, heads, pass, this[this.#names.queryNorm]), pass);
    const q = queryGrowth ? grown(rotated, queryGrowth, pass) : rotated;
    const held = this.#keysValues(own, cache, pass);
    const { keys, values, lengths, ring } = held;
    // Bounds have no kernel, and a ring has an order of its own: a mask is computed once for all layers.
    const isMasked = scoreCap !== undefined || ring !== undefined;
    const y = mx.fast.scaledDotProductAttention(q, keys, values, {
      scale: scoreScale,
      ...(isMasked ? { mask: pass.mask(window, held) } : pass.seen(window)),
      sinks: this.sinks?.astype(q.dtype),
      softcap: scoreCap,
      lengths,
    });
    const result = y.transpose(0, 2, 1, 3).reshape(B, T, heads * headDim);
    return forwardInDtype(this[this.#names.output]!, gate ? mx.multiply(result, mx.sigmoid(gate)) : result);
  }

  /** Leaves this process its heads; `part` is the config with as many. */
  shard(sharder: Sharder, part: DecoderConfig): void {
    const { heads } = this.#config;
    const { kvHeads, headDim } = this.#attention;
    const ends = [heads * headDim, (heads + kvHeads) * headDim];
    for (const name of ["qkv_proj", "q_proj", "k_proj", "v_proj"] as const) {
      if (!this[name]) continue;
      const segments = name === "qkv_proj" ? ends : 1;
      shardLayer(sharder, this[name], "all-to-sharded", (layer) => this[name] = layer, segments);
    }
    const { output } = this.#names;
    shardLayer(sharder, this[output]!, "sharded-to-all", (layer) => this[output] = layer);
    sharder.changes.push(() => {
      this.#config = part;
      this.#attention = attentionOf(part, this.#layer);
      const { sinks } = this;
      if (!sinks) return;
      const { group, weights } = sharder;
      this.sinks = mx.contiguous(mx.split(sinks, group.size())[group.rank()]);
      weights.exchange([sinks], [this.sinks]);
    });
  }

  /** The keys and values that queries see, made of projections (B, T, kvHeads * D) or of the layer that this one shares them with. */
  #keysValues([k, v = k]: readonly Tensor[], cache: Cache | undefined, pass: Pass): KeysValues {
    const { kvHeads, sharesWith } = this.#attention;
    if (sharesWith !== undefined) return pass.keysValues.get(sharesWith)!;
    const { valueNorm, rmsNormEps } = this.#config;
    const keys = this.#rotated(this.#split(k, kvHeads, pass, this[this.#names.keyNorm]), pass);
    const plain = this.#split(v, kvHeads, pass);
    const values = valueNorm ? mx.fast.rmsNorm(plain, null, rmsNormEps) : plain;
    const held = cache?.update(this.#place, keys, values) ?? { keys, values, lengths: undefined };
    if (this.#isShared) pass.keysValues.set(this.#layer, held);
    return held;
  }

  /** (…, H * D) → (B, H, T, D) by the rows of the pass, normalised if there is a norm. */
  #split(y: Tensor, H: number, pass: Pass, norm?: Layer): Tensor {
    const { qkNormWhole } = this.#config;
    const whole = norm && qkNormWhole ? forwardInDtype(norm, y) : y;
    const each = whole.reshape(pass.sequences(y.shape), pass.rows, H, this.#attention.headDim);
    return (norm && !qkNormWhole ? forwardInDtype(norm, each) : each).transpose(0, 2, 1, 3);
  }

  #rotated(y: Tensor, { offset }: Pass): Tensor {
    return this.rope?.forward(y, offset) ?? y;
  }

  /** (B, T, hidden) → projections to queries, and to keys and values as far as the layer has its own. */
  #projected(x: Tensor): Tensor[] {
    const { heads } = this.#config;
    const { kvHeads, headDim } = this.#attention;
    if (this.qkv_proj) {
      return mx.split(forwardInDtype(this.qkv_proj, x), [heads * headDim, (heads + kvHeads) * headDim], -1);
    }
    const layers = [this.q_proj, this.k_proj, this.v_proj].filter((layer) => layer !== undefined);
    return layers.map((layer) => forwardInDtype(layer, x));
  }
}

/** Queries (B, H, T, D) times the factors of their positions. */
function grown(q: Tensor, { beta, context }: QueryGrowth, { positions }: Pass): Tensor {
  const rounds = mx.floor(mx.divide(positions.astype(mx.float32), context));
  const factors = mx.add(mx.multiply(mx.log(mx.add(rounds, 1)), beta), 1);
  return mx.multiply(q, factors.astype(q.dtype));
}
