/**
 * Attention of many queries on cooperative matrices, against float64 loops. On a device without them these tests are ignored by name.
 */

import type { Backend } from "../../src/backend/backend.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32, type HostArray } from "../../src/graph/dtype.ts";
import { isCoded, KV_CODES } from "../../src/graph/kv_codes.ts";
import { ATTENTIONS } from "../../src/schedule/ops/matmul/coopmat_attention.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { numbersOf, wordsOf } from "../support/oracles/kv_codes.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(13);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);

interface AttentionCase {
  readonly batch?: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  /** Keys that count. */
  readonly kvLen: number;
  /**
   * Rows of the cache that holds k and v, with NaN after the keys. If it is given, the kernel reads the number of keys
   * from `lengths`.
   */
  readonly capacity?: number;
  readonly causal?: boolean;
  /** The last keys that a query sees of those that it sees otherwise; default all. */
  readonly window?: number;
  readonly q?: Dtype;
  readonly kv?: Dtype;
  readonly out?: Dtype;
  /** Positions of a page, which divide the capacity: each batch row has pages in an order of its own. */
  readonly page?: number;
  /** Contiguous features of keys and of values. */
  readonly blocks?: readonly [number, number];
  /** The output lies as (B, T, H, D). */
  readonly interleaved?: boolean;
  /** Workgroups that share the keys; the output then lies as (B, T, H, D). */
  readonly splits?: number;
  /** One more score for each head, which has no value; only with splits. */
  readonly sinks?: readonly number[];
}

/** Keys or values as a cache has them: of uint8 as codes, where NaN is as large as a code can be. */
function cached(dtype: Dtype, values: readonly number[]): HostArray {
  if (!isCoded(dtype)) return pack(dtype, values);
  return new Uint8Array(Uint32Array.from(wordsOf(values.map((x) => Number.isNaN(x) ? 2016 : x))).buffer);
}

function attention(backend: Backend, kernel: KernelName, dim: number, rows: number, c: AttentionCase): void {
  const { batch = 1, heads, kvHeads, qLen, kvLen, capacity, causal = true, blocks = [dim, dim], splits = 1 } = c;
  const { q: qDtype = float16, kv: kvDtype = float16, out: outDtype = float16 } = c;
  const what = `${kernel} ${JSON.stringify({ ...c, q: qDtype.name, kv: kvDtype.name, out: outDtype.name })}`;
  const values = (dtype: Dtype, n: number, scale: number): number[] => {
    const given = random(n, scale);
    return isCoded(dtype) ? wordsOf(given).flatMap(numbersOf) : unpack(dtype, pack(dtype, given));
  };
  const held = capacity ?? kvLen;
  const q = values(qDtype, batch * heads * qLen * dim, 2);
  const { page = held } = c;
  const columns = held / page;
  const pages = batch * columns + (c.page ? 1 : 0); // an unused one
  const tables = Int32Array.from({ length: batch * columns }, (_, i) => pages - 1 - i); // each has its own
  // (page or B, Hkv, D / block, rows, block)
  const place = (block: number, pair: number, j: number, d: number): number => {
    const b = Math.floor(pair / kvHeads);
    const at = c.page ? tables[b * columns + Math.floor(j / page)] : b;
    const head = (at * kvHeads + pair % kvHeads) * page * dim;
    return head + Math.floor(d / block) * page * block + j % page * block + d % block;
  };
  const [k, v] = [2, 1].map((scale, i) => {
    const all = values(kvDtype, pages * kvHeads * page * dim, scale);
    for (let pair = 0; pair < batch * kvHeads; pair++) {
      for (let j = kvLen; j < held; j++) for (let d = 0; d < dim; d++) all[place(blocks[i], pair, j, d)] = NaN;
    }
    return all;
  });
  const out = pack(outDtype, new Array(q.length).fill(7));
  const parts = new Float32Array(splits * q.length).fill(NaN);
  const stats = new Float32Array(splits * batch * heads * qLen * 2).fill(NaN);
  const os = c.interleaved || splits > 1
    ? [qLen * heads * dim, dim, heads * dim]
    : [heads * qLen * dim, qLen * dim, dim];
  const strides = (block: number): number[] => [kvHeads * page * dim, page * dim, block];
  const scale = 1 / Math.sqrt(dim);
  const each = heads / kvHeads;
  runKernel(backend, kernel, {
    spec: {
      THREADS: rows === 32 ? 128 : 256,
      DTYPE_Q: qDtype.code,
      DTYPE_KV: kvDtype.code,
      DTYPE_OUT: splits > 1 ? float32.code : outDtype.code,
      CAUSAL: causal ? 1 : 0,
      HAS_LENGTHS: capacity === undefined ? 0 : batch > 1 ? 2 : 1,
      K_BLOCK: blocks[0],
      V_BLOCK: blocks[1],
      GROUP: each,
      SPLITS: splits,
      PAGE: c.page ?? 0,
      WINDOW: c.window ?? 0,
      FEATURES: dim,
    },
    push: {
      q_len: qLen,
      kv_len: held,
      scale,
      q_strides: [heads * qLen * dim, qLen * dim, dim],
      k_strides: strides(blocks[0]),
      v_strides: strides(blocks[1]),
      out_strides: os,
      k_block_stride: page * blocks[0],
      v_block_stride: page * blocks[1],
      pages,
    },
    buffers: {
      q: pack(qDtype, q),
      k: cached(kvDtype, k),
      v: cached(kvDtype, v),
      ...(capacity === undefined ? {} : { lengths: new Int32Array(batch).fill(kvLen) }),
      ...(splits > 1 ? { out: parts, stats } : { out }),
      ...(c.page ? { pages: tables } : {}),
    },
    grid: [kvHeads, Math.ceil(qLen * each / rows), splits * batch],
  });
  if (splits > 1) {
    runKernel(backend, "attention_merge", {
      spec: {
        SPLITS: splits,
        DIM: dim,
        DTYPE_OUT: outDtype.code,
        SINKS: c.sinks?.length ?? 0,
        DTYPE_SINKS: float32.code,
      },
      push: { rows: batch * qLen * heads },
      buffers: { parts, stats, out, ...(c.sinks && { sinks: Float32Array.from(c.sinks) }) },
      items: q.length / 4,
    });
  }
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
          weights[j] = j < seen - (c.window ?? Infinity) ? -Infinity : dot * scale;
        }
        const sink = c.sinks?.[h] ?? -Infinity;
        const most = weights.subarray(0, seen).reduce((a, x) => Math.max(a, x), Math.max(sink, -1e300));
        let sum = Math.exp(sink - most);
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

