/**
 * How products without matrix units are cut. For `matmul` and `quantized_matmul`: the tiles (shaders/ops/matmul/tile.glsl) and how many
 * workgroups share the depth of one. For few rows: the columns that a workgroup of `matvec` and `quantized_matvec` makes
 * (shaders/ops/matmul/few_rows.glsl). All of it stands in two tables.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import { float32 } from "../../../graph/dtype.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";
import { tuningOf } from "../../tuning/choose.ts";

/** A tile: 4 * rowQuads x 4 * columnQuads outputs a thread, `side` threads along a row, `depth` of k at a time. */
export interface TileShape {
  readonly threads: number;
  readonly side: number;
  readonly rowQuads: number;
  readonly columnQuads: number;
  readonly depth: number;
  /** Steps of depth in a row of code. */
  readonly unroll: number;
}

/** How a product is cut. */
export interface Tiling {
  readonly shape: TileShape;
  /** Workgroups that share the depth of a tile. */
  readonly splits: number;
  readonly workgroups: number;
}

/** Parts of a split depth, at most, and how deep each is at least. */
const MAX_SPLITS = 16;
const MIN_DEPTH = 128;

/** The first row whose threads a device offers and whose `upTo` rows of the product are not passed. */
export const TILES: readonly (TileShape & { readonly upTo: number })[] = [
  { upTo: 64, threads: 256, side: 16, rowQuads: 1, columnQuads: 1, depth: 32, unroll: 16 },
  { upTo: 1024, threads: 128, side: 8, rowQuads: 2, columnQuads: 2, depth: 16, unroll: 16 },
  { upTo: Infinity, threads: 256, side: 16, rowQuads: 2, columnQuads: 2, depth: 16, unroll: 16 },
  { upTo: Infinity, threads: 64, side: 8, rowQuads: 1, columnQuads: 1, depth: 16, unroll: 4 },
];

/** A workgroup's part of a product of few rows. */
export interface VectorShape {
  readonly threads: number;
  readonly columns: number;
}

/** Numbers that a thread reads at once along k, by how weights are read. */
const DEPTHS = { alongK: 8, columns: 1, codes: 32 } as const;

/** How a kernel for few rows reads weights. */
export type VectorReads = keyof typeof DEPTHS;

/** A row of the table of few rows. */
export interface VectorRow extends VectorShape {
  /** How weights are read: along k or along columns in eights, or runs of 32 affine codes along k. */
  readonly reads: VectorReads;
  /** Rows that share one reading of the weights, at most. */
  readonly upTo: number;
  /** Columns of all batches, at most: counts of the device's record, or any number. */
  readonly outputs: "fewColumns" | "someColumns" | "any";
}

/** The first row that fits and whose threads a device offers. Few columns leave a GPU idle unless many threads share each. */
export const VECTORS: readonly VectorRow[] = [
  { reads: "alongK", upTo: 2, outputs: "fewColumns", threads: 256, columns: 4 },
  { reads: "alongK", upTo: 8, outputs: "fewColumns", threads: 128, columns: 4 },
  { reads: "alongK", upTo: 1, outputs: "someColumns", threads: 128, columns: 8 },
  { reads: "alongK", upTo: 1, outputs: "any", threads: 64, columns: 16 },
  { reads: "alongK", upTo: 2, outputs: "any", threads: 64, columns: 8 },
  { reads: "alongK", upTo: 8, outputs: "any", threads: 64, columns: 4 },
  { reads: "codes", upTo: 8, outputs: "any", threads: 128, columns: 4 },
  { reads: "codes", upTo: 8, outputs: "any", threads: 64, columns: 4 },
  { reads: "columns", upTo: 2, outputs: "any", threads: 256, columns: 8 },
  { reads: "columns", upTo: 8, outputs: "any", threads: 64, columns: 8 },
];

const ROWS_AT_ONCE = 8;

/** Whether a product of `m` rows takes the kernels for few rows: more of them where weights are contiguous along k. */
export function isFewRows(backend: Backend, m: number, alongK: boolean): boolean {
  return m <= (alongK ? tuningOf(backend).fewRows.maxRows : ROWS_AT_ONCE);
}

