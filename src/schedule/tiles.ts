/**
 * How products without matrix units are cut: the tiles of `matmul` and `quantized_matmul` (shaders/tile.glsl) and how many
 * workgroups share the depth of one; for few rows, the columns that a workgroup of `matvec` and `quantized_matvec` makes
 * (shaders/few_rows.glsl). All of it stands in two tables.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";

/** A tile: 4 * rowQuads x 4 * columnQuads outputs a thread, `side` threads along a row. */
export interface TileShape {
  readonly threads: number;
  readonly side: number;
  readonly rowQuads: number;
  readonly columnQuads: number;
}

/** How a product is cut. */
export interface Tiling {
  readonly shape: TileShape;
  /** Workgroups that share the depth of a tile. */
  readonly splits: number;
  readonly workgroups: number;
}

/** Depth of one step; a split has whole steps. */
const STEP = 16;
/** Fewer workgroups than SPLIT_BELOW are split along the depth, until there are SPLIT_TO or MOST_SPLITS or LEAST_STEPS is reached. */
const SPLIT_BELOW = 128;
const SPLIT_TO = 256;
const MOST_SPLITS = 8;
const LEAST_STEPS = 8;

/** The first row whose threads a device offers and whose `upTo` rows of the product are not passed. */
export const TILES: readonly (TileShape & { readonly upTo: number })[] = [
  { upTo: 32, threads: 128, side: 16, rowQuads: 1, columnQuads: 2 },
  { upTo: 128, threads: 256, side: 16, rowQuads: 1, columnQuads: 2 },
  { upTo: Infinity, threads: 256, side: 16, rowQuads: 2, columnQuads: 2 },
  { upTo: Infinity, threads: 64, side: 8, rowQuads: 1, columnQuads: 1 },
];

/** A workgroup's part of a product of few rows. */
export interface VectorShape {
  readonly threads: number;
  readonly columns: number;
}

/** By rows that share one reading of the weights: the first one whose `upTo` is not passed and whose threads a device offers. */
export const VECTORS: readonly (VectorShape & { readonly upTo: number })[] = [
  { upTo: 8, threads: 128, columns: 4 },
  { upTo: 8, threads: 64, columns: 4 },
];

/** Rows up to which a product takes the kernels for few rows, eight at a time. */
export const FEW_ROWS = 8;
const ROWS_AT_ONCE = 8;

/** How few rows are cut: rows that share one reading of the weights, threads and columns of a workgroup. */
export function vectorShape(backend: Backend, m: number): VectorShape & { readonly rows: number } {
  const rows = Math.max(1, Math.ceil(m / Math.ceil(m / ROWS_AT_ONCE)));
  const row = VECTORS.find(({ upTo, threads }) => rows <= upTo && threads <= backend.limits.threads) ?? VECTORS.at(-1)!;
  return { rows, threads: row.threads, columns: row.columns };
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
export function tileSpec({ shape, splits }: Tiling): Record<"SIDE" | "ROW_QUADS" | "COLUMN_QUADS" | "SPLITS", number> {
  return { SIDE: shape.side, ROW_QUADS: shape.rowQuads, COLUMN_QUADS: shape.columnQuads, SPLITS: splits };
}

/** Cuts `batch` products (m, k) x (k, n) into tiles of one shape; `splits` as is best unless given. */
export function cut(shape: TileShape, batch: number, m: number, n: number, k: number, splits?: number): Tiling {
  const tiles = batch * Math.ceil(m / tileRows(shape)) * Math.ceil(n / tileColumns(shape));
  const steps = Math.floor(Math.ceil(k / STEP) / LEAST_STEPS);
  const parts = splits ??
    (tiles >= SPLIT_BELOW ? 1 : Math.max(1, Math.min(MOST_SPLITS, Math.ceil(SPLIT_TO / tiles), steps)));
  return { shape, splits: parts, workgroups: parts * tiles };
}

/** How a device should cut `batch` products (m, k) x (k, n). The depth is split only where `splittable`. */
export function tiling(backend: Backend, batch: number, m: number, n: number, k: number, splittable: boolean): Tiling {
  const shape = TILES.find(({ upTo, threads }) => m <= upTo && threads <= backend.limits.threads) ?? TILES.at(-1)!;
  return cut(shape, batch, m, n, k, splittable && backend.has("sum_splits") ? undefined : 1);
}
