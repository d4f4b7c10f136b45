/**
 * A decoder-only language model: embedding, blocks, a last norm and a head. A {@link DecoderConfig} says what its family makes of it.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { TracedSteps } from "../../array/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import { checkTokens } from "../arguments.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { LlmError } from "../error.ts";
import type { Cache, KvCache } from "../kv_cache.ts";
import { makeCache } from "../make_cache.ts";
import type { LanguageModel } from "../models/language_model.ts";
import type { Weights } from "../weights.ts";
import { Block } from "./block.ts";
import { Embedding } from "./embedding.ts";
import { Linear } from "./linear.ts";
import { RmsNorm } from "./rms_norm.ts";
import { Rope } from "./rope.ts";

/** A model of any family whose layers are {@link Block}s. */
export class DecoderModel implements LanguageModel {
  /** What config.json says. */
  readonly config: DecoderConfig;
  /** Steps of this model that were traced. */
  readonly traces: TracedSteps;
  readonly #weights: Weights;
  readonly #embedding: Embedding;
  readonly #blocks: readonly Block[];
  readonly #norm: RmsNorm;
  readonly #head: Linear | undefined;

  /** Takes all tensors from `weights`, which the model owns from now on. */
  constructor(config: DecoderConfig, weights: Weights) {
    const { vocabSize, hiddenSize, layers, headDim, ropeTheta, ropeScaling, rmsNormEps } = config;
    this.config = config;
    this.#weights = weights;
    this.traces = new TracedSteps(weights);
    const rope = new Rope(weights, headDim, ropeTheta, ropeScaling);
    this.#embedding = new Embedding(weights, "model.embed_tokens", vocabSize, hiddenSize);
    this.#blocks = Array.from({ length: layers }, (_, i) => new Block(config, weights, `model.layers.${i}`, rope));
    this.#norm = new RmsNorm(weights, "model.norm", hiddenSize, rmsNormEps);
    // A head that is tied but stored all the same is left in the file.
    if (config.tieWordEmbeddings) weights.drop("lm_head");
    else if (!weights.headless) this.#head = new Linear(weights, "lm_head", hiddenSize, vocabSize);
  }

  /**
   * Token ids (B, T) → logits (B, T, V), or (B, n, V) of `rows` (n,) from 0 on. With a cache, the tokens follow those that it holds.
   * Throws an {@link LlmError} where the model was disposed or the cache has no room.
   */
  forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor {
    this.#checkAlive();
    checkTokens(tokens, rows);
    const offset = cache?.begin(tokens.shape[1]) ?? 0;
    let x = this.#embedding.forward(tokens);
    this.#blocks.forEach((block, layer) => x = block.forward(x, layer, cache, offset));
    if (rows !== undefined) x = mx.take(x, rows, 1);
    return this.logits(this.#norm.forward(x));
  }

  /** See {@link LanguageModel.logits}. Throws an {@link LlmError} where the checkpoint had no head. */
  logits(hidden: Tensor): Tensor {
    if (this.#head !== undefined) return this.#head.forward(hidden);
    if (this.config.tieWordEmbeddings) return this.#embedding.asLinear(hidden);
    throw new LlmError("weights", "The model has no head, which logits come from: it is one for embeddings");
  }

  /** See {@link LanguageModel.hiddenStates}. */
  hiddenStates(tokens: Tensor): Tensor[] {
    this.#checkAlive();
    checkTokens(tokens);
    const states = [this.#embedding.forward(tokens)];
    this.#blocks.forEach((block, layer) => states.push(block.forward(states[layer], layer, undefined, 0)));
    return states.with(-1, this.#norm.forward(states[this.#blocks.length]));
  }

  #checkAlive(): void {
    if (this.#weights.tensors.length === 0) throw new LlmError("weights", "The model was disposed: load it again");
  }

  /** An empty cache for `batch` sequences. */
  makeCache(batch = 1): KvCache {
    return makeCache(this.config, this.#weights, batch);
  }

  /** Frees the weights. */
  [Symbol.dispose](): void {
    this.traces[Symbol.dispose]();
    this.#weights[Symbol.dispose]();
  }
}
