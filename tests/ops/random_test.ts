/** Random numbers stay in their range and finite, on every device; their streams are compared with MLX's in array_test.ts. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";

const { int8, int16, int32, uint8, uint16, uint32, float16, bfloat16, float32 } = mx;

/** Bounds that float32 has no room for, or no room between. */
const RANGES: readonly (readonly [low: number, high: number, dtype: mx.Dtype])[] = [
  [2 ** 24, 2 ** 24 + 2, int32],
  [2 ** 24 + 1, 2 ** 24 + 3, int32],
  [-(2 ** 24) - 5, -(2 ** 24) - 3, int32],
  [2 ** 31 - 3, 2 ** 31 - 1, int32],
  [-(2 ** 31), -(2 ** 31) + 3, int32],
  [-(2 ** 31), 2 ** 31 - 1, int32],
  [-(2 ** 31), 2 ** 31, int32],
  [0, 2 ** 32, uint32],
  [2 ** 32 - 2, 2 ** 32, uint32],
  [2 ** 31 + 1, 2 ** 31 + 4, uint32],
  [-128, 128, int8],
  [0, 256, uint8],
  [-32768, 32768, int16],
  [0, 65536, uint16],
  [-3, 4, int32],
];

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  Deno.test(`randint() gives low and never high on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const [low, high, dtype] of RANGES) {
      mx.tidy(() => {
        const x = mx.random.randint(low, high, [4000], dtype, mx.random.key(high >>> 0));
        assertEquals(x.dtype, dtype);
        const found = [...x.toTypedArray()].map(Number);
        const [least, most] = [Math.min(...found), Math.max(...found)];
        assert(least >= low && most < high, `${low} to ${high}, ${dtype.name}: found ${least} to ${most}`);
        if (dtype.bytes === 1) assertEquals(new Set(found).size, 256, dtype.name); // small types from end to end
      });
    }
  });

  Deno.test(`randint() limits to bounds in arrays on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const low = mx.array(Int32Array.of(2 ** 24, -(2 ** 30), 0));
      const high = mx.array(Int32Array.of(2 ** 24 + 1, -(2 ** 30) + 5, 3));
      const x = mx.random.randint(low, high, [1000, 3], int32, mx.random.key(1));
      assert(mx.all(mx.logicalAnd(mx.greaterEqual(x, low), mx.less(x, high))).item());
      const bools = mx.random.randint(0, 2, [1000], mx.bool, mx.random.key(1));
      assertEquals(bools.dtype, mx.bool);
      const count = mx.sum(bools).item();
      assert(count > 400 && count < 600, `${count} of 1000 are true`);
    });
  });

  Deno.test(`laplace() and normal() are finite in every float type on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const dtype of [float16, bfloat16, float32]) {
      mx.tidy(() => {
        for (const draw of [mx.random.laplace, mx.random.normal]) {
          const x = draw([100_000], dtype, undefined, undefined, mx.random.key(3));
          assertEquals(x.dtype, dtype);
          assert(mx.all(mx.isfinite(x)).item(), `${draw.name} of ${dtype.name}`);
        }
        // Half of the numbers of the standard Laplace distribution are within log(2) of 0, and the mean distance is 1.
        const distance = mx.abs(mx.random.laplace([100_000], dtype, 0, 1, mx.random.key(4)).astype(float32));
        const [mean, near] = [distance.mean(), mx.less(distance, Math.LN2).astype(float32).mean()];
        assert(Math.abs(mean.item() - 1) < 0.02 && Math.abs(near.item() - 0.5) < 0.01);
      });
    }
  });
}

Deno.test("normal and Laplace numbers of float64 are those of MLX, not rounded to float32", () => {
  mx.withDevice("wasm", () => {
    // MLX 0.32.4 with the key of 0, its erfinv being that of float32.
    const normal = [
      0.18784416268765808,
      -1.2833421186564629,
      -0.2710915641951632,
      1.2490599563713987,
      0.24447001309543914,
    ];
    const laplace = [
      -0.1613445383364486,
      1.612581689124125,
      0.24039064767493126,
      -1.5528536329273335,
      -0.21459664957580138,
    ];
    const key = mx.random.key(0);
    const drawn = (fn: "normal" | "laplace") => (loc: number, scale: number): mx.Tensor =>
      fn === "normal"
        ? mx.random.normal([5], mx.float64, loc, scale, key)
        : mx.random.laplace([5], mx.float64, loc, scale, key);
    for (
      const [draw, expected, limit] of [[drawn("normal"), normal, 1e-7], [drawn("laplace"), laplace, 1e-15]] as const
    ) {
      const found = draw(0, 1);
      assertEquals(found.dtype, mx.float64);
      const values = Array.from(found.toTypedArray() as Float64Array);
      values.forEach((v, i) => assert(Math.abs(v - expected[i]) <= limit, `${v}, expected ${expected[i]}`));
      assert(values.some((v) => v !== Math.fround(v)));
      const moved = Array.from(draw(0.1, 0.3).toTypedArray() as Float64Array);
      moved.forEach((v, i) => assert(Math.abs(v - (0.1 + 0.3 * values[i])) <= 1e-15, `${v}`));
    }
    assertThrows(() => mx.random.uniform(0, 1, [2], mx.float64), mx.DtypeError, "found float64");
    assertThrows(
      () => mx.random.laplace([2], mx.int32),
      mx.DtypeError,
      "laplace() makes float16, bfloat16, float32, float64",
    );
  });
});
