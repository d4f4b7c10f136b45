/**
 * Products, convolutions and fused functions of float64 (CPU only) against loops over JavaScript numbers. Sums of whole
 * numbers and small parts that float32 would lose are compared exactly.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator, size } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** Multiples of 2^-20 from -2 to 2: sums of a thousand products are exact in float64 and not in float32. */
function parts(count: number, seed: number): Float64Array {
  const next = generator(seed);
  return Float64Array.from({ length: count }, () => Math.floor(5 * next()) - 2 + Math.floor(1024 * next()) / 2 ** 20);
}

function doubles(shape: readonly number[], seed: number): { values: Float64Array; array: mx.Tensor } {
  const values = parts(size(shape), seed);
  return { values, array: mx.array(values, mx.float64).reshape([...shape]) };
}

function exact(found: mx.Tensor, expected: readonly number[], what: string): void {
  assertEquals(found.dtype, mx.float64, what);
  assertEquals(Array.from(found.toTypedArray() as Float64Array), expected.map((x) => x + 0), what);
}

/** a (m, k) times b (k, n), row-major. */
function product(a: ArrayLike<number>, b: ArrayLike<number>, m: number, k: number, n: number): number[] {
  return Array.from({ length: m * n }, (_, i) => {
    let sum = 0;
    for (let t = 0; t < k; t++) sum += a[Math.floor(i / n) * k + t] * b[t * n + i % n];
    return sum;
  });
}

function transposed(values: ArrayLike<number>, rows: number, columns: number): number[] {
  return Array.from({ length: rows * columns }, (_, i) => values[i % rows * columns + Math.floor(i / rows)]);
}

function onCpu(fn: () => void): void {
  mx.withDevice("wasm", () => mx.tidy(fn));
}

Deno.test("products of float64 matrices are exact", () =>
  onCpu(() => {
    // One of each, the edges of the tiles of four, more than a block of rows, columns and depth.
    for (const [m, k, n] of [[1, 1, 1], [4, 3, 4], [3, 7, 5], [2, 300, 9], [33, 129, 66], [70, 5, 1], [1, 200, 70]]) {
      const [a, b] = [doubles([m, k], m + k), doubles([k, n], n)];
      const expected = product(a.values, b.values, m, k, n);
      const shape = `(${m}, ${k}) by (${k}, ${n})`;
      exact(mx.matmul(a.array, b.array), expected, shape);
      exact(mx.matmul(b.array.T, a.array.T), transposed(expected, m, n), `${shape}, transposed`);
      const back = mx.Slice(null, null, -1);
      exact(
        mx.matmul(a.array.index("...", back), b.array.index(back)),
        expected,
        `${shape}, both depths from their ends`,
      );
      const narrow = mx.astype(mx.floor(b.array), mx.float16);
      exact(mx.matmul(a.array, narrow), product(a.values, b.values.map(Math.floor), m, k, n), `${shape}, float16`);
    }
    exact(mx.matmul(mx.zeros([2, 0], mx.float64), mx.zeros([0, 3], mx.float64)), new Array(6).fill(0), "no depth");
    assertEquals(mx.matmul(mx.zeros([0, 2], mx.float64), mx.zeros([2, 3], mx.float64)).shape, [0, 3]);
    assertThrows(() => mx.matmul(mx.zeros([2, 2], mx.int64), mx.zeros([2, 2], mx.int64)), mx.DtypeError, "found int64");
  }));