for (const [width, kernels] of Object.entries(ATTENTIONS)) {
  for (const { kernel, rows } of kernels) {
    const dim = Number(width);
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
    kernelTest(`${kernel}() pads smaller heads`, (backend) => {
      for (const features of [dim / 2 + 8, dim - 16]) {
        const each = (c: AttentionCase): void => attention(backend, kernel, features, rows, c);
        each({ heads: 4, kvHeads: 2, qLen: 50, kvLen: 50, capacity: 64, kv: bfloat16, blocks: [4, 8] });
        each({ batch: 2, heads: 6, kvHeads: 2, qLen: 33, kvLen: 300, capacity: 320, q: bfloat16, interleaved: true });
        each({ heads: 5, kvHeads: 1, qLen: 40, kvLen: 90, causal: false, out: float32, splits: 2 });
        each({
          batch: 2,
          heads: 4,
          kvHeads: 2,
          qLen: 17,
          kvLen: 700,
          capacity: 768,
          page: 64,
          kv: KV_CODES,
          splits: 3,
        });
      }
    }, [...needs, "attention_merge"]);
    kernelTest(`${kernel}() gives each query no more than the last keys of a window`, (backend) => {
      for (const window of [1, 17, 100]) {
        run(backend, { heads: 4, kvHeads: 2, qLen: 129, kvLen: 129, window });
        run(backend, { heads: 2, kvHeads: 1, qLen: 40, kvLen: 300, capacity: 320, blocks: [4, 8], window });
        run(backend, { heads: 5, kvHeads: 1, qLen: 9, kvLen: 190, causal: false, window });
        run(backend, {
          batch: 2,
          heads: 4,
          kvHeads: 2,
          qLen: 70,
          kvLen: 700,
          capacity: 768,
          page: 64,
          splits: 3,
          window,
        });
        run(backend, { heads: 2, kvHeads: 1, qLen: 30, kvLen: 10, splits: 2, window }); // the first 20 see nothing
      }
      const codes = { kv: KV_CODES, capacity: 256, page: 64, window: 50 };
      run(backend, { heads: 4, kvHeads: 2, qLen: 70, kvLen: 201, blocks: [4, 8], ...codes });
    }, [...needs, "attention_merge"]);
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
    kernelTest(`${kernel}() reads positions in pages`, (backend) => {
      for (const kv of [float16, bfloat16, float32]) {
        run(backend, { heads: 4, kvHeads: 2, qLen: 50, kvLen: 64, capacity: 128, page: 64, kv, blocks: [4, 8] });
        run(backend, {
          batch: 3,
          heads: 4,
          kvHeads: 2,
          qLen: 1,
          kvLen: 130,
          capacity: 192,
          page: 64,
          kv,
          blocks: [4, 8],
        });
      }
      run(backend, { batch: 2, heads: 2, kvHeads: 1, qLen: 70, kvLen: 201, capacity: 256, page: 64 });
      run(backend, { batch: 2, heads: 4, kvHeads: 2, qLen: 17, kvLen: 700, capacity: 768, page: 64, splits: 3 });
    }, [...needs, "attention_merge"]);
    kernelTest(`${kernel}() reads codes in pages`, (backend) => {
      const kv = KV_CODES;
      for (const blocks of [[4, 8], [8, 4], [dim, dim]] as const) {
        run(backend, { heads: 4, kvHeads: 2, qLen: 50, kvLen: 64, capacity: 128, page: 64, kv, blocks });
        run(backend, { batch: 3, heads: 4, kvHeads: 2, qLen: 1, kvLen: 130, capacity: 192, page: 64, kv, blocks });
      }
      run(backend, { batch: 2, heads: 2, kvHeads: 1, qLen: 70, kvLen: 201, capacity: 256, page: 64, kv, q: float32 });
      run(backend, { batch: 2, heads: 4, kvHeads: 2, qLen: 17, kvLen: 700, capacity: 768, page: 64, kv, splits: 3 });
    }, [...needs, "attention_merge"]);
    kernelTest(`${kernel}() and attention_merge() count a sink of each head`, (backend) => {
      const sinks = [0, 3, -2, 40, -Infinity, 1];
      run(backend, { heads: 4, kvHeads: 2, qLen: 17, kvLen: 17, splits: 2, sinks: sinks.slice(0, 4) });
      run(backend, { batch: 2, heads: 6, kvHeads: 2, qLen: 33, kvLen: 300, capacity: 512, splits: 3, sinks });
    }, [...needs, "attention_merge"]);
    kernelTest(`${kernel}() shares keys among workgroups`, (backend) => {
      for (const splits of [2, 3, 8]) {
        run(backend, { heads: 4, kvHeads: 2, qLen: 17, kvLen: 17, splits });
        run(backend, { heads: 2, kvHeads: 1, qLen: 70, kvLen: 701, capacity: 1024, blocks: [4, 8], splits });
        run(backend, { batch: 2, heads: 6, kvHeads: 2, qLen: 33, kvLen: 300, capacity: 512, kv: bfloat16, splits });
      }
      run(backend, { heads: 2, kvHeads: 1, qLen: 30, kvLen: 10, splits: 2 }); // the first 20 see nothing
      run(backend, { heads: 5, kvHeads: 1, qLen: 40, kvLen: 90, causal: false, out: float32, splits: 2 });
    }, [...needs, "attention_merge"]);
  }
}

