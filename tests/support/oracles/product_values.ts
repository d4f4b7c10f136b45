/**
 * The common part of the product kernels' tests: dtypes with their bounds, random operands, one dispatch and its comparison.
 */

import { assert } from "@std/assert";
import type { Backend } from "../../../src/backend/backend.ts";
import type { KernelName } from "../../../src/backend/kernels.ts";
import { cut, TILES, type TileShape, tileSpec } from "../../../src/schedule/ops/matmul/matmul_tiles.ts";
import {
  bfloat16,
  bool,
  type Dtype,
  float16,
  float32,
  type HostArray,
  int32,
  uint8,
} from "../../../src/graph/dtype.ts";
import { type KernelRun, runKernel } from "../devices/harness.ts";
import { pack, unpack } from "./kernel_values.ts";
import { generator, nmse } from "./oracle.ts";

/** A dtype with what tests do with it. */
export interface Type {
  readonly name: string;
  readonly code: number;
  /** Bound of products whose result has this dtype. */
  readonly bound: number;
  pack(values: ArrayLike<number>): HostArray;
  values(words: HostArray): Float64Array;
}

const type = (dtype: Dtype, bound: number): Type => ({
  name: dtype.name,
  code: dtype.code,
  bound,
  pack: (values) => pack(dtype, values),
  values: (words) => Float64Array.from(unpack(dtype, words)),
});

export const U8: Type = type(uint8, 0);
export const I32: Type = type(int32, 0);
export const F16: Type = type(float16, 5e-4);
export const BF16: Type = type(bfloat16, 5e-4);
export const F32: Type = type(float32, 1e-7);
/** Code of bool. */
export const BOOL: number = bool.code;

/** The values as the dtype holds them. */
export function rounded(type: Type, values: ArrayLike<number>): Float64Array {
  return type.values(type.pack(values));
}

/** Random numbers in [0, 1), the same in every run. */
export const next: () => number = generator(7);
/** Random numbers in (-scale, scale). */
export const random = (n: number, scale = 1): Float64Array =>
  Float64Array.from({ length: n }, () => (next() * 2 - 1) * scale);

/** Sizes of workgroups. */
export const THREADS = [64, 256] as const;

/** Parts of products of few rows that workgroups make; all rows at once, or fewer. */
export const VECTOR_HOWS: readonly How[] = [
  { threads: 64, columns: 4 },
  { threads: 128, columns: 4, rows: 3 },
  { threads: 32, columns: 8, rows: 8 },
];

/** A grid of `groups` workgroups, folded into (x, y) as lowering does; the odd width leaves workgroups over. */
export function folded(groups: number): [number, number, number] {
  const x = Math.max(1, Math.min(groups, 7));
  return [x, Math.max(1, Math.ceil(groups / x)), 1];
}

/** How a product kernel is dispatched: tiled ones take a shape, and may split the depth; others take rows and columns. */
export interface How extends Partial<TileShape> {
  readonly threads: number;
  readonly splits?: number;
  readonly rows?: number;
  readonly columns?: number;
}

/** Specialisation constants and workgroups of a product of few rows. */
export function vector(
  { threads, rows = 1, columns = 4 }: How,
  batch: number,
  n: number,
): { readonly spec: Readonly<Record<string, number>>; readonly workgroups: number; readonly splits: number } {
  const workgroups = batch * Math.ceil(n / columns);
  return { spec: { THREADS: threads, ROWS: rows, COLUMNS: columns }, workgroups, splits: 1 };
}

/** The tile that CPU drivers compile fastest: most tests use it. */
export const SMALL_TILE: How = TILES.at(-1)!;

/** All tiles that lowering takes, and one whose depth is split where the device has what adds the parts up. */
export function tileHows(backend: Backend): How[] {
  const shapes = [...new Map(TILES.map((shape) => [JSON.stringify({ ...shape, upTo: 0 }), shape])).values()];
  return backend.has("sum_splits") ? [...shapes, { ...SMALL_TILE, splits: 3 }] : shapes;
}

/** Specialisation constants and workgroups of a tiled product. */
export function tiled(
  { threads, side = 8, rowQuads = 1, columnQuads = 1, depth = 16, unroll = 4, splits = 1 }: How,
  batch: number,
  m: number,
  n: number,
): { readonly spec: Readonly<Record<string, number>>; readonly workgroups: number; readonly splits: number } {
  const tiling = cut({ threads, side, rowQuads, columnQuads, depth, unroll }, batch, m, n, splits);
  return { spec: { THREADS: threads, ...tileSpec(tiling) }, workgroups: tiling.workgroups, splits };
}

/** Runs with an output of `splits` times the expected values, which are added up, of `type` and compares. */
export function check(
  backend: Backend,
  kernel: KernelName,
  run: KernelRun,
  type: Type,
  expected: Float64Array,
  what: string,
  bound = type.bound,
  splits = 1,
): void {
  const out = type.pack(new Float64Array(splits * expected.length).fill(-1));
  runKernel(backend, kernel, { ...run, buffers: { ...run.buffers, out } });
  const parts = type.values(out);
  const sums = expected.map((_, i) => {
    let sum = 0;
    for (let split = 0; split < splits; split++) sum += parts[split * expected.length + i];
    return sum;
  });
  const error = nmse(sums, expected);
  assert(error <= bound, `${kernel} ${what} on ${backend.name}: NMSE ${error.toExponential(2)} > ${bound}`);
}
