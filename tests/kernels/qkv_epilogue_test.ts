/**
 * q, k and v as one product whose heads get their biases and norms, are rotated and cached, against float64 loops. It
 * runs on emulated cooperative matrices and on real ones; tests of the latter are ignored by name without them.
 */

import { assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../src/graph/dtype.ts";
import { quantized, repack } from "../support/oracles/quantized_fragments.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { neededBy, weightsMap } from "../support/devices/matrices.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(31);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);
const values = (dtype: Dtype, n: number, scale = 1): number[] => unpack(dtype, pack(dtype, random(n, scale)));

interface HeadsCase {
  readonly batch?: number;
  readonly seq: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly depth?: number;
  readonly group?: number;
  /** The first row in the caches; of each sequence where there are several. */
  readonly start?: number | readonly number[];
  readonly capacity?: number;
  readonly blocks?: readonly [number, number];
  readonly kv?: Dtype;
  readonly weight?: Dtype;
  readonly keep?: boolean;
  /** Whether heads of q and k are normalised; default true. */
  readonly norm?: boolean;
  /** Size of the biases; without it there are none. */
  readonly bias?: number;
  /** Size of x. */
  readonly size?: number;
  /** Whether results reach the limits of float16. */
  readonly beyond?: boolean;
}

function check(backend: Backend, kernel: KernelName, rowsEach: number, bits: number, c: HeadsCase): void {
  const { batch = 1, seq, heads, kvHeads, dim, depth = 64, group = 32, start = 0 } = c;
  const starts = typeof start === "number" ? [start] : start;
  const { capacity = seq + Math.max(...starts) } = c;
  const { kv = float16, weight: wType = float32, blocks: [keyBlock, valueBlock] = [dim, dim], keep = true } = c;
  const { norm = true, bias: biasSize = 0, size = 1, beyond = false } = c;
  const what = `${kernel} ${JSON.stringify({ ...c, kv: kv.name, weight: wType.name })}`;
  const [rows, all, eps] = [batch * seq, heads + 2 * kvHeads, 1e-5];
  const n = all * dim;
  const w = quantized(n, depth, bits, group);
  const { codes, scales_biases } = repack(backend, w, weightsMap(backend, kernel), float16);
  const x = values(float16, rows * depth, size);
  const [qNorm, kNorm] = [0, 1].map(() => values(wType, dim, 2));
  const bias = values(wType, n, biasSize);
  const perSequence = starts.length > 1;
  const angles = random((perSequence ? rows : seq) * dim / 2, 3);
  const before = values(kv, batch * kvHeads * dim * capacity);
  const [keys, cached] = [0, 1].map(() => pack(kv, before));
  const out = pack(float16, new Array(rows * n).fill(0.5));
  const run = (buffers: Record<string, ArrayBufferView>): void =>
    runKernel(backend, kernel, {
      spec: {
        THREADS: rowsEach < 64 ? 256 : 128,
        N: n,
        K: depth,
        GROUP: group,
        SCALED: 0,
        DTYPE_OUT: float16.code,
        HEADS: heads,
        KV_HEADS: kvHeads,
        HEAD_DIM: dim,
        DTYPE_WEIGHT: wType.code,
        DTYPE_KV: kv.code,
        BLOCK_KEYS: keyBlock,
        BLOCK_VALUES: valueBlock,
        KEEP: keep ? 1 : 0,
        HEAD_NORM: norm ? 1 : 0,
        QKV_BIAS: biasSize > 0 ? 1 : 0,
        PER_SEQUENCE: perSequence ? 1 : 0,
      },
      push: { m: rows, seq, capacity, eps },
      buffers: {
        x: pack(float16, x),
        codes,
        scales_biases,
        table: Float32Array.from(angles.flatMap((a) => [Math.cos(a), Math.sin(a)])),
        ...(norm && heads > 0 ? { q_norm: pack(wType, qNorm) } : {}),
        ...(norm ? { k_norm: pack(wType, kNorm) } : {}),
        ...(biasSize > 0 ? { bias: pack(wType, bias) } : {}),
        ...buffers,
      },
      grid: [Math.ceil(rows / rowsEach), Math.ceil(n / 128), 1],
    });
  run({ out, start: Int32Array.from(starts), keys, values: cached });

  const sums = new Float64Array(rows * n);
  for (let j = 0; j < n; j++) {
    for (let i = 0; i < rows; i++) {
      sums[i * n + j] = bias[j];
      for (let t = 0; t < depth; t++) {
        const g = Math.floor((j * depth + t) / group);
        sums[i * n + j] += x[i * depth + t] * (w.scales[g] * w.codes[j * depth + t] + w.biases[g]);
      }
    }
  }
  const head = (row: number, h: number): number[] => {
    const from = [...sums.subarray((row * all + h) * dim, (row * all + h + 1) * dim)];
    if (h >= heads + kvHeads) return from;
    const factor = 1 / Math.sqrt(from.reduce((sum, v) => sum + v * v, 0) / dim + eps);
    const normed = norm ? from.map((v, i) => v * factor * (h < heads ? qNorm : kNorm)[i]) : from;
    const half = dim / 2;
    return normed.map((v, i) => {
      const [cos, sin] = [Math.cos, Math.sin].map((f) => f(angles[(perSequence ? row : row % seq) * half + i % half]));
      return i < half ? v * cos - normed[i + half] * sin : v * cos + normed[i - half] * sin;
    });
  };
  const expected = new Array<number>(rows * n).fill(0.5);
  const [expectedKeys, expectedValues] = [before.slice(), before.slice()];
  for (let row = 0; row < rows; row++) {
    for (let h = 0; h < all; h++) {
      const turned = head(row, h);
      const to = (row * all + h) * dim;
      if (h < heads || keep) turned.forEach((v, d) => expected[to + d] = Math.min(65504, Math.max(-65504, v)));
      if (h < heads) continue;
      const [cache, block] = h < heads + kvHeads ? [expectedKeys, keyBlock] : [expectedValues, valueBlock];
      const first = Math.min(Math.max(starts[perSequence ? Math.floor(row / seq) : 0], 0), capacity - seq);
      const place = Math.floor(row / seq) * kvHeads + (h - heads) % kvHeads;
      turned.forEach((v, d) => {
        const at = (place * (dim / block) + Math.floor(d / block)) * capacity + first + row % seq;
        cache[at * block + d % block] = v;
      });
    }
  }
  assertEquals(expected.some((v) => Math.abs(v) === 65504), beyond, `the limits of float16 in ${what}`);
  assertClose(unpack(float16, out), expected, 2e-6, `rows of ${what}`);
  const limit = kv === bfloat16 ? 2e-5 : 2e-6;
  assertClose(unpack(kv, keys), expectedKeys, limit, `keys of ${what}`);
  assertClose(unpack(kv, cached), expectedValues, limit, `values of ${what}`);
  const again = pack(float16, new Array(out.length).fill(0));
  run({ out: again });
  if (keep) assertEquals(again, out, "the same without a cache");
}

