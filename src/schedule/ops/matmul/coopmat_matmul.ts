/**
 * Products of many rows with quantized weights on cooperative matrices: which kernel serves, the weights in its order, dispatches.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { type Dtype, float16, uint32 } from "../../../graph/dtype.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import type { CodeFormat } from "../../../graph/quantization.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";
import { FLOATS, matrixMap, runsOn } from "./coopmat.ts";
import { halfRows } from "./half_rows.ts";
import { addSplits } from "./matmul_tiles.ts";
import { options } from "../../plan/options.ts";
import { firstReason } from "../../plan/requirements.ts";
import { prepare } from "../../plan/weight_layouts.ts";
import { tuningOf } from "../../tuning/choose.ts";
import { estimateUs } from "../../tuning/cost.ts";

/** Columns that a workgroup of coopmat_matmul makes, and its threads unless its row says otherwise. Weights are padded to so many columns. */
const PRODUCT_COLUMNS = 128;
const PRODUCT_THREADS = 128;
/** Columns of a matrix. */
const BLOCK = 16;
/** Depth of one step of coopmat_matmul. */
const STEP = 64;
/** Workgroups that share the depth of a tile, at most, and steps that each of them has at least. */
const MAX_SPLITS = 8;
const MIN_STEPS = 4;

/** The results of a product: parts that are still to be added where its depth is split, gated columns, or finished heads. */
export type ProductKind = "parts" | "gated" | "heads";

/** A kernel, what a workgroup makes, and its threads. It serves up to `upTo` rows, any number where absent. */
interface ProductRow {
  readonly upTo?: number;
  readonly rows: number;
  readonly columns?: number;
  readonly threads?: number;
  readonly kernel: KernelName;
}

type ProductTable = Readonly<Record<ProductKind, Readonly<Record<number, readonly ProductRow[]>>>>;

/**
 * Kernels by bits of the weights: the first one whose `upTo` is not passed. Among those with a cost in the device's record, the fastest.
 */
export const PRODUCTS: ProductTable = {
  parts: {
    4: [
      { upTo: 16, rows: 16, threads: 256, kernel: "coopmat_matmul_16" },
      { rows: 32, kernel: "coopmat_matmul_32" },
      { rows: 64, threads: 256, kernel: "coopmat_matmul_64" },
      { rows: 64, columns: 256, kernel: "coopmat_matmul_64x256" },
    ],
    8: [
      { upTo: 16, rows: 16, threads: 256, kernel: "coopmat_matmul_16_8bit" },
      { rows: 32, kernel: "coopmat_matmul_32_8bit" },
      { rows: 64, kernel: "coopmat_matmul_64_8bit" },
    ],
  },
  gated: {
    4: [
      { upTo: 16, rows: 16, threads: 256, kernel: "coopmat_gated_16" },
      { rows: 32, threads: 256, kernel: "coopmat_gated_32" },
      { rows: 64, kernel: "coopmat_gated_64" },
      {
        rows: 64,
        columns: 192,
        threads: 384,
        kernel: "coopmat_gated_64x192",
      },
      { rows: 64, columns: 256, kernel: "coopmat_gated_64x256" },
    ],
    8: [
      { upTo: 16, rows: 16, threads: 256, kernel: "coopmat_gated_16_8bit" },
      { rows: 32, threads: 256, kernel: "coopmat_gated_32_8bit" },
      { rows: 64, kernel: "coopmat_gated_64_8bit" },
      {
        rows: 64,
        columns: 192,
        threads: 384,
        kernel: "coopmat_gated_64x192_8bit",
      },
    ],
  },
  heads: {
    4: [
      { rows: 16, threads: 256, kernel: "coopmat_qkv_16" },
      { rows: 32, threads: 256, kernel: "coopmat_qkv_32" },
      { rows: 64, kernel: "coopmat_qkv_64" },
    ],
    8: [
      { rows: 16, threads: 256, kernel: "coopmat_qkv_16_8bit" },
      { rows: 32, threads: 256, kernel: "coopmat_qkv_32_8bit" },
      { rows: 64, kernel: "coopmat_qkv_64_8bit" },
    ],
  },
};

