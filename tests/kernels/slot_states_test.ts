/**
 * Recurrent ops over states in slots: those of a pass are among others, and kernels read and replace them there. Float64 loops over the same
 * states are the oracle. A slot of a sequence that begins holds NaN, and slots of other sequences must stay as they are.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { writeRows } from "../../src/array/devices/kv_memory.ts";
import { causalConv } from "../../src/array/fast/causal_conv.ts";
import { normalizedDeltaUpdate } from "../../src/array/fast/gated_delta.ts";
import { drawSome } from "../support/draw_cases.ts";
import { testDevices } from "../support/devices/devices.ts";
import { kernelsOf } from "../support/devices/harness.ts";
import { nmse } from "../support/oracles/oracle.ts";
import { convByHand, deltaByHand, drawn, numbers } from "../support/oracles/recurrent_ops.ts";

const LIMIT = 1e-11;
const SLOTS = 5;
/** The slot of each sequence, the last one counted from the end, and its position: the second one begins. */
const PLACES = [[3, 7], [0, 0], [-4, 2]] as const;
const B = PLACES.length;

/** The states of all slots; NaN in that of the sequence that begins. */
function pool(shape: readonly number[]): mx.Tensor {
  const all = numbers(drawn([SLOTS, ...shape], mx.float32));
  const size = all.length / SLOTS;
  return mx.array(Float32Array.from(all, (x, i) => i < size ? NaN : x)).reshape(SLOTS, ...shape);
}

/** The states of the sequences, in float64. */
function statesOf(all: Float64Array): Float64Array {
  const size = all.length / SLOTS;
  const rows = PLACES.map(([slot, position]) => {
    const at = (slot + SLOTS) % SLOTS;
    return position === 0 ? new Float64Array(size) : all.slice(at * size, (at + 1) * size);
  });
  return Float64Array.from(rows.flatMap((row) => [...row]));
}

/** All slots after those of the sequences were replaced. */
function replaced(all: Float64Array, states: Float64Array): Float64Array {
  const size = all.length / SLOTS;
  const after = Float64Array.from(all);
  PLACES.forEach(([slot], i) => after.set(states.subarray(i * size, (i + 1) * size), (slot + SLOTS) % SLOTS * size));
  return after;
}

/** As a cache of an engine reads states. */
function read(states: mx.Tensor, slots: mx.Tensor, position: mx.Tensor): mx.Tensor {
  const begun = mx.greater(position, 0).reshape([-1, ...states.shape.slice(1).map(() => 1)]);
  return mx.where(begun, mx.take(states, slots, 0), mx.array(0, states.dtype));
}

interface Places {
  readonly slots: mx.Tensor;
  readonly position: mx.Tensor;
}

const places = (): Places => ({
  slots: mx.array(PLACES.map(([slot]) => slot), mx.int32),
  position: mx.array(PLACES.map(([, position]) => position), mx.int32),
});

/** Runs `work` on a device and gives the kernels that it dispatched. */
async function kernels(device: string, work: () => void): Promise<ReadonlySet<string>> {
  mx.setDefaultDevice(device);
  return await kernelsOf(device, () => Promise.resolve(mx.tidy(work)));
}

function assertNear(found: mx.Tensor, expected: Float64Array, what: string): void {
  const error = nmse(numbers(found), expected);
  assert(error <= LIMIT, `${what}: NMSE ${error}`);
}

/** Sizes T, Hk, H, K and V of the delta rule. */
const SIZES = [[1, 1, 1, 32, 16], [4, 2, 4, 64, 32], [35, 1, 2, 64, 32]] as const;

/** Tokens, the window, and how many of the tokens count. */
const CONVS = [[1, 4], [2, 4], [9, 4, 5], [3, 8, 0], [4, 4, [1, 4, 2]], [2, 1]] as const;

