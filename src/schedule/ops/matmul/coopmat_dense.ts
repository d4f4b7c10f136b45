/**
 * Dense products and convolutions of float16 and of bfloat16 on cooperative matrices: which kernel serves, operands as it reads them, dispatches.
 *
 * A float32 matrix times one of 16 bits, such as activations times weights, goes there too. Its numbers are split into terms of 16 bits,
 * which are rows of the product, and the results are added. That keeps the digits of float32 at a half or a third of the units' rate.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../../graph/dtype.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { Dispatch } from "../../plan/builder.ts";
import type { Lowering } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";
import { hasMatrixTiles, matrixMap, runsOn } from "./coopmat.ts";
import { halfTerms, termsOf } from "./half_rows.ts";
import { addSplits } from "./matmul_tiles.ts";
import { tuningOf } from "../../tuning/choose.ts";

/** The kernels by the dtype that both operands have; results are of that or float32. */
const MATRIX_KERNELS = new Map<Dtype, Readonly<Record<"product" | "conv", KernelName>>>([
  [float16, { product: "coopmat_dense", conv: "coopmat_conv" }],
  [bfloat16, { product: "coopmat_dense_bf16", conv: "coopmat_conv_bf16" }],
]);

/** Whether a device multiplies matrices of a dtype on matrix units. */
export function hasMatrixKernels(backend: Backend, dtype: Dtype): boolean {
  const kernels = MATRIX_KERNELS.get(dtype);
  return kernels !== undefined && backend.has(kernels.product) && hasMatrixTiles(backend);
}

/** Numbers that the kernels load at once: 16 bytes. */
const RUN = 8;
/** Bytes of what terms give, at most: it lies in memory until it is added up. */
const MAX_TERM_BYTES = 1 << 30;
/** Parts of the depth that workgroups share, at most, and how deep each is at least. */
const MAX_SPLITS = 32;
const MIN_DEPTH = 256;

/** The tile of a workgroup, in steps of `depth`, and its threads, as in shaders/coopmat/dense.comp. */
const TILE = { rows: 128, columns: 128, depth: 32, threads: 128 } as const;

function tilesOf(batch: number, m: number, n: number): number {
  return batch * Math.ceil(m / TILE.rows) * Math.ceil(n / TILE.columns);
}

/**
 * How many workgroups share the depth of each tile: as is estimated to be over first. Weight gradients are small and deep: if they are not
 * cut, their tiles leave most of a device idle. Each part costs the time to write and add it.
 */
function depthSplits(backend: Backend, batch: number, m: number, n: number, k: number): number {
  const { computeUnits, denseProducts } = tuningOf(backend);
  const { residentWorkgroups, usPerDepth, usPerPartNumber, usOfAdding } = denseProducts;
  const tiles = tilesOf(batch, m, n);
  const time = (splits: number): number => {
    const waves = Math.ceil(tiles * splits / (computeUnits * residentWorkgroups));
    const adding = splits > 1 ? splits * batch * m * n * usPerPartNumber + usOfAdding : 0;
    return waves * k / splits * usPerDepth + adding;
  };
  const most = Math.min(MAX_SPLITS, Math.max(1, Math.floor(k / MIN_DEPTH)));
  return Array.from({ length: most }, (_, i) => i + 1).reduce((best, s) => time(s) < time(best) ? s : best);
}

/** Whether a device has the kernel for products of a dtype on matrix units. */
export function hasMatrices(backend: Backend, dtype: Dtype): boolean {
  const kernels = MATRIX_KERNELS.get(dtype);
  return kernels !== undefined && backend.has(kernels.product);
}

/** Whether a kernel serves `batch` products (m, k) x (k, n), given the dtypes of both operands and of the result. */
export function suitsMatrices(
  backend: Backend,
  op: "product" | "conv",
  [a, b, out]: readonly Dtype[],
  { batch, m, n, k }: Readonly<Record<"batch" | "m" | "n" | "k", number>>,
): boolean {
  const kernel = MATRIX_KERNELS.get(a)?.[op];
  if (!kernel || a !== b || (out !== a && out !== float32)) return false;
  if (batch * m * n * k < tuningOf(backend).denseProducts.minMultiplications) return false;
  return runsOn(backend, { kernel, threads: TILE.threads }) && matrixMap(backend).plain;
}

/** Whether a kernel serves one product (m, k) x (k, n) of a float32 matrix and one of 16 bits. */
export function suitsTerms(
  backend: Backend,
  [a, b, out]: readonly Dtype[],
  sizes: Readonly<Record<"batch" | "m" | "n" | "k", number>>,
): boolean {
  const terms = termsOf(b);
  if (a !== float32 || terms === undefined || sizes.batch > 1 || sizes.k % RUN !== 0) return false;
  if (terms * sizes.m * sizes.n * float32.bytes > MAX_TERM_BYTES) return false;
  return backend.has("half_rows") && backend.has("sum_splits") && suitsMatrices(backend, "product", [b, b, out], sizes);
}