/** Rows of x that hold NaN or an infinity give NaN in all features, other rows are as they were. */
function lostNumbers(backend: Backend, kernel: KernelName, rowsEach: number, bits: number): void {
  const [seq, dim, depth, group] = [70, 64, 64, 32];
  const n = 3 * dim;
  const w = quantized(n, depth, bits, group);
  const { codes, scales_biases } = repack(backend, w, weightsMap(backend, kernel), float16);
  const x = values(float16, seq * depth);
  const product = (x: readonly number[]): Float32Array => {
    const out = pack(float16, new Array(seq * n).fill(0.5));
    runKernel(backend, kernel, {
      spec: {
        THREADS: rowsEach < 64 ? 256 : 128,
        N: n,
        K: depth,
        GROUP: group,
        SCALED: 0,
        DTYPE_OUT: float16.code,
        HEADS: 1,
        KV_HEADS: 1,
        HEAD_DIM: dim,
        DTYPE_WEIGHT: float32.code,
        DTYPE_KV: float16.code,
        BLOCK_KEYS: dim,
        BLOCK_VALUES: dim,
        KEEP: 1,
        HEAD_NORM: 0,
        QKV_BIAS: 0,
        PER_SEQUENCE: 0,
      },
      push: { m: seq, seq, capacity: seq, eps: 1e-5 },
      buffers: {
        x: pack(float16, x),
        codes,
        scales_biases,
        table: Float32Array.from({ length: seq * dim }, (_, i) => 1 - i % 2), // no turn
        out,
      },
      grid: [Math.ceil(seq / rowsEach), Math.ceil(n / 128), 1],
    });
    return Float32Array.from(unpack(float16, out));
  };
  const before = product(x);
  const lost = new Map([[3, NaN], [40, Infinity], [66, -Infinity]]);
  const after = product(x.map((v, at) => at % depth === 5 ? lost.get(Math.floor(at / depth)) ?? v : v));
  const expected = before.map((v, at) => lost.has(Math.floor(at / n)) ? NaN : v);
  assertEquals(after, expected, `${kernel} of rows that hold NaN or an infinity`);
}

