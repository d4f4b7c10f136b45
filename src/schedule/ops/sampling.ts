/**
 * The dispatches that choose a token from logits on a GPU, for op `sample` and for the end of a decoder's step.
 * shaders/sampling/sample.glsl says what each does.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { uint32 } from "../../graph/dtype.ts";
import type { OpAttrs } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

/** How a token is chosen. */
export interface Choice extends Readonly<OpAttrs["sample"]> {
  /** argmax: a row without a finite largest logit has a token like any other, where op `sample` gives none (0xffffffff). */
  readonly always?: true;
}

/** Threads of every sampling kernel: as many as a histogram has bins. */
const THREADS = 256;
/** Logits of a slice that a thread looks at: of rows that have no more slices than threads, and of longer ones. */
const PER_THREAD = { short: 4, long: 8 } as const;
/** Logits of a row that the kernels of all devices take. */
export const MAX_COLS: number = THREADS * THREADS * PER_THREAD.long;
/** Rows that are sampled from at once: their scratch memory may be twice as large as they. */
const ROWS_AT_ONCE = 64;
/** Words of a row's scratch memory before its list. */
const FIXED_WORDS = 5 * THREADS + 4 + 2 * (THREADS + 1);
/** Those of shaders/sampling/sample.glsl. */
const MAX_FEW = 128;
const PARTS_TO_ONE = 4;
/** Most top-k tokens whose log probabilities the kernel gives: it may look at all logits for each of them. */
const MAX_TOLD = 64;

/** Whether a kernel gives log probabilities of tokens and of the `top` most probable ones on a device. */
export function hasLogprobsKernel(backend: Backend, cols: number, top: number): boolean {
  return hasSampleKernel(backend, cols) && top <= MAX_TOLD && top < cols;
}

/** Whether the kernels serve rows of that many logits on a device. */
export function hasSampleKernel(backend: Backend, cols: number): boolean {
  return backend.has("sample_draw") && backend.limits.maxThreads >= THREADS && cols <= MAX_COLS;
}

/** The choice that takes the largest logit, whatever it is. */
export const LARGEST: Choice = { draws: false, topK: 0, topP: false, always: true };

/** Logits of a slice that a thread looks at. */
function perThread(cols: number): number {
  return cols <= THREADS * THREADS * PER_THREAD.short ? PER_THREAD.short : PER_THREAD.long;
}

/** Slices of a row. */
function slicesOf(cols: number): number {
  return Math.ceil(cols / (THREADS * perThread(cols)));
}

/** The constant of kernels that take the largest logit: whether rows without a finite one have no token. */
export function checkedSpec({ always }: Choice): { readonly CHECKED: number } {
  return { CHECKED: Number(!always) };
}

/** Whether a choice looks at all logits of a row, not just at the largest one. */
export function looksAtAll({ draws }: Choice): boolean {
  return draws;
}

/** Whether the thresholds of a row may need a histogram: its `parts`, whose largest logits are known, do not tell enough of them. */
function needsHistogram({ topK, topP }: Choice, cols: number, parts: number): boolean {
  const isFew = topK > 0 && topK <= MAX_FEW && topK * PARTS_TO_ONE <= parts;
  return !isFew && (topP || topK < 0 || (topK > 0 && topK < cols));
}

/** Scratch memory of the kernels that look at all logits, to be cleared by the kernel that writes the largest ones. */
export function scratchFor(l: Lowering, rows: number, cols: number): Value {
  return l.temporary([rows, FIXED_WORDS + 2 * cols], uint32);
}

/** Arrays that a draw reads and writes besides the logits; all are optional. */
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

/** Logits (rows, cols), where rows draw their settings (rows, 4), and where tokens are masked a uint32 mask (rows, cols / 32, rounded up). */
export interface ChoiceInputs {
  readonly logits: Value;
  readonly settings?: Value;
  readonly mask?: Value;
}

/** The source of a token: the largest logits of parts of rows (rows, parts, 2), and the logits where all of them count. */
export interface DrawSource extends Partial<ChoiceInputs> {
  readonly best: Value;
  readonly scratch: Value | undefined;
}

/** The dispatch that draws. */
interface Draw {
  readonly spec: Readonly<Record<"DTYPE_IN" | "PER_THREAD" | "COUNTED" | "CHECKED", number>>;
  readonly logits: Value | undefined;
  readonly workgroups: readonly [number, number, number];
}

/** Emits the counting that comes before a draw, and says how to draw. */
export function emitCounts(l: Lowering, choice: Choice, rows: number, cols: number, source: DrawSource): Draw {
  const { logits, settings, mask, best, scratch } = source;
  const draws = looksAtAll(choice) && logits !== undefined && scratch !== undefined;
  const counts = draws && needsHistogram(choice, cols, best.shape[1]);
  const spec = {
    DTYPE_IN: draws ? logits.dtype.code : 0,
    PER_THREAD: perThread(cols),
    COUNTED: Number(counts),
    ...checkedSpec(choice),
  };
  if (!draws) return { spec, logits: undefined, workgroups: [1, rows, 1] };
  const slices = slicesOf(cols);
  if (counts) {
    l.emit("sample_histogram", [logits, best, scratch, settings, mask], {
      threads: THREADS,
      spec: { DTYPE_IN: logits.dtype.code, PER_THREAD: perThread(cols) },
      push: samplingPush(rows, cols, best.shape[1], settings),
      workgroups: [slices, rows, 1],
    });
  }
  return { spec, logits, workgroups: [slices + 1, rows, 1] };
}

/** Tokens that a ring of each row holds. */
export function ringSize(ring: Value | undefined): number {
  return ring?.shape.at(-1) ?? 1;
}

