/** Functions of `mx.fast` in primitives, against float64: cross entropy and the gated delta rule. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";
import { drawSome } from "../support/draw_cases.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(3);
const drawn = (n: number, low = -1, high = 1): number[] =>
  Array.from({ length: n }, () => Math.fround(low + (high - low) * next()));
const flat = (x: mx.Tensor): number[] => x.reshape(-1).astype(mx.float32).tolist() as number[];

/** Normalised mean squared error. */
function error(found: readonly number[], expected: readonly number[]): number {
  assertEquals(found.length, expected.length);
  const sum = (list: readonly number[]): number => list.reduce((s, v) => s + v * v, 0);
  return sum(found.map((v, i) => v - expected[i])) / (sum(expected) || 1);
}

/** Sizes (B, T, Hk, Hv, Dk, Dv). */
type Sizes = readonly [number, number, number, number, number, number];

/** The rule, position by position; x are q, k, v, gamma and beta. */
function gated(
  [b, t, hk, hv, dk, dv]: Sizes,
  [q, k, v, gamma, beta]: readonly number[][],
  start?: readonly number[],
  mask?: readonly boolean[],
): [number[], number[]] {
  const state = start ? [...start] : new Array(b * hv * dv * dk).fill(0), out = new Array(b * t * hv * dv).fill(0);
  for (let i = 0; i < b; i++) {
    for (let at = 0; at < t; at++) {
      if (mask && !mask[i * t + at]) continue;
      for (let h = 0; h < hv; h++) {
        const head = Math.floor(h / (hv / hk)), gate = (i * t + at) * hv + h;
        for (let r = 0; r < dv; r++) {
          const row = ((i * hv + h) * dv + r) * dk, key = ((i * t + at) * hk + head) * dk;
          let seen = 0, y = 0;
          for (let c = 0; c < dk; c++) seen += (state[row + c] *= gamma[gate]) * k[key + c];
          const missing = beta[gate] * (v[gate * dv + r] - seen);
          for (let c = 0; c < dk; c++) y += (state[row + c] += missing * k[key + c]) * q[key + c];
          out[gate * dv + r] = y;
        }
      }
    }
  }
  return [out, state];
}

for (const device of testDevices()) {
  Deno.test(`crossEntropy() on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        for (const [shape, classes] of [[[5], 7], [[2, 3], 33], [[], 4], [[3], 1], [[0], 3]] as const) {
          const rows = shape.reduce((n: number, d) => n * d, 1);
          const logits = drawn(rows * classes, -9, 9), targets = drawn(rows, 0, classes).map(Math.floor);
          const x = mx.array(logits).reshape([...shape, classes]);
          const expected = targets.map((target, i) => {
            const row = logits.slice(i * classes, (i + 1) * classes);
            return Math.log(row.reduce((s, v) => s + Math.exp(v), 0)) - row[target];
          });
          const y = mx.array(targets).astype(mx.uint32).reshape([...shape]);
          const found = mx.fast.crossEntropy(x, y);
          assertEquals([found.shape, found.dtype], [[...shape], mx.float32]);
          assert(error(flat(found), expected) < 1e-12, `${shape}`);
          const half = mx.fast.crossEntropy(x.astype(mx.float16), y);
          assert(half.dtype === mx.float32 && error(flat(half), expected) < 1e-5);
          const turned = mx.moveaxis(mx.contiguous(mx.moveaxis(x, -1, 0)), 0, -1);
          assertEquals(mx.fast.crossEntropy(turned, y).tolist(), found.tolist());
        }
        const infinite = mx.fast.crossEntropy([[-Infinity, 1, 2]], mx.array([0], mx.int32));
        assertEquals(infinite.tolist(), [Infinity]);
      })));

  Deno.test(`gatedDeltaUpdate() on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const list: Sizes[] = [[1, 1, 1, 1, 1, 1], [2, 3, 2, 4, 4, 5], [1, 7, 1, 3, 8, 2], [2, 1, 2, 2, 3, 3]];
        for (const sizes of list) {
          const [b, t, hk, hv, dk, dv] = sizes;
          const shapes = [[b, t, hk, dk], [b, t, hk, dk], [b, t, hv, dv], [b, t, hv], [b, t, hv]];
          const values = shapes.map((shape, i) => drawn(shape.reduce((n, d) => n * d, 1), i < 3 ? -1 : 0, 1));
          const [q, k, v, gamma, beta] = values.map((x, i) => mx.array(x).reshape(shapes[i]));
          const start = drawn(b * hv * dv * dk), mask = drawn(b * t).map((x) => x > -0.4);
          const s = mx.array(start).reshape([b, hv, dv, dk]), m = mx.array(mask).reshape([b, t]);
          for (const [state, live] of [[false, false], [true, false], [true, true], [false, true]]) {
            const found = mx.fast.gatedDeltaUpdate(q, k, v, gamma, beta, state ? s : null, live ? m : null);
            const expected = gated(sizes, values, state ? start : undefined, live ? mask : undefined);
            assertEquals(found.map((x) => [x.shape, x.dtype]), [[[b, t, hv, dv], mx.float32], [
              [b, hv, dv, dk],
              mx.float32,
            ]]);
            found.forEach((x, i) => assert(error(flat(x), expected[i]) < 1e-11, `${sizes}`));
          }
          const halves = [q, k, v].map((x) => x.astype(mx.float16)) as [mx.Tensor, mx.Tensor, mx.Tensor];
          const [y, last] = mx.fast.gatedDeltaUpdate(...halves, gamma, beta, s);
          const [expected] = gated(sizes, values, start);
          assertEquals([y.dtype, last.dtype], [mx.float16, mx.float32]);
          assert(error(flat(y), expected) < 1e-5);
        }
      })));
}

