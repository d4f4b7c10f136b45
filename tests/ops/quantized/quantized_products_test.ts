/**
 * Products with quantized matrices at the edges: no rows, no indices, and groups that fill no run of 32. Also views
 * that run backwards, numbers that are not finite, and global scales. Expected are float64 sums over the matrices that
 * dequantize() gives, whose bits other tests hold.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

/** Codes, scales and, in mode affine, biases. */
type Parts = readonly mx.Tensor[];

const MODES = ["affine", "mxfp4", "mxfp8", "nvfp4"] as const;
const GROUP = { affine: 32, mxfp4: 32, mxfp8: 32, nvfp4: 16, symmetric: 16 } as const;
const ALL = mx.Slice();
const BACK = mx.Slice(null, null, -1);

function normal(shape: number[], seed: number): mx.Tensor {
  return mx.random.normal(shape, mx.float32, 0, 1, mx.random.key(seed));
}

/** The parts of a matrix; of any one of its shape in mode symmetric, which nothing quantizes to. */
function quantized(w: mx.Tensor, mode: mx.CodeMode, globalScale: number | null = null): Parts {
  if (mode === "symmetric") {
    const sized = (part: number): number[] => [...w.shape.slice(0, -1), w.shape.at(-1)! * part / 32];
    return [mx.random.bits(sized(6), mx.random.key(7)), mx.multiply(normal(sized(2), 8), 0.03).astype(w.dtype)];
  }
  return mx.quantize(w, GROUP[mode], null, mode, { globalScale });
}

/** The numbers of a matrix (n, k), or of its batch. */
function dense(
  [codes, scales, biases]: Parts,
  mode: mx.CodeMode,
  globalScale: number | null = null,
): Float32Array {
  const options = { mode, globalScale, dtype: mx.float32 };
  return mx.dequantize(codes, scales, biases ?? null, GROUP[mode], null, options).toTypedArray() as Float32Array;
}

/** x (m, k) times matrix `at` of w (…, n, k), transposed, or of w (…, k, n). */
function product(x: ArrayLike<number>, w: Float32Array, at: number, [m, n, k]: number[], transpose: boolean): number[] {
  return Array.from({ length: m * n }, (_, i) => {
    const [row, column] = [Math.floor(i / n), i % n];
    let sum = 0;
    for (let t = 0; t < k; t++) sum += x[row * k + t] * w[at * n * k + (transpose ? column * k + t : t * n + column)];
    return sum;
  });
}

