/**
 * A convolution of each feature by itself over the last tokens. Its state in a cache is the inputs of the tokens before the next one.
 *
 * Shapes: B batch, T tokens, F features, W tokens that it sees.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { causalConv } from "../../array/fast/causal_conv.ts";
import { Module } from "../../nn/mod.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";

/** A convolution of F features that sees a token and the W - 1 tokens before. */
export class CausalConv extends Module {
  /** (F, W, 1), the factor of the token itself last. */
  weight: Tensor;
  /** (F,); not there without a bias. */
  bias?: Tensor;
  readonly #state: number;

  /** Takes `<path>.weight`, and `<path>.bias` if it has one. `state` is the number of its state array in a cache. */
  constructor(weights: Weights, path: string, features: number, window: number, bias: boolean, state: number) {
    super();
    this.weight = weights.takeVector(`${path}.weight`, [features, window, 1]);
    if (bias) this.bias = weights.takeVector(`${path}.bias`, [features]);
    this.#state = state;
  }

  /** (B, T, F) → (B, T, F), through `silu` if asked for. Without a cache there are zeros before the first token. */
  override forward(x: Tensor, cache: Cache | undefined, { silu = false }: { readonly silu?: boolean } = {}): Tensor {
    const [B, , F] = x.shape;
    const { weight, bias } = this;
    const past = weight.shape[1] - 1;
    const before = cache?.readState(this.#state) ?? mx.zeros([B, past, F], x.dtype);
    const convolve = (counted: Tensor | undefined) => causalConv({ before, x, weight, bias, counted }, { silu });
    const { outputs, last } = convolve(cache?.counted);
    cache?.writeState(this.#state, last, (counted) => convolve(counted).last);
    return outputs;
  }
}
