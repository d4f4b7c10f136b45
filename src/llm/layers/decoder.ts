/**
 * A decoder: embedding, blocks and a last norm. With a head it is a language model.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Block } from "./block.ts";
import { initializeRope } from "./rope.ts";
import { embedding, forwardInDtype, type Layer, rmsNorm, type Table } from "./stored.ts";

/** The model up to the head: token ids to hidden states. */
export class Decoder extends Module {
  /** The vectors of tokens. */
  embed_tokens: Table;
  /** The blocks, in their order. */
  layers: Block[];
  /** The last norm. */
  norm: Layer;
  readonly #dtype: Dtype;

  /** Takes embed_tokens, layers and norm below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string) {
    super();
    const { vocabSize, hiddenSize, layers, headDim, ropeTheta, ropeScaling, rmsNormEps } = config;
    this.#dtype = weights.dtype;
    const rope = initializeRope(weights, headDim, ropeTheta, ropeScaling);
    this.embed_tokens = embedding(weights, `${path}.embed_tokens`, vocabSize, hiddenSize);
    this.layers = Array.from({ length: layers }, (_, i) => new Block(config, weights, `${path}.layers.${i}`, rope));
    this.norm = rmsNorm(weights, `${path}.norm`, hiddenSize, rmsNormEps);
  }

  /**
   * Token ids (B, T) → the normed result of the last block, (B, T, hidden), or (B, n, hidden) with `rows` (n,), counted from 0.
   * With a cache, the tokens follow those that it holds.
   */
  override forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor {
    const offset = cache?.begin(tokens.shape[1]) ?? 0;
    let x = this.#embedded(tokens);
    this.layers.forEach((block, layer) => x = block.forward(x, layer, cache, offset));
    return forwardInDtype(this.norm, rows === undefined ? x : mx.take(x, rows, 1));
  }

  /** Token ids (B, T) → the vectors of the embedding, what each block but the last makes of them, and what the norm does at last. */
  hiddenStates(tokens: Tensor): Tensor[] {
    const states = [this.#embedded(tokens)];
    this.layers.forEach((block, layer) => states.push(block.forward(states[layer], layer, undefined, 0)));
    return states.with(-1, forwardInDtype(this.norm, states[this.layers.length]));
  }

  #embedded(tokens: Tensor): Tensor {
    return this.embed_tokens.forward(tokens, this.#dtype).astype(this.#dtype);
  }
}
