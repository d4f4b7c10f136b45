/**
 * Qwen3 (arXiv 2505.09388): pre-norm decoder blocks of grouped-query attention with normalised queries and keys, rotary
 * positions, and a SwiGLU feed-forward part. Dense models of every size, with a tied or an own head.
 *
 * Shapes: B batch, T tokens, H query heads, K key/value heads, D head size, V vocabulary.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { cacheBlocks, cacheDtype } from "../../array/cache.ts";
import { TracedSteps } from "../../array/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import { quoted } from "../../graph/error.ts";
import { checkTokens } from "../arguments.ts";
import { type Fields, type ModelConfig, readModelConfig, readRope, type RopeScaling } from "../config.ts";
import { LlmError } from "../error.ts";
import { type Cache, KvCache } from "../kv_cache.ts";
import { Embedding, Linear, RmsNorm, Rope } from "../layers.ts";
import type { Weights } from "../weights.ts";

/** What config.json of a Qwen3 model says. */
export interface Args extends ModelConfig {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly rmsNormEps: number;
  readonly ropeTheta: number;
  readonly ropeScaling: RopeScaling;
}

// Far above any model; more would fill the memory before the first missing tensor is noticed.
const MAX_LAYERS = 1000;
const MAX_SIZE = 2 ** 20;
const MAX_HEADS = 2 ** 12;
const MAX_HEAD = 2 ** 12;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): Args {
  const { theta, scaling } = readRope(fields);
  const args: Args = {
    ...readModelConfig(fields),
    hiddenSize: fields.count("hidden_size", MAX_SIZE),
    intermediateSize: fields.count("intermediate_size", MAX_SIZE),
    layers: fields.count("num_hidden_layers", MAX_LAYERS),
    heads: fields.count("num_attention_heads", MAX_HEADS),
    kvHeads: fields.count("num_key_value_heads", MAX_HEADS),
    headDim: fields.count("head_dim", MAX_HEAD),
    rmsNormEps: fields.positive("rms_norm_eps", 1),
    ropeTheta: theta,
    ropeScaling: scaling,
  };
  const act = fields.string("hidden_act", "silu");
  const unsupported = ["attention_bias", "use_sliding_window"].filter((name) => fields.flag(name, false));
  fields.finish(); // what follows compares values that are right by themselves
  if (args.heads % args.kvHeads !== 0) {
    fields.problem(`"num_attention_heads" ${args.heads} is not a multiple of "num_key_value_heads" ${args.kvHeads}`);
  }
  if (args.headDim % 2 !== 0) fields.problem(`"head_dim" is ${args.headDim}, expected an even number`);
  if (act !== "silu") fields.problem(`"hidden_act" is ${quoted(act)}: only "silu" is supported`);
  for (const name of unsupported) fields.problem(`"${name}" is true, which is not supported`);
  fields.finish();
  return args;
}

/** A row among others. */
interface OneRow {
  /** (B, 1, hidden) */
  readonly x: Tensor;
  /** int32 (1,) or (B,): where it stands among all tokens. */
  readonly position: Tensor;
}

class Attention {
  readonly #args: Args;
  readonly #q: Linear;
  readonly #k: Linear;
  readonly #v: Linear;
  readonly #o: Linear;
  readonly #qNorm: RmsNorm;
  readonly #kNorm: RmsNorm;
  readonly #rope: Rope;

  constructor(args: Args, weights: Weights, path: string, rope: Rope) {
    const { hiddenSize, heads, kvHeads, headDim, rmsNormEps } = args;
    this.#args = args;
    this.#q = new Linear(weights, `${path}.q_proj`, hiddenSize, heads * headDim);
    this.#k = new Linear(weights, `${path}.k_proj`, hiddenSize, kvHeads * headDim);
    this.#v = new Linear(weights, `${path}.v_proj`, hiddenSize, kvHeads * headDim);
    this.#o = new Linear(weights, `${path}.o_proj`, heads * headDim, hiddenSize);
    this.#qNorm = new RmsNorm(weights, `${path}.q_norm`, headDim, rmsNormEps);
    this.#kNorm = new RmsNorm(weights, `${path}.k_norm`, headDim, rmsNormEps);
    this.#rope = rope;
  }

  /** Attention of all rows x (B, T, hidden), or of the `one` of them alone. */
  forward(x: Tensor, layer: number, cache: Cache | undefined, offset: number | Tensor, one?: OneRow): Tensor {
    const [B] = x.shape;
    const { heads, kvHeads, headDim } = this.#args;
    // (B, T, heads * D) → (B, T, heads, D)
    const split = (y: Tensor, n: number): Tensor => y.reshape(B, y.shape[1], n, headDim);
    // (B, T, heads, D) → (B, heads, T, D)
    const q = this.#rope.forward(
      this.#qNorm.forward(split(this.#q.forward(one?.x ?? x), heads)).transpose(0, 2, 1, 3),
      one?.position ?? offset,
    );
    const k = this.#rope.forward(this.#kNorm.forward(split(this.#k.forward(x), kvHeads)).transpose(0, 2, 1, 3), offset);
    const v = split(this.#v.forward(x), kvHeads).transpose(0, 2, 1, 3);

    const { keys, values, lengths } = cache?.update(layer, k, v) ?? { keys: k, values: v, lengths: undefined };
    const T = q.shape[2];
    const y = mx.fast.scaledDotProductAttention(q, keys, values, {
      scale: headDim ** -0.5,
      mask: T > 1 ? "causal" : null,
      lengths: one ? mx.add(one.position, 1) : lengths,
    });
    return this.#o.forward(y.transpose(0, 2, 1, 3).reshape(B, T, heads * headDim));
  }
}

