/**
 * Dense products and convolutions of float16 and bfloat16 on cooperative matrices, against float64 loops. On a device without them these
 * tests are ignored by name.
 */

import { assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../src/graph/dtype.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(17);
/** Numbers as a dtype holds them. */
const random = (dtype: Dtype, n: number): number[] =>
  unpack(dtype, pack(dtype, Array.from({ length: n }, () => next() * 2 - 1)));
/** The kernels of a dtype, and the normalised mean squared error of what they give: half of the last digit is half of it. */
const HALVES = [
  { dtype: float16, product: "coopmat_dense", conv: "coopmat_conv", limit: 2e-7 },
  { dtype: bfloat16, product: "coopmat_dense_bf16", conv: "coopmat_conv_bf16", limit: 64 * 2e-7 },
] as const;
type Halves = typeof HALVES[number];
const runs = (n: number): number => Math.ceil(n / 8) * 8;

interface ProductCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch?: number;
  /** Whether neighbours lie along k. */
  readonly alongK?: readonly [boolean, boolean];
  /** The batch shares b. */
  readonly shared?: boolean;
  readonly splits?: number;
  /** Whether the result is float32 though nothing is split. */
  readonly wide?: boolean;
}

function product(backend: Backend, { dtype: halves, product: kernel, limit }: Halves, c: ProductCase): void {
  const { m, n, k, batch = 1, alongK = [true, false], shared = false, splits = 1, wide = false } = c;
  const dtype = splits > 1 || wide ? float32 : halves;
  // The padding of the rows is NaN: it must not count.
  const operand = (count: number, lines: number, depth: number, along: boolean) => {
    const stride = runs(along ? depth : lines);
    const size = stride * (along ? lines : depth);
    const values = random(halves, count * size);
    values.forEach((_, i) => i % stride >= (along ? depth : lines) && (values[i] = NaN));
    const at = (b: number, line: number, d: number): number =>
      values[b % count * size + (along ? line * stride + d : d * stride + line)];
    return { half: new Uint16Array(pack(halves, values).buffer), stride, size, at };
  };
  const a = operand(batch, m, k, alongK[0]);
  const b = operand(shared ? 1 : batch, n, k, alongK[1]);
  const out = pack(dtype, new Array(splits * batch * m * n).fill(7));
  runKernel(backend, kernel, {
    spec: {
      THREADS: 128,
      DTYPE_OUT: dtype.code,
      A_ALONG_K: alongK[0] ? 1 : 0,
      B_ALONG_K: alongK[1] ? 1 : 0,
      K_EDGE: k % 32 === 0 ? 0 : 1,
      SPLITS: splits,
    },
    push: {
      batch,
      m,
      n,
      k,
      batch_shape: [1, 1, batch],
      a_batch_strides: [0, 0, a.size],
      b_batch_strides: [0, 0, shared ? 0 : b.size],
      a_strides: alongK[0] ? [a.stride, 1] : [1, a.stride],
      b_strides: alongK[1] ? [1, b.stride] : [b.stride, 1],
    },
    buffers: { a: a.half, b: b.half, out },
    grid: splits * batch * Math.ceil(m / 128) * Math.ceil(n / 128),
  });
  const expected = new Float64Array(batch * m * n);
  for (let i = 0; i < expected.length; i++) {
    const [each, row, column] = [Math.floor(i / m / n), Math.floor(i / n) % m, i % n];
    for (let d = 0; d < k; d++) expected[i] += a.at(each, row, d) * b.at(each, column, d);
  }
  const found = new Float64Array(expected.length);
  unpack(dtype, out).forEach((v, i) => found[i % found.length] += v);
  assertClose(found, expected, dtype === float32 ? 1e-9 : limit, JSON.stringify(c));
  if (k > 1) return;
  // One product is exact in float32: what is seen is how it is rounded, to nearest even. Devices may flush what is subnormal.
  const rounded = unpack(dtype, pack(dtype, expected));
  found.forEach((v, i) => Math.abs(expected[i]) < 2 ** -14 || assertEquals(v, rounded[i], `rounding ${expected[i]}`));
}

const SIZES = [[128, 128, 64], [1, 1, 1], [130, 136, 1], [17, 300, 33], [130, 129, 40], [256, 136, 7], [
  259,
  264,
  96,
]] as const;

