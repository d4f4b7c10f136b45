/**
 * The dispatches that choose a token from logits on a GPU, for op `sample` and for the end of a decoder's step; what each does
 * stands in shaders/sampling/sample.glsl.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { uint32 } from "../../graph/dtype.ts";
import type { OpAttrs } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

/** How a token is chosen. */
export interface Choice extends Readonly<OpAttrs["sample"]> {
  /** argmax: a row without a finite largest logit has a token like any other, where op `sample` gives none (0xffffffff). */
  readonly always?: true;
}

/** Threads of every sampling kernel: as many as a histogram has bins. */
const THREADS = 256;
/** Logits of a workgroup. */
const SLICE = 1024;
/** Logits of a row that the kernels of all devices take. */
export const MOST_COLS: number = THREADS * SLICE;
/** Rows that are sampled from at once: their scratch memory may be twice as large as they. */
const ROWS_AT_ONCE = 64;
/** Words of a row's scratch memory in front of its list. */
const FIXED_WORDS = 4 * THREADS + 4 + 2 * (THREADS + 1);
/** The largest `topK` whose tokens are found among what is not below the `topK`-th largest of parts, and parts to one of it. */
const MOST_FEW = 128;
const PARTS_TO_ONE = 4;
/** Likeliest tokens whose log probabilities the kernel tells at most: it may look at all logits for each of them. */
const MOST_TOLD = 64;

/** Whether a kernel tells log probabilities of tokens and of the `top` likeliest on a device. */
export function hasLogprobsKernel(backend: Backend, cols: number, top: number): boolean {
  return hasSampleKernel(backend, cols) && top <= MOST_TOLD && top < cols;
}

/** Whether the kernels serve rows of that many logits on a device. */
export function hasSampleKernel(backend: Backend, cols: number): boolean {
  return backend.has("sample_draw") && backend.limits.maxThreads >= THREADS && cols <= MOST_COLS;
}

/** The choice that takes the largest logit, whatever it is. */
export const LARGEST: Choice = { temperature: 0, topP: 1, minP: 0, topK: 0, always: true };

/** The constant of kernels that choose: whether rows without a finite largest logit have no token. */
export function checkedSpec({ always }: Choice): { readonly CHECKED: number } {
  return { CHECKED: always ? 0 : 1 };
}

/** Whether a choice looks at all logits of a row, not just at the largest one. */
export function looksAtAll({ temperature }: Choice): boolean {
  return temperature > 0;
}

function hasThresholds({ topK, topP }: Choice, cols: number): boolean {
  return (topK > 0 && topK < cols) || (topP > 0 && topP < 1);
}

/** Whether so many parts, whose largest logits are known, tell well enough which logits `topK` may keep. Each part has a logit. */
function isFew({ topK }: Choice, parts: number): boolean {
  return topK > 0 && topK <= MOST_FEW && topK * PARTS_TO_ONE <= parts;
}