class Mlp {
  readonly #gate: Linear;
  readonly #up: Linear;
  readonly #down: Linear;

  constructor({ hiddenSize, intermediateSize }: Args, weights: Weights, path: string) {
    this.#gate = new Linear(weights, `${path}.gate_proj`, hiddenSize, intermediateSize);
    this.#up = new Linear(weights, `${path}.up_proj`, hiddenSize, intermediateSize);
    this.#down = new Linear(weights, `${path}.down_proj`, intermediateSize, hiddenSize);
  }

  forward(x: Tensor): Tensor {
    return this.#down.forward(mx.multiply(mx.nn.silu(this.#gate.forward(x)), this.#up.forward(x)));
  }
}

class Block {
  readonly #attention: Attention;
  readonly #mlp: Mlp;
  readonly #attentionNorm: RmsNorm;
  readonly #mlpNorm: RmsNorm;

  constructor(args: Args, weights: Weights, path: string, rope: Rope) {
    this.#attention = new Attention(args, weights, `${path}.self_attn`, rope);
    this.#mlp = new Mlp(args, weights, `${path}.mlp`);
    this.#attentionNorm = new RmsNorm(weights, `${path}.input_layernorm`, args.hiddenSize, args.rmsNormEps);
    this.#mlpNorm = new RmsNorm(weights, `${path}.post_attention_layernorm`, args.hiddenSize, args.rmsNormEps);
  }

  /** All rows, or the one at an index (1,): of the others only keys and values are computed. */
  forward(x: Tensor, layer: number, cache: Cache | undefined, offset: number | Tensor, index?: Tensor): Tensor {
    const rows = index ? mx.take(x, index, 1) : x;
    const one = index && { x: this.#attentionNorm.forward(rows), position: mx.add(offset, index) };
    const h = mx.add(rows, this.#attention.forward(this.#attentionNorm.forward(x), layer, cache, offset, one));
    return mx.add(h, this.#mlp.forward(this.#mlpNorm.forward(h)));
  }
}

/** A Qwen3 model. */
export class Model {
  /** What config.json says. */
  readonly config: Args;
  /** Steps of this model that were traced. */
  readonly traces: TracedSteps;
  readonly #weights: Weights;
  readonly #embedding: Embedding;
  readonly #blocks: readonly Block[];
  readonly #norm: RmsNorm;
  readonly #head: Linear | undefined;

  /** Takes all tensors from `weights`, which the model owns from now on. */
  constructor(args: Args, weights: Weights) {
    this.config = args;
    this.#weights = weights;
    this.traces = new TracedSteps(weights);
    const rope = new Rope(weights, args.headDim, args.ropeTheta, args.ropeScaling);
    this.#embedding = new Embedding(weights, "model.embed_tokens", args.vocabSize, args.hiddenSize);
    this.#blocks = Array.from(
      { length: args.layers },
      (_, i) => new Block(args, weights, `model.layers.${i}`, rope),
    );
    this.#norm = new RmsNorm(weights, "model.norm", args.hiddenSize, args.rmsNormEps);
    // A head that is tied but stored all the same is left in the file.
    if (args.tieWordEmbeddings) weights.drop("lm_head");
    else this.#head = new Linear(weights, "lm_head", args.hiddenSize, args.vocabSize);
  }

  /** Token ids (B, T) → logits (B, T, V), or (B, n, V) of `rows` (n,) from 0 on. With a cache, the tokens follow those that it holds. */
  forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor {
    if (this.#weights.tensors.length === 0) throw new LlmError("weights", "The model was disposed: load it again");
    checkTokens(tokens, rows);
    const offset = cache?.begin(tokens.shape[1]) ?? 0;
    let x = this.#embedding.forward(tokens);
    const last = this.#blocks.length - 1;
    const one = rows?.size === 1 ? rows.reshape([1]) : undefined; // then the last layer computes no other
    this.#blocks.forEach((block, layer) =>
      x = block.forward(x, layer, cache, offset, layer === last ? one : undefined)
    );
    if (rows !== undefined && one === undefined) x = mx.take(x, rows, 1);
    const y = this.#norm.forward(x);
    return this.#head?.forward(y) ?? this.#embedding.asLinear(y);
  }

  /** An empty cache for `batch` sequences. */
  makeCache(batch = 1): KvCache {
    const { layers, kvHeads, headDim, maxPositionEmbeddings } = this.config;
    return new KvCache({
      layers,
      batch,
      heads: kvHeads,
      headDim,
      dtype: cacheDtype(this.#weights.tensors, this.#weights.dtype),
      blocks: batch === 1 ? this.#blocksOfCache() : undefined,
      limit: maxPositionEmbeddings,
    });
  }

  /** How fused decoding wants its cache; plain where the weights are not all quantized alike. */
  #blocksOfCache(): { readonly keys: number; readonly values: number } | undefined {
    const { hiddenSize, intermediateSize, heads, kvHeads, headDim, quantization } = this.config;
    if (quantization === undefined || quantization.overrides.size > 0) return undefined;
    const sizes = { hidden: hiddenSize, intermediate: intermediateSize, heads, kvHeads, headDim };
    return cacheBlocks(this.#weights.tensors, { ...sizes, ...quantization.base });
  }

  /** Frees the weights. */
  [Symbol.dispose](): void {
    this.traces[Symbol.dispose]();
    this.#weights[Symbol.dispose]();
  }
}
