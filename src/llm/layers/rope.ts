/**
 * Rotary positions, and how they are stretched beyond the context that a model was trained with.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { RoPE } from "../../nn/mod.ts";
import type { RopeConfig, RopeScaling } from "../config/rope.ts";
import type { Weights } from "../checkpoint/weights.ts";

/**
 * Rotary positions over the last axis of (B, H, T, D), with the scalings of {@link RopeScaling}. A pair is a feature of the first half and
 * one of the second, or two neighbours where `traditional` is set. `weights` keeps the table of wavelengths that a scaling may need.
 */
export function initializeRope(
  weights: Weights,
  dims: number,
  base: number,
  scaling: RopeScaling,
  traditional: boolean = false,
): RoPE {
  const { scale = 1, freqs, mscale = 1 } = stretched(dims, base, scaling);
  if (freqs === undefined) return new RoPE(dims, traditional, base, scale);
  return new StretchedRoPE(dims, weights.adopt(mx.array(freqs, mx.float32)), mscale, traditional);
}

/** Rotary positions of wavelengths that are no powers of a base; of the first `dims` features. */
export class StretchedRoPE extends RoPE {
  /** Wavelengths of the pairs (dims / 2,), divided by 2π. */
  readonly _freqs: Tensor;
  /** A factor of the rotated features. */
  readonly mscale: number;

  /** Takes the number of features, the wavelengths, the factor and whether pairs are neighbours. */
  constructor(dims: number, freqs: Tensor, mscale: number, traditional: boolean) {
    super(dims, traditional);
    this._freqs = freqs;
    this.mscale = mscale;
  }

  /** Rotates row t by position offset + t; the offset is a number or an int32 array. */
  override forward(x: Tensor, offset: number | Tensor = 0): Tensor {
    const { dims, traditional, _freqs: freqs } = this;
    return mx.fast.rope(this.#scaled(x), dims, { traditional, base: null, scale: 1, offset, freqs });
  }

  /** x with the factor of the features that are rotated. */
  #scaled(x: Tensor): Tensor {
    const { dims, mscale } = this;
    if (mscale === 1) return x;
    if (dims === x.shape[x.ndim - 1]) return mx.multiply(x, mscale);
    const [rotated, kept] = mx.split(x, [dims], -1);
    return mx.concatenate([mx.multiply(rotated, mscale), kept], -1);
  }
}

/** The changes by a scaling. */
interface Stretched {
  /** A factor of positions. */
  readonly scale?: number;
  /** Wavelengths of the pairs, divided by 2π, if they are not powers of the base. */
  readonly freqs?: readonly number[];
  /** A factor of the rotated features. */
  readonly mscale?: number;
}

type Scaling<T extends RopeScaling["type"]> = Extract<RopeScaling, { type: T }>;

function stretched(dims: number, base: number, scaling: RopeScaling): Stretched {
  switch (scaling.type) {
    case "default":
      return {};
    case "linear":
      return { scale: 1 / scaling.factor };
    case "yarn":
      return yarn(dims, base, scaling);
    case "llama3":
      return llama3(dims, base, scaling);
    case "proportional":
      return proportional(dims, base, scaling);
    case "longrope":
      return longRope(dims, base, scaling);
  }
}

/** What each pair's wavelength is multiplied by where positions are stretched. */
export function wavelengthFactors(dims: number, { ropeTheta, ropeScaling }: RopeConfig): number[] {
  const plain = wavelengths(dims, ropeTheta);
  return (stretched(dims, ropeTheta, ropeScaling).freqs ?? plain).map((wavelength, i) => wavelength / plain[i]);
}

/** Wavelengths of the pairs, divided by 2π. */
function wavelengths(dims: number, base: number): number[] {
  return Array.from({ length: dims / 2 }, (_, i) => base ** (2 * i / dims));
}

/** YaRN (arXiv 2309.00071): wavelengths that fit the trained context stay, longer ones are stretched, a ramp between. */
function yarn(dims: number, base: number, scaling: Scaling<"yarn">): Stretched {
  const { factor, originalMaxPositionEmbeddings: context, betaFast, betaSlow, mscale, mscaleAllDim } = scaling;
  const correction = (rotations: number): number =>
    dims * Math.log(context / (rotations * 2 * Math.PI)) / (2 * Math.log(base));
  const low = Math.max(Math.floor(correction(betaFast)), 0);
  const high = Math.min(Math.ceil(correction(betaSlow)), dims - 1);
  const width = low === high ? 0.001 : high - low;
  const freqs = wavelengths(dims, base).map((wavelength, i) => {
    const kept = 1 - Math.min(1, Math.max(0, (i - low) / width));
    return factor * wavelength / (factor * kept + 1 - kept);
  });
  const attention = (m: number): number => factor <= 1 ? 1 : 0.1 * m * Math.log(factor) + 1;
  return { freqs, mscale: scaling.attentionFactor ?? attention(mscale) / attention(mscaleAllDim) };
}

/**
 * Llama 3.1 (arXiv 2407.21783; `rope_scaling.py` of meta-llama/llama-models). Wavelengths that fit often into the trained context
 * stay; those that hardly fit are stretched by the whole factor. Between them the number of turns decides the share.
 */
function llama3(dims: number, base: number, scaling: Scaling<"llama3">): Stretched {
  const { factor, lowFreqFactor: low, highFreqFactor: high, originalMaxPositionEmbeddings: context } = scaling;
  const freqs = wavelengths(dims, base).map((wavelength) => {
    const turns = context / (2 * Math.PI * wavelength);
    if (turns < low) return wavelength * factor;
    if (turns >= high) return wavelength;
    const kept = (turns - low) / (high - low);
    return wavelength / (kept + (1 - kept) / factor);
  });
  return { freqs };
}

/** A wavelength so long that no position rotates by it: float32 has no number between 1 and the cosine. */
const UNROTATED = 2 ** 100;

/** Gemma 4: pairs beyond a share of the head are not rotated. */
function proportional(dims: number, base: number, { factor, share }: Scaling<"proportional">): Stretched {
  const rotated = Math.floor(dims * share);
  const freqs = wavelengths(dims, base).map((wavelength, pair) => 2 * pair < rotated ? factor * wavelength : UNROTATED);
  return { freqs };
}

/** LongRoPE (arXiv 2402.13753): a factor for each wavelength, found by search. */
function longRope(dims: number, base: number, { factors, mscale }: Scaling<"longrope">): Stretched {
  const factorOf = (pair: number): number => typeof factors === "number" ? factors : factors[pair];
  return { freqs: wavelengths(dims, base).map((wavelength, pair) => factorOf(pair) * wavelength), mscale };
}