/** Scratch memory of the kernels that look at all logits, to be cleared by who writes the largest ones. */
export function scratchFor(l: Lowering, rows: number, cols: number): Value {
  return l.temporary([rows, FIXED_WORDS + 2 * cols], uint32);
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

/** Logits (rows, cols), and where tokens are masked a uint32 mask (rows, cols / 32, rounded up). */
export interface MaskedLogits {
  readonly logits: Value;
  readonly mask: Value | undefined;
}

/** What a token is chosen from: the largest logits of parts of rows (rows, parts, 2), and the logits where all of them count. */
export interface DrawSource extends Partial<MaskedLogits> {
  readonly best: Value;
  readonly scratch: Value | undefined;
}

/** The dispatch that draws. */
interface Draw {
  readonly few: boolean;
  readonly logits: Value | undefined;
  readonly workgroups: readonly [number, number, number];
}

/** Emits what has to be counted in front of a draw, and says how to draw. */
export function emitCounts(l: Lowering, choice: Choice, rows: number, cols: number, source: DrawSource): Draw {
  const { logits, mask, best, scratch } = source;
  if (!looksAtAll(choice) || !logits || !scratch) return { few: false, logits: undefined, workgroups: [1, rows, 1] };
  const few = isFew(choice, best.shape[1]);
  const slices = Math.ceil(cols / SLICE);
  if (hasThresholds(choice, cols) && !few) {
    l.emit("sample_histogram", [logits, best, scratch, mask], {
      threads: THREADS,
      spec: { DTYPE_IN: logits.dtype.code },
      push: samplingPush(choice, rows, cols, best.shape[1]),
      workgroups: [slices, rows, 1],
    });
  }
  return { few, logits, workgroups: [slices + 1, rows, 1] };
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
  const { few, logits, workgroups } = emitCounts(l, choice, rows, cols, source);
  const { mask, best, scratch } = source;
  l.emit("sample_draw", [logits, best, scratch, uniforms, key, out, next, position, rings[0], rings[1], mask], {
    threads: THREADS,
    spec: { DTYPE_IN: logits?.dtype.code ?? 0, FEW: Number(few), ...checkedSpec(choice) },
    push: {
      ...samplingPush(choice, rows, cols, best.shape[1]),
      log_size: ringSize(rings[0]),
      recent_size: ringSize(rings[1]),
    },
    workgroups,
  });
}

/** Emits op `sample`: logits (rows, cols) and uniforms (rows,) to tokens, some rows at a time. */
export function emitSample(
  l: Lowering,
  choice: Choice,
  from: MaskedLogits,
  uniforms: Value | undefined,
  out: Value,
): void {
  inTurns(l, from, looksAtAll(choice), (source, rows, cols, part) => {
    emitDraw(l, choice, rows, cols, source, { uniforms: uniforms && part(uniforms), out: part(out) });
  });
}

/** Emits op `logprobs`: logits (rows, cols) and tokens (rows,) to (rows, 1 + 2 top), some rows at a time. */
export function emitLogprobs(l: Lowering, top: number, from: MaskedLogits, tokens: Value, out: Value): void {
  inTurns(l, from, true, (source, rows, cols, part) => {
    emitTailLogprobsOf(l, top, rows, cols, source, part(tokens), undefined, part(out));
  });
}

/**
 * Emits log probabilities of tokens (rows,) and of the `top` likeliest, in `out`: (rows, 1 + 2 top), or where there are positions
 * (rows,) a ring for each row (rows, size, 1 + 2 top), written at position modulo its size.
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
  const choice = { temperature: 1, topP: 0, minP: 0, topK: top };
  l.emit("logprobs", [logits, best, scratch, tokens, positions, out, mask], {
    threads: THREADS,
    spec: { DTYPE_IN: logits!.dtype.code },
    push: { ...samplingPush(choice, rows, cols, best.shape[1]), log_size: positions ? out.shape[1] : 1 },
    workgroups: [Math.ceil(cols / SLICE), rows, 1],
  });
}

/**
 * Hands on logits (rows, cols), the largest of their slices and, if the choice `looks` at all of them, scratch memory. It does so for
 * some rows at a time: `part` gives their part of a value.
 */
export function inTurns(
  l: Lowering,
  { logits, mask }: MaskedLogits,
  looks: boolean,
  emit: (source: DrawSource, rows: number, cols: number, part: (v: Value) => Value) => void,
): void {
  const [all, cols] = logits.shape;
  const slices = Math.ceil(cols / SLICE);
  for (let first = 0; first < all; first += ROWS_AT_ONCE) {
    const rows = Math.min(ROWS_AT_ONCE, all - first);
    const part = (v: Value): Value => ({
      ...v,
      offset: v.offset + first * sizeOf(v.shape.slice(1)),
      shape: [rows, ...v.shape.slice(1)],
    });
    const scratch = looks ? scratchFor(l, rows, cols) : undefined;
    const best = l.temporary([rows, slices, 2], uint32);
    const masks = mask && part(mask);
    l.emit("sample_best", [part(logits), best, scratch, masks], {
      threads: THREADS,
      spec: { DTYPE_IN: logits.dtype.code },
      push: samplingPush(LARGEST, rows, cols, slices),
      workgroups: [slices, rows, 1],
    });
    emit({ logits: part(logits), mask: masks, best, scratch }, rows, cols, part);
  }
}

/** The push fields of a choice from rows of which the largest logits of `bests` parts are known; rings are left out. */
export function samplingPush(choice: Choice, rows: number, cols: number, bests: number): Record<string, number> {
  const { temperature, topP, minP, topK } = choice;
  return { rows, cols, temperature, top_p: topP, min_p: minP, top_k: topK, bests, log_size: 1, recent_size: 1 };
}