/** Those without matrix units. */
export const EMULATED_PRODUCTS: ProductTable = {
  parts: {
    4: [{ rows: 32, kernel: "coopmat_matmul_emulated" }],
    8: [{ rows: 32, kernel: "coopmat_matmul_emulated_8bit" }],
  },
  gated: {
    4: [{ rows: 32, threads: 256, kernel: "coopmat_gated_emulated" }],
    8: [{ rows: 32, threads: 256, kernel: "coopmat_gated_emulated_8bit" }],
  },
  heads: {
    4: [{ rows: 16, threads: 256, kernel: "coopmat_qkv_emulated" }],
    8: [{ rows: 16, threads: 256, kernel: "coopmat_qkv_emulated_8bit" }],
  },
};

function productTable(): ProductTable {
  return options.matrices === "emulated" ? EMULATED_PRODUCTS : PRODUCTS;
}

/** The kernels of a kind of product that run on a device. */
function rowsOn(backend: Backend, kind: ProductKind, bits: number): readonly ProductRow[] {
  return (productTable()[kind][bits] ?? []).filter(({ kernel, threads = PRODUCT_THREADS }) =>
    runsOn(backend, { kernel, threads })
  );
}

/** Why no kernels multiply such weights as a layer needs it on this device; undefined where they do. */
export function productsUnsupportedReason(backend: Backend, { bits, groupSize }: CodeFormat): string | undefined {
  const kinds = Object.keys(productTable()) as ProductKind[];
  const isServed = (kind: ProductKind): boolean => rowsOn(backend, kind, bits).some(({ upTo }) => upTo === undefined);
  const { maxThreads } = backend.limits;
  return firstReason([
    [matrixMap(backend).weights !== undefined, `${backend.name} has no matrices`],
    [kinds.every(isServed), `there are no kernels for ${bits} bits and workgroups of ${maxThreads} threads`],
    [[16, 32, 64, 128].includes(groupSize), `groups have ${groupSize} weights, not 16, 32, 64 or 128`],
  ]);
}

/** A quantized matrix with a scale for each of its groups, and a bias unless its codes are symmetric. */
export interface JointPart {
  readonly codes: Value;
  readonly scales: Value;
  readonly biases: Value | undefined;
  readonly groupSize: number;
}

/**
 * Quantized matrices over the same x as one: their columns beside each other, or alternating columns of two if they are `gated`. They have
 * codes of the same width, and each fragment a scale and a bias for `groupSize`, the smallest of their groups.
 */
export interface JointMatrix extends CodeFormat {
  readonly parts: readonly JointPart[];
  /** Columns of each, multiples of 16 but for the last one; of 64 where `gated`. */
  readonly columns: readonly number[];
  /** Depth. */
  readonly k: number;
  readonly gated: boolean;
}

