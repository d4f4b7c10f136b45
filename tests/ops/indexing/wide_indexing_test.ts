/** Assignments and updates at indices of 8-byte dtypes beside loops over JavaScript values. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

type Value = bigint | number | mx.Complex;
type Combine = (a: Value, b: Value) => Value;

/** Updates of two values of a dtype, and values that tell its bits apart from those of narrower ones. */
interface Arithmetic {
  readonly dtype: mx.Dtype;
  readonly values: readonly Value[];
  readonly updates: Readonly<Record<"add" | "multiply" | "maximum" | "minimum", Combine>>;
}

function integers(dtype: mx.Dtype, wrap: (x: bigint) => bigint, values: readonly bigint[]): Arithmetic {
  const big = (fn: (a: bigint, b: bigint) => bigint): Combine => (a, b) =>
    wrap(fn(BigInt(a as bigint), BigInt(b as bigint)));
  return {
    dtype,
    values,
    updates: {
      add: big((a, b) => a + b),
      multiply: big((a, b) => a * b),
      maximum: big((a, b) => a > b ? a : b),
      minimum: big((a, b) => a < b ? a : b),
    },
  };
}

const complex = (fn: (a: mx.Complex, b: mx.Complex) => mx.Complex): Combine => (a, b) =>
  fn(a as mx.Complex, b as mx.Complex);
const above = (a: mx.Complex, b: mx.Complex): boolean => a.re > b.re || (a.re === b.re && a.im > b.im);
const real = (fn: (a: number, b: number) => number): Combine => (a, b) => fn(a as number, b as number);

const DTYPES: readonly Arithmetic[] = [
  integers(mx.int64, (x) => BigInt.asIntN(64, x), [1n, -5n, 2n ** 40n + 3n, -(2n ** 62n), 7n, 2n ** 33n, -1n]),
  integers(mx.uint64, (x) => BigInt.asUintN(64, x), [1n, 5n, 2n ** 63n + 1n, 2n ** 64n - 2n, 2n ** 40n, 9n, 2n ** 32n]),
  {
    dtype: mx.complex64,
    values: [mx.complex(1, 2), mx.complex(1, -3), mx.complex(-2, 0.5), mx.complex(0, 1), mx.complex(-2, 4)],
    updates: {
      add: complex((a, b) => mx.complex(a.re + b.re, a.im + b.im)),
      multiply: complex((a, b) => mx.complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)),
      maximum: complex((a, b) => above(a, b) ? a : b),
      minimum: complex((a, b) => above(b, a) ? a : b),
    },
  },
  {
    dtype: mx.float64,
    values: [1, 1 + 2 ** -40, -3.5, 2 ** 60 + 512, -(2 ** -50), NaN, 4],
    updates: {
      add: real((a, b) => a + b),
      multiply: real((a, b) => a * b),
      maximum: real(Math.max),
      minimum: real(Math.min),
    },
  },
];

/** `count` of the values, over and over from the one at `from`. */
function cycle(values: readonly Value[], count: number, from: number): Value[] {
  return Array.from({ length: count }, (_, i) => values[(from + i) % values.length]);
}

/** As an array shows values: bigints where numbers are not exact. */
function shown(values: readonly Value[]): unknown[] {
  return values.map((v) => typeof v === "bigint" && Number.isSafeInteger(Number(v)) ? Number(v) : v);
}

function flat(x: mx.Tensor): unknown {
  return x.reshape([-1]).tolist();
}

const dtypesOf = (device: string): Arithmetic[] =>
  DTYPES.filter(({ dtype }) => dtype !== mx.float64 || device === "wasm");

for (const device of testDevices()) {
  Deno.test(`updates of 8-byte dtypes are combined in order on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const [rows, cols] = [4, 3];
      // A place twice, one from the end, one that is clamped.
      const [places, at] = [[2, 0, 2, -1, 9], [2, 0, 2, 3, 3]];
      for (const { dtype, values, updates } of dtypesOf(device)) {
        const old = cycle(values, rows * cols, 0);
        const given = cycle(values, places.length * cols, 2);
        const base = mx.array(old as number[], dtype).reshape(rows, cols);
        const update = mx.array(given as number[], dtype).reshape(places.length, cols);
        const index = mx.array(places, mx.int32);
        for (const [name, combine] of Object.entries({ ...updates, assign: (_: Value, b: Value) => b })) {
          const expected = [...old];
          given.forEach((v, i) => {
            const to = at[Math.floor(i / cols)] * cols + i % cols;
            expected[to] = combine(expected[to], v);
          });
          const put = (x: mx.Tensor, v: mx.Tensor): mx.Tensor => {
            if (name === "assign") return mx.array(x).indexPut_([index], v);
            return x.at(index)[name as keyof typeof updates](v);
          };
          assertEquals(flat(put(base, update)), shown(expected), `${name} of ${dtype.name}`);
          // Rows that are columns of other memory.
          const turned = mx.contiguous(base.T).T;
          assertEquals(flat(put(turned, mx.contiguous(update.T).T)), shown(expected), `${name} through strides`);
        }
        assertEquals(flat(base.at(mx.zeros([0], mx.int32)).add(mx.zeros([0, cols], dtype))), shown(old), "no updates");
        assertEquals(flat(mx.array(values[1] as number, dtype).reshape(1).at(0).multiply(1)), shown([values[1]]));
      }
    });
  });

  Deno.test(`values of 8-byte dtypes are put along axes, slices and masks on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      for (const { dtype, values } of dtypesOf(device)) {
        const old = cycle(values, 6, 0);
        const base = mx.array(old as number[], dtype).reshape(2, 3);
        const [p, q] = cycle(values, 2, 3);
        const pair = mx.array([p, q] as number[], dtype);
        const along = mx.putAlongAxis(base, [[1, -1], [0, 0]], pair, 1);
        assertEquals(flat(along), shown([old[0], p, q, q, old[4], old[5]]), dtype.name);
        assertEquals(flat(mx.putAlongAxis(base, [4, 1], pair)), shown([old[0], q, old[2], old[3], p, old[5]]));
        const sliced = mx.array(base).indexPut_(["...", mx.Slice(null, null, -2)], pair);
        assertEquals(flat(sliced), shown([q, old[1], p, q, old[4], p]));
        const masked = mx.array(base).indexPut_(mx.array([[true, false, false], [false, true, false]]), pair);
        assertEquals(flat(masked), shown([p, old[1], old[2], old[3], q, old[5]]));
        const written = mx.sliceUpdate(base, pair.reshape(2, 1), mx.array([2], mx.int32), [1]);
        assertEquals(flat(written), shown([old[0], old[1], p, old[3], old[4], q]));
      }
    });
  });
}
