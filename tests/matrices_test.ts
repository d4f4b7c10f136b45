/**
 * The kernels for many rows: weights in fragment order, products and attention on cooperative matrices, against float64 loops.
 * Where a device lacks a kernel its tests are ignored by name; the packing is tested everywhere with a map of one known driver.
 */

import { assert, assertEquals } from "@std/assert";
import type { Backend } from "../src/backend/backend.ts";
import type { KernelName } from "../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32, uint32 } from "../src/graph/dtype.ts";
import { contiguousStrides } from "../src/graph/shape.ts";
import { Lowering, type Value } from "../src/schedule/lowering.ts";
import { matrixMap, readMap } from "../src/schedule/matrices.ts";
import { type Layout, prepare, runPrepared } from "../src/schedule/prepared.ts";
import { Storage } from "../src/schedule/storage.ts";
import { interleave, knownAnswer, quantized, repack, type Weights } from "./fragments.ts";
import { kernelTest, runKernel } from "./harness.ts";
import { assertClose, pack, unpack } from "./kernel_values.ts";
import { generator } from "./oracle.ts";

const next = generator(11);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);
const THREADS = 64;

// ---- element maps ---------------------------------------------------------------------------------------------------

Deno.test("readMap() takes the element maps that the kernels are written for, and no others", () => {
  const known = knownAnswer();
  const { weights, attention, pairs } = readMap(known);
  assertEquals([weights?.length, attention, pairs], [256, true, true]);
  const change = (f: (words: Uint32Array) => void): ReturnType<typeof readMap> => {
    const words = known.slice();
    f(words);
    return readMap(words);
  };
  assertEquals(change((w) => w[0] = 64).weights, undefined); // lanes
  assertEquals(change((w) => w[2] = 16).weights, undefined); // elements of B
  // Two elements of B swapped over a column: the product's form is gone, attention's is not.
  const crossed = change((w) => [w[4 + 256], w[4 + 260]] = [w[4 + 260], w[4 + 256]]);
  assertEquals([crossed.weights, crossed.attention], [undefined, true]);
  assertEquals(change((w) => w[4 + 257] = w[4 + 256]).weights, undefined); // one element twice
  // A in another order than sums.
  const turned = change((w) => [w[4], w[5]] = [w[5], w[4]]);
  assertEquals([turned.attention, turned.pairs], [false, false]);
  // Both in another order, which only the kernels of several sequences mind.
  const both = change((w) => [4, 516].forEach((at) => [w[at], w[at + 1]] = [w[at + 1], w[at]]));
  assertEquals([both.weights?.length, both.pairs], [256, false]);
});

kernelTest("coopmat_map() tells where every element of a matrix is", (backend) => {
  const map = matrixMap(backend);
  for (const words of map.weights ? [map.weights] : []) assertEquals(new Set(words).size, 256);
}, ["coopmat_map"]);

kernelTest("coopmat_peak() adds up what it says", (backend) => {
  const [subgroups, steps] = [6, 37]; // the second workgroup is not whole
  const out = new Float32Array(256 * subgroups);
  runKernel(backend, "coopmat_peak", {
    spec: { THREADS: 128 },
    push: { steps, count: subgroups },
    buffers: { out },
    grid: 2,
  });
  assertEquals(new Set(out), new Set([480 * steps]));
}, ["coopmat_peak"]);

// ---- quantized weights ----------------------------------------------------------------------------------------------

