/**
 * Attention of one query of each sequence over pages, against float64 loops. Sequences have unlike lengths, 0 among them, and NaN after
 * their ends.
 */

import type { Backend } from "../../src/backend/backend.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32, type HostArray } from "../../src/graph/dtype.ts";
import { isCoded, KV_CODES } from "../../src/graph/kv_codes.ts";
import { FUSED_LAYOUT, PAGE } from "../../src/graph/kv_layout.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { numbersOf, wordsOf } from "../support/oracles/kv_codes.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(17);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);

interface PagedCase {
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  /** Positions of each sequence. */
  readonly lengths: readonly number[];
  /** Pages that the table has for each. */
  readonly columns: number;
  readonly q?: Dtype;
  readonly kv?: Dtype;
  readonly out?: Dtype;
  /** Positions of a part; default all. */
  readonly part?: number;
  /** The last positions that a query sees; default all. */
  readonly window?: number;
  /** Workgroups that share the heads of a key head. */
  readonly sharing?: number;
  /** Elements between the queries of sequences, beside their own. */
  readonly gap?: number;
  /** A position of the first sequence that its window leaves out, whose values are larger than float16 has. */
  readonly huge?: number;
  /** Default that of vector units. */
  readonly kernel?: KernelName;
}

/** Keys or values as a cache has them; codes have no NaN, so their largest number is in its place. */
function cached(dtype: Dtype, values: readonly number[]): HostArray {
  if (!isCoded(dtype)) return pack(dtype, values);
  return new Uint8Array(Uint32Array.from(wordsOf(values.map((x) => Number.isNaN(x) ? 2016 : x))).buffer);
}

function attend(backend: Backend, c: PagedCase): void {
  const { heads, kvHeads, dim, lengths, columns, q: qDtype = float32, kv: kvDtype = float32, out: outDtype = float32 } =
    c;
  const { part = columns * PAGE, gap = 0, sharing = 1, kernel = "paged_attention" } = c;
  const batch = lengths.length;
  const values = (dtype: Dtype, n: number, scale: number): number[] => {
    const given = random(n, scale);
    return isCoded(dtype) ? wordsOf(given).flatMap(numbersOf) : unpack(dtype, pack(dtype, given));
  };
  const row = heads * dim + gap;
  const q = values(qDtype, batch * row, 2);
  const pages = batch * columns + 1;
  // In turns, from the last one down.
  const table = Int32Array.from(
    { length: batch * columns },
    (_, i) => pages - 1 - i % columns * batch - Math.floor(i / columns),
  );
  const place = (block: number, b: number, head: number, j: number, d: number): number => {
    const page = (table[b * columns + Math.floor(j / PAGE)] * kvHeads + head) * PAGE * dim;
    return page + Math.floor(d / block) * PAGE * block + j % PAGE * block + d % block;
  };
  const blocks = [FUSED_LAYOUT.keys, FUSED_LAYOUT.values];
  const [k, v] = [2, 1].map((scale, i) => {
    const all = values(kvDtype, pages * kvHeads * PAGE * dim, scale);
    for (const [b, length] of lengths.entries()) {
      for (let j = length; j < columns * PAGE; j++) {
        for (let h = 0; h < kvHeads; h++) for (let d = 0; d < dim; d++) all[place(blocks[i], b, h, j, d)] = NaN;
      }
    }
    if (i === 1 && c.huge !== undefined) {
      for (let d = 0; d < dim; d++) all[place(blocks[i], 0, 0, c.huge, d)] = 1e5;
    }
    return all;
  });
  const splits = Math.ceil(columns * PAGE / part);
  const count = batch * heads * dim;
  const scale = 1 / Math.sqrt(dim);
  const out = pack(outDtype, new Array(count).fill(7));
  const parts = new Float32Array(splits * count).fill(NaN);
  const stats = new Float32Array(splits * batch * heads * 2).fill(NaN);
  runKernel(backend, kernel, {
    spec: {
      THREADS: 128,
      HEAD_DIM: dim,
      DTYPE_Q: qDtype.code,
      DTYPE_KV: kvDtype.code,
      DTYPE_OUT: (splits > 1 ? float32 : outDtype).code,
      GROUP: heads / kvHeads / sharing,
      KV_HEADS: kvHeads,
      PAGE,
      SPLITS: Math.min(splits, 2),
      WINDOW: c.window ?? 0,
      SHARING: sharing,
    },
    push: { capacity: (columns + 1) * PAGE, pages, part, scale, q_strides: [row, dim] },
    buffers: {
      q: pack(qDtype, q),
      keys: cached(kvDtype, k),
      values: cached(kvDtype, v),
      pages: table,
      lengths: Int32Array.from(lengths),
      ...(splits > 1 ? { out: parts, stats } : { out }),
    },
    grid: [kvHeads * sharing, splits, batch],
  });
  if (splits > 1) {
    runKernel(backend, "attention_merge", {
      spec: { SPLITS: splits, DIM: dim, DTYPE_OUT: outDtype.code },
      push: { rows: batch * heads },
      buffers: { parts, stats, out },
      items: count / 4,
    });
  }
  const expected = new Float64Array(count);
  for (const [b, length] of lengths.entries()) {
    for (let h = 0; h < heads; h++) {
      const head = Math.floor(h / (heads / kvHeads));
      const scores = Array.from({ length }, (_, j) => {
        let dot = 0;
        for (let d = 0; d < dim; d++) dot += q[b * row + h * dim + d] * k[place(blocks[0], b, head, j, d)];
        return j < length - (c.window ?? Infinity) ? -Infinity : dot * scale;
      });
      const most = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - most));
      const sum = weights.reduce((a, weight) => a + weight, 0);
      for (let d = 0; d < dim; d++) {
        let value = 0;
        for (let j = 0; j < length; j++) value += weights[j] / sum * v[place(blocks[1], b, head, j, d)];
        expected[(b * heads + h) * dim + d] = value;
      }
    }
  }
  const weights = kernel === "paged_attention" ? 2e-6 : 1e-3; // which matrix units take in float16
  const tolerance = outDtype === float32 ? weights : outDtype === float16 ? 1e-3 : 8e-3;
  assertClose(unpack(outDtype, out), expected, tolerance, `${kernel} ${JSON.stringify(c)}`);
}

