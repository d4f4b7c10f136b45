/** Sorting, places in sorted sequences and running values of 8-byte dtypes beside JavaScript's own order, bigints and sums. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

type Value = bigint | number | mx.Complex;

const parts = (v: Value): number[] => typeof v === "object" ? [v.re, v.im] : [Number(v)];
const isNan = (v: Value): boolean => parts(v).some(Number.isNaN);

/** MLX's order: the real part first, then the imaginary one. Numbers with a NaN are after all others and equal. */
function compare(a: Value, b: Value): number {
  if (isNan(a) || isNan(b)) return Number(isNan(a)) - Number(isNan(b));
  const sign = (x: number | bigint, y: number | bigint): number => Number(x > y) - Number(x < y);
  if (typeof a === "bigint") return sign(a, b as bigint);
  const [x, y] = [parts(a), parts(b)];
  return sign(x[0], y[0]) || sign(x[1] ?? 0, y[1] ?? 0);
}

/** Values with equal ones among them, those that only their low or their high half tells apart, and the ends. */
const DRAWS: readonly { dtype: mx.Dtype; draw: (next: () => number) => Value; ends: readonly Value[] }[] = [
  {
    dtype: mx.int64,
    draw: (next) => BigInt(Math.floor(5 * next()) - 2) * 2n ** 32n + BigInt(Math.floor(4 * next())) * 2n ** 30n,
    ends: [2n ** 63n - 1n, -(2n ** 63n), -1n, 0n],
  },
  {
    dtype: mx.uint64,
    draw: (next) => BigInt(Math.floor(4 * next())) * 2n ** 62n + BigInt(Math.floor(4 * next())) * 2n ** 30n,
    ends: [2n ** 64n - 1n, 0n, 2n ** 32n - 1n],
  },
  {
    dtype: mx.complex64,
    draw: (next) => mx.complex(Math.floor(5 * next()) - 2, Math.floor(5 * next()) - 2.5),
    ends: [
      mx.complex(NaN, 1),
      mx.complex(Infinity, -Infinity),
      mx.complex(-0, 1),
      mx.complex(0, 1),
      mx.complex(0, -0),
      mx.complex(-5, NaN),
      mx.complex(-Infinity, 3),
      mx.complex(Infinity, Infinity),
    ],
  },
  {
    dtype: mx.float64,
    draw: (next) => Math.floor(3 * next()) + Math.floor(4 * next()) * 2 ** -45,
    ends: [NaN, -Infinity, Infinity, -0, 0, 5e-324, -1e300],
  },
];

const drawsOf = (device: string): typeof DRAWS =>
  DRAWS.filter(({ dtype }) => dtype !== mx.float64 || device === "wasm");

/** As an array shows values: bigints where numbers are not exact. */
function shown(v: Value): unknown {
  return typeof v === "bigint" && Number.isSafeInteger(Number(v)) ? Number(v) : v;
}

function order(values: readonly Value[]): number[] {
  return values.map((_, i) => i).sort((i, j) => compare(values[i], values[j]) || i - j);
}

