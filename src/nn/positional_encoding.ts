/**
 * Positions in sequences, as rotations, waves or slopes.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Dtype, RankOf, Tensor, Up } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import { pythonBool } from "./print.ts";

/** Rotary positions of the first `dims` features of x (B, …, T, D); see `mx.fast.rope`. */
export class RoPE extends Module {
  /** Features that are rotated. */
  readonly dims: number;
  /** Whether pairs are neighbours. */
  readonly traditional: boolean;
  /** Base of the wavelengths. */
  readonly base: number;
  /** Multiplies positions. */
  readonly scale: number;

  /** Takes the number of features that are rotated, whether pairs are neighbours, the base of the wavelengths, and a factor of positions. */
  constructor(dims: number, traditional: boolean = false, base: number = 10000, scale: number = 1) {
    super();
    this.dims = dims;
    this.traditional = traditional;
    this.base = base;
    this.scale = scale;
  }

  /** x (B, …, T, D), the first row being at position `offset` */
  override forward<R extends number>(x: Tensor<any, R>, offset?: number | Tensor): Tensor<any, R>;
  override forward(x: Tensor, offset: number | Tensor = 0): Tensor {
    const { dims, traditional, base, scale } = this;
    return mx.fast.rope(x, dims, { traditional, base, scale, offset });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.dims}, traditional=${pythonBool(this.traditional)}`;
  }
}

/** Sines and cosines of positions, at frequencies that fall geometrically. */
export class SinusoidalPositionalEncoding extends Module {
  /** The frequencies (dims / 2,), which are not trained. */
  _sigmas: Tensor;
  /** Multiplies the result. */
  readonly scale: number;
  /** Whether cosines come before sines. */
  readonly cosFirst: boolean;

  /** Takes the even size of the result, lowest and highest frequency, a factor, the order, and whether frequencies count full turns. */
  constructor(
    dims: number,
    minFreq: number = 0.0001,
    maxFreq: number = 1,
    scale: number | null = null,
    cosFirst: boolean = false,
    fullTurns: boolean = false,
  ) {
    super();
    if (!(dims > 0 && dims % 2 === 0)) {
      throw new mx.ValueError(`SinusoidalPositionalEncoding expected dims to be positive and even: found ${dims}`);
    }
    const half = dims / 2;
    const [low, high] = [Math.log(minFreq), Math.log(maxFreq)];
    const frequencies = Array.from({ length: half }, (_, i) => {
      const part = half === 1 ? 1 : 1 - i / (half - 1);
      return Math.exp(part * (high - low) + low) * (fullTurns ? 2 * Math.PI : 1);
    });
    this._sigmas = mx.array(frequencies);
    this.scale = scale ?? Math.sqrt(2 / dims);
    this.cosFirst = cosFirst;
  }

  /** Positions x (…) → (…, dims) */
  override forward<X extends Tensor>(x: X): Tensor<any, Up<RankOf<X>>>;
  override forward(x: Tensor): Tensor {
    return scoped((): Tensor => {
      const angles = mx.multiply(mx.expandDims(x, -1), this._sigmas);
      const waves: Tensor[] = [mx.sin(angles), mx.cos(angles)];
      const y = mx.concatenate(this.cosFirst ? waves.toReversed() : waves, -1);
      return this.scale === 1 ? y : mx.multiply(y, this.scale);
    });
  }
}

/** The slopes of heads: powers of 2, of every second head between where their number is no power of 2. */
function slopesOf(heads: number): number[] {
  const power = 2 ** Math.floor(Math.log2(heads));
  const start = 2 ** (-8 / power);
  const slopes = Array.from({ length: power }, (_, i) => start ** (i + 1));
  if (power === heads) return slopes;
  return [...slopes, ...slopesOf(2 * power).filter((_, i) => i % 2 === 0).slice(0, heads - power)];
}

/** Attention with linear biases: scores fall with the distance, in each head by a slope of its own. */
export class ALiBi extends Module {
  /** The biases for the scores of `numHeads` heads: (1, numHeads, qSequenceLength - offset, kSequenceLength) */
  static createAlibiMatrix(
    qSequenceLength: number,
    kSequenceLength: number,
    numHeads: number,
    offset: number = 0,
    dtype: Dtype = mx.float32,
  ): Tensor {
    return scoped((): Tensor => {
      const queries = mx.arange(offset, qSequenceLength);
      const distance = mx.abs(mx.subtract(mx.expandDims(queries, 1), mx.arange(kSequenceLength)));
      const slopes = ALiBi.createAlibiSlope(numHeads, dtype);
      return mx.multiply(mx.negative(mx.expandDims(distance, [0, 1])), slopes).astype(dtype);
    });
  }

  /** The slopes of `numHeads` heads: (numHeads, 1, 1) */
  static createAlibiSlope(numHeads: number, dtype: Dtype = mx.float32): Tensor {
    return scoped((): Tensor => mx.array(slopesOf(numHeads), dtype).reshape([numHeads, 1, 1]));
  }

  /** Scores (B, H, Tq, Tk) of queries from position `offset` on, with biases and a mask added. */
  override forward(attentionScores: Tensor, offset: number = 0, mask: Tensor | null = null): Tensor<any, 4> {
    const [, heads, queries, keys] = attentionScores.shape;
    return scoped((): Tensor => {
      const bias = ALiBi.createAlibiMatrix(queries + offset, keys, heads, offset, attentionScores.dtype);
      return mx.add(attentionScores, mask === null ? bias : mx.add(bias, mask));
    });
  }
}
