/**
 * Times of single products by the device's timestamps, over weights that are read in turns so that none stays in a cache.
 *
 * @module
 */

import type { Backend } from "../../src/backend/backend.ts";
import { bfloat16, float16, float32, uint32 } from "../../src/graph/dtype.ts";
import type { headsProduct, ProductKernel, ProductKind } from "../../src/schedule/ops/matmul/coopmat_matmul.ts";
import { tileSpec, type Tiling, type VectorShape } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import type { Value } from "../../src/schedule/plan/value.ts";
import { AFFINE, Bench, HALVES, WARM_MS } from "./plan.ts";

/** Weights that share a scale, unless a matrix says otherwise. */
const GROUP = 128;
/** Bytes of weights that are read in turns, more than caches hold, in at most so many matrices. */
const BYTES = 1 << 27;
const MAX_MATRICES = 64;

/** A quantized matrix (n, k), and the heads that its columns are where its kind is "heads". */
export interface QuantizedMatrix {
  readonly kind: ProductKind;
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly groupSize?: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** Microseconds of a product of m rows on matrix units, over `matrices` matrices, after `warmMs` of work. */
export function timeMatrixProduct(
  backend: Backend,
  matrix: QuantizedMatrix,
  m: number,
  { kernel, splits, threads, workgroups }: ProductKernel,
  matrices: number,
  warmMs: number = WARM_MS,
): number {
  const { kind, n, k, bits, groupSize = GROUP } = matrix;
  using bench = new Bench(backend);
  const { l } = bench;
  const columns = Math.ceil(n / 128) * 128;
  const x = bench.array([m, k], float16, HALVES);
  const out = bench.array(kind === "parts" ? [splits, m, n] : [m, n], float16, 0);
  const codes = bench.array([matrices, columns * k * bits / 32], uint32);
  const affine = bench.array([matrices, columns / 16 * k / groupSize * 64], uint32, AFFINE);
  const at = (v: Value, i: number): Value => ({ ...v, offset: i * v.strides[0] });
  const heads = kind === "heads" ? makeHeads(bench, matrix, m) : undefined;
  for (let i = 0; i < matrices; i++) {
    l.emit(kernel, [x, undefined, at(codes, i), at(affine, i), out, ...heads?.buffers ?? []], {
      spec: {
        N: n,
        K: k,
        GROUP: groupSize,
        SCALED: 0,
        DTYPE_OUT: out.dtype.code,
        ...(kind === "gated" ? { ACTIVATION: 0 } : heads?.spec),
      },
      threads,
      push: { m, scale: 1, ...heads?.push },
      workgroups,
    });
  }
  return bench.time(1, warmMs)[0];
}

/** Further inputs of coopmat_qkv: norms, angles and a cache in the blocks that decoding reads. */
function makeHeads(
  bench: Bench,
  { heads, kvHeads, headDim }: QuantizedMatrix,
  m: number,
): Pick<Parameters<typeof headsProduct>[4], "buffers" | "spec" | "push"> {
  const norm = bench.array([headDim], float16, HALVES);
  const [keys, values] = [0, 1].map(() => bench.array([kvHeads * headDim, m], float16, 0));
  const [table, start] = [bench.array([m, headDim], float32, HALVES), bench.array([1], uint32, 0)];
  return {
    buffers: [table, norm, norm, start, keys, values, undefined, undefined],
    spec: {
      HEADS: heads,
      KV_HEADS: kvHeads,
      HEAD_DIM: headDim,
      DTYPE_WEIGHT: float16.code,
      DTYPE_KV: float16.code,
      BLOCK_KEYS: 4,
      BLOCK_VALUES: 8,
      KEEP: 0,
      HEAD_NORM: 1,
      QKV_BIAS: 0,
      PER_SEQUENCE: 0,
      PAGE: 0,
      ROPE_DIMS: 0,
    },
    push: { seq: m, capacity: m, pages: 0, eps: 1e-6 },
  };
}

/** Rows that share one reading of the weights, threads and columns of a workgroup. */
export interface FewRows extends VectorShape {
  readonly rows: number;
  /** Dispatches of so many rows each. */
  readonly each: number;
}

/**
 * Microseconds of each dispatch of a product (m, k) x (k, n) without matrix units, after `warmMs` of work. If its depth is split, the
 * last dispatch adds its parts.
 */
export function timePlainProduct(
  backend: Backend,
  { m, n, k }: Readonly<Record<"m" | "n" | "k", number>>,
  how: FewRows | Tiling,
  weights: "dense" | number,
  warmMs: number = WARM_MS,
): number[] {
  const dense = weights === "dense";
  const bits = dense ? 16 : weights;
  using bench = new Bench(backend);
  const { l } = bench;
  const matrices = Math.min(MAX_MATRICES, Math.ceil(BYTES / (n * k * bits / 8)));
  const x = bench.array([m, k], float16, HALVES);
  const out = bench.array([m, n], float16, 0);
  const splits = "splits" in how ? how.splits : 1;
  const parts = splits > 1 ? bench.array([splits, m, n], float32, 0) : out;
  const codes = bench.array([matrices, n * k * bits / 32], uint32, dense ? HALVES : undefined);
  const affine = bench.array([2, matrices, n * k / GROUP / 2], uint32, AFFINE);
  const at = (v: Value, elements: number): Value => ({ ...v, offset: elements });
  const row = (v: Value, i: number): Value => at(v, i * v.strides[0]);
  for (let i = 0; i < matrices; i++) {
    const scales = [0, 1].map((part) => at(affine, (part * matrices + i) * affine.strides[1]));
    const operands = dense ? [row(codes, i)] : [row(codes, i), ...scales];
    const spec: Record<string, number> = dense
      ? { DTYPE_A: float16.code, DTYPE_B: bfloat16.code, DTYPE_OUT: parts.dtype.code }
      : { BITS: bits, GROUP, MODE: 0, DTYPE_X: float16.code, DTYPE_SCALES: float16.code, DTYPE_OUT: parts.dtype.code };
    const push = (rows: number): Record<string, number | readonly number[]> =>
      dense
        ? {
          batch: 1,
          m: rows,
          n,
          k,
          batch_shape: [],
          a_batch_strides: [],
          b_batch_strides: [],
          a_strides: [k, 1],
          b_strides: [1, k],
        }
        : { batch: 1, m: rows, n, k, w_batch: 1, x_batch: 1 };
    if ("each" in how) {
      const { threads, rows: ROWS, columns: COLUMNS, each } = how;
      for (let j = 0; j < m; j += each) {
        l.emit(dense ? "matvec" : "quantized_matvec", [row(x, j), ...operands, row(out, j)], {
          threads,
          spec: { ...spec, ROWS, COLUMNS, ALONG_K: 1 },
          push: push(Math.min(each, m - j)),
          workgroups: Math.ceil(n / COLUMNS),
          disjoint: j > 0,
        });
      }
      continue;
    }
    l.emit(dense ? "matmul" : "quantized_matmul", [x, ...operands, parts], {
      spec: { ...spec, TRANSPOSE: 1, ...tileSpec(how) },
      threads: how.shape.threads,
      push: push(m),
      workgroups: how.workgroups,
    });
    if (splits > 1) {
      l.emit("sum_splits", [parts, out, undefined], {
        spec: { SPLITS: splits, DTYPE_OUT: float16.code },
        push: { count: m * n, columns: n },
        workgroups: l.groups(m * n / 4),
      });
    }
  }
  return bench.time("each" in how ? Math.ceil(m / how.each) : splits > 1 ? 2 : 1, warmMs);
}
