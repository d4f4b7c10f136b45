/**
 * A short convolution in the place of attention (LFM2, arXiv 2511.23404): over the last few tokens, between two gates that come from the
 * same input.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { layerStates } from "../config/layer_kinds.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { CausalConv } from "./causal_conv.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";

/** out_proj(gate2 * conv(gate1 * x)), where in_proj gives both gates and x. */
export class ShortConv extends Module {
  /** (…, hidden) → (…, hidden), over the last tokens. */
  conv: CausalConv;
  /** (…, hidden) → (…, 3 * hidden) */
  in_proj: Layer;
  /** (…, hidden) → (…, hidden) */
  out_proj: Layer;

  /** Takes conv, in_proj and out_proj below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number) {
    super();
    const { hiddenSize: hidden, shortConv } = config;
    const { window, bias } = shortConv!;
    const state = layerStates(config, layer).length;
    this.conv = new CausalConv(weights, `${path}.conv`, hidden, window, bias, state);
    this.in_proj = linear(weights, `${path}.in_proj`, hidden, 3 * hidden, bias);
    this.out_proj = linear(weights, `${path}.out_proj`, hidden, hidden, bias);
  }

  /** (B, T, hidden) → (B, T, hidden) */
  override forward(x: Tensor, cache: Cache | undefined): Tensor {
    const [before, after, inner] = mx.split(forwardInDtype(this.in_proj, x), 3, -1);
    const y = this.conv.forward(mx.multiply(before, inner), cache);
    return forwardInDtype(this.out_proj, mx.multiply(after, y));
  }
}