Deno.test("batches, vectors and contractions of float64 are exact", () =>
  onCpu(() => {
    const [a, b] = [doubles([2, 1, 3, 5], 1), doubles([4, 5, 2], 2)];
    const batches = [0, 1].flatMap((i) =>
      [0, 1, 2, 3].flatMap((j) =>
        product(a.values.subarray(15 * i, 15 * i + 15), b.values.subarray(10 * j, 10 * j + 10), 3, 5, 2)
      )
    );
    exact(mx.matmul(a.array, b.array), batches, "matmul");
    const [x, y, m] = [doubles([5], 3), doubles([5], 4), doubles([5, 2], 5)];
    const dot = product(x.values, y.values, 1, 5, 1);
    const row = product(x.values, m.values, 1, 5, 2);
    exact(mx.matmul(x.array, y.array), dot, "vectors");
    exact(mx.inner(x.array, y.array), dot, "inner");
    exact(mx.vecdot(x.array, y.array), dot, "vecdot");
    exact(mx.matmul(x.array, m.array), row, "vector and matrix");
    exact(mx.outer(x.array, y.array), product(x.values, y.values, 5, 1, 5), "outer");
    exact(mx.tensordot(x.array, m.array, 1), row, "tensordot");
    exact(mx.einsum("i,ij->j", x.array, m.array), row, "einsum");
    exact(mx.addmm(m.array, mx.outer(x.array, y.array), m.array, 0.5, 2), [
      ...product(product(x.values, y.values, 5, 1, 5), m.values, 5, 5, 2).map((v, i) => 2 * m.values[i] + 0.5 * v),
    ], "addmm");
    const stack = doubles([3, 5, 2], 6);
    const chosen = [2, 0].flatMap((i) => product(x.values, stack.values.subarray(10 * i, 10 * i + 10), 1, 5, 2));
    exact(mx.gatherMm(x.array.reshape(1, 5), stack.array, null, [2, 0]), chosen, "gatherMm");
    const segments = mx.segmentedMm(x.array.reshape(1, 5), m.array, mx.array([[0, 2], [2, 5]], mx.uint32));
    exact(
      segments,
      [[0, 2], [2, 5]].flatMap(([from, to]) =>
        product(x.values.subarray(from, to), m.values.subarray(2 * from, 2 * to), 1, to - from, 2)
      ),
      "segmentedMm",
    );
    exact(
      mx.blockMaskedMm(x.array.reshape(1, 5), m.array, 32, mx.array([[true]])),
      row,
      "blockMaskedMm",
    );
  }));

/** conv2d of one image (h, w, c), an output at a time. */
function convolved(
  x: Float64Array,
  w: Float64Array,
  [height, width, c]: readonly number[],
  [filters, rows, columns, depth]: readonly number[],
  stride: number,
  pad: number,
): number[] {
  const [high, wide] = [height, width].map((d, i) => Math.floor((d + 2 * pad - [rows, columns][i]) / stride) + 1);
  return Array.from({ length: high * wide * filters }, (_, i) => {
    const [f, at] = [i % filters, Math.floor(i / filters)];
    const [top, left] = [Math.floor(at / wide) * stride - pad, at % wide * stride - pad];
    const first = Math.floor(f / (filters * depth / c)) * depth;
    let sum = 0;
    for (let t = 0; t < rows * columns * depth; t++) {
      const [r, q, k] = [Math.floor(t / depth / columns), Math.floor(t / depth) % columns, t % depth];
      if (top + r < 0 || top + r >= height || left + q < 0 || left + q >= width) continue;
      sum += x[((top + r) * width + left + q) * c + first + k] * w[f * rows * columns * depth + t];
    }
    return sum;
  });
}

Deno.test("convolutions of float64 are exact", () =>
  onCpu(() => {
    for (
      const [x, w, stride, pad] of [
        [[5, 6, 3], [4, 3, 2, 3], 1, 0],
        [[7, 5, 4], [6, 3, 3, 2], 2, 1],
        [[4, 4, 1], [1, 1, 1, 1], 1, 0],
        [[6, 6, 40], [40, 3, 3, 1], 1, 1],
      ] as const
    ) {
      const [image, weight] = [doubles([1, ...x], 1), doubles(w, 2)];
      const expected = convolved(image.values, weight.values, x, w, stride, pad);
      const groups = x[2] / w[3];
      exact(mx.conv2d(image.array, weight.array, stride, pad, 1, groups), expected, `${x} and ${w}`);
      const flipped = mx.contiguous(weight.array.index(mx.Slice(), mx.Slice(null, null, -1), mx.Slice(null, null, -1)));
      exact(mx.convGeneral(image.array, flipped, stride, pad, 1, 1, groups, true), expected, `${x} and ${w}, flipped`);
    }
    // Polynomials: (1 + 2^-30 z)(1 - 2^-30 z), which float32 takes for 1.
    exact(mx.convolve(mx.array([1, 2 ** -20], mx.float64), mx.array([1, -(2 ** -20)], mx.float64)), [
      1,
      0,
      -(2 ** -40),
    ], "convolve");
    const line = mx.array([1, 2 ** -40], mx.float64).reshape(1, 2, 1);
    exact(mx.convTranspose1d(line, mx.array([1, 3], mx.float64).reshape(1, 2, 1)), [1, 3 + 2 ** -40, 3 * 2 ** -40], "");
  }));