/** Emits the choice of a token for each row. */
export function emitDraw(
  l: Lowering,
  choice: Choice,
  rows: number,
  cols: number,
  source: DrawSource,
  { uniforms, key, out, next, position, rings = [] }: DrawBuffers,
): void {
  const { spec, logits, workgroups } = emitCounts(l, choice, rows, cols, source);
  const { settings, mask, best, scratch } = source;
  const buffers = [logits, best, scratch, settings, uniforms, key, out, next, position, rings[0], rings[1], mask];
  l.emit("sample_draw", buffers, {
    threads: THREADS,
    spec,
    push: {
      ...samplingPush(rows, cols, best.shape[1], settings),
      log_size: ringSize(rings[0]),
      recent_size: ringSize(rings[1]),
    },
    workgroups,
  });
}

/**
 * Emits the choice of the largest logit of each row (rows, cols) in one dispatch: the end of a step, which `buffers` get. Its memory is
 * kept, so the Plan must not run beside itself.
 */
export function emitLargest(
  l: Lowering,
  choice: Choice,
  { logits, mask }: ChoiceInputs,
  { next, position, rings = [] }: DrawBuffers,
): void {
  const [rows, cols] = logits.shape;
  const slices = slicesOf(cols);
  const best = l.temporary([rows, slices, 2], uint32);
  const done = l.keep(4 * rows);
  l.emit("sample_largest", [logits, best, done, next, position, rings[0], rings[1], mask], {
    threads: THREADS,
    spec: { DTYPE_IN: logits.dtype.code, PER_THREAD: perThread(cols), ...checkedSpec(choice) },
    push: {
      ...samplingPush(rows, cols, slices),
      log_size: ringSize(rings[0]),
      recent_size: ringSize(rings[1]),
    },
    workgroups: [slices, rows, 1],
  });
}

/** Emits op `sample`: logits (rows, cols) and uniforms (rows,) to tokens, some rows at a time. */
export function emitSample(
  l: Lowering,
  choice: Choice,
  from: ChoiceInputs,
  uniforms: Value | undefined,
  out: Value,
): void {
  forEachRowBlock(l, from, looksAtAll(choice), (source, rows, cols, part) => {
    emitDraw(l, choice, rows, cols, source, { uniforms: uniforms && part(uniforms), out: part(out) });
  });
}

/** Emits op `logprobs`: logits (rows, cols) and tokens (rows,) to (rows, 1 + 2 top), some rows at a time. */
export function emitLogprobs(l: Lowering, top: number, from: ChoiceInputs, tokens: Value, out: Value): void {
  forEachRowBlock(l, from, true, (source, rows, cols, part) => {
    emitTailLogprobsOf(l, top, rows, cols, source, part(tokens), undefined, part(out));
  });
}

/**
 * Emits log probabilities of tokens (rows,) and of the `top` most probable ones, in `out`: (rows, 1 + 2 top). With positions (rows,), `out`
 * is a ring for each row (rows, size, 1 + 2 top), written at position modulo its size.
 */
export function emitTailLogprobsOf(
  l: Lowering,
  top: number,
  rows: number,
  cols: number,
  { logits, mask, best, scratch }: DrawSource,
  tokens: Value,
  positions: Value | undefined,
  out: Value,
): void {
  l.emit("logprobs", [logits, best, scratch, tokens, positions, out, mask], {
    threads: THREADS,
    spec: { DTYPE_IN: logits!.dtype.code, PER_THREAD: perThread(cols) },
    push: { ...samplingPush(rows, cols, best.shape[1]), top, log_size: positions ? out.shape[1] : 1 },
    workgroups: [slicesOf(cols), rows, 1],
  });
}

/**
 * Hands on logits (rows, cols), the largest of their slices and, if the choice `looks` at all of them, scratch memory. It does so for
 * some rows at a time: `part` gives their part of a value.
 */
export function forEachRowBlock(
  l: Lowering,
  { logits, settings, mask }: ChoiceInputs,
  looks: boolean,
  emit: (source: DrawSource, rows: number, cols: number, part: (v: Value) => Value) => void,
): void {
  const [all, cols] = logits.shape;
  const slices = slicesOf(cols);
  for (let first = 0; first < all; first += ROWS_AT_ONCE) {
    const rows = Math.min(ROWS_AT_ONCE, all - first);
    const part = (v: Value): Value => ({
      ...v,
      offset: v.offset + first * v.strides[0],
      shape: [rows, ...v.shape.slice(1)],
    });
    const scratch = looks ? scratchFor(l, rows, cols) : undefined;
    const best = l.temporary([rows, slices, 2], uint32);
    const masks = mask && part(mask);
    l.emit("sample_best", [part(logits), best, scratch, masks], {
      threads: THREADS,
      spec: { DTYPE_IN: logits.dtype.code, PER_THREAD: perThread(cols) },
      push: samplingPush(rows, cols, slices),
      workgroups: [slices, rows, 1],
    });
    emit({ logits: part(logits), settings: settings && part(settings), mask: masks, best, scratch }, rows, cols, part);
  }
}

/** The push fields of a choice from rows of which the largest logits of `bests` parts are known; `top` and rings are left out. */
export function samplingPush(rows: number, cols: number, bests: number, settings?: Value): Record<string, number> {
  const stride = settings && settings.shape[0] > 1 ? settings.strides[0] : 0;
  return { rows, cols, settings_stride: stride, bests, top: 0, log_size: 1, recent_size: 1 };
}

/** Settings (rows, 4) as kernels read them: those of a row one after the other, and all rows at one distance. */
export function settingsOf(l: Lowering, settings: Value): Value {
  const plain = l.plain(settings);
  return plain.strides[1] === 1 && plain.strides[0] >= 0 ? plain : l.contiguous(plain);
}