for (const halves of HALVES) {
  kernelTest(`${halves.product}() takes any sizes, along k and across`, (backend) => {
    for (const [m, n, k] of SIZES) {
      for (const alongK of [[true, true], [true, false], [false, true], [false, false]] as const) {
        product(backend, halves, { m, n, k, alongK });
        product(backend, halves, { m, n, k, alongK, wide: true });
      }
    }
    product(backend, halves, { m: 1200, n: 130, k: 32 }); // more than a group of tiles below each other
  }, [halves.product]);

  kernelTest(`${halves.product}() takes batches, and splits the depth`, (backend) => {
    for (const shared of [false, true]) {
      product(backend, halves, { m: 40, n: 136, k: 72, batch: 3, shared });
      product(backend, halves, { m: 128, n: 256, k: 64, batch: 2, shared, alongK: [false, true] });
    }
    for (const splits of [2, 3, 8]) {
      product(backend, halves, { m: 130, n: 136, k: 200, splits });
      product(backend, halves, { m: 128, n: 128, k: 1024, batch: 2, splits });
    }
  }, [halves.product]);
}

interface ConvCase {
  readonly images: number;
  readonly size: readonly [number, number, number];
  readonly kernel: readonly [number, number, number];
  readonly channels: number;
  readonly filters: number;
  readonly groups?: number;
  readonly stride?: number;
  readonly padding?: number;
  readonly dilation?: number;
}

function convolution(backend: Backend, { dtype, conv, limit }: Halves, c: ConvCase): void {
  const { images, size, kernel, channels, filters, groups = 1, stride = 1, padding = 0, dilation = 1 } = c;
  // Axes of one element are not padded.
  const pad = kernel.map((t) => t > 1 ? padding : 0);
  const outSize = size.map((s, d) => Math.floor((s + 2 * pad[d] - dilation * (kernel[d] - 1) - 1) / stride) + 1);
  const [positions, taps] = [outSize, kernel].map((list) => list.reduce((n, s) => n * s, 1));
  const pixel = groups * channels;
  const x = random(dtype, images * size[0] * size[1] * size[2] * pixel);
  const w = random(dtype, groups * filters * taps * channels);
  const out = pack(dtype, new Array(images * positions * groups * filters).fill(7));
  runKernel(backend, conv, {
    spec: { THREADS: 128, DTYPE_OUT: dtype.code, A_ALONG_K: 1, B_ALONG_K: 1, SPLITS: 1 },
    push: {
      images,
      in_shape: size,
      out_shape: outSize,
      kernel,
      stride: [stride, stride, stride],
      padding: pad,
      kernel_dilation: [dilation, dilation, dilation],
      input_dilation: [1, 1, 1],
      groups,
      channels,
      filters,
    },
    buffers: { in: pack(dtype, x), weight: pack(dtype, w), out },
    grid: groups * Math.ceil(images * positions / 128) * Math.ceil(filters / 128),
  });
  const expected = new Float64Array(images * positions * groups * filters);
  const split = (i: number, list: readonly number[]): number[] => [
    Math.floor(i / list[1] / list[2]),
    Math.floor(i / list[2]) % list[1],
    i % list[2],
  ];
  for (let i = 0; i < expected.length; i++) {
    const filter = i % (groups * filters);
    const row = Math.floor(i / groups / filters);
    const at = split(row % positions, outSize);
    for (let t = 0; t < taps; t++) {
      const from = split(t, kernel).map((tap, d) => at[d] * stride - pad[d] + tap * dilation);
      if (from.some((p, d) => p < 0 || p >= size[d])) continue;
      const image = Math.floor(row / positions);
      const first = (((image * size[0] + from[0]) * size[1] + from[1]) * size[2] + from[2]) * pixel +
        Math.floor(filter / filters) * channels;
      for (let d = 0; d < channels; d++) expected[i] += x[first + d] * w[(filter * taps + t) * channels + d];
    }
  }
  assertClose(unpack(dtype, out), expected, limit, JSON.stringify(c));
}

for (const halves of HALVES) {
  kernelTest(`${halves.conv}() takes any geometry over runs of channels`, (backend) => {
    const flat = { images: 2, size: [1, 13, 11], kernel: [1, 3, 3], channels: 32, filters: 40 } as const;
    for (const padding of [0, 1, 3]) {
      for (const stride of [1, 2]) {
        for (const dilation of [1, 2]) convolution(backend, halves, { ...flat, padding, stride, dilation });
      }
    }
    convolution(backend, halves, { ...flat, channels: 64, filters: 130, padding: 1 });
    convolution(backend, halves, { ...flat, filters: 5, groups: 3, padding: 1 });
    convolution(backend, halves, { ...flat, filters: 132, groups: 2, padding: 1 }); // the second begins at an odd multiple of 8 bytes
    convolution(backend, halves, { ...flat, size: [1, 1, 200], kernel: [1, 1, 5], padding: 2 });
    convolution(backend, halves, { ...flat, images: 1, size: [5, 6, 7], kernel: [2, 3, 1], padding: 1, filters: 16 });
  }, [halves.conv]);
}
