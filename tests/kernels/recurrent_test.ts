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
import { nmse } from "../support/oracles/oracle.ts";
import {
  convByHand,
  type ConvSizes,
  deltaByHand,
  type DeltaSizes,
  drawn,
  numbers,
} from "../support/oracles/recurrent_ops.ts";

const { float32, float16, bfloat16 } = mx;

function assertNear(found: mx.Tensor, expected: Float64Array, dtype: mx.Dtype, what: string): void {
  const error = nmse(numbers(found), expected);
  const limit = dtype === float32 ? 1e-11 : dtype === float16 ? 2e-7 : 1e-5;
  assert(error <= limit, `${what}: NMSE ${error}`);
}

interface DeltaCase {
  readonly sizes: DeltaSizes;
  readonly dtype?: mx.Dtype;
  /** Queries, keys and values are parts of one array. */
  readonly joined?: boolean;
  readonly mask?: boolean;
  readonly normalized?: boolean;
  /** All keys are one. */
  readonly alike?: boolean;
  /** The range of gamma, default 0.5 to 1. */
  readonly decay?: readonly [number, number];
  /** Gates follow from numbers of tokens. */
  readonly gated?: boolean;
  /** Tokens go by blocks on a GPU. */
  readonly blocks?: boolean;
}

const DELTAS: readonly DeltaCase[] = [
  { sizes: [1, 1, 1, 1, 32, 16] },
  { sizes: [2, 3, 2, 4, 64, 32], mask: true },
  { sizes: [1, 5, 1, 2, 128, 48], dtype: bfloat16, joined: true, normalized: true },
  { sizes: [1, 4, 2, 2, 256, 16], dtype: float16, mask: true, normalized: true },
  { sizes: [3, 1, 2, 6, 96, 64], joined: true, normalized: true },
  { sizes: [1, 130, 1, 1, 32, 16], normalized: true },
  { sizes: [2, 3, 2, 4, 64, 32], dtype: bfloat16, normalized: true, gated: true },
  { sizes: [1, 34, 1, 2, 32, 32], mask: true, normalized: true, gated: true, blocks: true },
  { sizes: [1, 32, 1, 1, 32, 32], blocks: true },
  { sizes: [2, 45, 2, 4, 64, 64], mask: true, normalized: true, blocks: true },
  { sizes: [1, 33, 1, 2, 128, 96], dtype: bfloat16, joined: true, normalized: true, blocks: true },
  { sizes: [1, 39, 1, 1, 192, 32], dtype: float16, mask: true, normalized: true, blocks: true },
  { sizes: [1, 100, 1, 2, 64, 32], alike: true, decay: [1, 1], normalized: true, blocks: true },
  { sizes: [1, 100, 1, 2, 64, 32], decay: [0, 1e-9], normalized: true, blocks: true },
];

interface ConvCase {
  readonly sizes: ConvSizes;
  readonly dtype?: mx.Dtype;
  readonly silu?: boolean;
  readonly bias?: boolean;
  readonly counted?: number | readonly number[];
}

const CONVS: readonly ConvCase[] = [
  { sizes: [1, 1, 4, 4] },
  { sizes: [2, 3, 12, 3], silu: true, bias: true },
  { sizes: [1, 9, 260, 4], dtype: bfloat16, silu: true, counted: 5 },
  { sizes: [2, 2, 8, 1], bias: true },
  { sizes: [1, 5, 516, 8], dtype: float16, counted: 0 },
  { sizes: [1, 2, 8, 4], counted: 2, silu: true },
  { sizes: [3, 4, 8, 4], counted: [4, 0, 2], silu: true },
];

/** Names of what is set in a case, which a draw has at least once. So it has several groups of heads, and several tokens. */
function featuresOf(one: DeltaCase | ConvCase): string[] {
  const [, tokens, keyHeads, heads] = one.sizes;
  const groups = one.sizes.length === 6 && keyHeads > 1 && heads > keyHeads;
  return [...Object.keys(one), `groups ${groups}`, `tokens ${tokens > 1}`];
}

for (const device of testDevices()) {
  for (const one of drawCases(device, "the delta rule", DELTAS, featuresOf)) {
    const { sizes, dtype = float32, joined, mask, normalized, alike, decay = [0.5, 1], gated, blocks } = one;
    const [B, T, Hk, H, K, V] = sizes;
    const what = `${sizes.join(" x ")} ${dtype.name}${joined ? ", joined" : ""}${mask ? ", masked" : ""}${
      gated ? ", gated" : ""
    }${alike ? ", one key" : ""}`;
    Deno.test(`the gated delta rule, ${what} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      let kernels = new Set<string>();
      kernels = await kernelsOf(device, () => {
        mx.tidy(() => {
          const all = drawn([B, T, 2 * Hk * K + H * V], dtype);
          const parts = mx.split(all, [Hk * K, 2 * Hk * K], -1);
          if (alike) parts[1] = mx.broadcastTo(drawn([1, 1, Hk * K], dtype), [B, T, Hk * K]);
          const [q, k, v] = parts.map((part, i) => {
            const given = joined ? part : mx.contiguous(part);
            return i < 2 ? given.reshape(B, T, Hk, K) : given.reshape(B, T, H, V);
          });
          const [gamma, beta] = gated
            ? [drawn([B, T, H], dtype, -4, 4), drawn([B, T, H], dtype, -4, 4)]
            : [drawn([B, T, H], float32, ...decay), drawn([B, T, H], float32, 0, 1)];
          const gates = gated ? { bias: drawn([H], dtype), logRate: drawn([H], float32, -3, 1) } : undefined;
          const state = drawn([B, H, V, K], float32);
          const live = mask ? Array.from({ length: B * T }, (_, i) => i % 3 !== 1) : undefined;
          const masks = live && mx.array(live).reshape(B, T);
          const eps = normalized ? 1e-3 : undefined;
          const arrays = { q, k, v, gamma, beta, state, mask: masks, gates };
          const [outputs, last] = eps === undefined
            ? mx.fast.gatedDeltaUpdate(q, k, v, gamma, beta, state, masks)
            : normalizedDeltaUpdate(arrays, eps);
          const inputs = [q, k, v, gamma, beta, state].map(numbers);
          if (gates) {
            const [bias, logRate] = [gates.bias, gates.logRate].map(numbers);
            const width = (x: number, i: number): number => Math.log1p(Math.exp(x + bias[i % H]));
            inputs[3] = inputs[3].map((x, i) => Math.exp(-Math.exp(logRate[i % H]) * width(x, i)));
            inputs[4] = inputs[4].map((x) => 1 / (1 + Math.exp(-x)));
          }
          const [expected, expectedState] = deltaByHand(sizes, inputs, live, eps);
          assertNear(outputs, expected, eps === undefined ? dtype : float32, "outputs");
          assertNear(last, expectedState, float32, "state");
        });
        return Promise.resolve();
      });
      const kernel = blocks && device !== "wasm" ? "gated_delta_blocks" : "gated_delta";
      assert(kernels.has(kernel), [...kernels].join());
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
          const count = counted === undefined ? undefined : mx.array([counted].flat(), mx.int32);
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
