/**
 * Forms that CPU kernels take for whole blocks. They are short bodies of functions if all operands allow them, squares
 * of transposed matrices, and runs of indices. Running sums and random words have parallel lanes. Sizes lie around
 * those of the blocks, and expected values are made element by element.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** Elements of a block of the elementwise kernel. */
const BLOCK = 1024;

/** Functions with short bodies: operands that allow them, and one that does not. */
const SHORT: Readonly<
  Record<string, { run: (a: mx.Tensor, b: mx.Tensor) => mx.Tensor; near: readonly [number, number]; far: number }>
> = {
  exp: { run: mx.exp, near: [-87, 87], far: -100 },
  log: { run: mx.log, near: [1e-30, 1e30], far: -1 },
  power: { run: mx.power, near: [1e-3, 50.5], far: -2 },
  sin: { run: mx.sin, near: [-3000, 3000], far: 1e6 },
  cos: { run: mx.cos, near: [-3000, 3000], far: 1e6 },
  erfinv: { run: mx.erfinv, near: [-0.99, 0.99], far: 0.999 },
};

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));
  const test = (name: string, fn: () => void): void =>
    Deno.test(`${name} on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(fn);
    });

  for (const [name, { run, near: [low, high], far }] of Object.entries(SHORT)) {
    test(`${name} of a number does not depend on its neighbours`, () => {
      const random = generator(7);
      const draw = (): number[] => Array.from({ length: 2 * BLOCK + 3 }, () => low + (high - low) * random());
      const a = draw(), b = draw();
      for (const edge of [0, -0, 1, 0.5, -0.5, 2 ** -126, low, high]) if (edge >= low && edge <= high) a.push(edge);
      while (b.length < a.length) b.push(0.5 + b.length % 7);
      const together = run(mx.array(a), mx.array(b)).toTypedArray() as Float32Array;
      // Every block has one that is far.
      const every = 5;
      const mixed = (list: readonly number[], other: number): number[] =>
        list.flatMap((v, i) => i % every === 0 ? [other, v] : [v]);
      const apart = run(mx.array(mixed(a, far)), mx.array(mixed(b, 0.5))).toTypedArray() as Float32Array;
      const found = a.map((_, i) => apart[i + Math.floor(i / every) + 1]);
      assertEquals([...together], found);
    });
  }

  test("turned matrices of every size of element around the squares", () => {
    for (const dtype of [mx.uint8, mx.float16, mx.float32, mx.int64]) {
      for (const [rows, cols] of [[1, 16], [15, 17], [16, 16], [17, 33], [48, 32], [31, 5], [64, 100]]) {
        const value = (b: number, r: number, c: number): number => (b * 97 + r * 13 + c * 7) % 251;
        const at = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
        const x = mx.array(at(3).map((b) => at(rows).map((r) => at(cols).map((c) => value(b, r, c))))).astype(dtype);
        const expected = at(3).map((b) => at(cols).map((c) => at(rows).map((r) => value(b, r, c))));
        const numbers = (y: mx.Tensor): unknown => y.astype(mx.float32).tolist();
        mx.eval(x);
        assertEquals(numbers(mx.contiguous(mx.transpose(x, [0, 2, 1]))), expected);
        // Backwards, and a part that begins inside.
        const backwards = mx.contiguous(mx.transpose(mx.flip(x, 1), [0, 2, 1]));
        assertEquals(numbers(backwards), expected.map((b) => b.map((row) => row.toReversed())));
        const part = mx.contiguous(mx.transpose(x.index("...", mx.Slice(1, null)), [0, 2, 1]));
        assertEquals(numbers(part), expected.map((b) => b.slice(1)));
      }
    }
  });

  test("elements taken by runs of indices of every dtype, also from behind", () => {
    const random = generator(3);
    for (const count of [1, 255, 256, 257, 5000]) {
      for (const dtype of [mx.int32, mx.uint32, mx.int8, mx.uint16, mx.int64]) {
        const size = 100, from = dtype.kind === "int" ? -size : 0;
        const indices = Array.from({ length: count }, () => Math.floor(from + (size - from) * random()));
        const values = Array.from({ length: size }, (_, i) => i * 3);
        const at = indices.map((i) => (i + size) % size);
        const index = mx.array(indices, mx.int32).astype(dtype);
        assertEquals(mx.take(mx.array(values), index).tolist(), at.map((i) => values[i]));
        assertEquals(mx.take(mx.array(values).astype(mx.int64), index).tolist(), at.map((i) => values[i]));
        // Along the second of three axes, whose rows have one and several elements.
        for (const inner of [1, 3]) {
          const x = mx.arange(2 * size * inner).reshape(2, size, inner);
          const taken = mx.take(x, index, 1).tolist() as number[][][];
          taken.forEach((rows, o) =>
            rows.forEach((row, k) => row.forEach((v, j) => assertEquals(v, (o * size + at[k]) * inner + j)))
          );
          const along = mx.broadcastTo(index.reshape(1, count, 1), [2, count, inner]);
          assertEquals(mx.takeAlongAxis(x, along, 1).tolist(), taken);
        }
      }
    }
  });

  test("running sums of every length", () => {
    const random = generator(5);
    for (const count of [1, 2, 3, 4, 5, 511, 512, 513, 1030]) {
      const values = Float32Array.from({ length: count }, () => random() - 0.5);
      const sums: number[] = [];
      values.reduce((sum, v) => (sums.push(sum + v), sum + v), 0);
      const close = (found: mx.Tensor, expected: readonly number[]): void => {
        const wrong = (found.tolist() as number[]).findIndex((v, i) => Math.abs(v - expected[i]) > 5e-6);
        assertEquals(wrong, -1);
      };
      close(mx.cumsum(mx.array(values)), sums);
      close(mx.cumsum(mx.array(values), 0, { inclusive: false }), [0, ...sums.slice(0, -1)]);
      const total = sums[count - 1];
      close(mx.cumsum(mx.array(values), 0, { reverse: true }), sums.map((_, i) => total - (i ? sums[i - 1] : 0)));
    }
  });

  test("sums over the first axes of every height and width", () => {
    for (const height of [1, 3, 4, 5, 31, 32, 33, 70]) {
      for (const width of [4, 5, 255, 259]) {
        for (const dtype of [mx.float32, mx.float16]) {
          const value = (r: number, c: number): number => (r * 5 + c * 3) % 17 - 8;
          const rows = Array.from({ length: height }, (_, r) => Array.from({ length: width }, (_, c) => value(r, c)));
          const x = mx.array(rows).astype(dtype);
          mx.eval(x);
          const sums = rows[0].map((_, c) => rows.reduce((sum, row) => sum + row[c], 0));
          assertEquals(mx.sum(x, 0).tolist(), sums);
          assertEquals(mx.sum(mx.flip(x, 0), 0).tolist(), sums);
          const twice = mx.stack([x, x], 1); // two axes that are no neighbours in memory
          assertEquals(mx.sum(twice.index(mx.Slice(null, null, 1)), [0, 1]).tolist(), sums.map((v) => 2 * v));
        }
      }
    }
  });

  test("extremes of long rows: the first of equal ones, and NaN before all", () => {
    for (const count of [15, 16, 17, 8191, 8192, 8193, 20_000]) {
      for (const dtype of [mx.float32, mx.int32]) {
        const values = Array.from({ length: count }, (_, i) => (i * 7919) % 1009 - 504);
        const check = (x: mx.Tensor): void => {
          const most = Math.max(...values), least = Math.min(...values);
          assertEquals(mx.max(x).item(), most);
          assertEquals(mx.min(x).item(), least);
          assertEquals(mx.argmax(x).item(), values.indexOf(most));
          assertEquals(mx.argmin(x).item(), values.indexOf(least));
        };
        check(mx.array(values).astype(dtype));
        values[count - 1] = 2000;
        values[count - 2] = -2000;
        check(mx.array(values).astype(dtype));
        check(mx.flip(mx.array(values.toReversed()).astype(dtype), 0));
        if (dtype !== mx.float32) continue;
        const at = count - 3;
        const holed = mx.array(values.map((v, i) => i === at ? NaN : v));
        assertEquals([mx.argmax(holed).item(), mx.argmin(holed).item()], [at, at]);
        assertEquals([mx.max(holed).item(), mx.min(holed).item()], [NaN, NaN]);
      }
    }
  });

  test("products around the tiles", () => {
    for (const [m, k, n] of [[4, 1, 8], [5, 257, 9], [145, 3, 129], [33, 512, 31]]) {
      const random = generator(11);
      const a = Float64Array.from({ length: m * k }, () => Math.floor(random() * 16) - 8);
      const b = Float64Array.from({ length: k * n }, () => Math.floor(random() * 16) - 8);
      const found = mx.matmul(mx.array([...a]).reshape(m, k), mx.array([...b]).reshape(k, n)).toTypedArray();
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          for (let p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
          if (found[i * n + j] !== sum) assertEquals(found[i * n + j], sum, `${m} ${k} ${n} at ${i}, ${j}`);
        }
      }
    }
  });
}