for (const device of testDevices()) {
  Deno.test(`8-byte dtypes are sorted stably on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      for (const { dtype, draw, ends } of drawsOf(device)) {
        const next = generator(dtype.code);
        for (const count of [1, 2, 130, 1025]) {
          const values = [...ends, ...Array.from({ length: count }, () => draw(next))].slice(0, count);
          const x = mx.array(values as number[], dtype);
          const expected = order(values);
          const what = `${count} of ${dtype.name}`;
          assertEquals(mx.argsort(x).tolist(), expected, what);
          assertEquals(mx.sort(x).tolist(), expected.map((i) => shown(values[i])) as number[], what);
        }
        // Columns, and rows from their ends.
        const [rows, cols] = [7, 5];
        const values = [...ends, ...Array.from({ length: rows * cols }, () => draw(next))].slice(0, rows * cols);
        const x = mx.array(values as number[], dtype).reshape(rows, cols);
        const column = (c: number): Value[] => Array.from({ length: rows }, (_, r) => values[r * cols + c]);
        const sorted = Array.from({ length: cols }, (_, c) => order(column(c)));
        assertEquals(mx.argsort(x, 0).T.tolist(), sorted, dtype.name);
        const turned = x.index(mx.Slice(null, null, -1)).T;
        const back = Array.from({ length: cols }, (_, c) => column(c).reverse());
        assertEquals(
          mx.sort(turned).tolist(),
          back.map((list) => order(list).map((i) => shown(list[i]))) as number[][],
          `${dtype.name}, through strides`,
        );
        const most: unknown = mx.topk(x, 2, null).tolist();
        assertEquals(most, order(values).slice(-2).map((i) => shown(values[i])));
        assertEquals(mx.sort(mx.zeros([0, 3], dtype)).shape, [0, 3]);
        assertEquals(mx.argsort(mx.zeros([3, 0], dtype)).shape, [3, 0]);
      }
    });
  });

  Deno.test(`8-byte dtypes have medians and places in sorted sequences on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      for (const { dtype, draw, ends } of drawsOf(device)) {
        const next = generator(3);
        const values = [...ends, ...Array.from({ length: 9 }, () => draw(next))];
        const sorted = order(values).map((i) => values[i]);
        for (const side of ["left", "right"] as const) {
          const found = mx.searchsorted(
            mx.array(sorted as number[], dtype),
            mx.array(values as number[], dtype),
            side,
          );
          const places = values.map((v) => sorted.filter((s) => compare(s, v) < (side === "left" ? 0 : 1)).length);
          assertEquals(found.tolist(), places, `${side} of ${dtype.name}`);
        }
      }
      const z = [mx.complex(1, 2), mx.complex(3, 1), mx.complex(2, 0), mx.complex(5, 9)];
      assertEquals(mx.median(mx.array(z)).item(), mx.complex(2.5, 0.5));
      assertEquals(mx.median(mx.array(z.slice(0, 3))).item(), mx.complex(2, 0));
      assert(isNan(mx.median(mx.array([...z, mx.complex(0, NaN)])).item() as Value));
      assertEquals(mx.median(mx.array([3, 1, 2, 1], mx.int64)).item(), 1.5);
    });
  });

  Deno.test(`running values of 8-byte dtypes are those of a loop on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const [big, values] = [2n ** 40n, [3n, -1n, 2n, 5n, -4n, 1n, 2n]];
      const x = mx.array(values.map((v) => v * big));
      const running = (combine: (a: bigint, b: bigint) => bigint): unknown[] => {
        let last: bigint | undefined;
        return values.map((v) => shown(last = last === undefined ? v * big : combine(last, v * big)));
      };
      assertEquals(mx.cumsum(x).tolist(), running((a, b) => a + b) as number[]);
      assertEquals(mx.cumprod(x).tolist(), running((a, b) => BigInt.asIntN(64, a * b)) as number[]);
      assertEquals(mx.cummax(x).tolist(), running((a, b) => a > b ? a : b) as number[]);
      assertEquals(mx.cummin(x).tolist(), running((a, b) => a < b ? a : b) as number[]);

      // e^z is 1, i, -1 and -i in turn: sums are 1, 1 + i, i and 0.
      const turns = mx.array([0, 1, 2].map((k) => mx.complex(0, k * Math.PI / 2)));
      const found = mx.logcumsumexp(turns).tolist() as mx.Complex[];
      [[0, 0], [Math.log(2) / 2, Math.PI / 4], [0, Math.PI / 2]].forEach(([re, im], i) => {
        assert(Math.hypot(found[i].re - re, found[i].im - im) < 1e-6, `${i}: ${Deno.inspect(found[i])}`);
      });
      const before = mx.logcumsumexp(turns, 0, { inclusive: false }).tolist() as mx.Complex[];
      assertEquals([before[0].re, before[1]], [-Infinity, mx.complex(0, 0)]);
      if (device !== "wasm") return;
      const exponents = [1, 700, 701, -5];
      let sum = 0;
      const sums = exponents.map((e) => Math.log(sum += Math.exp(e - 701)) + 701);
      const doubles = mx.logcumsumexp(mx.array(exponents, mx.float64)).toTypedArray() as Float64Array;
      sums.slice(1).forEach((s, i) => assert(Math.abs(doubles[i + 1] - s) < 1e-12, `${doubles[i + 1]}, expected ${s}`));
      assertEquals(doubles[0], 1);
    });
  });
}