kernelTest("coopmat_repack() puts every code, scale and bias where its lane reads it", (backend) => {
  const { weights: map } = readMap(knownAnswer());
  for (const [n, k, bits, group] of [[40, 96, 4, 32], [130, 64, 4, 64], [16, 256, 8, 128], [24, 160, 8, 32]]) {
    const w = quantized(n, k, bits, group);
    const { codes, affine } = repack(backend, w, map!, float32);
    const [steps, columns] = [Math.ceil(k / 64), Math.ceil(n / 128) * 128];
    const groups = steps * 64 / group;
    for (let block = 0; block < columns / 16; block++) {
      for (let lane = 0; lane < 32; lane++) {
        for (let depth = 0; depth < steps * 4; depth++) {
          for (let e = 0; e < 8; e++) {
            const at = map![lane * 8 + e];
            const [column, row] = [block * 16 + at % 16, depth * 16 + (at >> 4)];
            const expected = column < n && row < k ? w.codes[column * k + row] : 0;
            const lanes = (block * steps + (depth >> 2)) * 32 * bits + lane * 4;
            const found = bits === 4
              ? codes[lanes + depth % 4] >> ((e >> 1) * 4 + (e & 1) * 16) & 15
              : codes[lanes + (depth >> 1 & 1) * 128 + (depth & 1) * 2 + (e >> 2)] >>
                  ((e >> 1 & 1) * 8 + (e & 1) * 16) & 255;
            assertEquals(found, expected, `code ${e} of lane ${lane}, block ${block}, depth ${depth}`);
          }
        }
        for (let g = 0; g < groups; g++) {
          for (let half = 0; half < 2; half++) {
            const column = block * 16 + map![lane * 8 + half * 4] % 16;
            const real = column < n && g < k / group;
            const pair = real ? [w.scales, w.biases].map((list) => list[column * (k / group) + g]) : [0, 0];
            const word = affine[((block * groups + g) * 32 + lane) * 2 + half];
            assertEquals(unpack(float16, Uint16Array.of(word & 0xffff, word >>> 16) as never), pair);
          }
        }
      }
    }
  }
}, ["coopmat_repack"]);

kernelTest("coopmat_repack() puts two matrices in turns", (backend) => {
  const { weights: map } = readMap(knownAnswer());
  for (const [n, k, bits, group] of [[64, 96, 4, 32], [64, 128, 8, 64]]) {
    const both = [0, 1].map(() => quantized(n, k, bits, group));
    const found = interleave(backend, both[0], both[1], map!);
    const single = both.map((w) => repack(backend, w, map!, float16));
    for (const part of ["codes", "affine"] as const) {
      const each = found[part].length / (2 * n / 16);
      for (let block = 0; block < 2 * n / 16; block++) {
        const at = (block >> 1) * each;
        const expected = single[block % 2][part].subarray(at, at + each);
        assertEquals(found[part].subarray(block * each, (block + 1) * each), expected, `${part} of block ${block}`);
      }
    }
  }
}, ["coopmat_repack"]);

// ---- rows to float16, sums of splits ----------------------------------------------------------------------------------

kernelTest("half_rows() keeps values that float16 alone could not hold", (backend) => {
  for (const dtype of [float32, bfloat16]) {
    for (const [rows, cols, scale] of [[1, 8, 1], [16, 64, 1e20], [37, 40, 1e-20], [50, 8, 0]]) {
      const x = unpack(dtype, pack(dtype, random(rows * cols, scale)));
      const out = new Uint16Array(rows * cols);
      const powers = new Float32Array(Math.ceil(rows / 16));
      runKernel(backend, "half_rows", {
        spec: { THREADS, DTYPE_X: dtype.code },
        push: { rows, cols },
        buffers: { x: pack(dtype, x), out, powers },
        grid: [2, Math.ceil(rows / 32), 1],
      });
      const halves = unpack(float16, out as never).map((v, i) => v * powers[Math.floor(i / cols / 16)]);
      assertClose(halves, x, 1e-6, `${dtype.name} ${rows} x ${cols} of ${scale}`);
      assert(powers.every((p) => Number.isInteger(Math.log2(p))), "powers of two");
    }
  }
}, ["half_rows"]);

