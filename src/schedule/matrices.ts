/**
 * Products of many rows on cooperative matrices, where the device has them in the form that the kernels know. Attention on them
 * stands in matrix_attention.ts.
 *
 * The driver decides which elements of a matrix each lane holds. A kernel asks it once per device; weights are repacked into
 * that order when they are first multiplied by many rows ({@link prepare}). A device with an unknown order is told once on
 * stderr and served by the portable kernels, as are shapes that the tables here do not name.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { KernelName } from "../backend/kernels.ts";
import { bfloat16, float16, float32, uint32 } from "../graph/dtype.ts";
import { attrsOf, type Node, type Quantization } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";
import { Lowering, type Value } from "./lowering.ts";
import { prepare } from "./prepared.ts";

/** Threads of a workgroup of coopmat_matmul and the columns it makes. */
const PRODUCT_THREADS = 128;
const PRODUCT_COLUMNS = 128;
/** Depth of one step of coopmat_matmul. */
const STEP = 64;
/** Multiplications below which a product is not worth repacking its weights. */
const LEAST_WORK = 1 << 24;
/** Fewer workgroups than this are split along the depth, until there are SPLIT_TO or MOST_SPLITS or LEAST_STEPS is reached. */
const SPLIT_BELOW = 128;
const SPLIT_TO = 256;
const MOST_SPLITS = 4;
const LEAST_STEPS = 4;

/** Kernels by bits of the weights, and by rows: the first one whose `upTo` is not passed. `split`: for a split depth. */
export const PRODUCTS: Readonly<
  Record<number, readonly { upTo: number; rows: number; kernel: KernelName; split: KernelName }[]>
> = {
  4: [
    { upTo: 255, rows: 32, kernel: "coopmat_matmul_32", split: "coopmat_matmul_32" },
    { upTo: 1024, rows: 64, kernel: "coopmat_matmul_64", split: "coopmat_matmul_64_staged" },
    { upTo: Infinity, rows: 128, kernel: "coopmat_matmul_128", split: "coopmat_matmul_128" },
  ],
  8: [
    { upTo: 255, rows: 32, kernel: "coopmat_matmul_32_8bit", split: "coopmat_matmul_32_8bit" },
    { upTo: Infinity, rows: 64, kernel: "coopmat_matmul_64_8bit", split: "coopmat_matmul_64_8bit" },
  ],
};

/** What the kernels read and write. */
export const FLOATS: ReadonlySet<unknown> = new Set([float16, bfloat16, float32]);

// ---- the element map ------------------------------------------------------------------------------------------------

/** Lanes of the subgroups that share a matrix. */
export const LANES = 32;
const ELEMENTS = 8;
const MATRIX = LANES * ELEMENTS;

/** What the driver answered about 16x16 matrices: word lane * 8 + i is row * 16 + column of the lane's element i. */
export interface MatrixMap {
  /** Of B; undefined where coopmat_matmul does not know the form. */
  readonly weights: Uint32Array | undefined;
  /** Whether coopmat_attention knows the form. */
  readonly attention: boolean;
}

const NO_MATRICES: MatrixMap = { weights: undefined, attention: false };
const maps = new WeakMap<Backend, MatrixMap>();

/** The map of a device, asked for at the first call. */
export function matrixMap(backend: Backend): MatrixMap {
  let map = maps.get(backend);
  if (!map) maps.set(backend, map = backend.has("coopmat_map") ? askMap(backend) : NO_MATRICES);
  return map;
}

function askMap(backend: Backend): MatrixMap {
  const capacity = 4 + 3 * MATRIX;
  const l = new Lowering(backend, () => false, false);
  const out = l.temporary([capacity], uint32);
  l.emit("coopmat_map", [out], { spec: {}, threads: LANES, push: { capacity }, workgroups: 1 });
  const plan = backend.compile(l.builder.finish(1, (slot) => slot));
  const buffer = backend.alloc(4 * capacity);
  const words = new Uint32Array(capacity);
  try {
    backend.run(plan, [{ buffer, byteOffset: 0 }]);
    backend.read(buffer, 0, new Uint8Array(words.buffer));
  } finally {
    backend.release(plan);
    backend.free(buffer);
  }
  const map = readMap(words);
  const unknown = [...(map.weights ? [] : ["products"]), ...(map.attention ? [] : ["attention"])];
  if (unknown.length > 0) {
    console.error(
      `vkmx: ${backend.name} lays its matrices out in a way that is not known here: ${
        unknown.join(" and ")
      } do without them`,
    );
  }
  return map;
}

/** Checks what coopmat_map wrote against what the kernels rely on. */
export function readMap(words: Uint32Array): MatrixMap {
  const [lanes, ...counts] = words.subarray(0, 4);
  if (lanes !== LANES || counts.some((count) => count !== ELEMENTS)) return NO_MATRICES;
  const [a, b, sum] = [0, 1, 2].map((i) => words.slice(4 + i * MATRIX, 4 + (i + 1) * MATRIX));
  const row = (map: Uint32Array, lane: number, i: number): number => map[lane * ELEMENTS + i] >> 4;
  const column = (map: Uint32Array, lane: number, i: number): number => map[lane * ELEMENTS + i] & 15;
  const whole = (map: Uint32Array): boolean => new Set(map).size === MATRIX && map.every((word) => word < MATRIX);
  const all = (test: (lane: number, i: number) => boolean): boolean =>
    Array.from({ length: MATRIX }, (_, at) => test(at >> 3, at & 7)).every(Boolean);
  const columns = all((lane, i) => column(b, lane, i) === column(b, lane, i & 4));
  // Elements 0-3 in one row and 4-7 in another, the same columns in both, rows shared by four lanes.
  const rows = all((lane, i) => row(sum, lane, i) === row(sum, lane & ~3, i & 4));
  const alike = all((lane, i) => column(sum, lane, i) === column(sum, lane, i & 3));
  const same = all((lane, i) => a[lane * ELEMENTS + i] === sum[lane * ELEMENTS + i]);
  return { weights: whole(b) && columns ? b : undefined, attention: whole(sum) && rows && alike && same };
}

