/**
 * Products without matrix units: `deno run -A scripts/bench/matmul.ts [--rows=1,2,4,8,64,512] [--bits=4] [--dense] [--search]`.
 *
 * Times quantized_matvec for few rows at once, the same row by row, and quantized_matmul as lowering cuts it. With `--dense` they are
 * matvec and matmul over bfloat16 weights. The shapes are those of Qwen3-0.6B, with enough weights read in turns that none stay in a cache;
 * `--only=head,down` chooses shapes. `--search` times every shape and split of a list. The fastest one belongs into
 * src/schedule/ops/matmul/matmul_tiles.ts.
 *
 * @module
 */

import type { Backend } from "../../src/backend/backend.ts";
import { closeDevices, getBackend } from "../../src/backend/devices.ts";
import {
  cut,
  tileColumns,
  tileRows,
  type TileShape,
  type Tiling,
  tiling,
} from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { vectorShape } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { type FewRows, timePlainProduct } from "./product_times.ts";

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
const MAX_FEW = 32;

interface Product {
  readonly name: string;
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

function time(backend: Backend, product: Product, how: FewRows | Tiling): number[] {
  return timePlainProduct(backend, product, how, DENSE ? "dense" : BITS);
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
      if (m <= MAX_FEW) {
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
        [1, 2, 4, 8, 16].map((splits) => cut(shape, 1, m, n, splits)).filter(({ workgroups, splits }) =>
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