/** Codes and scales and biases of a matrix in fragment order; undefined if there is no room for them. `map` says which order. */
export function fragments(
  l: Lowering,
  m: JointMatrix,
  map: Uint32Array | undefined = matrixMap(l.backend).weights,
): readonly Value[] | undefined {
  if (!map) return undefined;
  const { parts, columns, k, gated, bits, groupSize } = m;
  const steps = Math.ceil(k / STEP);
  const blocks = Math.ceil(sum(columns) / PRODUCT_COLUMNS) * PRODUCT_COLUMNS / 16;
  const sources = parts.map(({ codes, scales, biases }) => [codes, scales, ...(biases ? [biases] : [])]);
  const firsts = sources.map((_, i) => sum(sources.slice(0, i).map((s) => s.length)));
  return prepare(l, sources.flat(), {
    key: `fragments ${columns} ${k} ${bits} ${groupSize} ${gated}`,
    results: [
      { shape: [blocks * 16 * steps * STEP * bits / 32], dtype: uint32 },
      { shape: [blocks * steps * STEP / groupSize * BLOCK], dtype: uint32 },
    ],
    emit(own, found, results, upload) {
      const order = upload(map, uint32);
      columns.forEach((n, i) => {
        const [codes, scales, biases] = found.slice(firsts[i], firsts[i] + sources[i].length);
        const first = gated ? i : sum(columns.slice(0, i)) / 16;
        const count = gated || i < columns.length - 1 ? n / 16 : blocks - first; // the last one has the padding
        own.emit("coopmat_repack", [codes, scales, biases, order, ...results], {
          spec: { BITS: bits, GROUP: groupSize, DTYPE_SCALES: scales.dtype.code, SOURCE_GROUP: parts[i].groupSize },
          push: { n, k, blocks: count, first, step: gated ? 2 : 1 },
          workgroups: own.groups(count * 16 * steps * STEP / 8),
          disjoint: i > 0,
        });
      });
    },
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** How many workgroups share the depth of a product of `workgroups` tiles, where `target` are wanted. */
function splitsOf(target: number, workgroups: number, steps: number): number {
  return Math.max(1, Math.min(MAX_SPLITS, Math.floor(target / workgroups), Math.floor(steps / MIN_STEPS)));
}

/** How a product is dispatched. */
export interface ProductKernel {
  readonly kernel: KernelName;
  /** Workgroups that share the depth of a tile. */
  readonly splits: number;
  readonly threads: number;
  /** Tiles of rows, of columns, and splits. */
  readonly workgroups: readonly [number, number, number];
}

/** The kernel for m rows times weights (n, k) on a device; undefined if there is none. */
export function productKernel(
  backend: Backend,
  kind: ProductKind,
  bits: number,
  m: number,
  n: number,
  k: number,
): ProductKernel | undefined {
  const steps = Math.ceil(k / STEP);
  const { computeUnits, quantizedProducts: { costs, targetWorkgroups, partsBytesPerUs } } = tuningOf(backend);
  let best: ProductKernel | undefined;
  let least = Infinity;
  const rows = rowsOn(backend, kind, bits).filter(({ upTo = Infinity }) => m <= upTo);
  for (const { rows: height, columns = PRODUCT_COLUMNS, threads = PRODUCT_THREADS, kernel } of rows) {
    const [down, wide] = [Math.ceil(m / height), Math.ceil(n / columns)];
    const usual = kind === "parts" ? splitsOf(targetWorkgroups, down * wide, steps) : 1;
    const cost = costs[kernel];
    if (!cost) return { kernel, splits: usual, threads, workgroups: [down, wide, usual] };
    const most = kind === "parts" ? Math.max(1, Math.min(MAX_SPLITS, Math.floor(steps / MIN_STEPS))) : 1;
    for (let splits = 1; splits <= most; splits++) {
      const time = estimateUs(cost, computeUnits, down * wide, steps, splits) +
        4 * m * n * (splits - 1) / partsBytesPerUs;
      if (time > 0.99 * least) continue; // the estimate is not finer; fewer parts and smaller tiles come first
      [best, least] = [{ kernel, splits, threads, workgroups: [down, wide, splits] }, time];
    }
  }
  return best;
}

/** Whether a product of m rows with weights (n, k) pays for repacking them. */
export function isWorthMatrices(backend: Backend, m: number, n: number, k: number): boolean {
  return m * n * k >= tuningOf(backend).quantizedProducts.minMultiplications;
}

/** A matrix in fragment order. */
export interface Fragments {
  readonly matrix: JointMatrix;
  readonly packed: readonly Value[];
}

/** Inputs of a kernel besides the operands of every product. */
interface ProductExtras {
  readonly buffers?: readonly (Value | undefined)[];
  readonly spec?: Readonly<Record<string, number>>;
  readonly push: Readonly<Record<string, number>>;
}

/** Emits x (m, k) times a matrix. */
function emitProduct(
  l: Lowering,
  { kernel, threads, workgroups }: ProductKernel,
  x: Value,
  { matrix, packed }: Fragments,
  m: number,
  out: Value,
  extras: ProductExtras = { push: { scale: 1 } },
): void {
  const { columns, k, groupSize } = matrix;
  const { half, powers } = halfRows(l, x, m, k);
  l.emit(kernel, [half, powers, ...packed, out, ...extras.buffers ?? []], {
    spec: {
      N: sum(columns),
      K: k,
      GROUP: groupSize,
      SCALED: powers ? 1 : 0,
      DTYPE_OUT: out.dtype.code,
      ...extras.spec,
    },
    threads,
    push: { m, ...extras.push },
    workgroups,
  });
}

/** x (m, k) times q, k and v as one, through the rest of coopmat_qkv: (m, n) in float16. */
export function headsProduct(l: Lowering, x: Value, w: Fragments, m: number, extras: ProductExtras): Value {
  const n = sum(w.matrix.columns);
  const out = l.temporary([m, n], float16);
  emitProduct(l, productKernel(l.backend, "heads", w.matrix.bits, m, n, w.matrix.k)!, x, w, m, out, extras);
  return out;
}

/**
 * activation(x . gate) * (x . up) * scale of the two matrices that a gated one holds: (m, n) in float16, within its range.
 * `activation` is a code of shaders/include/activation.glsl.
 */
export function gatedProduct(
  l: Lowering,
  x: Value,
  w: Fragments,
  m: number,
  { activation, scale }: { readonly activation: number; readonly scale: number },
): Value {
  const { columns: [n], bits, k } = w.matrix;
  const out = l.temporary([m, n], float16);
  const extras = { spec: { ACTIVATION: activation }, push: { scale } };
  emitProduct(l, productKernel(l.backend, "gated", bits, m, 2 * n, k)!, x, w, m, out, extras);
  return out;
}

/** x (m, k) times a matrix as parts (splits, m, n) that add up to the product; float16 halves their bytes. */
export function productParts(l: Lowering, x: Value, w: Fragments, m: number, dtype: Dtype = float16): Value {
  const n = sum(w.matrix.columns);
  const choice = productKernel(l.backend, "parts", w.matrix.bits, m, n, w.matrix.k)!;
  const parts = l.temporary([choice.splits, m, n], dtype);
  emitProduct(l, choice, x, w, m, parts);
  return parts;
}

/** x (m, k) times a matrix: (m, n) in a dtype. */
export function jointProduct(l: Lowering, x: Value, w: Fragments, m: number, dtype: Dtype): Value {
  const n = sum(w.matrix.columns);
  const choice = productKernel(l.backend, "parts", w.matrix.bits, m, n, w.matrix.k)!;
  const out = l.temporary([m, n], dtype);
  addSplits(l, choice.splits, out, (target) => emitProduct(l, choice, x, w, m, target));
  return out;
}

/** x (…, k) times the transpose of quantized weights (n, k) on matrices; undefined if they do not serve. */
export function matrixProduct(l: Lowering, node: Node, x: Value, weights: readonly Value[]): Value | undefined {
  const { bits, groupSize } = attrsOf(node, "quantizedMatmul");
  const n = node.shape[node.shape.length - 1];
  const k = x.shape[x.shape.length - 1];
  const m = sizeOf(node.shape) / n;
  const choice = isWorthMatrices(l.backend, m, n, k) ? productKernel(l.backend, "parts", bits, m, n, k) : undefined;
  if (!choice || !FLOATS.has(x.dtype) || !FLOATS.has(node.dtype)) return undefined;
  const [codes, scales, biases] = weights;
  const part: JointPart = { codes, scales, biases, groupSize };
  const matrix: JointMatrix = { parts: [part], columns: [n], k, gated: false, bits, groupSize };
  const packed = fragments(l, matrix);
  if (!packed) return undefined;
  const out = l.temporary(node.shape, node.dtype);
  addSplits(l, choice.splits, out, (target) => emitProduct(l, choice, x, { matrix, packed }, m, target));
  return out;
}
