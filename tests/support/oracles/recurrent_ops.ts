/** Oracles of recurrent ops in float64: the gated delta rule, and a convolution over the last tokens. */

import * as mx from "../../../mod.ts";
import { generator } from "./oracle.ts";

const next = generator(23);

/** Random numbers of a shape in a dtype. */
export function drawn(shape: readonly number[], dtype: mx.Dtype, low = -1, high = 1): mx.Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  return mx.array(Float32Array.from({ length: size }, () => low + (high - low) * next())).reshape([...shape]).astype(
    dtype,
  );
}

/** The numbers of an array, in its order. */
export const numbers = (x: mx.Tensor): Float64Array =>
  Float64Array.from(mx.contiguous(x).astype(mx.float32).reshape(-1).tolist() as number[]);

/** B, T, heads of keys, heads of values, features of a key, of a value. */
export type DeltaSizes = readonly [number, number, number, number, number, number];

/** Outputs (B, T, Hv, V) and the last state (B, Hv, V, K), token by token. */
export function deltaByHand(
  [B, T, Hk, H, K, V]: DeltaSizes,
  [q, k, v, gamma, beta, state]: readonly Float64Array[],
  mask: readonly boolean[] | undefined,
  eps: number | undefined,
): [Float64Array, Float64Array] {
  const last = Float64Array.from(state);
  const outputs = new Float64Array(B * T * H * V);
  const scaled = (x: Float64Array, factor: number): Float64Array => {
    if (eps === undefined) return x;
    const length = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) + eps);
    return x.map((value) => value / length * factor);
  };
  for (let b = 0; b < B; b++) {
    for (let t = 0; t < T; t++) {
      if (mask && !mask[b * T + t]) continue;
      for (let h = 0; h < H; h++) {
        const at = ((b * T + t) * Hk + Math.floor(h / (H / Hk))) * K;
        const [query, key] = [scaled(q.subarray(at, at + K), K ** -0.5), scaled(k.subarray(at, at + K), 1)];
        const one = (b * T + t) * H + h;
        for (let i = 0; i < V; i++) {
          const row = last.subarray(((b * H + h) * V + i) * K, ((b * H + h) * V + i + 1) * K);
          const known = row.reduce((sum, s, d) => sum + gamma[one] * s * key[d], 0);
          const update = beta[one] * (v[one * V + i] - known);
          row.forEach((s, d) => row[d] = gamma[one] * s + update * key[d]);
          outputs[one * V + i] = row.reduce((sum, s, d) => sum + s * query[d], 0);
        }
      }
    }
  }
  return [outputs, last];
}

/** B, T, features, window. */
export type ConvSizes = readonly [number, number, number, number];

/** A convolution, maybe through silu, of which not all tokens may count. */
export interface Conv {
  readonly sizes: ConvSizes;
  readonly silu?: boolean;
  /** Of all sequences, or of each. */
  readonly counted?: number | readonly number[] | undefined;
}

/** Results (B, T, F) and the last inputs (B, W - 1, F); sums are rounded to a dtype by `round`. */
export function convByHand(
  { sizes: [B, T, F, W], silu, counted = T }: Conv,
  [before, x, weight]: readonly Float64Array[],
  bias: Float64Array | undefined,
  round: (x: number) => number,
): [Float64Array, Float64Array] {
  const input = (b: number, at: number, f: number): number =>
    at < W - 1 ? before[(b * (W - 1) + at) * F + f] : x[(b * T + at - W + 1) * F + f];
  const results = Float64Array.from({ length: B * T * F }, (_, i) => {
    const [f, t, b] = [i % F, Math.floor(i / F) % T, Math.floor(i / F / T)];
    let sum = bias ? bias[f] : 0;
    for (let j = 0; j < W; j++) sum += input(b, t + j, f) * weight[f * W + j];
    const y = round(sum);
    return silu ? y / (1 + Math.exp(-y)) : y;
  });
  const last = Float64Array.from({ length: B * (W - 1) * F }, (_, i) => {
    const [f, j, b] = [i % F, Math.floor(i / F) % (W - 1), Math.floor(i / F / (W - 1))];
    return input(b, (typeof counted === "number" ? counted : counted[b]) + j, f);
  });
  return [results, last];
}