kernelTest("sum_splits() adds the parts", (backend) => {
  for (const dtype of [float32, float16, bfloat16]) {
    for (const [count, splits] of [[1, 2], [1000, 3], [4096, 4]]) {
      const parts = Float32Array.from(random(count * splits));
      const out = pack(dtype, new Array(count).fill(0));
      runKernel(backend, "sum_splits", {
        spec: { THREADS, SPLITS: splits, DTYPE_OUT: dtype.code },
        push: { count },
        buffers: { parts, out },
        items: Math.ceil(count / 4),
      });
      const sum = (i: number): number =>
        Array.from({ length: splits }, (_, s) => parts[s * count + i]).reduce((a, b) => a + b);
      assertClose(unpack(dtype, out), Array.from({ length: count }, (_, i) => sum(i)), 1e-5, `${dtype.name} ${count}`);
    }
  }
}, ["sum_splits"]);

// ---- products -------------------------------------------------------------------------------------------------------

interface ProductCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly group?: number;
  readonly splits?: number;
  /** float16 x goes in as it is, others through half_rows. */
  readonly x?: Dtype;
  readonly out?: Dtype;
  readonly scale?: number;
}

const PRODUCTS: readonly { readonly kernel: KernelName; readonly rows: number; readonly bits: number }[] = [
  { kernel: "coopmat_matmul_32", rows: 32, bits: 4 },
  { kernel: "coopmat_matmul_64", rows: 64, bits: 4 },
  { kernel: "coopmat_matmul_64_staged", rows: 64, bits: 4 },
  { kernel: "coopmat_matmul_128", rows: 128, bits: 4 },
  { kernel: "coopmat_matmul_32_8bit", rows: 32, bits: 8 },
  { kernel: "coopmat_matmul_64_8bit", rows: 64, bits: 8 },
];

function product(backend: Backend, { kernel, rows, bits }: (typeof PRODUCTS)[number], c: ProductCase): void {
  const { m, n, k, group = 64, splits = 1, x: dtype = float16, out: outDtype = float16, scale = 1 } = c;
  const what = `${kernel} ${JSON.stringify({ ...c, x: dtype.name, out: outDtype.name })}`;
  const w = quantized(n, k, bits, group);
  const { codes, affine } = repack(backend, w, matrixMap(backend).weights!, float16);
  const x = unpack(dtype, pack(dtype, random(m * k, scale)));
  let half = new Uint16Array(pack(float16, x).buffer);
  const powers = new Float32Array(Math.ceil(m / 16));
  if (dtype !== float16) {
    half = new Uint16Array(m * k);
    runKernel(backend, "half_rows", {
      spec: { THREADS, DTYPE_X: dtype.code },
      push: { rows: m, cols: k },
      buffers: { x: pack(dtype, x), out: half, powers },
      grid: Math.ceil(m / 16),
    });
  }
  const out = splits > 1 ? new Float32Array(splits * m * n) : pack(outDtype, new Array(m * n).fill(0));
  const tiles = splits * Math.ceil(m / rows) * Math.ceil(n / 128);
  runKernel(backend, kernel, {
    spec: {
      THREADS: 128,
      N: n,
      K: k,
      GROUP: group,
      SPLITS: splits,
      SCALED: dtype === float16 ? 0 : 1,
      DTYPE_OUT: outDtype.code,
    },
    push: { m, scale: 1 },
    buffers: { x: half, ...(dtype === float16 ? {} : { powers }), codes, affine, out },
    grid: [Math.min(tiles, 7), Math.ceil(tiles / 7), 1],
  });
  const expected = new Float64Array(m * n);
  const row = new Float64Array(k);
  for (let j = 0; j < n; j++) {
    for (let t = 0; t < k; t++) {
      const g = Math.floor((j * k + t) / group);
      row[t] = w.scales[g] * w.codes[j * k + t] + w.biases[g];
    }
    for (let i = 0; i < m; i++) {
      let sum = 0;
      for (let t = 0; t < k; t++) sum += x[i * k + t] * row[t];
      expected[i * n + j] = sum;
    }
  }
  const found = splits > 1 ? new Float64Array(m * n) : unpack(outDtype, out);
  if (splits > 1) out.forEach((v, i) => found[i % (m * n)] += Number(v));
  assertClose(found, expected, outDtype === bfloat16 ? 2e-5 : 2e-6, what);
}

