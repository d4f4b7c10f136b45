/**
 * Measures single products: the costs of kernels on matrix units, and how those without are cut.
 *
 * @module
 */

import type { Backend } from "../../src/backend/backend.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import { matrixMap, runsOn } from "../../src/schedule/ops/matmul/coopmat.ts";
import { type ProductKind, PRODUCTS } from "../../src/schedule/ops/matmul/coopmat_matmul.ts";
import { cut, TILES, vectorShape } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import type { Cost } from "../../src/schedule/tuning/tuning.ts";
import { type QuantizedMatrix, timeMatrixProduct, timePlainProduct } from "../bench/product_times.ts";
import { fitCost, type ProductSample } from "./fit.ts";

/** Sizes that are measured. */
export interface ProductSizes {
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Rows of prefill GEMMs on matrix units, and of those without where both few rows and tiles serve. */
  readonly rows: readonly number[];
  readonly fewRows: readonly number[];
  /** Milliseconds of work before a measurement. */
  readonly warmMs: number;
}

/** Layers of 0.6B. */
export const LAYER_SIZES: ProductSizes = {
  hidden: 1024,
  intermediate: 3072,
  heads: 16,
  kvHeads: 8,
  headDim: 128,
  rows: [32, 160, 1024, 2048],
  fewRows: [8, 16, 32, 64],
  warmMs: 100,
};

/** Sizes that software drivers finish in a second. */
export const SMALL_SIZES: ProductSizes = {
  hidden: 256,
  intermediate: 512,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  rows: [32, 64, 128],
  fewRows: [8, 16],
  warmMs: 0,
};

/** Matrices that are read in turns. */
const MATRICES = 8;
const STEP = 64;
const SPLITS = [1, 4];

/** Weights of a layer, in two depths and widths. The times separate the cost of a step from the fixed cost, and waves from parts of one. */
function matricesOf(
  { hidden, intermediate, heads, kvHeads, headDim }: ProductSizes,
): Readonly<Record<ProductKind, readonly Omit<QuantizedMatrix, "kind" | "bits">[]>> {
  const all = { heads, kvHeads, headDim };
  const ofHeads = (part: number, k: number): Omit<QuantizedMatrix, "kind" | "bits"> => ({
    n: (heads + 2 * kvHeads) * headDim / part,
    k,
    heads: heads / part,
    kvHeads: kvHeads / part,
    headDim,
  });
  return {
    heads: [ofHeads(1, hidden), ofHeads(2, 2 * hidden)],
    parts: [{ ...all, n: hidden, k: heads * headDim }, { ...all, n: hidden, k: intermediate }],
    gated: [{ ...all, n: 2 * intermediate, k: hidden }, { ...all, n: intermediate, k: 2 * hidden }],
  };
}

/** A kernel's cost with the relative error of its fit. */
export interface MeasuredCost {
  readonly kernel: KernelName;
  readonly cost: Cost;
  readonly error: number;
}

/** Costs of all kernels on matrix units that a device has, until `isOver`. `say` gets a line for each. */
export function measureCosts(
  backend: Backend,
  computeUnits: number,
  sizes: ProductSizes,
  isOver: () => boolean,
  say: (line: string) => void,
): readonly MeasuredCost[] {
  if (!matrixMap(backend).weights) return [];
  const matrices = matricesOf(sizes);
  const found: MeasuredCost[] = [];
  for (const kind of Object.keys(PRODUCTS) as ProductKind[]) {
    for (const bits of Object.keys(PRODUCTS[kind]).map(Number)) {
      for (const { upTo, rows: height, columns = 128, threads = 128, kernel } of PRODUCTS[kind][bits]) {
        if (upTo !== undefined || !runsOn(backend, { kernel, threads })) continue; // those few rows have no rival
        const samples: ProductSample[] = [];
        for (const matrix of matrices[kind]) {
          for (const m of sizes.rows) {
            for (const splits of kind === "parts" ? SPLITS : [1]) {
              if (isOver()) return found;
              const [down, wide] = [Math.ceil(m / height), Math.ceil(matrix.n / columns)];
              const choice = { kernel, splits, threads, workgroups: [down, wide, splits] } as const;
              const us = timeMatrixProduct(backend, { ...matrix, kind, bits }, m, choice, MATRICES, sizes.warmMs);
              samples.push({ tiles: down * wide, steps: Math.ceil(matrix.k / STEP), splits, us });
            }
          }
        }
        const fit = fitCost(samples, computeUnits);
        if (!fit) continue;
        found.push({ kernel, ...fit });
        const { residentWorkgroups, usPerKStep, usFixed } = fit.cost;
        say(
          `${kernel}: ${residentWorkgroups} workgroups at once, ${usPerKStep.toFixed(2)} us a step, ` +
            `${usFixed.toFixed(1)} us fixed; error ${(100 * fit.error).toFixed(0)} %`,
        );
      }
    }
  }
  return found;
}

/** How products without matrix units are best cut. */
export interface MeasuredCuts {
  /** Workgroups of the fastest split. */
  readonly targetWorkgroups: number;
  /** Most rows at which kernels for few rows are faster than tiles; undefined if they are at none. */
  readonly maxRows: number | undefined;
}

const BITS = 4;

/** Measures how products without matrix units are cut, over the down projection of a layer. */
export function measureCuts(backend: Backend, sizes: ProductSizes, say: (line: string) => void): MeasuredCuts {
  const [n, k] = [sizes.hidden, sizes.intermediate];
  const total = (times: readonly number[]): number => times.reduce((sum, us) => sum + us, 0);
  const shapeOf = (m: number) =>
    TILES.find(({ upTo, threads }) => m <= upTo && threads <= backend.limits.threads) ?? TILES.at(-1)!;
  const timeTiles = (m: number, splits: number): number =>
    total(timePlainProduct(backend, { m, n, k }, cut(shapeOf(m), 1, m, n, splits), BITS, sizes.warmMs));
  const m = sizes.fewRows.at(-1)!;
  const most = backend.has("sum_splits") ? Math.floor(k / 128) : 1;
  const tries = [1, 2, 4, 8, 16].filter((splits) => splits <= most).map((splits) => ({
    splits,
    us: timeTiles(m, splits),
  }));
  const best = tries.reduce((a, b) => b.us < a.us ? b : a);
  const targetWorkgroups = cut(shapeOf(m), 1, m, n, best.splits).workgroups;
  say(`tiles of ${m} rows: fastest with ${targetWorkgroups} workgroups, ${best.us.toFixed(0)} us`);
  const fewRows = sizes.fewRows.filter((rows) => {
    const few = { ...vectorShape(backend, rows, n, k, "codes"), each: rows };
    const us = total(timePlainProduct(backend, { m: rows, n, k }, few, BITS, sizes.warmMs));
    const tiles = Math.min(...[1, best.splits].map((splits) => timeTiles(rows, splits)));
    say(`${rows} rows: ${us.toFixed(0)} us in kernels for few rows, ${tiles.toFixed(0)} us in tiles`);
    return us < tiles;
  });
  return { targetWorkgroups, maxRows: fewRows.at(-1) };
}