Deno.test("crossEntropy() and gatedDeltaUpdate() say what they take", () => {
  const { crossEntropy, gatedDeltaUpdate } = mx.fast, ones = mx.ones;
  const logits = ones([2, 3]), classes = mx.array([0, 1], mx.int32);
  assertThrows(() => crossEntropy(logits.astype(mx.int32), classes), mx.DtypeError, "logits of a float dtype");
  assertThrows(() => crossEntropy(logits, ones([2])), mx.DtypeError, "integer indices");
  assertThrows(() => crossEntropy(logits, mx.array([[0, 1]], mx.int32)), mx.ShapeError, "without the last axis");
  assertThrows(() => crossEntropy(1, classes), mx.ShapeError, "at least 1 axis");
  const [q, v, g] = [ones([1, 2, 2, 4]), ones([1, 2, 4, 3]), ones([1, 2, 4])];
  assertThrows(() => gatedDeltaUpdate(ones([2, 2, 4]), q, v, g, g), mx.ShapeError, "queries (B, T, Hk, Dk)");
  assertThrows(() => gatedDeltaUpdate(q, q, ones([1, 2, 3, 3]), g, g), mx.ShapeError, "a multiple of Hk");
  assertThrows(() => gatedDeltaUpdate(q, v, v, g, g), mx.ShapeError, "keys of shape (1, 2, 2, 4)");
  assertThrows(() => gatedDeltaUpdate(q, q, v, ones([1, 2, 2]), g), mx.ShapeError, "gamma of shape (1, 2, 4)");
  assertThrows(
    () => gatedDeltaUpdate(q, q, v, g, g, ones([1, 2, 3, 4])),
    mx.ShapeError,
    "initialState of shape (1, 4, 3, 4)",
  );
  assertThrows(() => gatedDeltaUpdate(q, q, v, g, g, null, ones([1, 3])), mx.ShapeError, "mask of shape (1, 2)");
});

Deno.test("attention says what a window may be", () => {
  const x = mx.ones([1, 1, 3, 4]);
  const attend = (options: object): mx.Tensor => mx.fast.scaledDotProductAttention(x, x, x, { scale: 1, ...options });
  for (const window of [0, -1, 1.5, NaN]) assertThrows(() => attend({ window }), mx.ValueError, "window of at least 1");
  assertThrows(() => attend({ window: 2, mask: mx.ones([3, 3]).greater(0) }), mx.ValueError, 'no mask or "causal"');
  assertEquals(flat(attend({ window: 1e15 })), flat(attend({})));
});

for (const device of testDevices()) {
  Deno.test(`attention with sinks or bounds of more scores than memory should hold, on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const [heads, rows, keys, dim] = [8, 1100, 4096, 2]; // cut into blocks of 1024 queries
        const q = mx.array(drawn(heads * rows * dim)).reshape([1, heads, rows, dim]);
        const k = mx.array(drawn(keys * dim)).reshape([1, 1, keys, dim]);
        const v = mx.array(drawn(keys * dim)).reshape([1, 1, keys, dim]);
        const [queries, keyRows, values] = [q, k, v].map(flat);
        const sinks = [0, 1, 2, 3, 4, 5, 6, 7];
        const length = 4000;
        const bound = 0.5;
        // deno-fmt-ignore
        const ways = [
          [{ mask: "causal", sinks }, (i: number, j: number) => j <= i + keys - rows],
          [{ mask: "causal", softcap: bound, lengths: [length] }, (i: number, j: number) => j <= i + length - rows],
          [{ mask: mx.array(Array.from({ length: rows }, (_, i) => i % 5)).reshape([rows, 1]).greater(0), sinks }, (i: number) => i % 5 > 0],
          [{ sinks, lengths: [length] }, (_: number, j: number) => j < length],
          [{ sinks, window: 5, lengths: [length] }, (_: number, j: number) => j < length && j >= length - 5],
          [{ mask: "causal", sinks, window: 9 }, (i: number, j: number) => j <= i + keys - rows && j > i + keys - rows - 9],
        ] as const;
        for (const [options, sees] of drawSome(device, "ways", ways, 1)) {
          const found = mx.fast.scaledDotProductAttention(q, k, v, { scale: 1, ...options });
          mx.eval(found);
          const cap = "softcap" in options
            ? (s: number): number => bound * Math.tanh(s / bound)
            : (s: number): number => s;
          for (const [h, i] of [[0, 0], [3, 1023], [5, 1024], [7, 1099], [2, 1097]]) {
            let [total, out] = ["sinks" in options ? Math.exp(sinks[h]) : 0, [0, 0]];
            for (let j = 0; j < keys; j++) {
              if (!sees(i, j)) continue;
              const at = (h * rows + i) * dim;
              const p = Math.exp(cap(queries[at] * keyRows[j * dim] + queries[at + 1] * keyRows[j * dim + 1]));
              total += p;
              out = out.map((sum, c) => sum + p * values[j * dim + c]);
            }
            const row = found.index(0, h, i);
            assert(error(flat(row), out.map((sum) => sum / total)) < 1e-9, `${Object.keys(options)} ${h} ${i}`);
          }
        }
      })));
}