for (const row of PRODUCTS) {
  const needs: KernelName[] = ["coopmat_map", row.kernel];
  kernelTest(`${row.kernel}() takes any number of rows`, (backend) => {
    for (const m of [1, 7, 63, 64, 65, 129, 256]) {
      product(backend, row, { m, n: 256, k: 128 });
      product(backend, row, { m, n: 128, k: 192, out: float32 });
    }
    product(backend, row, { m: 2047, n: 128, k: 128 });
  }, needs);
  kernelTest(`${row.kernel}() takes sizes that its tiles do not divide`, (backend) => {
    product(backend, row, { m: 65, n: 1, k: 64 });
    for (const m of [1, 65, 128]) {
      for (const n of [40, 132, 200]) product(backend, row, { m, n, k: 64 });
      product(backend, row, { m, n: 200, k: 96, group: 32, out: float32 });
      product(backend, row, { m, n: 136, k: 32, group: 32 });
      product(backend, row, { m, n: 144, k: 160, group: 32, out: bfloat16 });
    }
    for (const group of [32, 64, 128]) product(backend, row, { m: 70, n: 256, k: 640, group });
  }, needs);
  kernelTest(`${row.kernel}() splits the depth and takes scaled rows`, (backend) => {
    for (const splits of [2, 3, 4]) {
      for (const m of [5, 64, 130]) product(backend, row, { m, n: 136, k: 448, splits });
      product(backend, row, { m: 128, n: 256, k: 1024, group: 128, splits });
    }
    for (const x of [float32, bfloat16]) {
      for (const scale of [1, 1e6, 1e-6]) {
        for (const out of [float32, x]) product(backend, row, { m: 77, n: 160, k: 128, x, out, scale });
      }
      product(backend, row, { m: 128, n: 128, k: 512, x, out: float32, splits: 2 });
    }
  }, needs);
}

interface GatedCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly group: number;
  /** Power of two for the result. */
  readonly scale?: number;
  /** Size of x. */
  readonly size?: number;
}

function gated(backend: Backend, { kernel, rows, bits }: (typeof PRODUCTS)[number], c: GatedCase): void {
  const { m, n, k, group, scale = 1 / 16, size = 1 } = c;
  const [gate, up] = [0, 1].map(() => quantized(n, k, bits, group));
  const { codes, affine } = interleave(backend, gate, up, matrixMap(backend).weights!);
  const x = unpack(float16, pack(float16, random(m * k, size)));
  const out = pack(float16, new Array(m * n).fill(0));
  const tiles = Math.ceil(m / rows) * Math.ceil(2 * n / 128);
  runKernel(backend, kernel, {
    spec: { THREADS: 128, N: 2 * n, K: k, GROUP: group, SPLITS: 1, SCALED: 0, DTYPE_OUT: float16.code },
    push: { m, scale },
    buffers: { x: pack(float16, x), codes, affine, out },
    grid: [Math.min(tiles, 7), Math.ceil(tiles / 7), 1],
  });
  const dot = (w: Weights, i: number, j: number): number => {
    let sum = 0;
    for (let t = 0; t < k; t++) {
      const g = Math.floor((j * k + t) / group);
      sum += x[i * k + t] * (w.scales[g] * w.codes[j * k + t] + w.biases[g]);
    }
    return sum;
  };
  const expected = Float64Array.from({ length: m * n }, (_, at) => {
    const [i, j] = [Math.floor(at / n), at % n];
    const g = dot(gate, i, j);
    return Math.min(65504, Math.max(-65504, g / (1 + Math.exp(-g)) * dot(up, i, j) * scale));
  });
  assertClose(unpack(float16, out), expected, 5e-6, `${kernel} ${JSON.stringify(c)}`);
}