kernelTest("attention_merge() weighs what parts of the keys gave", (backend) => {
  for (
    const [rows, dim, splits, dtype] of [[1, 4, 2, float32], [37, 128, 3, float16], [70, 64, 8, bfloat16]] as const
  ) {
    const parts = Float32Array.from(random(splits * rows * dim));
    // A part that saw nothing, and a row that saw nothing at all.
    const stats = Float32Array.from({ length: splits * rows * 2 }, (_, i) => {
      const [part, row] = [Math.floor(i / 2 / rows), Math.floor(i / 2) % rows];
      const seen = row !== rows - 1 && (part !== 1 || row % 3 !== 0);
      return i % 2 === 0 ? (seen ? next() * 40 - 20 : -1e30) : seen ? 1 + next() : 0;
    });
    const out = pack(dtype, new Array(rows * dim).fill(7));
    runKernel(backend, "attention_merge", {
      spec: { SPLITS: splits, DIM: dim, DTYPE_OUT: dtype.code },
      push: { rows },
      buffers: { parts, stats, out },
      items: rows * dim / 4,
    });
    const expected = Float64Array.from({ length: rows * dim }, (_, at) => {
      const [row, d] = [Math.floor(at / dim), at % dim];
      let [sum, weights] = [0, 0];
      for (let s = 0; s < splits; s++) {
        const weight = stats[(s * rows + row) * 2 + 1] * 2 ** stats[(s * rows + row) * 2];
        weights += weight;
        sum += weight * parts[(s * rows + row) * dim + d];
      }
      return weights > 0 ? sum / weights : 0;
    });
    assertClose(unpack(dtype, out), expected, dtype === bfloat16 ? 2e-5 : 2e-6, `${rows} x ${dim} of ${splits}`);
  }
}, ["attention_merge"]);
