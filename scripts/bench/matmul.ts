/**
 * Products without matrix units: `deno run -A scripts/bench/matmul.ts [--rows=1,2,4,8,64,512] [--bits=4] [--dense] [--search]`.
 *
 * Times quantized_matvec for few rows at once, the same row by row, and quantized_matmul as lowering cuts it (or matvec
 * and matmul over bfloat16 weights with `--dense`), over the shapes of Qwen3-0.6B, with enough weights read in turns that
 * none stay in a cache; `--only=head,down` chooses shapes. `--search` times every shape and split of a list. What is fastest
 * belongs into src/schedule/ops/matmul/matmul_tiles.ts.
 *
 * @module
 */

import type { Backend } from "../../src/backend/backend.ts";
import { closeDevices, getBackend } from "../../src/backend/devices.ts";
import { bfloat16, float16, float32, uint32 } from "../../src/graph/dtype.ts";
import type { Value } from "../../src/schedule/plan/value.ts";
import {
  cut,
  tileColumns,
  tileRows,
  type TileShape,
  tileSpec,
  type Tiling,
  tiling,
} from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { type VectorShape, vectorShape } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { AFFINE, Bench, HALVES } from "./plan.ts";

/** Bytes of weights that are read in turns, more than caches hold, in at most so many matrices. */
const BYTES = 1 << 27;
const MOST_MATRICES = 64;
const GROUP = 128;
const flag = (name: string): string | undefined => Deno.args.find((a) => a.startsWith(`--${name}=`))?.split("=")[1];
const SHAPES = [
  { name: "q k v", n: 4096, k: 1024 },
  { name: "o", n: 1024, k: 2048 },
  { name: "gate up", n: 6144, k: 1024 },
  { name: "down", n: 1024, k: 3072 },
  { name: "head", n: 151936, k: 1024 },
] as const;
const ONLY = flag("only")?.split(",");

const ROWS = (flag("rows") ?? "1,2,3,4,6,8,9,12,16,32,64,128,512,2048").split(",").map(Number);
const BITS = Number(flag("bits") ?? 4);
const DENSE = Deno.args.includes("--dense");
/** How kernels for few rows read these weights. */
const READS = DENSE ? "alongK" : "codes";
const SEARCH = Deno.args.includes("--search");

/** Threads, threads along a row, quads of rows and of columns. */
const CANDIDATES: readonly TileShape[] = [
  [64, 8, 1, 1],
  [64, 16, 1, 1],
  [64, 16, 1, 2],
  [128, 16, 1, 1],
  [128, 16, 1, 2],
  [256, 16, 1, 1],
  [256, 16, 1, 2],
  [64, 8, 2, 2],
  [128, 8, 2, 2],
  [128, 16, 2, 2],
  [256, 16, 2, 2],
].flatMap(([threads, side, rowQuads, columnQuads]) =>
  [16, 32].map((depth) => ({ threads, side, rowQuads, columnQuads, depth, unroll: 16 }))
);
const VECTOR_THREADS = [32, 64, 128, 256];
const VECTOR_COLUMNS = [1, 2, 4, 8];
/** Rows up to which few rows are tried. */
const MOST_FEW = 32;

