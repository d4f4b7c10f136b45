/** Elementwise functions, casts and views of 8-byte dtypes beside NumPy's values, and what is asked of dtypes. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";

type Value = number | string | [number | string, number | string];
interface Golden {
  readonly inputs: Record<string, Value[]>;
  readonly rows: [kind: "c" | "i" | "x", names: string, fn: string, dtype: string, values: Value[]][];
}
const GOLDEN: Golden = JSON.parse(
  await Deno.readTextFile(new URL("../golden/arrays/elementwise_wide.json", import.meta.url)),
);

/** How far from the exact value a result may be, beside its magnitude or 1e-3. */
const LIMITS = { c: 5e-6, i: 1e-6, x: 1e-14 } as const;

const camel = (name: string): string => name.replaceAll(/_(\w)/g, (_, letter) => letter.toUpperCase());

function input(kind: "c" | "i" | "x", values: Value[]): mx.Tensor {
  if (kind === "c") {
    return mx.array(values.map((v) => mx.complex(Number((v as number[])[0]), Number((v as number[])[1]))));
  }
  if (kind === "i") return mx.array(BigInt64Array.from(values as string[], BigInt));
  return mx.array(values as number[], mx.float64);
}

/** How far a result is from a value, relative to it; Infinity where one of them is no number or infinite and the other is. */
function distance(found: unknown, expected: Value): number {
  if (Array.isArray(expected)) {
    const { re, im } = found as mx.Complex;
    const [x, y] = expected.map(Number);
    if (![x, y].every(Number.isFinite)) return [re, im].every(Number.isFinite) ? Infinity : 0;
    return Math.hypot(re - x, im - y) / Math.max(Math.hypot(x, y), 1e-3);
  }
  if (typeof expected === "string" && /^-?\d+$/.test(expected)) return String(found) === expected ? 0 : Infinity;
  const value = Number(expected === "inf" ? Infinity : expected === "-inf" ? -Infinity : expected);
  if (!Number.isFinite(value)) return Object.is(Number(found), value) ? 0 : Infinity;
  return Math.abs(Number(found) - value) / Math.max(Math.abs(value), 1e-3);
}

for (const device of testDevices()) {
  Deno.test(`elementwise functions of 8-byte dtypes give NumPy's values on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const functions = mx as unknown as Record<string, (...x: mx.Tensor[]) => mx.Tensor>;
      for (const [kind, names, fn, dtype, values] of GOLDEN.rows) {
        if (kind === "x" && device !== "wasm") continue;
        const result = functions[camel(fn)](...[...names].map((name) => input(kind, GOLDEN.inputs[name])));
        assertEquals(result.dtype.name, dtype, fn);
        const found = result.tolist() as unknown[];
        values.forEach((value, i) => {
          const error = distance(found[i], value);
          assert(error <= LIMITS[kind], `${fn} of ${names} at ${i}: ${Deno.inspect(found[i])}, expected ${value}`);
        });
      }
    });
  });

  Deno.test(`8-byte dtypes are cast, chosen, broadcast and read through strides on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const big = 2n ** 60n;
      const x = mx.array([big, -3n, 5n]);
      assertEquals(x.astype(mx.float32).tolist(), [2 ** 60, -3, 5]);
      assertEquals(x.astype(mx.int8).tolist(), [0, -3, 5]);
      assertEquals(x.astype(mx.uint64).tolist(), [big, 2n ** 64n - 3n, 5]);
      assertEquals(x.astype(mx.bool).tolist(), [true, true, true]);
      assertEquals(mx.array([1.75, -2.5, NaN, 1e30]).astype(mx.int64).tolist(), [1, -2, 0, 2n ** 63n - 1n]);
      assertEquals(mx.array([1, 0], mx.int8).astype(mx.complex64).tolist(), [{ re: 1, im: 0 }, { re: 0, im: 0 }]);
      assertEquals(mx.array([mx.complex(1.5, 2)]).astype(mx.float16).tolist(), [1.5]);
      assertEquals(mx.where([true, false, true], x, 0n).tolist(), [big, 0, 5]);
      assertEquals(mx.add(x.reshape(3, 1), x).tolist()[1], [big - 3n, -6, 2]);
      assertEquals(x.index(mx.Slice(null, null, -1)).add(1n).tolist(), [6, -2, big + 1n]);
      assertEquals(mx.add(mx.array([1], mx.uint32), mx.array([-2], mx.int32)).tolist(), [-1]);
      assertEquals(mx.multiply(mx.array([3]), mx.complex(0, 1)).tolist(), [{ re: 0, im: 3 }]);
      const five = mx.broadcastTo(mx.array([[[[[7n, 8n]]]]]), [2, 1, 2, 1, 3, 2].slice(1));
      assertEquals(mx.add(mx.transpose(five, [4, 0, 1, 2, 3]), 1n).size, 12);
      assertThrows(() => mx.floor(mx.array([mx.complex(1, 2)])), mx.DtypeError, "floor() does not take complex64");
    });
  });

  Deno.test(`8-byte dtypes are reduced, scanned and multiplied on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const big = 2 ** 52;
      const x = mx.add(mx.arange(15, mx.int64).reshape(3, 5), big);
      assertEquals(mx.sum(x).tolist(), 15n * BigInt(big) + 105n);
      assertEquals(mx.sum(x, 1).tolist(), [0, 1, 2].map((i) => 5n * BigInt(big) + BigInt(25 * i + 10)));
      assertEquals(mx.max(x, 0).tolist(), [10, 11, 12, 13, 14].map((i) => big + i));
      assertEquals(mx.argmax(x, 1).tolist(), [4, 4, 4]);
      assertEquals([mx.argmin(x).item(), mx.all(x).item(), mx.any(mx.zeros([3], mx.uint64)).item()], [0, true, false]);
      assertEquals(mx.sum(mx.zeros([0, 2], mx.int64), 0).tolist(), [0, 0]);
      const y = mx.arange(7, mx.int64);
      assertEquals(mx.cumsum(y).tolist(), [0, 1, 3, 6, 10, 15, 21]);
      assertEquals(mx.cumsum(y, 0, { reverse: true, inclusive: false }).tolist(), [21, 20, 18, 15, 11, 6, 0]);
      const z = mx.array([[mx.complex(1, 2), mx.complex(0, -1)]]);
      assertEquals(mx.sum(z).item(), mx.complex(1, 1));
      assertEquals(mx.matmul(z, z.T).item(), mx.complex(-4, 4));
      assertEquals(mx.matmul(z.T, [[2]]).tolist(), [[mx.complex(2, 4)], [mx.complex(0, -2)]]);
    });
  });

  Deno.test(`view() shows bytes as another dtype on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const x = mx.arange(8).reshape(2, 4).astype(mx.int32);
      assertEquals(
        mx.view(x, mx.int64).tolist(),
        [[2n ** 32n, 3n * 2n ** 32n + 2n], [5n * 2n ** 32n + 4n, 7n * 2n ** 32n + 6n]]
          .map((row) => row.map((v) => Number(v))),
      );
      assertEquals(mx.view(mx.view(x.T, mx.uint8), mx.int32).tolist(), x.T.tolist());
      assertEquals(x.index(1).view(mx.int16).tolist(), [4, 0, 5, 0, 6, 0, 7, 0]);
      assertThrows(() => mx.view(mx.zeros([3], mx.uint8), mx.int16), mx.ShapeError, "expected a multiple of 2");
    });
  });
}