/** Within some units in the last place of float64. */
function near(found: mx.Tensor, expected: readonly number[], what: string): void {
  assertEquals(found.dtype, mx.float64, what);
  const values = Array.from(found.toTypedArray() as Float64Array);
  assertEquals(values.length, expected.length, what);
  values.forEach((v, i) =>
    assert(
      Math.abs(v - expected[i]) <= 1e-14 * Math.max(1, Math.abs(expected[i])),
      `${what} ${i}: ${v}, ${expected[i]}`,
    )
  );
}

Deno.test("fused functions of float64 compute in it", () =>
  onCpu(() => {
    const { values: x, array } = doubles([3, 4], 7);
    const [w, b] = [doubles([4], 8), doubles([4], 9)];
    const mean = (v: readonly number[]): number => v.reduce((s, u) => s + u, 0) / v.length;
    const rows = [0, 4, 8].map((i) => Array.from(x.subarray(i, i + 4)));
    const normal = (v: readonly number[]): number[] => v.map((u) => u / Math.sqrt(mean(v.map((q) => q * q)) + 1e-6));
    const centered = (v: readonly number[]): number[] => v.map((u) => u - mean(v));
    near(mx.fast.rmsNorm(array, null, 1e-6), rows.flatMap(normal), "rmsNorm");
    const weighted = rows.flatMap((v) => normal(v).map((u, i) => u * w.values[i]));
    near(mx.fast.rmsNorm(array, w.array, 1e-6), weighted, "rmsNorm with weights");
    near(
      mx.fast.layerNorm(array, w.array, b.array, 1e-6),
      rows.flatMap((v) => normal(centered(v)).map((u, i) => u * w.values[i] + b.values[i])),
      "layerNorm",
    );
    const turned = rows.flatMap((v, t) =>
      [0, 1, 2, 3].map((i) => {
        const angle = (t + 2) * 100 ** (-2 * (i % 2) / 4);
        const [a, other] = [v[i % 2], v[i % 2 + 2]];
        return i < 2 ? a * Math.cos(angle) - other * Math.sin(angle) : a * Math.sin(angle) + other * Math.cos(angle);
      })
    );
    near(mx.fast.rope(array.reshape(1, 3, 4), 4, { base: 100, offset: 2 }), turned, "rope");
    // Three queries over three keys, which are the values as well.
    const q = array.reshape(1, 1, 3, 4);
    const attended = rows.flatMap((v, i) => {
      const scores = rows.slice(0, i + 1).map((key) => Math.exp(0.5 * v.reduce((s, u, j) => s + u * key[j], 0)));
      const total = scores.reduce((s, e) => s + e, 0);
      return [0, 1, 2, 3].map((j) => scores.reduce((s, e, k) => s + e * rows[k][j], 0) / total);
    });
    near(mx.fast.scaledDotProductAttention(q, q, q, { scale: 0.5, mask: "causal" }), attended, "attention");
    assertThrows(() => mx.fast.rmsNorm(mx.ones([2], mx.int64), null, 1e-6), mx.DtypeError, "found int64");
  }));

for (const device of testDevices()) {
  Deno.test(`float64 numbers and lists are held on ${device} without loss`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const x = 39.14223403241;
        assertEquals([mx.array(x, mx.float64).item(), mx.array([x], mx.float64).item()], [x, x]);
        mx.eval(mx.array(x, mx.float64));
      })));
}
