/** Unique elements, extremes in pairs, and what arrays and devices say of memory. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

const told = (x: mx.Tensor | mx.Tensor[]): unknown[] => [x].flat().map((y) => [y.dtype.name, y.tolist()]);

/** `unique` of numbers, by sets. */
function oracle(values: readonly number[], size: number): [number[], number[], number[], number[]] {
  const sorted = [...new Set(values)].sort((a, b) => a - b), n = Math.min(size, sorted.length);
  const fill = (list: number[], by: number): number[] => [...list.slice(0, n), ...new Array(size - n).fill(by)];
  return [
    fill(sorted, sorted[0]),
    fill(sorted.map((v) => values.indexOf(v)), values.indexOf(sorted[0])),
    values.map((v) => Math.max(0, Math.min(sorted.indexOf(v), size - 1))),
    fill(sorted.map((v) => values.filter((w) => w === v).length), 0),
  ];
}

for (const device of testDevices()) {
  Deno.test(`unique() gives what MLX gives on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const a = mx.array([2, 1, 2, 3, 1], mx.int32);
        const all = (x: mx.TensorLike, size: number, fill?: mx.TensorLike): unknown[] =>
          told(mx.unique(x, size, true, true, true, fill));
        const dtypes = (rows: unknown[][]): unknown[] =>
          rows.map((row, i) => [["int32", "uint32", "uint32", "int32"][i], row]);
        assertEquals(all(a, 0), dtypes([[], [], [0, 0, 0, 0, 0], []]));
        assertEquals(all(a, 1), dtypes([[1], [1], [0, 0, 0, 0, 0], [2]]));
        assertEquals(all(a, 2), dtypes([[1, 2], [1, 0], [1, 0, 1, 1, 0], [2, 2]]));
        assertEquals(all(a, 3), dtypes([[1, 2, 3], [1, 0, 3], [1, 0, 1, 2, 0], [2, 2, 1]]));
        assertEquals(all(a, 5), dtypes([[1, 2, 3, 1, 1], [1, 0, 3, 1, 1], [1, 0, 1, 2, 0], [2, 2, 1, 0, 0]]));
        const square = mx.array([[1, 2], [2, 1]], mx.int32);
        assertEquals(told(mx.unique(square.T, 3, false, true)), [["int32", [1, 2, 1]], ["uint32", [[0, 1], [1, 0]]]]);
        assertEquals(told(mx.unique(a, 5, false, false, false, 2.5)), [["int32", [1, 2, 3, 2, 2]]]);
        assertEquals(told(mx.unique(a, 4, false, false, false, [7])), [["int32", [1, 2, 3, 7]]]);
        assertEquals(told(mx.unique(mx.array(4, mx.int32), 1, true, true, true)).map((row) => (row as unknown[])[1]), [
          [4],
          [0],
          0,
          [1],
        ]);
        const [values, index, inverse, counts] = mx.unique([NaN, 1, NaN, 0, 0], 5, true, true, true);
        assertEquals(values.tolist().slice(0, 4), [0, 1, NaN, NaN]);
        assertEquals([index.tolist(), inverse.tolist(), counts.tolist()], [
          [3, 1, 0, 2, 3],
          [2, 1, 3, 0, 0],
          [2, 1, 1, 1, 0],
        ]);
        const none = mx.zeros([0]);
        assertEquals(told(mx.unique(none, 2, true, true, true, 3)), [
          ["float32", [3, 3]],
          ["uint32", [0, 0]],
          ["uint32", []],
          ["int32", [0, 0]],
        ]);
        assertEquals(mx.unique(none, 0).shape, [0]);
        assertThrows(() => mx.unique(none, 1), mx.ValueError, "a fillValue");
        assertThrows(() => mx.unique(a, -1), mx.ValueError, "found -1");
        assertThrows(() => mx.unique(a, 1, false, false, false, [7, 8]), mx.ShapeError, "one element");
      })));

  Deno.test(`unique() of drawn numbers is what sets give on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const next = generator(5);
        for (const count of [1, 2, 33, 300]) {
          const values = Array.from({ length: count }, () => Math.floor(next() * 20) - 10);
          for (const size of [1, 7, 25]) {
            for (const dtype of [mx.float32, mx.int16]) {
              const found = mx.unique(mx.array(values, dtype), size, true, true, true).map((x) => x.tolist());
              assertEquals(found, oracle(values, size), `${size} of ${values}`);
            }
          }
        }
      })));

  Deno.test(`minmax(), buffers of arrays and limits on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const a = mx.array([[1, 5], [3, 2]], mx.int8);
        assertEquals(told(mx.minmax(a, 0)), [["int8", [1, 2]], ["int8", [3, 5]]]);
        assertEquals(told(mx.minmax(a, null, true)), [["int8", [[1]]], ["int8", [[5]]]]);
        assertThrows(() => mx.minmax(mx.zeros([0, 2])), mx.ValueError, "is empty");
        assertEquals(mx.matrixNorm(mx.array([[3, 0], [0, 4]])).item(), 5);

        const x = mx.add(mx.ones([100]), 1), y = mx.ones([50]);
        mx.eval(x, y);
        const [one, both] = [mx.getArrayBufferSize(x), mx.getArrayBufferSize({ x }, [y, x], 3)];
        assert(one >= 400 && both >= one + 200 && mx.getArrayBufferSize() === 0);
        const view = x.index(mx.Slice(2, 4));
        mx.eval(view);
        assertEquals(mx.getArrayBufferSize(x, view), one);
        assertEquals(mx.getArrayBufferSize(mx.array([1, 2, 3])), 12);
        assertThrows(() => mx.getArrayBufferSize(mx.add(x, 1)), mx.ValueError, "mx.eval()");
        const limit = mx.getMemoryLimit();
        assertEquals([mx.setMemoryLimit(1000), mx.getMemoryLimit(), mx.setMemoryLimit(limit)], [limit, 1000, 1000]);
      })));
}