/** Whether neighbours of a matrix lie along its last axis, else along the one before. */
function alongLast({ strides, shape }: Value): boolean {
  const last = strides.length - 1;
  return strides[last] === 1 && (shape[last] > 1 || strides[last - 1] !== 1);
}

/** Whether matrices of an operand can be read in runs: neighbours along one axis, all else a multiple of a run apart. */
function inRuns(v: Value): boolean {
  const { offset, strides, shape } = v;
  const along = strides.length - (alongLast(v) ? 1 : 2);
  if (strides[along] !== 1 || shape[along] === 1) return false;
  return [offset, ...strides.filter((_, d) => d !== along && shape[d] > 1)].every((n) => n >= 0 && n % RUN === 0);
}

/** An operand in runs: itself, or a copy whose rows are filled up. */
export function denseOperand(l: Lowering, v: Value): Value {
  if (inRuns(v)) return v;
  const columns = v.shape[v.shape.length - 1];
  const lead = v.shape.slice(0, -1);
  const to = { ...l.temporary([...lead, Math.ceil(columns / RUN) * RUN], v.dtype), shape: v.shape };
  l.copy(l.plain(v), to);
  return to;
}

/** The push constants of the kernel `matmul`. */
type ProductPush = Dispatch["push"] & Readonly<Record<"batch" | "m" | "n" | "k", number>>;

/** Emits products over operands in runs. */
export function emitDense(l: Lowering, operands: readonly Value[], out: Value, push: ProductPush): void {
  emitParts(l, operands, out, push, { terms: 1 });
}

/** Emits a product of float32 `x`, `push.m` rows in any layout, and a matrix of 16 bits in runs. */
export function emitTerms(l: Lowering, [x, b]: readonly Value[], out: Value, push: ProductPush): void {
  const { m, k } = push;
  const { half, powers } = halfTerms(l, x, m, k, b.dtype);
  emitParts(l, [half, b], out, { ...push, a_strides: [k, 1] }, { terms: termsOf(b.dtype)!, powers });
}

/** The rows of `a` are those of each term, one term after the other. */
function emitParts(
  l: Lowering,
  [a, b]: readonly Value[],
  out: Value,
  push: ProductPush,
  { terms, powers }: { readonly terms: number; readonly powers?: Value },
): void {
  const { batch, n, k } = push;
  const m = terms * push.m;
  const tiles = tilesOf(batch, m, n);
  const splits = l.backend.has("sum_splits") ? depthSplits(l.backend, batch, m, n, k) : 1;
  const emit = (target: Value): void =>
    l.emit(MATRIX_KERNELS.get(a.dtype)!.product, [a, b, target], {
      threads: TILE.threads,
      spec: {
        DTYPE_OUT: target.dtype.code,
        A_ALONG_K: alongLast(a) ? 1 : 0,
        B_ALONG_K: alongLast(b) ? 0 : 1,
        K_EDGE: k % TILE.depth === 0 ? 0 : 1,
        SPLITS: splits,
      },
      push: { ...push, m },
      workgroups: splits * tiles,
    });
  addSplits(l, splits * terms, out, emit, powers);
}

/** A convolution as a product. */
export interface ConvProduct {
  readonly groups: number;
  /** Images times positions. */
  readonly rows: number;
  /** Of a group. */
  readonly filters: number;
  readonly channels: number;
  readonly taps: number;
}

/** Emits a convolution over contiguous operands; false if no kernel serves. `push` is that of the kernel `conv`. */
export function emitDenseConv(
  l: Lowering,
  { groups, rows, filters, channels, taps }: ConvProduct,
  [x, w]: readonly Value[],
  out: Value,
  push: Dispatch["push"],
): boolean {
  const sizes = { batch: groups, m: rows, n: filters, k: taps * channels };
  const suits = suitsMatrices(l.backend, "conv", [x, w, out].map(({ dtype }) => dtype), sizes);
  const fits = [x, w, out].every(({ shape }) => sizeOf(shape) < 2 ** 31);
  if (!suits || !fits || channels % TILE.depth !== 0) return false;
  l.emit(MATRIX_KERNELS.get(x.dtype)!.conv, [l.contiguous(x, true), l.contiguous(w, true), out], {
    threads: TILE.threads,
    spec: { DTYPE_OUT: out.dtype.code, A_ALONG_K: 1, B_ALONG_K: 1, K_EDGE: 0, SPLITS: 1 },
    push,
    workgroups: tilesOf(groups, rows, filters),
  });
  return true;
}