for (const { kernel: product, rows, bits } of PRODUCTS.filter(({ kernel }) => !kernel.endsWith("staged"))) {
  const kernel = product.replace("matmul", "gated") as KernelName;
  kernelTest(`${kernel}() takes any number of rows, and stays within float16`, (backend) => {
    for (const m of [1, 33, 64, 127, 129, 256]) gated(backend, { kernel, rows, bits }, { m, n: 64, k: 128, group: 64 });
    for (const group of [32, 128]) gated(backend, { kernel, rows, bits }, { m: 70, n: 192, k: 256, group });
    gated(backend, { kernel, rows, bits }, { m: 128, n: 128, k: 96, group: 32, scale: 1 });
    gated(backend, { kernel, rows, bits }, { m: 40, n: 64, k: 128, group: 64, size: 1000 });
  }, ["coopmat_map", kernel]);
}

// ---- attention ------------------------------------------------------------------------------------------------------

interface AttentionCase {
  readonly batch?: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  /** Keys that count. */
  readonly kvLen: number;
  /** Rows of the cache that k and v lie in, with NaN behind the keys; the kernel is told their number by `lengths` where it is given. */
  readonly capacity?: number;
  readonly causal?: boolean;
  readonly q?: Dtype;
  readonly kv?: Dtype;
  readonly out?: Dtype;
  /** Features of keys and of values that lie side by side. */
  readonly blocks?: readonly [number, number];
  /** The output lies as (B, T, H, D). */
  readonly interleaved?: boolean;
}

function attention(backend: Backend, kernel: KernelName, dim: number, rows: number, c: AttentionCase): void {
  const { batch = 1, heads, kvHeads, qLen, kvLen, capacity, causal = true, blocks = [dim, dim] } = c;
  const { q: qDtype = float16, kv: kvDtype = float16, out: outDtype = float16 } = c;
  const what = `${kernel} ${JSON.stringify({ ...c, q: qDtype.name, kv: kvDtype.name, out: outDtype.name })}`;
  const values = (dtype: Dtype, n: number, scale: number): number[] => unpack(dtype, pack(dtype, random(n, scale)));
  const held = capacity ?? kvLen;
  const q = values(qDtype, batch * heads * qLen * dim, 2);
  // (B, Hkv, D / block, rows, block)
  const place = (block: number, pair: number, j: number, d: number): number =>
    pair * held * dim + Math.floor(d / block) * held * block + j * block + d % block;
  const [k, v] = [2, 1].map((scale, i) => {
    const all = values(kvDtype, batch * kvHeads * held * dim, scale);
    for (let pair = 0; pair < batch * kvHeads; pair++) {
      for (let j = kvLen; j < held; j++) for (let d = 0; d < dim; d++) all[place(blocks[i], pair, j, d)] = NaN;
    }
    return all;
  });
  const out = pack(outDtype, new Array(q.length).fill(7));
  const os = c.interleaved ? [qLen * heads * dim, dim, heads * dim] : [heads * qLen * dim, qLen * dim, dim];
  const strides = (block: number): number[] => [kvHeads * held * dim, held * dim, block];
  const scale = 1 / Math.sqrt(dim);
  const each = heads / kvHeads;
  runKernel(backend, kernel, {
    spec: {
      THREADS: 256,
      DTYPE_Q: qDtype.code,
      DTYPE_KV: kvDtype.code,
      DTYPE_OUT: outDtype.code,
      CAUSAL: causal ? 1 : 0,
      HAS_LENGTHS: capacity === undefined ? 0 : batch > 1 ? 2 : 1,
      K_BLOCK: blocks[0],
      V_BLOCK: blocks[1],
      GROUP: each,
    },
    push: {
      q_len: qLen,
      kv_len: held,
      scale,
      q_strides: [heads * qLen * dim, qLen * dim, dim],
      k_strides: strides(blocks[0]),
      v_strides: strides(blocks[1]),
      out_strides: os,
      k_block_stride: held * blocks[0],
      v_block_stride: held * blocks[1],
    },
    buffers: {
      q: pack(qDtype, q),
      k: pack(kvDtype, k),
      v: pack(kvDtype, v),
      ...(capacity === undefined ? {} : { lengths: new Int32Array(batch).fill(kvLen) }),
      out,
    },
    grid: [kvHeads, Math.ceil(qLen * each / rows), batch],
  });
  const expected = new Float64Array(q.length);
  const weights = new Float64Array(kvLen);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const pair = b * kvHeads + Math.floor(h / each);
      for (let i = 0; i < qLen; i++) {
        const seen = causal ? Math.max(0, i + kvLen - qLen + 1) : kvLen;
        const from = ((b * heads + h) * qLen + i) * dim;
        for (let j = 0; j < seen; j++) {
          let dot = 0;
          for (let d = 0; d < dim; d++) dot += q[from + d] * k[place(blocks[0], pair, j, d)];
          weights[j] = dot * scale;
        }
        const most = weights.subarray(0, seen).reduce((a, x) => Math.max(a, x), -Infinity);
        let sum = 0;
        for (let j = 0; j < seen; j++) sum += weights[j] = Math.exp(weights[j] - most);
        const to = b * os[0] + h * os[1] + i * os[2];
        for (let j = 0; j < seen; j++) {
          for (let d = 0; d < dim; d++) expected[to + d] += weights[j] / sum * v[place(blocks[1], pair, j, d)];
        }
      }
    }
  }
  assertClose(unpack(outDtype, out), expected, 2e-5, what);
}

