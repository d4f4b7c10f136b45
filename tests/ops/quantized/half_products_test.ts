/**
 * Products and convolutions of float16 and bfloat16 that are large enough for matrix units if a device has them. They
 * read views of all kinds, against float64 loops.
 */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

const next = generator(23);
/** Numbers as a dtype holds them. */
function random(dtype: mx.Dtype, n: number): number[] {
  const array = mx.array(Float32Array.from({ length: n }, () => next() * 2 - 1)).astype(dtype);
  return array.astype(mx.float32).tolist() as number[];
}

/**
 * Normalised mean squared errors by the dtype of a result. Half of the last digit of float16 is 1e-7, that of bfloat16
 * eight times as large.
 */
const LIMITS = new Map<mx.Dtype, number>([[mx.float16, 2e-7], [mx.bfloat16, 64 * 2e-7], [mx.float32, 1e-12]]);

/** Asserts that an error is within its limit. */
function assertNear(found: mx.Tensor, expected: Float64Array, what: string): void {
  const limit = LIMITS.get(found.dtype)!;
  const values = mx.astype(found, mx.float32).flatten().tolist() as number[];
  assert(values.length === expected.length, `${what}: ${values.length} numbers`);
  let error = 0, power = 0;
  expected.forEach((x, i) => (error += (values[i] - x) ** 2, power += x * x));
  assert(error <= limit * power, `${what}: NMSE ${error / power}`);
}

interface Operand {
  readonly array: mx.Tensor;
  readonly at: (batch: number, row: number, column: number) => number;
}

/** (batch, rows, columns) as a view of an array with margins, transposed on request; without a batch where that is 0. */
function operand(
  dtype: mx.Dtype,
  batch: number,
  rows: number,
  columns: number,
  form: { margin?: number; transposed?: boolean },
): Operand {
  const { margin = 0, transposed = false } = form;
  const [down, across] = (transposed ? [columns, rows] : [rows, columns]).map((n) => n + margin);
  const values = random(dtype, Math.max(1, batch) * down * across);
  const whole = mx.reshape(mx.array(values, dtype), [Math.max(1, batch), down, across]);
  const inner = whole.index("...", mx.Slice(margin, null), mx.Slice(margin, null));
  const turned = transposed ? mx.swapaxes(inner, -1, -2) : inner;
  const at = (b: number, r: number, c: number): number => {
    const [y, x] = transposed ? [c, r] : [r, c];
    return values[((batch > 0 ? b : 0) * down + y + margin) * across + x + margin];
  };
  return { array: batch > 0 ? turned : mx.squeeze(turned, 0), at };
}