interface Product {
  readonly name: string;
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/** Rows that share one reading of the weights, threads and columns of a workgroup. */
interface Rows extends VectorShape {
  readonly rows: number;
  /** Dispatches of so many rows each. */
  readonly each: number;
}

/** Microseconds of a product of `m` rows with weights read in turns. */
function time(backend: Backend, { m, n, k }: Product, how: Rows | Tiling): number[] {
  using bench = new Bench(backend);
  const { l } = bench;
  const matrices = Math.min(MOST_MATRICES, Math.ceil(BYTES / (DENSE ? 2 * n * k : n * k * BITS / 8)));
  const x = bench.array([m, k], float16, HALVES);
  const out = bench.array([m, n], float16, 0);
  const splits = "splits" in how ? how.splits : 1;
  const parts = splits > 1 ? bench.array([splits, m, n], float32, 0) : out;
  const codes = bench.array(
    DENSE ? [matrices, n * k / 2] : [matrices, n * k * BITS / 32],
    uint32,
    DENSE ? HALVES : undefined,
  );
  const affine = bench.array([2, matrices, n * k / GROUP / 2], uint32, AFFINE);
  const at = (v: Value, elements: number): Value => ({ ...v, offset: elements });
  const row = (v: Value, i: number): Value => at(v, i * v.strides[0]);
  for (let i = 0; i < matrices; i++) {
    const scales = [0, 1].map((part) => at(affine, (part * matrices + i) * affine.strides[1]));
    const weights = DENSE ? [row(codes, i)] : [row(codes, i), ...scales];
    const spec: Record<string, number> = DENSE
      ? { DTYPE_A: float16.code, DTYPE_B: bfloat16.code, DTYPE_OUT: parts.dtype.code }
      : { BITS, GROUP, DTYPE_X: float16.code, DTYPE_SCALES: float16.code, DTYPE_OUT: parts.dtype.code };
    const push = (rows: number): Record<string, number | readonly number[]> =>
      DENSE
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
        : { batch: 1, m: rows, n, k, w_batch: 1 };
    if ("each" in how) {
      const { threads, rows: ROWS, columns: COLUMNS, each } = how;
      for (let j = 0; j < m; j += each) {
        l.emit(DENSE ? "matvec" : "quantized_matvec", [row(x, j), ...weights, row(out, j)], {
          threads,
          spec: { ...spec, ROWS, COLUMNS, ALONG_K: 1 },
          push: push(Math.min(each, m - j)),
          workgroups: Math.ceil(n / COLUMNS),
          disjoint: j > 0,
        });
      }
      continue;
    }
    l.emit(DENSE ? "matmul" : "quantized_matmul", [x, ...weights, parts], {
      spec: { ...spec, TRANSPOSE: 1, ...tileSpec(how) },
      threads: how.shape.threads,
      push: push(m),
      workgroups: how.workgroups,
    });
    if (splits > 1) {
      l.emit("sum_splits", [parts, out], {
        spec: { SPLITS: splits, DTYPE_OUT: float16.code },
        push: { count: m * n, columns: n },
        workgroups: l.groups(m * n / 4),
      });
    }
  }
  return bench.time("each" in how ? Math.ceil(m / how.each) : splits > 1 ? 2 : 1);
}

function describe({ shape, splits }: Tiling): string {
  const { threads, rowQuads, columnQuads, depth } = shape;
  return `${tileRows(shape)}x${tileColumns(shape)} x${depth}, ${threads} threads, ${4 * rowQuads}x${
    4 * columnQuads
  }, split ${splits}`;
}

function report(p: Product, what: string, times: readonly number[]): number {
  const us = times.reduce((a, b) => a + b, 0);
  const rate = 2 * p.m * p.n * p.k / us / 1e6;
  console.log(
    `${p.name.padEnd(8)} ${String(p.m).padStart(5)} rows  ${what.padEnd(40)} ${us.toFixed(2).padStart(9)} us ${
      rate.toFixed(2).padStart(7)
    } TFLOP/s`,
  );
  return us;
}

if (import.meta.main) {
  const backend = getBackend();
  console.log(`${backend.name}: ${backend.description}; ${DENSE ? "bfloat16" : `${BITS} bits`}`);
  for (const { name, n, k } of SHAPES.filter(({ name }) => ONLY?.includes(name) ?? true)) {
    for (const m of ROWS) {
      const p = { name, m, n, k };
      if (m <= MOST_FEW) {
        const few = { ...vectorShape(backend, m, n, k, READS), each: m };
        report(p, `few rows, ${few.rows} at once`, time(backend, p, few));
        if (m > 1) {
          report(p, "single rows", time(backend, p, { ...few, ...vectorShape(backend, 1, n, k, READS), each: 1 }));
        }
        if (SEARCH) {
          const shapes = VECTOR_THREADS.flatMap((threads) => VECTOR_COLUMNS.map((columns) => ({ threads, columns })));
          // A workgroup's sums lie in shared memory.
          const fits = shapes.filter(({ threads, columns }) => few.rows * columns * (threads + 16) <= 8192);
          const found = fits.map((shape) => ({ shape, times: time(backend, p, { ...few, ...shape }) }));
          for (const { shape, times } of found.sort((a, b) => a.times[0] - b.times[0]).slice(0, 4)) {
            report(p, `  ${shape.threads} threads, ${shape.columns} columns`, times);
          }
        }
      }
      const taken = tiling(backend, 1, m, n, k, true);
      report(p, describe(taken), time(backend, p, taken));
      if (!SEARCH) continue;
      const shapes = CANDIDATES.filter((shape) => tileRows(shape) <= Math.max(32, 2 * m) && tileRows(shape) * 16 >= m);
      const found = shapes.flatMap((shape) =>
        [1, 2, 4, 8, 16].map((splits) => cut(shape, 1, m, n, k, splits)).filter(({ workgroups, splits }) =>
          splits === 1 || workgroups <= 2048
        )
      ).map((tiling) => ({ tiling, times: time(backend, p, tiling) }));
      const total = (times: readonly number[]): number => times.reduce((a, b) => a + b, 0);
      for (const { tiling, times } of found.sort((a, b) => total(a.times) - total(b.times)).slice(0, 5)) {
        report(p, `  ${describe(tiling)}`, times);
      }
    }
  }
  closeDevices();
}