/** Whether two are as close as their dtype allows; complex ones as pairs. */
function near(found: mx.Tensor, expected: readonly number[], limit: number): void {
  const values = [...found.toTypedArray() as Float64Array];
  assertEquals(values.length, expected.length);
  values.forEach((value, i) =>
    assert(
      Object.is(value, expected[i]) || value === expected[i] || Math.abs(value - expected[i]) <= limit,
      `${i}: ${value} is not ${expected[i]}`,
    )
  );
}

for (const device of testDevices()) {
  Deno.test(`functions of complex64 lose no part on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const z = mx.array([mx.complex(1, 2), mx.complex(3, -1)]);
      near(mx.mean(z), [2, 0.5], 1e-6);
      near(mx.variance(z), [3.25], 1e-6);
      assertEquals([mx.variance(z).dtype, mx.std(z).dtype, mx.linalg.norm(z).dtype], [
        mx.float32,
        mx.float32,
        mx.float32,
      ]);
      near(mx.std(z), [Math.sqrt(3.25)], 1e-6);
      near(mx.linalg.norm(z), [Math.sqrt(15)], 1e-6);
      near(mx.linalg.norm(z, 1), [Math.sqrt(5) + Math.sqrt(10)], 1e-6);
      near(mx.linalg.norm(z.reshape(1, 2), "fro"), [Math.sqrt(15)], 1e-6);
      near(mx.vecdot(z, mx.array([mx.complex(0, 1), mx.complex(2, 0)])), [8, 3], 1e-6);
      near(mx.addmm(1, z.reshape(1, 2), z.reshape(2, 1)), [6, -2], 1e-5);
      near(mx.softmax(z), [-0.154148, 0.0254527, 1.154148, -0.0254527], 1e-6);
      near(mx.logsumexp(z), [2.85639, -0.97795], 1e-5);
      // By 0 infinite where the numerator is not 0, and by infinity 0.
      const [zero, infinite] = [mx.complex(0), mx.complex(-Infinity, NaN)];
      const quotients = mx.divide(mx.array([mx.complex(1, -2), mx.complex(1), zero, mx.complex(3, 1)]), [
        zero,
        zero,
        zero,
        infinite,
      ]);
      near(mx.view(quotients, mx.float32), [Infinity, -Infinity, Infinity, NaN, NaN, NaN, -0, -0], 0);
      near(mx.sqrt(mx.array([mx.complex(1, -Infinity), mx.complex(-4, 0)])), [Infinity, -Infinity, 0, 2], 1e-6);
      near(mx.round(mx.multiply(z, 1.234), 1), [1.2, 2.5, 3.7, -1.2], 1e-6);
      assertThrows(() => mx.nanToNum(z), mx.DtypeError, "does not take complex64");
      assertThrows(() => mx.hadamardTransform(z), mx.DtypeError, "does not take complex64");
      const row = z.reshape(1, 2);
      assert(mx.allclose(mx.linalg.norm(row, "nuc"), mx.linalg.norm(row, "fro")).item());
      assertThrows(() => mx.fast.rmsNorm(z, mx.ones([2]), 1e-6), mx.DtypeError, "found complex64");
    });
  });

  Deno.test(`indices of 64 bits are those of 32, clamped beyond, on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const x = mx.array([1, 2, 3]);
      assertEquals(mx.take(x, mx.array([1n, -1n, 2n ** 40n])).tolist(), [2, 3, 3]);
      assertEquals(x.index(mx.array(BigUint64Array.of(2n, 2n ** 63n))).tolist(), [3, 3]);
      assertEquals(mx.takeAlongAxis(x, mx.array([2n, 0n]), 0).tolist(), [3, 1]);
      assertEquals(mx.putAlongAxis(x, mx.array([2n]), mx.array([9]), 0).tolist(), [1, 2, 9]);
    });
  });
}

