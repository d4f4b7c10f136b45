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
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { Pass } from "./pass.ts";
import { forwardInDtype, type Layer, linear, rmsNorm } from "./stored.ts";

/** Attention of one layer, with or without biases and norms of queries and keys. */
export class Attention extends Module {
  readonly #config: DecoderConfig;
  readonly #names: ModuleNames;
  /** Its place among the layers that have keys and values. */
  readonly #place: number;
  readonly #window: number | undefined;
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
  /** (…, hidden) → (…, kvHeads * D) */
  k_proj?: Layer;
  /** (…, hidden) → (…, kvHeads * D) */
  v_proj?: Layer;
  /** (…, heads * D) → (…, hidden) */
  o_proj?: Layer;
  /** The same, by the name that it has in some families. */
  out_proj?: Layer;
  /** The norm of the queries, of each head or of all together; not there in families without one. */
  q_norm?: Layer;
  /** The same of the keys. */
  k_norm?: Layer;
  /** Rotary positions; not there in layers without positions. */
  rope?: RoPE;

  /** Takes the projections (q_proj, k_proj, v_proj or qkv_proj, o_proj) below `path`, and the norms of queries and keys if there are some. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number, rope: RoPE | undefined) {
    super();
    const { hiddenSize, heads, kvHeads, headDim, qkNorm, qkNormWhole, qkvBias, outputBias } = config;
    this.#config = config;
    this.#names = config.names ?? MODULE_NAMES;
    this.#place = countAttention(config, layer);
    this.#window = attentionOf(config, layer).window;
    const project = (name: string, count: number): Layer =>
      linear(weights, `${path}.${name}`, hiddenSize, count * headDim, qkvBias);
    if (config.sinks) this.sinks = weights.takeVector(`${path}.sinks`, [heads]);
    if (config.joinedProjections) this.qkv_proj = project("qkv_proj", heads + 2 * kvHeads);
    else {
      this.q_proj = project("q_proj", config.outputGate ? 2 * heads : heads);
      this.k_proj = project("k_proj", kvHeads);
      this.v_proj = project("v_proj", kvHeads);
    }
    const { output, queryNorm, keyNorm } = this.#names;
    this[output] = linear(weights, `${path}.${output}`, heads * headDim, hiddenSize, outputBias);
    if (qkNorm) {
      const norm = (name: string, count: number): Layer =>
        rmsNorm(weights, `${path}.${name}`, qkNormWhole ? count * headDim : headDim, config);
      this[queryNorm] = norm(queryNorm, heads);
      this[keyNorm] = norm(keyNorm, kvHeads);
    }
    if (rope) this.rope = rope;
    weights.drop(`${path}.rotary_emb`); // frequencies, which early checkpoints hold
  }

  /** (B, T, hidden) → (B, T, hidden); row t has the position pass.offset + t. Without a cache it sees the rows up to its own. */
  override forward(x: Tensor, cache: Cache | undefined, pass: Pass): Tensor {
    const [B, T] = x.shape;
    const { heads, headDim, scoreScale = headDim ** -0.5, queryGrowth, scoreCap } = this.#config;
    const { q: rotated, k, v, gate } = this.#heads(x, pass.offset);
    const q = queryGrowth ? grown(rotated, queryGrowth, pass) : rotated;
    const { keys, values, lengths } = cache?.update(this.#place, k, v) ?? { keys: k, values: v, lengths: undefined };
    const y = mx.fast.scaledDotProductAttention(q, keys, values, {
      scale: scoreScale,
      mask: pass.mask(this.#window, keys.shape[2]),
      sinks: this.sinks?.astype(q.dtype),
      softcap: scoreCap,
      lengths,
    });
    const result = y.transpose(0, 2, 1, 3).reshape(B, T, heads * headDim);
    return forwardInDtype(this[this.#names.output]!, gate ? mx.multiply(result, mx.sigmoid(gate)) : result);
  }

  /** (B, T, hidden) → queries, keys and values (B, H, T, D), and the gate (B, T, heads * D) if there is one. Queries and keys are rotated. */
  #heads(x: Tensor, offset: number | Tensor): { q: Tensor; k: Tensor; v: Tensor; gate: Tensor | undefined } {
    const [B, T] = x.shape;
    const { heads, kvHeads, headDim, qkNormWhole } = this.#config;
    const { queryNorm, keyNorm } = this.#names;
    // (B, T, H * D) → (B, H, T, D)
    const split = (y: Tensor, H: number, norm?: Layer): Tensor => {
      const whole = norm && qkNormWhole ? forwardInDtype(norm, y) : y;
      const each = whole.reshape(B, T, H, headDim);
      return (norm && !qkNormWhole ? forwardInDtype(norm, each) : each).transpose(0, 2, 1, 3);
    };
    const rotate = (y: Tensor): Tensor => this.rope?.forward(y, offset) ?? y;
    const [queries, k, v] = this.#projected(x);
    const [q, gate] = this.#config.outputGate
      ? mx.split(queries.reshape(B, T, heads, -1), 2, -1).map((part) => part.reshape(B, T, heads * headDim))
      : [queries, undefined];
    return {
      q: rotate(split(q, heads, this[queryNorm])),
      k: rotate(split(k, kvHeads, this[keyNorm])),
      v: split(v, kvHeads),
      gate,
    };
  }

  #projected(x: Tensor): Tensor[] {
    const { heads, kvHeads, headDim } = this.#config;
    if (this.qkv_proj) {
      return mx.split(forwardInDtype(this.qkv_proj, x), [heads * headDim, (heads + kvHeads) * headDim], -1);
    }
    return [this.q_proj!, this.k_proj!, this.v_proj!].map((layer) => forwardInDtype(layer, x));
  }
}

/** Queries (B, H, T, D) times the factors of their positions. */
function grown(q: Tensor, { beta, context }: QueryGrowth, { positions }: Pass): Tensor {
  const rounds = mx.floor(mx.divide(positions.astype(mx.float32), context));
  const factors = mx.add(mx.multiply(mx.log(mx.add(rounds, 1)), beta), 1);
  return mx.multiply(q, factors.astype(q.dtype));
}
