/**
 * Cooperative matrices: in which form a device has them, and whether that is the form that the kernels know.
 *
 * The driver decides which elements of a matrix each lane holds. A kernel asks it once per device; weights are repacked into that order
 * when they are first multiplied by many rows (`coopmat_matmul.ts`). For a device with an unknown order stderr gets one line, and the
 * portable kernels serve it. They also serve shapes that the tables of products and attention do not name.
 *
 * @module
 */

import { warn } from "../../../backend/explain.ts";
import { type Backend, encodeSlots } from "../../../backend/backend.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { bfloat16, float16, float32, uint32 } from "../../../graph/dtype.ts";
import { Lowering } from "../../plan/context.ts";
import { options } from "../../plan/options.ts";

/** Element types of the kernels' operands. */
export const FLOATS: ReadonlySet<unknown> = new Set([float16, bfloat16, float32]);

/** Lanes of the subgroups that share a matrix. */
export const LANES = 32;
const ELEMENTS = 8;
const MATRIX = LANES * ELEMENTS;

/** The driver's map of 16x16 matrices: word lane * 8 + i is row * 16 + column of the lane's element i. */
export interface MatrixMap {
  /** Whether 32 lanes share a matrix: enough for kernels that leave the rest to the driver, as coopmat_dense does. */
  readonly plain: boolean;
  /** Of B; undefined if coopmat_matmul does not know the form. */
  readonly weights: Uint32Array | undefined;
  /** Whether coopmat_attention knows the form. */
  readonly attention: boolean;
  /**
   * Whether the batched kernels know this order, for 16 columns and for 8. Lane 4r + c holds rows r and r + 8, or columns of B, at 2c and
   * 2c + 8 and their neighbours.
   */
  readonly pairs: boolean;
}

/** The order of B that `pairs` names. */
export const PAIRS: Uint32Array = Uint32Array.from(
  { length: MATRIX },
  (_, at) => place(at >> 3, at & 7) * 16 + line(at >> 3, at & 7),
);

/** Whether a kernel exists on a device that allows workgroups of its threads. */
export function runsOn(backend: Backend, { kernel, threads }: { kernel: KernelName; threads: number }): boolean {
  return backend.has(kernel) && threads <= backend.limits.maxThreads;
}

const NO_MATRICES: MatrixMap = { plain: false, weights: undefined, attention: false, pairs: false };
/** The element maps without matrix units: only products of quantized weights are emulated. */
const EMULATED: MatrixMap = { ...NO_MATRICES, weights: PAIRS };
const maps = new WeakMap<Backend, MatrixMap>();

/** The map of a device, asked for at the first call. */
export function matrixMap(backend: Backend): MatrixMap {
  if (options.matrices === "emulated") return EMULATED;
  let map = maps.get(backend);
  if (!map) maps.set(backend, map = backend.has("coopmat_map") ? askMap(backend) : NO_MATRICES);
  return map;
}

/** Whether a device multiplies a tile of rows on matrix units: then two of them take less than one after the other. */
export function hasMatrixTiles(backend: Backend): boolean {
  return backend.has("coopmat_map") && matrixMap(backend).weights !== undefined;
}

function askMap(backend: Backend): MatrixMap {
  const map = readMap(ask(backend, "coopmat_map", 4 + 3 * MATRIX));
  const unknown = [...(map.weights ? [] : ["products"]), ...(map.attention ? [] : ["attention"])];
  if (unknown.length > 0) {
    warn(
      `${backend.name} lays its matrices out in a way that is not known here: ${unknown.join(" and ")} do without them`,
    );
  }
  const narrow = map.pairs && backend.has("coopmat_map_narrow");
  return { ...map, pairs: narrow && isNarrowKnown(ask(backend, "coopmat_map_narrow", 4 + 2 * MATRIX)) };
}

/** The words that a kernel writes. */
function ask(backend: Backend, kernel: KernelName, capacity: number): Uint32Array {
  const l = new Lowering(backend, () => false, false);
  const out = l.temporary([capacity], uint32);
  l.emit(kernel, [out], { spec: {}, threads: LANES, push: { capacity }, workgroups: 1 });
  const plan = backend.compile(l.builder.finish(1, (slot) => slot));
  const buffer = backend.alloc(4 * capacity);
  const words = new Uint32Array(capacity);
  try {
    backend.run(plan, encodeSlots([{ buffer, byteOffset: 0 }]));
    backend.read(buffer, 0, new Uint8Array(words.buffer));
  } finally {
    backend.release(plan);
    backend.free(buffer);
  }
  return words;
}

/** Element i of a lane in the order of pairs: its row of A, or column of B, and its place along the depth. */
function line(lane: number, i: number): number {
  return (lane >> 2) + 2 * (i & 4);
}

function place(lane: number, i: number): number {
  return 2 * (lane & 3) + (i & 1) + 4 * (i & 2);
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
  const columns = all((lane, i) => column(b, lane, i) === column(b, lane & ~3, i & 4));
  // Elements 0-3 in one row and 4-7 in another, the same columns in both, rows shared by four lanes.
  const rows = all((lane, i) => row(sum, lane, i) === row(sum, lane & ~3, i & 4));
  const alike = all((lane, i) => column(sum, lane, i) === column(sum, lane, i & 3));
  const same = all((lane, i) => a[lane * ELEMENTS + i] === sum[lane * ELEMENTS + i]);
  const pairs = all((lane, i) => row(sum, lane, i) === line(lane, i) && column(sum, lane, i) === place(lane, i)) &&
    b.every((word, at) => word === PAIRS[at]);
  return {
    plain: true,
    weights: whole(b) && columns ? b : undefined,
    attention: whole(sum) && rows && alike && same,
    pairs: pairs && same,
  };
}

/**
 * Checks what coopmat_map_narrow wrote: A as with 16 columns, and B as the first half of a lane's elements there. Sums are 2c and 2c + 1 of
 * both rows.
 */
export function isNarrowKnown(words: Uint32Array): boolean {
  const half = ELEMENTS / 2;
  if ([LANES, ELEMENTS, half, half].some((count, i) => words[i] !== count)) return false;
  const [a, b, sum] = [[0, MATRIX], [MATRIX, MATRIX / 2], [MATRIX * 3 / 2, MATRIX / 2]]
    .map(([first, count]) => words.subarray(4 + first, 4 + first + count));
  return a.every((word, at) => word === line(at >> 3, at & 7) * 16 + place(at >> 3, at & 7)) &&
    b.every((word, at) => word === place(at >> 2, at & 3) * 8 + line(at >> 2, at & 3)) &&
    sum.every((word, at) => word === line(at >> 2, 2 * (at & 2)) * 8 + place(at >> 2, at & 1));
}
