/**
 * Rows of a state that a step reads and then replaces, as recurrent states of sequences in their slots. They are written in place, unless
 * something reads the old rows later.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { writeRows } from "../../../src/array/devices/kv_memory.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** Six rows of three numbers, and which of them are replaced. */
function stateOf(): { readonly rows: mx.Tensor; readonly slots: mx.Tensor } {
  const rows = mx.arange(0, 18, 1, mx.float32).reshape(6, 3);
  const slots = mx.array([4, 1], mx.int32);
  mx.eval(rows, slots);
  return { rows, slots };
}

const STEPS = 3;

for (const device of testDevices()) {
  Deno.test(`rows that a step reads before it replaces them are written without a copy on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const state = stateOf();
    {
      using loop = new DeviceLoop(state, ({ rows, slots }) => ({
        rows: writeRows(rows, mx.add(mx.take(rows, slots, 0), 100), slots),
        slots,
      }));
      const kernels = await kernelsOf(device, async () => {
        for (let i = 0; i < STEPS; i++) await loop.run();
        mx.eval(state.rows);
      });
      assert(!kernels.has("copy"), [...kernels].join());
    }
    const expected = Array.from({ length: 18 }, (_, i) => i + ([1, 4].includes(Math.floor(i / 3)) ? STEPS * 100 : 0));
    assertEquals(state.rows.reshape(-1).tolist(), expected);
    mx.dispose(state);
  });

  Deno.test(`rows that attention has read are written without a copy on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const state = { rows: mx.arange(0, 48, 1, mx.float32).reshape(6, 8), slots: mx.array([4], mx.int32) };
    mx.eval(state.rows, state.slots);
    const attended = (rows: mx.Tensor): mx.Tensor => {
      const keys = rows.reshape(1, 1, 6, 8);
      const y = mx.fast.scaledDotProductAttention(mx.full([1, 1, 1, 8], 0.01), keys, keys, { scale: 1 });
      return mx.round(y.reshape(1, 8));
    };
    // As a head that drafts twice: it appends, attends, and appends what it found.
    const step = ({ rows, slots }: typeof state): typeof state => {
      const first = writeRows(rows, mx.full([1, 8], 3), slots);
      return { rows: writeRows(first, attended(first), mx.subtract(slots, 2)), slots };
    };
    const expected = Array.from({ length: 6 }, (_, row) => Array.from({ length: 8 }, (_, i) => 8 * row + i));
    for (let i = 0; i < STEPS; i++) {
      expected[4].fill(3);
      const weights = expected.map((row) => Math.exp(0.01 * row.reduce((a, b) => a + b)));
      const sum = weights.reduce((a, b) => a + b);
      expected[2] = expected[2].map((_, d) =>
        Math.round(expected.reduce((y, row, t) => y + weights[t] * row[d], 0) / sum)
      );
    }
    {
      using loop = new DeviceLoop(state, step);
      const kernels = await kernelsOf(device, async () => {
        for (let i = 0; i < STEPS; i++) await loop.run();
        mx.eval(state.rows);
      });
      assert(!kernels.has("copy"), [...kernels].join());
    }
    assertEquals(state.rows.tolist(), expected);
    mx.dispose(state);
  });

  Deno.test(`rows that something reads later keep their old values for it on ${device}`, () => {
    mx.setDefaultDevice(device);
    const state = { ...stateOf(), before: mx.zeros([2, 3]), sums: mx.zeros([6]) };
    mx.eval(state.before, state.sums);
    {
      using loop = new DeviceLoop(state, ({ rows, slots }) => ({
        rows: writeRows(rows, mx.add(mx.take(rows, slots, 0), 100), slots),
        slots,
        before: mx.multiply(mx.take(rows, mx.array([1, 5], mx.int32), 0), 2), // which the new rows do not need
        sums: mx.sum(rows, 1),
      }));
      for (let i = 0; i < STEPS; i++) loop.run();
    }
    const old = (row: number): number[] => [0, 1, 2].map((i) => 3 * row + i + (row === 5 ? 0 : (STEPS - 1) * 100));
    assertEquals(state.before.tolist(), [old(1), old(5)].map((row) => row.map((x) => 2 * x)));
    const sums = [0, 1, 2, 3, 4, 5].map((row) => 9 * row + 3 + ([1, 4].includes(row) ? 3 * (STEPS - 1) * 100 : 0));
    assertEquals(state.sums.tolist(), sums);
    mx.dispose(state);
  });
}

for (const device of testDevices()) {
  Deno.test(`rows that are written from a view of themselves have its old values on ${device}`, () => {
    mx.setDefaultDevice(device);
    const n = 5000;
    const state = { rows: mx.arange(0, 4 * n, 1, mx.float32).reshape(n, 4), places: mx.arange(1, n, 1, mx.int32) };
    mx.eval(state.rows, state.places);
    {
      using loop = new DeviceLoop(state, ({ rows, places }) => ({
        rows: writeRows(rows, rows.index(mx.Slice(0, n - 1)), places),
        places,
      }));
      for (let i = 0; i < 2; i++) loop.run();
    }
    const expected = Array.from({ length: 4 * n }, (_, i) => i < 8 ? i % 4 : i - 8);
    assertEquals(Array.from(state.rows.toTypedArray() as Float32Array), expected);
    mx.dispose(state);
  });
}