/** Fewest threads of a workgroup: a subgroup of most GPUs. */
const MIN_THREADS = 32;

/**
 * How a product of `m` rows and depth `k` is cut: rows that share one reading of the weights, threads and columns of a workgroup.
 * `outputs` counts the columns of all batches.
 */
export function vectorShape(
  backend: Backend,
  m: number,
  outputs: number,
  k: number,
  reads: VectorReads,
): VectorShape & { readonly rows: number } {
  const rows = Math.max(1, Math.ceil(m / Math.ceil(m / ROWS_AT_ONCE)));
  const { fewRows } = tuningOf(backend);
  const fits = (most: VectorRow["outputs"]): boolean => most === "any" || outputs <= fewRows[most];
  const fitting = VECTORS.filter((row) => row.reads === reads && rows <= row.upTo && fits(row.outputs));
  const { threads: most, columns } = fitting.find((row) => row.threads <= backend.limits.threads)!;
  const loads = k / DEPTHS[reads];
  let threads = most;
  while (threads > MIN_THREADS && threads / 2 >= loads) threads /= 2; // the others would have nothing to read
  return { rows, threads, columns };
}

/** Rows of the result that a tile has. */
export function tileRows({ threads, side, rowQuads }: TileShape): number {
  return threads / side * rowQuads * 4;
}

/** Columns of the result that a tile has. */
export function tileColumns({ side, columnQuads }: TileShape): number {
  return side * columnQuads * 4;
}

/** Specialisation constants of a tiling. */
export function tileSpec({ shape, splits }: Tiling): Readonly<Record<string, number>> {
  const { side, rowQuads, columnQuads, depth, unroll } = shape;
  return { SIDE: side, ROW_QUADS: rowQuads, COLUMN_QUADS: columnQuads, DEPTH: depth, UNROLL: unroll, SPLITS: splits };
}

function tilesOf(shape: TileShape, batch: number, m: number, n: number): number {
  return batch * Math.ceil(m / tileRows(shape)) * Math.ceil(n / tileColumns(shape));
}

/** Cuts `batch` products of m rows and n columns into tiles of one shape, whose depth `splits` workgroups share. */
export function cut(shape: TileShape, batch: number, m: number, n: number, splits: number): Tiling {
  return { shape, splits, workgroups: splits * tilesOf(shape, batch, m, n) };
}

/** How a device should cut `batch` products (m, k) x (k, n). The depth is split only where `splittable`. */
export function tiling(backend: Backend, batch: number, m: number, n: number, k: number, splittable: boolean): Tiling {
  const shape = TILES.find(({ upTo, threads }) => m <= upTo && threads <= backend.limits.threads) ?? TILES.at(-1)!;
  if (!splittable || !backend.has("sum_splits")) return cut(shape, batch, m, n, 1);
  const wanted = Math.round(tuningOf(backend).tiles.targetWorkgroups / tilesOf(shape, batch, m, n));
  return cut(shape, batch, m, n, Math.max(1, Math.min(MAX_SPLITS, Math.floor(k / MIN_DEPTH), wanted)));
}

/**
 * Emits a product into `out`; where several workgroups share its depth, into float32 parts (splits, …) that are added up then. `powers`, where
 * there are parts, are what each row is multiplied by.
 */
export function addSplits(
  l: Lowering,
  splits: number,
  out: Value,
  emit: (target: Value) => void,
  powers?: Value,
): void {
  if (splits === 1) return emit(out);
  const count = sizeOf(out.shape);
  const parts = l.temporary([splits, count], float32);
  emit(parts);
  l.emit("sum_splits", [parts, out, powers], {
    spec: { SPLITS: splits, DTYPE_OUT: out.dtype.code },
    push: { count, columns: out.shape[out.shape.length - 1] },
    workgroups: l.groups(Math.ceil(count / 4)),
  });
}

/** Rows of a prompt that cost a device as much as one. */
export function minTile(backend: Backend): number {
  return backend.limits.subgroup === 1 ? 1 : 8;
}
