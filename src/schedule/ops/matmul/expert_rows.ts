/**
 * Products of rows that are sorted by expert on cooperative matrices: each tile of rows has one expert, whose matrix is read once for it.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { uint32 } from "../../../graph/dtype.ts";
import type { Lowering } from "../../plan/context.ts";
import { options } from "../../plan/options.ts";
import type { Value } from "../../plan/value.ts";
import type { QuantizedFormat } from "../../../graph/quantization.ts";
import { FLOATS, matrixMap, runsOn } from "./coopmat.ts";
import { MODE_CODES } from "./dequantize.ts";
import { directKernel, emitDirect } from "./direct_experts.ts";
import { halfRows } from "./half_rows.ts";

/** Columns of a workgroup, and its threads. */
const COLUMNS = 128;
const THREADS = 128;
/** Threads that cut rows into tiles: one an expert at a time. */
const CUTTING_THREADS = 256;
/** Fewest rows: less than two tiles are no faster. */
const MIN_ROWS = 32;
/** Weights that are read together: of a row there are whole runs of them. */
const RUN = 32;

/** Kernels of codes of any format, by the rows of their tiles. */
const KERNELS: readonly { readonly rows: number; readonly kernel: KernelName }[] = [
  { rows: 16, kernel: "coopmat_experts_16" },
  { rows: 32, kernel: "coopmat_experts_32" },
  { rows: 64, kernel: "coopmat_experts_64" },
];
const EMULATED = [{ rows: 16, kernel: "coopmat_experts_emulated" }] as const satisfies typeof KERNELS;

/** Rows of x, one each, times the matrices that sorted indices name. */
export interface ExpertRows {
  /** (rows of x, 1, k) */
  readonly x: Value;
  readonly codes: Value;
  readonly scales: Value;
  readonly biases: Value | undefined;
  readonly format: QuantizedFormat;
  /** Which row of x each row has. */
  readonly left: Value;
  /** Which expert, ascending. */
  readonly right: Value;
  readonly experts: number;
  readonly n: number;
  readonly k: number;
}

/** The kernel for `rows` rows of so many experts: tiles are as high as the rows that an expert has on average. */
function kernelFor(backend: Backend, rows: number, experts: number): typeof KERNELS[number] | undefined {
  if (options.matrices === "emulated") return EMULATED[0];
  if (!backend.has("coopmat_map") || !matrixMap(backend).plain) return undefined;
  const each = rows / experts;
  const able = KERNELS.filter(({ kernel }) => runsOn(backend, { kernel, threads: THREADS }));
  return able.find((row) => each <= row.rows) ?? able.at(-1);
}

/** The most tiles of so many rows: each expert has one at most that is not full. */
function countTiles(rows: number, experts: number, height: number): number {
  return Math.floor(rows / height) + Math.min(experts, rows);
}

/** The tiles of lists of experts, by their height: the products of a layer have the same ones. */
const cut = new WeakMap<Value, Map<number, Value>>();

function tilesOf(l: Lowering, right: Value, rows: number, experts: number, height: number): Value {
  const known = cut.get(right) ?? new Map<number, Value>();
  cut.set(right, known);
  let tiles = known.get(height);
  if (!tiles) {
    const count = countTiles(rows, experts, height);
    tiles = l.temporary([count, 2], uint32);
    l.emit("expert_tiles", [l.contiguous(right), tiles], {
      threads: Math.min(CUTTING_THREADS, l.backend.limits.maxThreads),
      spec: { HEIGHT: height },
      push: { rows, experts, tiles: count },
      workgroups: 1,
    });
    known.set(height, tiles);
  }
  return tiles;
}

/** Emits the products into `out` (rows, 1, n); false if no kernel serves. */
export function emitExpertRows(
  l: Lowering,
  { x, codes, scales, biases, format: { bits, groupSize, mode }, left, right, experts, n, k }: ExpertRows,
  out: Value,
): boolean {
  const [rows] = right.shape;
  const xRows = x.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  if (k % RUN !== 0 || !FLOATS.has(x.dtype) || !FLOATS.has(out.dtype)) return false;
  if (!l.backend.has("expert_tiles") || rows < MIN_ROWS) return false;
  const own = { mode, bits, groupSize, scales: scales.dtype };
  const found = directKernel(l.backend, own, { rows, experts, sizes: [n, k] });
  const direct = found && l.backend.has(found.direct) ? found : undefined;
  const choice = direct ?? kernelFor(l.backend, rows, experts);
  if (!choice || countTiles(rows, experts, choice.rows) > l.backend.limits.maxGrid) return false;
  const tiles = tilesOf(l, right, rows, experts, choice.rows);
  if (!("kernel" in choice)) {
    const stacks = [{ arrays: [codes, scales, ...(biases ? [biases] : [])], bias: undefined }];
    emitDirect(
      l,
      choice,
      own,
      { x, xRows, depth: k, n, stacks, choices: { left, tiles, inPlace: false }, divisor: 1 },
      out,
    );
    return true;
  }
  const { half, powers } = halfRows(l, x, xRows, k);
  const matrix = [codes, scales, biases].map((v) => v && l.contiguous(v, true));
  l.emit(choice.kernel, [half, powers, ...matrix, out, l.contiguous(left), tiles], {
    threads: THREADS,
    spec: {
      BITS: bits,
      GROUP: groupSize,
      DTYPE_SCALES: scales.dtype.code,
      MODE: MODE_CODES[mode],
      SCALED: powers ? 1 : 0,
      DTYPE_OUT: out.dtype.code,
    },
    push: { n, k, x_rows: xRows },
    workgroups: [tiles.shape[0], Math.ceil(n / COLUMNS), 1],
  });
  return true;
}
