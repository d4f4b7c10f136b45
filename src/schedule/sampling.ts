/**
 * The dispatches that choose a token from logits on a GPU, for op `sample` and for the end of a decoder's step; what each does
 * stands in shaders/sample.glsl.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { uint32 } from "../graph/dtype.ts";
import type { OpAttrs } from "../graph/node.ts";
import type { Lowering, Value } from "./lowering.ts";

/** How a token is chosen. */
export type Choice = OpAttrs["sample"];

/** Threads of every sampling kernel: as many as a histogram has bins. */
const THREADS = 256;
/** Logits of a workgroup. */
const SLICE = 1024;
/** Logits of a row that the kernels of all devices take. */
export const MOST_COLS: number = THREADS * SLICE;
/** Rows that are sampled from at once: their scratch memory may be twice as large as they. */
const ROWS_AT_ONCE = 64;
/** Words of a row's scratch memory in front of its list. */
const FIXED_WORDS = 4 * THREADS + 8 + 2 * THREADS;

/** Whether the kernels serve rows of that many logits on a device. */
export function samples(backend: Backend, cols: number): boolean {
  return backend.has("sample_draw") && backend.limits.maxThreads >= THREADS && cols <= MOST_COLS;
}

/** Whether a choice looks at all logits of a row, not just at the largest one. */
export function looksAtAll({ temperature }: Choice): boolean {
  return temperature > 0;
}

function hasThresholds({ topK, topP }: Choice, cols: number): boolean {
  return (topK > 0 && topK < cols) || (topP > 0 && topP < 1);
}

/** Scratch memory, to be cleared by who writes the largest logits; undefined where none is needed. */
export function scratchFor(l: Lowering, rows: number, cols: number, choice: Choice): Value | undefined {
  if (!looksAtAll(choice)) return undefined;
  return l.temporary([rows, FIXED_WORDS + (hasThresholds(choice, cols) ? 2 * cols : 0)], uint32);
}

/** What a draw reads and writes besides the logits; all are optional. */
export interface DrawBuffers {
  /** float32 (rows,) */
  readonly uniforms?: Value;
  /** uint32 (rows, 2): split, to draw from one half and keep the other. */
  readonly key?: Value;
  /** 32 bits (rows,): the tokens. */
  readonly out?: Value;
  /** The same, in the state of a loop. */
  readonly next?: Value;
  /** int32 (rows,): counted on. */
  readonly position?: Value;
  /** int32 (rows, size): get the token at position modulo size. */
  readonly rings?: readonly Value[];
}

/** Emits the choice of a token for each row. `logits` is (rows, cols); `best` (rows, n, 2) holds the largest of each of n parts. */
export function emitDraw(
  l: Lowering,
  choice: Choice,
  rows: number,
  cols: number,
  source: { readonly logits: Value | undefined; readonly best: Value; readonly scratch: Value | undefined },
  { uniforms, key, out, next, position, rings = [] }: DrawBuffers,
): void {
  const { logits, best, scratch } = source;
  const size = (ring: Value | undefined): number => ring?.shape[ring.shape.length - 1] ?? 1;
  const common = {
    threads: THREADS,
    spec: { DTYPE_IN: logits?.dtype.code ?? 0 },
    push: {
      ...pushOf(choice, rows, cols),
      bests: best.shape[1],
      log_size: size(rings[0]),
      recent_size: size(rings[1]),
    },
  };
  if (scratch) {
    const workgroups = rows * Math.ceil(cols / SLICE);
    if (hasThresholds(choice, cols)) l.emit("sample_histogram", [logits, best, scratch], { ...common, workgroups });
    l.emit("sample_slices", [logits, best, scratch], { ...common, workgroups });
  }
  l.emit(
    "sample_draw",
    [scratch && logits, best, scratch, uniforms, key, out, next, position, rings[0], rings[1]],
    { ...common, workgroups: rows },
  );
}

/** Emits op `sample`: logits (rows, cols) and uniforms (rows,) to tokens, some rows at a time. */
export function emitSample(l: Lowering, choice: Choice, logits: Value, uniforms: Value | undefined, out: Value): void {
  const [rows, cols] = logits.shape;
  for (let first = 0; first < rows; first += ROWS_AT_ONCE) {
    const count = Math.min(ROWS_AT_ONCE, rows - first);
    const part = (v: Value, size: number): Value => ({
      ...v,
      offset: v.offset + first * size,
      shape: [count, ...v.shape.slice(1)],
    });
    emitRows(l, choice, part(logits, cols), uniforms && part(uniforms, 1), part(out, 1));
  }
}

function emitRows(l: Lowering, choice: Choice, logits: Value, uniforms: Value | undefined, out: Value): void {
  const [rows, cols] = logits.shape;
  const slices = Math.ceil(cols / SLICE);
  const scratch = scratchFor(l, rows, cols, choice);
  const best = l.temporary([rows, slices, 2], uint32);
  l.emit("sample_best", [logits, best, scratch], {
    threads: THREADS,
    spec: { DTYPE_IN: logits.dtype.code },
    push: { ...pushOf(choice, rows, cols), bests: slices, log_size: 1, recent_size: 1 },
    workgroups: rows * slices,
  });
  emitDraw(l, choice, rows, cols, { logits, best, scratch }, { uniforms, out });
}

/** The push fields that every device's kernels read. */
export function pushOf(choice: Choice, rows: number, cols: number): Record<string, number> {
  const { temperature, topP, minP, topK } = choice;
  return { rows, cols, temperature, top_p: topP, min_p: minP, top_k: topK };
}