for (const dim of [64, 128]) {
  for (const rows of [64, 128]) {
    const kernel = `coopmat_attention_${dim}x${rows}` as KernelName;
    const run = (backend: Backend, c: AttentionCase): void => attention(backend, kernel, dim, rows, c);
    const needs: KernelName[] = ["coopmat_map", kernel];
    kernelTest(`${kernel}() takes any number of queries behind any prefix`, (backend) => {
      for (const qLen of [1, 7, 63, 64, 65, 129]) {
        run(backend, { heads: 4, kvHeads: 2, qLen, kvLen: qLen });
        run(backend, { heads: 2, kvHeads: 2, qLen, kvLen: qLen + 37, capacity: 256 });
        run(backend, { heads: 6, kvHeads: 2, qLen, kvLen: qLen + 128, out: float32 });
      }
      run(backend, { heads: 2, kvHeads: 1, qLen: 2047, kvLen: 2048 });
    }, needs);
    kernelTest(`${kernel}() takes batches, all keys at once, and other dtypes`, (backend) => {
      run(backend, { batch: 3, heads: 4, kvHeads: 2, qLen: 33, kvLen: 70, interleaved: true });
      run(backend, { heads: 5, kvHeads: 1, qLen: 40, kvLen: 90, causal: false });
      run(backend, { heads: 2, kvHeads: 1, qLen: 40, kvLen: 17, causal: false });
      run(backend, { heads: 8, kvHeads: 1, qLen: 21, kvLen: 30, capacity: 40 });
      run(backend, { heads: 2, kvHeads: 1, qLen: 30, kvLen: 10 }); // the first 20 see nothing
      for (const q of [float32, bfloat16]) {
        for (const kv of [float32, bfloat16]) {
          run(backend, { heads: 4, kvHeads: 2, qLen: 50, kvLen: 80, capacity: 96, q, kv, out: q });
        }
      }
    }, needs);
    kernelTest(`${kernel}() reads a cache in blocks`, (backend) => {
      for (const kv of [float16, bfloat16, float32]) {
        run(backend, { heads: 4, kvHeads: 2, qLen: 50, kvLen: 50, capacity: 64, kv, blocks: [4, 8] });
        run(backend, { heads: 2, kvHeads: 1, qLen: 70, kvLen: 201, capacity: 256, kv, blocks: [4, 8] });
        run(backend, { batch: 2, heads: 3, kvHeads: 1, qLen: 17, kvLen: 66, capacity: 128, kv, blocks: [16, 4] });
      }
      run(backend, { heads: 2, kvHeads: 1, qLen: 128, kvLen: 1500, capacity: 2048, blocks: [4, 8], interleaved: true });
    }, needs);
  }
}

