/**
 * Arrays that are large enough for GPU forms of large arrays: four elements a thread, transposed tiles. They are read
 * through views of all kinds, against plain loops over integers that every dtype holds.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { unravel } from "../../support/oracles/oracle.ts";

const DTYPES = [mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.uint16, mx.int8, mx.bool] as const;

/** (i * 7) % 11, or its parity as bools. */
const valueOf = (dtype: mx.Dtype, i: number): number => dtype === mx.bool ? (i * 7) % 11 & 1 : (i * 7) % 11;

function numbered(shape: readonly number[], dtype: mx.Dtype): mx.Tensor {
  const count = shape.reduce((n, s) => n * s, 1);
  const values = Float32Array.from({ length: count }, (_, i) => valueOf(dtype, i));
  return mx.astype(mx.reshape(mx.array(values), [...shape]), dtype);
}

function numbers(x: mx.Tensor): number[] {
  return mx.astype(x, mx.float32).flatten().tolist() as number[];
}

/** Compares an array with what `expected` gives for each index. */
function assertEach(x: mx.Tensor, expected: (at: readonly number[]) => number, what: string): void {
  const found = numbers(x);
  const wrong = found.findIndex((v, i) => v !== expected(unravel(x.shape, i)));
  assertEquals(wrong < 0 ? [] : [unravel(x.shape, wrong), found[wrong]], [], `${what}: ${x.shape}`);
}

const [ROWS, COLUMNS] = [260, 264];
const at = (r: number, c: number): number => r * COLUMNS + c;

for (const device of testDevices()) {
  for (const dtype of DTYPES) {
    const value = (r: number, c: number): number => valueOf(dtype, at(r, c));
    const sum = (a: number, b: number): number => dtype === mx.bool ? a | b : a + b;
    Deno.test(`elementwise functions of large ${dtype.name} arrays take views on ${device}`, () =>
      mx.withDevice(device, () =>
        mx.tidy(() => {
          const x = numbered([ROWS, COLUMNS], dtype);
          mx.eval(x);
          assertEach(mx.add(x, x), ([r, c]) => sum(value(r, c), value(r, c)), "side by side");
          const odd = mx.reshape(x, [-1]).index(mx.Slice(1, null));
          assertEach(mx.add(odd, odd), ([i]) => sum(valueOf(dtype, i + 1), valueOf(dtype, i + 1)), "from an odd place");
          const row = x.index(5), column = x.index(mx.Slice(), mx.Slice(3, 4));
          assertEach(mx.add(x, row), ([r, c]) => sum(value(r, c), value(5, c)), "a row");
          assertEach(mx.add(column, x), ([r, c]) => sum(value(r, 3), value(r, c)), "a column");
          const turned = mx.transpose(x.index(mx.Slice(), mx.Slice(0, ROWS)));
          const square = x.index(mx.Slice(), mx.Slice(4, null));
          assertEach(mx.add(turned, square), ([r, c]) => sum(value(c, r), value(r, c + 4)), "turned, and with margins");
          const back = mx.reshape(x, [-1]).index(mx.Slice(null, null, -1));
          const last = ROWS * COLUMNS - 1;
          assertEach(mx.add(back, mx.reshape(x, [-1])), ([i]) =>
            sum(valueOf(dtype, last - i), valueOf(dtype, i)), "back");
          const chosen = mx.where(mx.equal(x, row), mx.add(x, column), row);
          const wanted = (r: number, c: number): number =>
            value(r, c) === value(5, c) ? sum(value(r, c), value(r, 3)) : value(5, c);
          assertEach(chosen, ([r, c]) =>
            wanted(r, c), "where");
        })));

    Deno.test(`copies of permuted ${dtype.name} arrays are right on ${device}`, () =>
      mx.withDevice(device, () => {
        const cases: readonly (readonly [readonly number[], readonly number[]])[] = [
          [[65, 70], [1, 0]],
          [[16, 16], [1, 0]],
          [[3, 40, 50], [0, 2, 1]],
          [[3, 40, 50], [2, 1, 0]],
          [[2, 17, 3, 66], [3, 1, 2, 0]],
          [[2, 3, 40, 50], [1, 3, 0, 2]],
          [[2, 3, 2, 33, 69], [4, 2, 1, 0, 3]],
        ];
        for (const [shape, order] of cases) {
          mx.tidy(() => {
            const x = numbered(shape, dtype);
            const strides = shape.map((_, d) => shape.slice(d + 1).reduce((n, s) => n * s, 1));
            const place = (index: readonly number[]): number => index.reduce((n, i, d) => n + i * strides[order[d]], 0);
            const y = mx.contiguous(mx.transpose(x, [...order]));
            assertEach(y, (index) => valueOf(dtype, place(index)), `order ${order}`);
          });
        }
        mx.tidy(() => {
          const part = mx.transpose(numbered([100, 90], dtype)).index(mx.Slice(3, 80), mx.Slice(5, 99));
          assertEach(mx.contiguous(part), ([r, c]) => valueOf(dtype, (c + 5) * 90 + r + 3), "a part");
        });
      }));
  }

  Deno.test(`take finds many elements and wide rows on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const count = (1 << 16) + 3;
        const index = (i: number): number => i * 37 % 1000;
        const list = Int32Array.from({ length: count }, (_, i) => index(i) - (i % 2 ? 1000 : 0));
        const found = mx.take(mx.arange(1000, mx.float32), mx.array(list));
        assertEach(found, ([i]) => index(i), "elements");
        for (const dtype of [mx.float32, mx.float16]) {
          const rows = mx.take(numbered([50, 40], dtype), mx.array([3, -1, 7], mx.int32), 0);
          assertEach(rows, ([r, c]) => valueOf(dtype, [3, 49, 7][r] * 40 + c), `rows of ${dtype.name}`);
        }
      })));
}