// ---- products -------------------------------------------------------------------------------------------------------

/** x in float16, and the powers of two that were taken out of it unless it was float16 before. */
interface HalfRows {
  readonly half: Value;
  readonly powers: Value | undefined;
}

/** One conversion serves all products of the same x. */
const halves = new WeakMap<Value, HalfRows>();

function halfRows(l: Lowering, x: Value, rows: number, cols: number): HalfRows {
  if (x.dtype === float16) return { half: l.contiguous(x, true), powers: undefined };
  let found = halves.get(x);
  if (!found) {
    const half = l.temporary([rows, cols], float16);
    const powers = l.temporary([Math.ceil(rows / 16)], float32);
    l.emit("half_rows", [l.contiguous(x, true), half, powers], {
      spec: { DTYPE_X: x.dtype.code },
      push: { rows, cols },
      workgroups: Math.ceil(rows / 16),
    });
    halves.set(x, found = { half, powers });
  }
  return found;
}

/** Codes and affine parameters of quantized weights (n, k) in fragment order. */
function fragments(
  l: Lowering,
  weights: readonly Value[],
  n: number,
  k: number,
  { bits, groupSize }: Quantization,
  map: Uint32Array,
): readonly Value[] | undefined {
  const steps = Math.ceil(k / STEP);
  const columns = Math.ceil(n / PRODUCT_COLUMNS) * PRODUCT_COLUMNS;
  return prepare(l, weights, {
    key: `fragments ${n} ${k} ${bits} ${groupSize}`,
    results: [
      { shape: [columns * steps * STEP * bits / 32], dtype: uint32 },
      { shape: [columns / 16 * steps * STEP / groupSize * LANES * 2], dtype: uint32 },
    ],
    emit(own, sources, results, upload) {
      own.emit("coopmat_repack", [...sources, upload(map, uint32), ...results], {
        spec: { BITS: bits, GROUP: groupSize, DTYPE_SCALES: sources[1].dtype.code },
        push: { n, k },
        workgroups: own.groups(columns * steps * STEP / 8),
      });
    },
  });
}

/** How many workgroups share the depth of a product of `workgroups` tiles. */
function splitsOf(workgroups: number, steps: number): number {
  if (workgroups >= SPLIT_BELOW) return 1;
  return Math.max(1, Math.min(MOST_SPLITS, Math.ceil(SPLIT_TO / workgroups), Math.floor(steps / LEAST_STEPS)));
}

/** How a product is dispatched. */
export interface ProductKernel {
  readonly kernel: KernelName;
  /** Workgroups that share the depth of a tile. */
  readonly splits: number;
  readonly workgroups: number;
}

/** What serves m rows times weights (n, k); undefined where no kernel does. */
export function productKernel(bits: number, m: number, n: number, k: number): ProductKernel | undefined {
  const row = PRODUCTS[bits]?.find(({ upTo }) => m <= upTo);
  if (!row || m * n * k < LEAST_WORK) return undefined;
  const tiles = Math.ceil(m / row.rows) * Math.ceil(n / PRODUCT_COLUMNS);
  const splits = splitsOf(tiles, Math.ceil(k / STEP));
  return { kernel: splits > 1 ? row.split : row.kernel, splits, workgroups: splits * tiles };
}

/** x (…, k) times the transpose of quantized weights (n, k) on matrices; undefined where they do not serve. */
export function matrixProduct(l: Lowering, node: Node, x: Value, weights: readonly Value[]): Value | undefined {
  const { bits, groupSize } = attrsOf(node, "quantizedMatmul");
  const n = node.shape[node.shape.length - 1];
  const k = x.shape[x.shape.length - 1];
  const m = sizeOf(node.shape) / n;
  const choice = productKernel(bits, m, n, k);
  if (!choice || !l.backend.has(choice.kernel) || !FLOATS.has(x.dtype) || !FLOATS.has(node.dtype)) return undefined;
  const map = matrixMap(l.backend).weights;
  if (!map) return undefined;
  const packed = fragments(l, weights, n, k, { bits, groupSize }, map);
  if (!packed) return undefined;

  const { half, powers } = halfRows(l, x, m, k);
  const { kernel, splits, workgroups } = choice;
  const out = l.temporary(node.shape, node.dtype);
  const parts = splits > 1 ? l.temporary([splits, m, n], float32) : out;
  l.emit(kernel, [half, powers, ...packed, parts], {
    spec: { N: n, K: k, GROUP: groupSize, SPLITS: splits, SCALED: powers ? 1 : 0, DTYPE_OUT: node.dtype.code },
    threads: PRODUCT_THREADS,
    push: { m },
    workgroups,
  });
  if (splits > 1) {
    l.emit("sum_splits", [parts, out], {
      spec: { SPLITS: splits, DTYPE_OUT: node.dtype.code },
      push: { count: m * n },
      workgroups: l.groups(Math.ceil(m * n / 4)),
    });
  }
  return out;
}
