/**
 * The gated delta rule in chunks gives what it gives token by token: `mx.fast.gatedDeltaUpdate`, and a loop over float64 numbers. Keys that
 * repeat, no decay and a strong one are the hard cases: a state of equal keys cancels, and factors underflow.
 */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";
import { applyDeltaRule } from "../../../src/array/fast/delta_rule.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator, nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices();
const [B, H, K, V] = [2, 3, 8, 5];
const LIMIT = 1e-11;

/** Sizes of drawn numbers. */
interface Case {
  readonly tokens: number;
  /** Whether all keys are one. */
  readonly alike?: boolean;
  /** β where it is not drawn. */
  readonly beta?: number;
  /** The range of the logarithm of γ. */
  readonly decay: readonly [number, number];
  /** The logarithm of γ of every seventh token, where it is another one. */
  readonly jump?: number;
}

const CASES: readonly Case[] = [
  ...[1, 2, 3, 31, 64, 65, 130].map((tokens): Case => ({ tokens, decay: [-0.5, 0] })),
  { tokens: 100, decay: [0, 0], alike: true, beta: 1 },
  { tokens: 100, decay: [0, 0], alike: true },
  { tokens: 100, decay: [-60, -20] },
  { tokens: 100, decay: [-0.1, 0], jump: -80 },
  { tokens: 100, decay: [-1e-3, 0], beta: 1 },
];

/** Numbers of a case, by token and then by head. */
function draw({ tokens: T, alike, beta, decay: [low, high], jump }: Case, next: () => number) {
  const numbers = (count: number, low = -1, high = 1): Float32Array =>
    Float32Array.from({ length: count }, () => low + (high - low) * next());
  const keys = numbers(B * T * H * K);
  const unit = (i: number): number => Math.hypot(...keys.subarray(i - i % K, i - i % K + K));
  const normed = keys.map((value, i) => alike ? keys[i % K] / unit(0) : value / unit(i));
  return {
    queries: numbers(B * T * H * K),
    keys: normed,
    values: numbers(B * T * H * V),
    logDecay: numbers(B * T * H, low, high).map((x, i) => jump !== undefined && Math.floor(i / H) % 7 === 3 ? jump : x),
    beta: beta === undefined ? numbers(B * T * H, 0, 1) : new Float32Array(B * T * H).fill(beta),
    state: numbers(B * H * V * K),
  };
}

/** The rule token by token, in float64: outputs (B, T, H, V) and the last state. */
function byHand(T: number, { queries, keys, values, logDecay, beta, state }: ReturnType<typeof draw>) {
  const last = Float64Array.from(state);
  const outputs = new Float64Array(B * T * H * V);
  for (let b = 0; b < B; b++) {
    for (let t = 0; t < T; t++) {
      for (let h = 0; h < H; h++) {
        const at = (b * T + t) * H + h;
        const gamma = Math.exp(logDecay[at]);
        for (let v = 0; v < V; v++) {
          const row = last.subarray(((b * H + h) * V + v) * K, ((b * H + h) * V + v + 1) * K);
          const held = row.reduce((sum, x, k) => sum + gamma * x * keys[at * K + k], 0);
          const added = beta[at] * (values[at * V + v] - held);
          row.forEach((x, k) => row[k] = gamma * x + added * keys[at * K + k]);
          outputs[at * V + v] = row.reduce((sum, x, k) => sum + x * queries[at * K + k], 0);
        }
      }
    }
  }
  return { outputs: Float32Array.from(outputs), state: Float32Array.from(last) };
}

for (const device of DEVICES) {
  Deno.test(`the gated delta rule in chunks gives what it gives token by token on ${device}`, () =>
    mx.withDevice(device, () => {
      const next = generator(7);
      for (const one of CASES) {
        const { tokens: T } = one;
        const drawn = draw(one, next);
        const expected = byHand(T, drawn);
        const found = mx.tidy(() => {
          const perHead = (x: Float32Array, ...rest: number[]): mx.Tensor =>
            mx.array(x).reshape(B, T, H, ...rest).transpose(0, 2, 1, ...rest.map((_, i) => 3 + i));
          const { outputs, state } = applyDeltaRule({
            queries: perHead(drawn.queries, K),
            keys: perHead(drawn.keys, K),
            values: perHead(drawn.values, V),
            logDecay: perHead(drawn.logDecay),
            beta: perHead(drawn.beta),
          }, mx.array(drawn.state).reshape(B, H, V, K));
          const inTurn = (x: Float32Array, ...rest: number[]): mx.Tensor => mx.array(x).reshape(B, T, H, ...rest);
          const [steps, last] = mx.fast.gatedDeltaUpdate(
            inTurn(drawn.queries, K),
            inTurn(drawn.keys, K),
            inTurn(drawn.values, V),
            mx.exp(inTurn(drawn.logDecay)),
            inTurn(drawn.beta),
            mx.array(drawn.state).reshape(B, H, V, K),
          );
          const values = (x: mx.Tensor): Float32Array => x.toTypedArray() as Float32Array;
          return {
            outputs: values(outputs.transpose(0, 2, 1, 3)),
            state: values(state),
            steps: values(steps),
            last: values(last),
          };
        });
        const errors = {
          outputs: nmse(found.outputs, expected.outputs),
          state: nmse(found.state, expected.state),
          "outputs of the steps": nmse(found.steps, expected.outputs),
          "state of the steps": nmse(found.last, expected.state),
        };
        for (const [what, error] of Object.entries(errors)) {
          assert(error <= LIMIT, `${what} of ${JSON.stringify(one)}: NMSE ${error}`);
        }
      }
    }));
}