function near(found: mx.Tensor, expected: readonly number[], what: string, limit = 1e-5): void {
  const values = found.astype(mx.float32).toTypedArray() as Float32Array;
  assertEquals(values.length, expected.length, what);
  const most = expected.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  values.forEach((y, i) =>
    assert(Math.abs(y - expected[i]) <= limit * most, `${what}: ${y} at ${i}, not ${expected[i]}`)
  );
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  Deno.test(`products with quantized matrices take few and no rows on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const mode of MODES) {
      for (const [m, n, k] of [[1, 3, GROUP[mode]], [5, 7, 3 * GROUP[mode]], [0, 3, 64], [2, 0, 64]]) {
        mx.tidy(() => {
          const [x, parts] = [normal([m, k], 1), quantized(normal([n, k], 2), mode)];
          const [codes, scales, biases = null] = parts;
          const found = mx.quantizedMatmul(x, codes, scales, biases, true, GROUP[mode], null, mode);
          assertEquals(found.shape, [m, n]);
          const values = x.toTypedArray() as Float32Array;
          near(found, product(values, dense(parts, mode), 0, [m, n, k], true), `${mode} ${m} ${n} ${k}`);
        });
      }
      mx.tidy(() => {
        const [codes, scales, biases = null] = quantized(normal([2, 3, 64], 3), mode);
        const none = mx.zeros([0], mx.uint32);
        const found = mx.gatherQmm(
          normal([2, 1, 64], 4),
          codes,
          scales,
          biases,
          none,
          none,
          true,
          GROUP[mode],
          null,
          mode,
        );
        assertEquals([found.shape, found.tolist()], [[0, 1, 3], []]);
      });
    }
  });

  Deno.test(`products with quantized matrices read views on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [m, n, k] = [3, 64, 64];
    for (const mode of MODES) {
      for (const transpose of [true, false]) {
        mx.tidy(() => {
          const all = quantized(normal([4, n, k], 5), mode);
          const parts = all.map((part) => part.index(BACK, BACK).index(mx.Slice(1, 3)));
          const [codes, scales, biases = null] = parts;
          const x = normal([k, m, 2], 6).transpose(2, 1, 0).index(ALL, BACK);
          const values = mx.contiguous(x).toTypedArray() as Float32Array;
          const w = dense(parts.map((part) => mx.contiguous(part)), mode);
          const of = (left: number, right: number): number[] =>
            product(values.subarray(left * m * k, (left + 1) * m * k), w, right, [m, n, k], transpose);
          const rest = [transpose, GROUP[mode], null, mode] as const;
          near(mx.quantizedMatmul(x, codes, scales, biases, ...rest), [...of(0, 0), ...of(1, 1)], `${mode} batch`);
          const [left, right] = [mx.array([[1, 0]], mx.int32), mx.array([[1], [0]], mx.uint32)];
          const found = mx.gatherQmm(x, codes, scales, biases, left, right, ...rest, null, { sortedIndices: false });
          assertEquals(found.shape, [2, 2, m, n]);
          near(found, [...of(1, 1), ...of(0, 1), ...of(1, 0), ...of(0, 0)], `${mode} chosen`);
        });
      }
    }
  });

  Deno.test(`infinite numbers go through products with small floats on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const mode of ["mxfp4", "mxfp8", "nvfp4"] as const) {
      mx.tidy(() => {
        const column = 9;
        const [w, x] = [normal([6, 64], 7), normal([1, 64], 8)].map((a) => a.toTypedArray() as Float32Array);
        for (let i = 0; i < 6; i++) w[i * 64 + column] = i % 2 ? -3 : 3;
        x[column] = Infinity;
        const parts = quantized(mx.array(w).reshape([6, 64]), mode);
        const [codes, scales] = parts;
        const found = mx.quantizedMatmul(mx.array(x).reshape([1, 64]), codes, scales, null, true, null, null, mode);
        assertEquals(found.tolist(), [[Infinity, -Infinity, Infinity, -Infinity, Infinity, -Infinity]], mode);
      });
    }
  });

  Deno.test(`global scales are part of products on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [m, n, k] = [2, 5, 48];
    mx.tidy(() => {
      const [gx, gw] = [2.5, 3.75];
      const [x, w] = [normal([3, m, k], 9), normal([2, n, k], 10)];
      const parts = quantized(w, "nvfp4", gw);
      const [codes, scales] = parts;
      const full = dense(parts, "nvfp4", gw);
      const plain = x.toTypedArray() as Float32Array;
      const rounded = dense(quantized(x, "nvfp4", gx), "nvfp4", gx);
      const of = (values: Float32Array, left: number, right: number): number[] =>
        product(values.subarray(left * m * k, (left + 1) * m * k), full, right, [m, n, k], true);
      const chosen = mx.gatherQmm(x, codes, scales, null, [2, 0], [0, 1], true, null, null, "nvfp4", [gw, gw]);
      near(chosen, [...of(plain, 2, 0), ...of(plain, 0, 1)], "gatherQmm");
      const [first, one] = [x.index(0), [codes.index(1), scales.index(1)] as const];
      for (const [matrix, factors] of [[one[0], one[1]], [w.index(1), null]] as const) {
        near(mx.qqmm(first, matrix, factors, null, null, "nvfp4", gx, gw), of(rounded, 0, 1), "qqmm");
      }
      const both = mx.gatherQqmm(x, codes, scales, [1], [1], null, null, "nvfp4", gx, gw);
      near(both, of(rounded, 1, 1), "gatherQqmm");
      const half = mx.gatherQmm(x.astype(mx.float16), codes, scales, null, [0], null, true, null, null, "nvfp4");
      assertEquals([half.dtype.name, half.shape], ["float16", [2, m, n]]);
      assertEquals(mx.qqmm(mx.ones([48], mx.bfloat16), ...one).dtype.name, "bfloat16");
    });
  });
}

/** Of the last three the matrix is written out where there are matrix units: they are large enough. */
const MANY_ROWS = [
  ["affine", 131, 100, 64],
  ["affine", 200, 192, 128],
  ["mxfp4", 260, 128, 160],
  ["nvfp4", 200, 128, 192],
  ["symmetric", 70, 128, 256],
] as const;