for (const device of testDevices()) {
  for (const [T, Hk, H, K, V] of drawSome(device, "the delta rule over slots", SIZES, 1)) {
    const draw = () => ({
      q: drawn([B, T, Hk, K], mx.float32),
      k: drawn([B, T, Hk, K], mx.float32),
      v: drawn([B, T, H, V], mx.float32),
      gamma: drawn([B, T, H], mx.float32, 0.5, 1),
      beta: drawn([B, T, H], mx.float32, 0, 1),
    });
    const sizes = [B, T, Hk, H, K, V] as const;

    for (const held of [false, true]) {
      const name = `the delta rule of ${T} tokens replaces states in ${held ? "a copy of " : ""}slots`;
      Deno.test(`${name} on ${device}`, async () => {
        const found = await kernels(device, () => {
          const [given, { slots, position }] = [draw(), places()];
          let states = pool([H, V, K]);
          const before = numbers(states);
          const old = states;
          mx.eval(states, slots, position, ...Object.values(given));
          const [y, last] = normalizedDeltaUpdate({ ...given, state: read(states, slots, position) }, 1e-3);
          states = writeRows(states, last, slots);
          // An array that its owner keeps must not change.
          if (!held) old[Symbol.dispose]();
          mx.eval(y, states);
          const inputs = [given.q, given.k, given.v, given.gamma, given.beta].map(numbers);
          const [outputs, after] = deltaByHand(sizes, [...inputs, statesOf(before)], undefined, 1e-3);
          assertNear(y, outputs, "outputs");
          const size = before.length / SLOTS;
          const wanted = replaced(before, after);
          assertNear(states.reshape(-1), wanted, "states");
          if (held) assertEquals(numbers(old).subarray(size), before.subarray(size));
        });
        assert(
          [...found].some((name) => name.startsWith("gated_delta")) && !found.has("gather") && !found.has("scatter"),
          [...found].join(),
        );
      });
    }

    Deno.test(`a pass of ${T} tokens that settles later reads slots before it replaces them on ${device}`, async () => {
      const found = await kernels(device, () => {
        const [given, { slots, position }] = [draw(), places()];
        const states = pool([H, V, K]);
        const before = numbers(states);
        const state = read(states, slots, position);
        const [y] = normalizedDeltaUpdate({ ...given, state }, 1e-3);
        // Which tokens count follows from the outputs: the first one of each sequence.
        const one = mx.add(mx.multiply(mx.sum(y).astype(mx.int32), 0), 1);
        const mask = mx.broadcastTo(mx.less(mx.arange(0, T, 1, mx.int32), one.reshape(1, 1)), [B, T]);
        const [, last] = normalizedDeltaUpdate({ ...given, state, mask }, 1e-3);
        const after = writeRows(states, last, slots);
        mx.eval(y, after);
        const inputs = [given.q, given.k, given.v, given.gamma, given.beta].map(numbers);
        const live = Array.from({ length: B * T }, (_, i) => i % T === 0);
        const [outputs] = deltaByHand(sizes, [...inputs, statesOf(before)], undefined, 1e-3);
        const [, counted] = deltaByHand(sizes, [...inputs, statesOf(before)], live, 1e-3);
        assertNear(y, outputs, "outputs");
        assertNear(after.reshape(-1), replaced(before, counted), "states");
      });
      assert(!found.has("gather") && !found.has("scatter"), [...found].join());
    });
  }

  for (const [T, W, counted] of drawSome(device, "convolutions over slots", CONVS, 2)) {
    const name = `a convolution of ${T} tokens and a window of ${W} replaces last inputs in slots`;
    Deno.test(`${name} on ${device}`, async () => {
      const F = 12;
      const found = await kernels(device, () => {
        const { slots, position } = places();
        const states = pool([W - 1, F]);
        const before = numbers(states);
        const [x, weight] = [drawn([B, T, F], mx.float32), drawn([F, W, 1], mx.float32)];
        const count = counted === undefined ? undefined : mx.array([counted].flat(), mx.int32);
        const state = read(states, slots, position);
        const { outputs, last } = causalConv({ before: state, x, weight, counted: count }, { silu: true });
        const after = writeRows(states, last, slots);
        mx.eval(outputs, after);
        const inputs = [statesOf(before), numbers(x), numbers(weight)];
        const one = { sizes: [B, T, F, W] as const, silu: true, counted };
        const [results, kept] = convByHand(one, inputs, undefined, (y) => y);
        assertNear(outputs, results, "results");
        if (W > 1) assertNear(after.reshape(-1), replaced(before, kept), "last inputs");
      });
      assert(W === 1 || !found.has("gather") && !found.has("scatter"), [...found].join());
    });
  }
}