const KERNELS: readonly KernelName[] = ["paged_attention", "attention_merge"];

kernelTest("paged_attention() sees no more than the last positions of a window", (backend) => {
  const some = { heads: 4, kvHeads: 2, dim: 64, columns: 6 } as const;
  for (const window of [40, 150]) {
    attend(backend, { ...some, lengths: [0, 1, 63, 64, 65, 300, 384], window });
    attend(backend, { ...some, lengths: [384, 129, 7], window, part: 128, kv: float16 });
  }
}, KERNELS);

kernelTest("paged_attention() gives softmax(scale q . k) . v of sequences of unlike lengths", (backend) => {
  attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths: [1, 63, 64, 65, 0, 300], columns: 5 });
  attend(backend, { heads: 2, kvHeads: 2, dim: 128, lengths: [257], columns: 8 });
  attend(backend, { heads: 8, kvHeads: 1, dim: 128, lengths: [130, 7], columns: 3, gap: 12 });
  attend(backend, { heads: 5, kvHeads: 1, dim: 96, lengths: [70], columns: 2 });
  attend(backend, { heads: 2, kvHeads: 1, dim: 256, lengths: [200, 64], columns: 4 });
  attend(backend, { heads: 6, kvHeads: 2, dim: 32, lengths: [100], columns: 2 });
}, KERNELS);

kernelTest("paged_attention() shares positions among workgroups", (backend) => {
  attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths: [700, 64, 0, 513, 256], columns: 12, part: 256 });
  attend(backend, { heads: 2, kvHeads: 1, dim: 128, lengths: [191, 192, 193], columns: 4, part: 64 });
}, KERNELS);

kernelTest("paged_attention() shares the heads of a key head among workgroups", (backend) => {
  attend(backend, { heads: 8, kvHeads: 2, dim: 64, lengths: [130, 0, 7], columns: 3, sharing: 4, gap: 12 });
  attend(backend, { heads: 8, kvHeads: 2, dim: 64, lengths: [200, 65], columns: 4, sharing: 2, part: 128 });
}, KERNELS);

kernelTest("paged_attention() reads and writes 16 bits, and reads codes", (backend) => {
  for (const half of [float16, bfloat16]) {
    attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths: [90, 128], columns: 2, q: half, kv: half, out: half });
    attend(backend, {
      heads: 4,
      kvHeads: 1,
      dim: 128,
      lengths: [300],
      columns: 5,
      q: half,
      kv: half,
      out: half,
      part: 128,
    });
  }
  attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths: [90, 128], columns: 2, kv: KV_CODES });
  attend(backend, {
    heads: 4,
    kvHeads: 2,
    dim: 128,
    lengths: [300, 1],
    columns: 5,
    kv: KV_CODES,
    q: float16,
    part: 256,
  });
}, KERNELS);

for (const kernel of ["coopmat_paged_attention", "coopmat_paged_attention_emulated"] as const) {
  kernelTest(`${kernel}() gives softmax(scale q . k) . v of sequences of unlike lengths`, (backend) => {
    const halves = { q: float16, kv: float16, kernel } as const;
    attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths: [1, 15, 16, 17, 64, 65, 0, 300], columns: 5, ...halves });
    attend(backend, {
      heads: 8,
      kvHeads: 1,
      dim: 128,
      lengths: [130, 7],
      columns: 3,
      gap: 12,
      ...halves,
      out: float16,
    });
    attend(backend, { heads: 5, kvHeads: 1, dim: 96, lengths: [70], columns: 2, ...halves });
    attend(backend, {
      heads: 3,
      kvHeads: 1,
      dim: 32,
      lengths: [100],
      columns: 2,
      ...halves,
      kv: bfloat16,
      q: bfloat16,
    });
    attend(backend, { heads: 4, kvHeads: 2, dim: 128, lengths: [300, 1], columns: 5, ...halves, kv: KV_CODES });
  }, [kernel]);

  kernelTest(`${kernel}() shares positions among workgroups, and sees a window`, (backend) => {
    const halves = { q: float16, kv: bfloat16, kernel } as const;
    const lengths = [700, 64, 0, 513, 256];
    attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths, columns: 12, part: 256, ...halves });
    attend(backend, { heads: 2, kvHeads: 1, dim: 128, lengths: [191, 192, 193], columns: 4, part: 64, ...halves });
    attend(backend, { heads: 4, kvHeads: 2, dim: 64, lengths: [0, 1, 63, 64, 300], columns: 6, window: 40, ...halves });
    attend(backend, { heads: 2, kvHeads: 1, dim: 32, lengths: [60], columns: 1, window: 40, huge: 17, ...halves });
    attend(backend, {
      heads: 4,
      kvHeads: 2,
      dim: 64,
      lengths: [384, 129],
      columns: 6,
      window: 150,
      part: 128,
      ...halves,
    });
  }, [kernel, "attention_merge"]);
}