/** Sizes of a product. */
interface Sizes {
  readonly batch: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/** (batch, m, n): what the product of two operands is. */
function productOf(a: Operand, b: Operand, { batch, m, n, k }: Sizes): Float64Array {
  const product = new Float64Array(batch * m * n);
  for (let each = 0; each < batch; each++) {
    const left = Float64Array.from({ length: m * k }, (_, i) => a.at(each, Math.floor(i / k), i % k));
    const right = Float64Array.from({ length: k * n }, (_, i) => b.at(each, Math.floor(i / n), i % n));
    for (let row = 0; row < m; row++) {
      const sums = product.subarray((each * m + row) * n, (each * m + row + 1) * n);
      for (let d = 0; d < k; d++) {
        const x = left[row * k + d];
        for (let column = 0; column < n; column++) sums[column] += x * right[d * n + column];
      }
    }
  }
  return product;
}

const CASES = [
  { m: 192, n: 136, k: 176, a: {}, b: {} },
  { m: 169, n: 171, k: 173, a: {}, b: {} },
  { m: 169, n: 171, k: 173, a: { transposed: true }, b: { transposed: true } },
  { m: 200, n: 136, k: 168, a: { margin: 8 }, b: { margin: 8, transposed: true } },
  { m: 200, n: 136, k: 168, a: { margin: 3, transposed: true }, b: { margin: 5 } },
  { m: 60, n: 72, k: 350, a: {}, b: {}, batch: [3, 3] },
  { m: 60, n: 72, k: 350, a: { transposed: true }, b: {}, batch: [3, 0] },
  { m: 90, n: 130, k: 200, a: {}, b: { transposed: true }, batch: [0, 2] },
  { m: 40, n: 48, k: 2500, a: {}, b: {} },
  { m: 2048, n: 2056, k: 1, a: {}, b: {} },
] as const;

/** Products of float32 and another dtype. */
const MIXED = [
  { m: 192, n: 136, k: 176, a: {}, b: {} },
  { m: 40, n: 1030, k: 512, a: {}, b: { transposed: true } },
  { m: 200, n: 136, k: 168, a: { margin: 3, transposed: true }, b: { margin: 5 } },
  { m: 33, n: 300, k: 2504, a: {}, b: { transposed: true } },
  { m: 169, n: 171, k: 173, a: {}, b: {} },
] as const;

for (const [device, dtype] of testDevices().flatMap((d) => [[d, mx.float16], [d, mx.bfloat16]] as const)) {
  Deno.test(`large ${dtype.name} products equal float64 on ${device}`, () => {
    mx.withDevice(device, () => {
      for (const c of CASES) {
        mx.tidy(() => {
          const { m, n, k } = c;
          const [left, right] = "batch" in c ? c.batch : [0, 0];
          const [a, b] = [operand(dtype, left, m, k, c.a), operand(dtype, right, k, n, c.b)];
          const batch = Math.max(1, left, right);
          const expected = productOf(a, b, { batch, m, n, k });
          assertNear(mx.matmul(a.array, b.array), expected, JSON.stringify(c));
        });
      }
    });
  });

  Deno.test(`large products of float32 and ${dtype.name} equal float64 on ${device}`, () => {
    mx.withDevice(device, () => {
      for (const { m, n, k, a: form, b: other } of MIXED) {
        mx.tidy(() => {
          const [a, b] = [operand(mx.float32, 0, m, k, form), operand(dtype, 0, k, n, other)];
          // Rows lie far apart, beyond the range of float16.
          const power = (row: number): number => 2 ** (row % 9 * 8 - 32);
          const rows = mx.multiply(a.array, mx.array(Array.from({ length: m }, (_, i) => [power(i)])));
          const expected = productOf(a, b, { batch: 1, m, n, k });
          const unscaled = mx.array(Array.from({ length: m }, (_, i) => [1 / power(i)]));
          const found = mx.matmul(rows, b.array);
          assert(found.dtype === mx.float32);
          assertNear(mx.multiply(found, unscaled), expected, JSON.stringify({ m, n, k }));
          // The same as a batch of one.
          const batch = mx.matmul(mx.reshape(rows, [1, m, k]), b.array);
          assertNear(mx.multiply(mx.squeeze(batch, 0), unscaled), expected, `batch of ${m}`);
        });
      }
    });
  });

  Deno.test(`large ${dtype.name} convolutions equal float64 on ${device}`, () => {
    mx.withDevice(device, () => {
      const [images, height, width, channels, filters] = [2, 15, 14, 32, 72];
      for (const [stride, padding] of [[1, 1], [2, 0]]) {
        mx.tidy(() => {
          const [x, w] = [random(dtype, images * height * width * channels), random(dtype, filters * 9 * channels)];
          const [down, across] = [height, width].map((s) => Math.floor((s + 2 * padding - 3) / stride) + 1);
          const expected = new Float64Array(images * down * across * filters);
          for (let i = 0; i < expected.length; i++) {
            const filter = i % filters, place = Math.floor(i / filters);
            const [image, row, column] = [
              Math.floor(place / across / down),
              Math.floor(place / across) % down,
              place % across,
            ];
            for (let t = 0; t < 9; t++) {
              const y = row * stride - padding + Math.floor(t / 3), z = column * stride - padding + t % 3;
              if (y < 0 || z < 0 || y >= height || z >= width) continue;
              const from = ((image * height + y) * width + z) * channels, by = (filter * 9 + t) * channels;
              for (let d = 0; d < channels; d++) expected[i] += x[from + d] * w[by + d];
            }
          }
          const input = mx.reshape(mx.array(x, dtype), [images, height, width, channels]);
          const weight = mx.reshape(mx.array(w, dtype), [filters, 3, 3, channels]);
          assertNear(mx.conv2d(input, weight, stride, padding), expected, `stride ${stride}, padding ${padding}`);
        });
      }
    });
  });
}
