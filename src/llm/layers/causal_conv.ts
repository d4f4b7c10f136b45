/**
 * A convolution of each feature by itself over the last tokens. Its state in a cache is the inputs of the tokens before the next one.
 *
 * Shapes: B batch, T tokens, F features, W tokens that it sees.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
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

  /** (B, T, F) → (B, T, F). Without a cache there are zeros before the first token. */
  override forward(x: Tensor, cache: Cache | undefined): Tensor {
    const [B, T, F] = x.shape;
    const window = this.weight.shape[1];
    const before = cache?.readState(this.#state) ?? mx.zeros([B, window - 1, F], x.dtype);
    const inputs = mx.concatenate([before.astype(x.dtype), x], 1);
    cache?.writeState(this.#state, lastInputs(inputs, window - 1, cache.counted));
    const factors = this.weight.astype(mx.float32);
    const terms = Array.from({ length: window }, (_, i) => {
      const shifted = inputs.index(mx.Slice(null), mx.Slice(i, i + T)).astype(mx.float32);
      return mx.multiply(shifted, factors.index(mx.Slice(null), i, 0));
    });
    const y = terms.reduce((sum, term) => mx.add(sum, term));
    return (this.bias ? mx.add(y, this.bias.astype(mx.float32)) : y).astype(x.dtype);
  }
}

/** The last `count` inputs of (B, count + T, F), or those before the padding if only some of the T tokens count. */
function lastInputs(inputs: Tensor, count: number, counted: Tensor | undefined): Tensor {
  const [, rows] = inputs.shape;
  if (counted === undefined) return inputs.index(mx.Slice(null), mx.Slice(rows - count, rows));
  return mx.take(inputs, mx.add(counted, mx.arange(0, count, 1, mx.int32)), 1);
}