for (const device of testDevices()) {
  Deno.test(`products of many rows of halves, which matrix units take, on ${device}`, () => {
    mx.withDevice(device, () =>
      mx.tidy(() => {
        for (const dtype of [mx.float16, mx.bfloat16]) {
          // Results are halves; matrices that are written out first are too.
          const limit = dtype === mx.float16 ? 1e-3 : 5e-3;
          for (const [mode, m, n, k] of MANY_ROWS) {
            const parts = quantized(normal([n, k], 5).astype(dtype), mode);
            // dequantize() rounds as the scales do.
            const w = dense(parts.map((part) => part.dtype === dtype ? part.astype(mx.float32) : part), mode);
            for (const transpose of [true, false]) {
              const [depth, columns] = transpose ? [k, n] : [n, k];
              const x = normal([m, depth], 6).astype(dtype);
              const expected = product(x.astype(mx.float32).toTypedArray(), w, 0, [m, columns, depth], transpose);
              const [codes, scales, biases] = parts;
              const found = mx.quantizedMatmul(x, codes, scales, biases ?? null, transpose, GROUP[mode], null, mode);
              near(found, expected, `${dtype.name} ${mode} ${m}, ${n}, ${k}, ${transpose}`, limit);
            }
          }
        }
      }));
  });
}

for (const device of testDevices()) {
  Deno.test(`rows of tables in mode symmetric, their products and derivatives are those of the numbers on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const [codes, scales] = quantized(mx.zeros([5, 64]), "symmetric");
      const numbers = mx.dequantize(codes, mx.ones(scales.shape), null, 16, 6, "symmetric");
      const values = numbers.toTypedArray() as Float32Array;
      assert(values.every((n) => Number.isInteger(n) && n >= -32 && n < 32) && new Set(values).size > 32);
      const dense = (s: mx.Tensor): mx.Tensor =>
        mx.multiply(numbers.reshape(5, 4, 16), s.reshape(5, 4, 1)).reshape(5, 64);
      const ids = mx.array([4, 0, -1], mx.int32);
      const rows = mx.dequantize(mx.take(codes, ids, 0), mx.take(scales, ids, 0), null, 16, 6, "symmetric");
      assertEquals(rows.tolist(), mx.take(dense(scales), ids, 0).tolist());
      const x = normal([3, 64], 9);
      const c = normal([3, 5], 10);
      const composite = (s: mx.Tensor, x: mx.Tensor): mx.Tensor => mx.sum(mx.multiply(c, mx.matmul(x, dense(s).T)));
      const product = (s: mx.Tensor, x: mx.Tensor): mx.Tensor =>
        mx.sum(mx.multiply(c, mx.quantizedMatmul(x, codes, s, null, true, 16, 6, "symmetric")));
      const found = mx.grad(product, [0, 1])(scales, x) as mx.Tensor[];
      const expected = mx.grad(composite, [0, 1])(scales, x) as mx.Tensor[];
      found.forEach((g, i) => near(g, expected[i].flatten().tolist() as number[], `derivative ${i}`));
    });
  });
}

Deno.test("mode symmetric takes no biases, and no matrix is quantized in it", () => {
  mx.tidy(() => {
    const [codes, scales] = quantized(mx.zeros([5, 64]), "symmetric");
    assertThrows(() => mx.dequantize(codes, scales, scales, 16, 6, "symmetric"), mx.ValueError, "takes no biases");
    assertThrows(() => mx.dequantize(codes, scales, null, 32, 6, "symmetric"), mx.ValueError, "one of 16 in mode");
    assertThrows(
      () =>
        mx.dequantize(
          codes.index(mx.Slice(), mx.Slice(0, 3)),
          scales.index(mx.Slice(), mx.Slice(0, 1)),
          null,
          16,
          6,
          "symmetric",
        ),
      mx.ShapeError,
      "does not fit",
    );
    const mode = "symmetric" as "affine";
    assertThrows(
      () => mx.quantize(mx.zeros([2, 64]), 16, 6, mode),
      mx.ValueError,
      "expected mode to be one of affine",
    );
    assertThrows(
      () => mx.qqmm(mx.zeros([1, 64]), codes, scales, 16, 6, mode as "mxfp4"),
      mx.ValueError,
      "symmetric has none",
    );
  });
});