Deno.test("functions of float64 keep its digits", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const x = mx.array([1, 1 + 2 ** -40, 3], mx.float64);
    near(mx.mean(x), [(5 + 2 ** -40) / 3], 1e-15);
    near(mx.variance(mx.array([1, 1 + 2 ** -20], mx.float64)), [2 ** -42], 1e-25);
    near(
      mx.softmax(x),
      [1, Math.exp(2 ** -40), Math.exp(2)].map((e) => e / (1 + Math.exp(2 ** -40) + Math.exp(2))),
      1e-15,
    );
    near(mx.linspace(0, 1, 4, true, mx.float64), [0, 1 / 3, 2 / 3, 1], 1e-15);
    near(mx.nanToNum(mx.array([NaN, Infinity, 1], mx.float64)), [0, Number.MAX_VALUE, 1], 0);
    near(mx.linalg.norm(x), [Math.hypot(1, 1 + 2 ** -40, 3)], 1e-15);
    near(mx.cummax(x, 0, { inclusive: false }), [-Infinity, 1, 1 + 2 ** -40], 1e-16);
    const a = mx.array([[4, 1], [2, 3]], mx.float64);
    near(mx.linalg.inv(a).reshape(4), [0.3, -0.1, -0.2, 0.4], 1e-15);
    near(mx.linalg.solve(a, mx.array([1, 2], mx.float64)), [0.1, 0.6], 1e-15);
    near(mx.linalg.eigvalsh(mx.array([[2, 1], [1, 2]], mx.float64)), [1, 3], 1e-14);
    near(mx.linalg.svd(a, false), [5.116672736016927, 1.9543950758485487], 1e-14);
    near(mx.abs(mx.linalg.qr(a)[1]).reshape(4), [Math.sqrt(20), Math.sqrt(5), 0, Math.sqrt(5)], 1e-14);
    near(mx.linalg.cholesky(mx.array([[4, 2], [2, 3]], mx.float64)).reshape(4), [2, 0, 1, Math.SQRT2], 1e-15);
  });
});

Deno.test("questions about dtypes have MLX's answers", () => {
  assert(
    mx.issubdtype(mx.int8, mx.integer) && mx.issubdtype(mx.floating, mx.inexact) && !mx.issubdtype(mx.bool, mx.number),
  );
  assert(mx.isdtype(mx.uint8, "integral") && mx.isdtype(mx.float64, ["bool", "real floating"]));
  assert(mx.canCast(mx.int8, mx.float16) && !mx.canCast(mx.float32, mx.float16));
  assert(mx.canCast(mx.array([1], mx.int8), mx.int32) && !mx.canCast(mx.array([1], mx.int32), mx.int8));
  assertEquals([mx.finfo(mx.float16).smallestNormal, mx.finfo(mx.complex64).smallestNormal], [2 ** -14, 2 ** -126]);
  assertEquals(mx.finfo(mx.complex64).dtype, mx.float32);
  assertEquals(mx.resultType(mx.int32, mx.float16, 2.5).name, "float16");
  assertEquals([mx.resultType(mx.uint32, mx.int8, 3).name, mx.resultType(mx.bool, 2 ** 40).name], ["int64", "int64"]);
  assertEquals(mx.resultType(mx.zeros([2], mx.uint64), mx.int8).name, "float32");
  assertEquals([mx.finfo(mx.bfloat16).eps, mx.finfo(mx.float16).max, mx.finfo(mx.complex64).bits], [
    2 ** -7,
    65504,
    32,
  ]);
  assertEquals(mx.finfo(mx.complex64).dtype, mx.float32);
  const least = [mx.float16, mx.bfloat16, mx.float32, mx.float64].map((dtype) => mx.finfo(dtype).smallestNormal);
  assertEquals(least, [2 ** -14, 2 ** -126, 2 ** -126, 2 ** -1022]);
  assertEquals([mx.iinfo(mx.int64).max, mx.iinfo(mx.uint8).min], [2n ** 63n - 1n, 0]);
  assertThrows(() => mx.finfo(mx.int8), mx.DtypeError, "see iinfo()");
});