// ---- prepared layouts -----------------------------------------------------------------------------------------------

/** Twice the sources in a row, told apart by key. */
function doubled(key: string, made: { count: number }): Layout {
  return {
    key,
    results: [{ shape: [8], dtype: float32 }],
    emit(l, [x], [out], upload) {
      made.count++;
      l.copy(x, { ...out, shape: [4], strides: [1] });
      l.copy(upload(Uint32Array.of(1, 2, 3, 4), uint32), {
        ...out,
        dtype: uint32,
        shape: [4],
        strides: [1],
        offset: 4,
      });
    },
  };
}

kernelTest("prepare() makes a layout once and drops it with its source", (backend) => {
  const active = backend.memory().active;
  const source = new Storage(backend, 16);
  backend.write(source.buffer, 0, new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer));
  const made = { count: 0 };
  const ask = (key: string): { l: Lowering; values: readonly Value[] | undefined } => {
    const l = new Lowering(backend, () => false, false);
    const x: Value = {
      slot: l.storageSlot(source),
      offset: 0,
      strides: contiguousStrides([4]),
      shape: [4],
      dtype: float32,
    };
    const values = prepare(l, [x], doubled(key, made));
    runPrepared(l);
    return { l, values };
  };
  const read = ({ l, values }: ReturnType<typeof ask>): { storage: Storage; numbers: number[] } => {
    const slot = l.slots[values![0].slot];
    assert(slot.kind === "storage");
    const bytes = new Uint8Array(32);
    backend.read(slot.storage.buffer, 0, bytes);
    return {
      storage: slot.storage,
      numbers: [...new Float32Array(bytes.buffer, 0, 4), ...new Uint32Array(bytes.buffer, 16)],
    };
  };
  const first = read(ask("a"));
  assertEquals(first.numbers, [1, 2, 3, 4, 1, 2, 3, 4]);
  assertEquals(read(ask("a")).storage === first.storage, true, "made once");
  assertEquals(read(ask("b")).storage === first.storage, false, "each key has its own");
  assertEquals(made.count, 2);

  backend.write(source.buffer, 0, new Uint8Array(Float32Array.of(5, 6, 7, 8).buffer));
  source.changed();
  assertEquals(first.storage.refs, 0, "dropped with the old content");
  assertEquals(read(ask("a")).numbers.slice(0, 4), [5, 6, 7, 8]);
  source.release();
  assertEquals(backend.memory().active, active, "freed with the source");
});

kernelTest("prepare() refuses intermediates and what would not fit", (backend) => {
  const l = new Lowering(backend, () => false, false);
  const made = { count: 0 };
  assertEquals(prepare(l, [l.temporary([4], float32)], doubled("a", made)), undefined);
  const source = new Storage(backend, 16);
  const x: Value = { slot: l.storageSlot(source), offset: 0, strides: [1], shape: [4], dtype: float32 };
  assertEquals(prepare(l, [{ ...x, strides: [0] }], doubled("a", made)), undefined);
  const huge: Layout = { ...doubled("a", made), results: [{ shape: [backend.memory().total / 2], dtype: float32 }] };
  assertEquals(prepare(l, [x], huge), undefined);
  assertEquals(made.count, 0);
  source.release();
});
