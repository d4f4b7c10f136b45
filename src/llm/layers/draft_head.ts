/**
 * The head that drafts tokens in checkpoints of Qwen3.5 and Qwen3-Next, multi-token prediction (arXiv 2404.19737, and 2412.19437 for its
 * sequential form). As in vLLM's `qwen3_5_mtp.py`, it is one more layer, whose input joins a hidden state and the next token.
 *
 * Shapes: B batch, T tokens, H features.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";
import { type DecoderConfig, DRAFT_HEAD } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { Cache } from "../kv/cache.ts";
import { Block } from "./block.ts";
import { ropesOf } from "./decoder.ts";
import { Pass } from "./pass.ts";
import { forwardInDtype, type Layer, linear, rmsNorm } from "./stored.ts";

/** A layer after the last one, which reads the last hidden state and the token that came of it. */
export class DraftHead extends Module {
  /** (…, 2 * H) → (…, H) */
  fc: Layer;
  /** The layer, always one of attention. */
  layers: [Block];
  /** The last norm. */
  norm: Layer;
  /** The norm of the tokens' vectors. */
  pre_fc_norm_embedding: Layer;
  /** The norm of the hidden states. */
  pre_fc_norm_hidden: Layer;

  /** Takes fc, layers.0 and the norms. `config` is that of {@link draftConfig}. */
  constructor(config: DecoderConfig, weights: Weights) {
    super();
    const { hiddenSize } = config;
    const norm = (name: string): Layer => rmsNorm(weights, `${DRAFT_HEAD}.${name}`, hiddenSize, config);
    this.fc = linear(weights, `${DRAFT_HEAD}.fc`, 2 * hiddenSize, hiddenSize);
    this.layers = [new Block(config, weights, `${DRAFT_HEAD}.layers.0`, 0, ropesOf(config, weights)[0])];
    this.norm = norm("norm");
    this.pre_fc_norm_embedding = norm("pre_fc_norm_embedding");
    this.pre_fc_norm_hidden = norm("pre_fc_norm_hidden");
  }

  /**
   * Vectors of tokens (B, T, H) and the hidden states before them (B, T, H) → hidden states (B, T, H), which the model's head takes. With a
   * cache, the rows follow those that it holds.
   */
  override forward(embedded: Tensor, hidden: Tensor, cache?: Cache): Tensor {
    const [, T] = hidden.shape;
    const joined = mx.concatenate([
      forwardInDtype(this.pre_fc_norm_embedding, embedded),
      forwardInDtype(this.pre_fc_norm_hidden, hidden),
    ], -1);
    const pass = Pass.open(cache, T);
    return forwardInDtype(this.norm, this.layers[0].forward(forwardInDtype(this.fc, joined), cache, pass));
  }
}

/** The config of a model's draft head: one layer of attention, with the feed-forward part that the first layer has. */
export function draftConfig(config: DecoderConfig): DecoderConfig {
  const { experts } = config;
  const first = experts?.layers?.[0] === false ? undefined : experts && { ...experts, layers: undefined };
  return { ...config, layers: 1, layerKinds: undefined, experts: first };
}
