/**
 * The fused ops of recurrent layers against float64 loops: the gated delta rule, and a convolution over the last tokens.
 */

import { assert } from "@std/assert";
import * as mx from "../../mod.ts";
import { causalConv } from "../../src/array/fast/causal_conv.ts";
import { normalizedDeltaUpdate } from "../../src/array/fast/gated_delta.ts";
import { drawCases } from "../support/draw_cases.ts";
import { testDevices } from "../support/devices/devices.ts";
import { kernelsOf } from "../support/devices/harness.ts";
import { generator, nmse } from "../support/oracles/oracle.ts";

const next = generator(23);
const { float32, float16, bfloat16 } = mx;

/** Random numbers of a shape in a dtype. */
function drawn(shape: readonly number[], dtype: mx.Dtype, low = -1, high = 1): mx.Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  return mx.array(Float32Array.from({ length: size }, () => low + (high - low) * next())).reshape([...shape]).astype(
    dtype,
  );
}

const numbers = (x: mx.Tensor): Float64Array =>
  Float64Array.from(mx.contiguous(x).astype(float32).reshape(-1).tolist() as number[]);

function assertNear(found: mx.Tensor, expected: Float64Array, dtype: mx.Dtype, what: string): void {
  const error = nmse(numbers(found), expected);
  const limit = dtype === float32 ? 1e-11 : dtype === float16 ? 2e-7 : 1e-5;
  assert(error <= limit, `${what}: NMSE ${error}`);
}

interface DeltaCase {
  /** B, T, heads of keys, heads of values, features of a key, of a value. */
  readonly sizes: readonly [number, number, number, number, number, number];
  readonly dtype?: mx.Dtype;
  /** Queries, keys and values are parts of one array. */
  readonly joined?: boolean;
  readonly mask?: boolean;
  readonly normalized?: boolean;
}

const DELTAS: readonly DeltaCase[] = [
  { sizes: [1, 1, 1, 1, 32, 16] },
  { sizes: [2, 3, 2, 4, 64, 32], mask: true },
  { sizes: [1, 5, 1, 2, 128, 48], dtype: bfloat16, joined: true, normalized: true },
  { sizes: [1, 4, 2, 2, 256, 16], dtype: float16, mask: true, normalized: true },
  { sizes: [3, 1, 2, 6, 96, 64], joined: true, normalized: true },
  { sizes: [1, 130, 1, 1, 32, 16], normalized: true },
];

/** Outputs (B, T, Hv, V) and the last state (B, Hv, V, K), token by token. */
function deltaByHand(
  [B, T, Hk, H, K, V]: DeltaCase["sizes"],
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

interface ConvCase {
  /** B, T, features, window. */
  readonly sizes: readonly [number, number, number, number];
  readonly dtype?: mx.Dtype;
  readonly silu?: boolean;
  readonly bias?: boolean;
  readonly counted?: number;
}

const CONVS: readonly ConvCase[] = [
  { sizes: [1, 1, 4, 4] },
  { sizes: [2, 3, 12, 3], silu: true, bias: true },
  { sizes: [1, 9, 260, 4], dtype: bfloat16, silu: true, counted: 5 },
  { sizes: [2, 2, 8, 1], bias: true },
  { sizes: [1, 5, 516, 8], dtype: float16, counted: 0 },
  { sizes: [1, 2, 8, 4], counted: 2, silu: true },
];

/** Results (B, T, F) and the last inputs (B, W - 1, F); sums are rounded to a dtype by `round`. */
function convByHand(
  { sizes: [B, T, F, W], silu, counted = T }: ConvCase,
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
    return input(b, counted + j, f);
  });
  return [results, last];
}

/** Names of what is set in a case, which a draw has at least once. So it has several groups of heads, and several tokens. */
function featuresOf(one: DeltaCase | ConvCase): string[] {
  const [, tokens, keyHeads, heads] = one.sizes;
  const groups = one.sizes.length === 6 && keyHeads > 1 && heads > keyHeads;
  return [...Object.keys(one), `groups ${groups}`, `tokens ${tokens > 1}`];
}

for (const device of testDevices()) {
  for (const one of drawCases(device, "the delta rule", DELTAS, featuresOf)) {
    const { sizes, dtype = float32, joined, mask, normalized } = one;
    const [B, T, Hk, H, K, V] = sizes;
    const what = `${sizes.join(" x ")} ${dtype.name}${joined ? ", joined" : ""}${mask ? ", masked" : ""}`;
    Deno.test(`the gated delta rule, ${what} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      let kernels = new Set<string>();
      kernels = await kernelsOf(device, () => {
        mx.tidy(() => {
          const all = drawn([B, T, 2 * Hk * K + H * V], dtype);
          const parts = mx.split(all, [Hk * K, 2 * Hk * K], -1);
          const [q, k, v] = parts.map((part, i) => {
            const given = joined ? part : mx.contiguous(part);
            return i < 2 ? given.reshape(B, T, Hk, K) : given.reshape(B, T, H, V);
          });
          const [gamma, beta] = [drawn([B, T, H], float32, 0.5, 1), drawn([B, T, H], float32, 0, 1)];
          const state = drawn([B, H, V, K], float32);
          const live = mask ? Array.from({ length: B * T }, (_, i) => i % 3 !== 1) : undefined;
          const masks = live && mx.array(live).reshape(B, T);
          const eps = normalized ? 1e-3 : undefined;
          const arrays = { q, k, v, gamma, beta, state, mask: masks };
          const [outputs, last] = eps === undefined
            ? mx.fast.gatedDeltaUpdate(q, k, v, gamma, beta, state, masks)
            : normalizedDeltaUpdate(arrays, eps);
          const inputs = [q, k, v, gamma, beta, state].map(numbers);
          const [expected, expectedState] = deltaByHand(sizes, inputs, live, eps);
          assertNear(outputs, expected, eps === undefined ? dtype : float32, "outputs");
          assertNear(last, expectedState, float32, "state");
        });
        return Promise.resolve();
      });
      assert(kernels.has("gated_delta"), [...kernels].join());
    });
  }

  for (const one of drawCases(device, "convolutions over tokens", CONVS, featuresOf)) {
    const { sizes: [B, T, F, W], dtype = float32, silu = false, bias, counted } = one;
    Deno.test(`a convolution over tokens, ${one.sizes.join(" x ")} ${dtype.name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const kernels = await kernelsOf(device, () => {
        mx.tidy(() => {
          const [before, x] = [drawn([B, W - 1, F], dtype), drawn([B, T, F], dtype)];
          const weight = drawn([F, W, 1], dtype);
          const biases = bias ? drawn([F], dtype) : undefined;
          const count = counted === undefined ? undefined : mx.array(counted, mx.int32);
          const found = causalConv({ before, x, weight, bias: biases, counted: count }, { silu });
          const round = (y: number): number => mx.array(y, float32).astype(dtype).astype(float32).item() as number;
          const whole = dtype === float32 ? (y: number): number => y : round;
          const [results, last] = convByHand(one, [before, x, weight].map(numbers), biases && numbers(biases), whole);
          assertNear(found.outputs, results, dtype, "results");
          assertNear(found.last, last, float32, "last inputs");
        });
        return Promise.resolve();
      });
      assert(kernels.has("causal_conv"), [...kernels].join());
    });
  }
}