for (const bits of [4, 8]) {
  for (const form of [16, 32, 64, "emulated"]) {
    const emulated = form === "emulated"; // software devices take long to compile a pipeline
    if (emulated && bits === 8) continue;
    const dims = emulated ? [16, 64, 128] : [16, 32, 64, 128];
    const rows = typeof form === "number" ? form : 16;
    const kernel = `coopmat_qkv_${form}${bits === 8 ? "_8bit" : ""}` as KernelName;
    const run = (backend: Backend, c: HeadsCase): void => check(backend, kernel, rows, bits, c);
    const needs = neededBy(kernel);
    kernelTest(`${kernel}() takes heads of 16 to 128 features`, (backend) => {
      for (const dim of dims) {
        run(backend, { seq: 17, heads: 2, kvHeads: 1, dim });
        run(backend, { seq: 33, heads: 3, kvHeads: 3, dim, blocks: [4, 8], capacity: 64, start: 9 });
      }
      run(backend, { seq: 40, heads: 0, kvHeads: 3, dim: 64, keep: false, blocks: [4, 8] });
    }, needs);
    kernelTest(`${kernel}() takes any number of rows, batches, and other dtypes`, (backend) => {
      for (const seq of [1, 31, 32, 63, 65, 130]) {
        run(backend, {
          seq,
          heads: 1,
          kvHeads: 1,
          dim: 128,
          capacity: seq + 5,
          start: 5,
          blocks: [4, 8],
          kv: bfloat16,
        });
      }
      run(backend, { batch: 3, seq: 21, heads: 2, kvHeads: 1, dim: 64, kv: float32, weight: bfloat16 });
      run(backend, { seq: 20, heads: 1, kvHeads: 1, dim: 128, capacity: 22, start: 9, weight: float16 }); // clamped
      run(backend, { seq: 20, heads: 1, kvHeads: 1, dim: 128, depth: 448, group: 64, keep: false });
    }, needs);
    kernelTest(`${kernel}() takes sequences at positions of their own`, (backend) => {
      const start = [4, 0, 31, 17, 30];
      run(backend, { batch: 5, seq: 1, heads: 2, kvHeads: 1, dim: 128, capacity: 32, start, blocks: [4, 8] });
      run(backend, { batch: 5, seq: 2, heads: 3, kvHeads: 3, dim: 64, capacity: 32, start, norm: false, bias: 2 }); // one is clamped
      const many = Array.from({ length: 37 }, (_, i) => i * 7 % 40);
      run(backend, {
        batch: 37,
        seq: 1,
        heads: 1,
        kvHeads: 1,
        dim: 32,
        capacity: 40,
        start: many,
        kv: float32,
        keep: false,
      });
    }, needs);
    kernelTest(`${kernel}() takes heads with and without norms and biases`, (backend) => {
      for (const dim of dims) {
        for (const { norm, bias } of [{ norm: false }, { norm: false, bias: 3 }, { norm: true, bias: 3 }]) {
          run(backend, { seq: 37, heads: 3, kvHeads: 1, dim, norm, bias, blocks: [4, 8], capacity: 64, start: 9 });
          run(backend, { seq: 20, heads: 0, kvHeads: 3, dim, norm, bias, blocks: [4, 8], keep: false });
        }
      }
      // Fourteen query heads of two key heads over 896 features, as Qwen2.5 of half a billion parameters has them.
      const qwen = { heads: 14, kvHeads: 2, dim: 64, depth: 896, group: 64, norm: false, bias: 20 };
      run(backend, { ...qwen, seq: 33, blocks: [4, 8], capacity: 128, start: 50, weight: bfloat16 });
      run(backend, { batch: 2, seq: 18, heads: 4, kvHeads: 2, dim: 128, norm: false, bias: 1, weight: float16 });
    }, needs);
    kernelTest(`${kernel}() keeps rows within float16, and NaN and infinities as NaN`, (backend) => {
      // Large queries and keys, where nothing normalises them, and values; a cache in float32 holds all of them.
      const large = { seq: 40, heads: 2, kvHeads: 2, dim: 64, kv: float32, size: 60000, beyond: true };
      run(backend, { ...large, norm: false });
      run(backend, { ...large, norm: false, bias: 60000, weight: bfloat16 });
      run(backend, large); // values alone
      lostNumbers(backend, kernel, rows, bits);
    }, needs);
  }
}
