/**
 * Rows of floats as matrix units read them: in 16 bits, as one number that is rounded, or as several that add up to each.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../../graph/dtype.ts";
import type { Lowering } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";
import { tuningOf } from "../../tuning/choose.ts";

/** Rows in 16 bits. */
export interface HalfRows {
  /** (terms, rows, cols), or the input if it has 16 bits already. */
  readonly half: Value;
  /** The powers of two that were taken out of each block of rows; undefined if none were. */
  readonly powers: Value | undefined;
}

/** Into how many terms numbers are split, and how many rows share a power of two. */
interface Terms {
  readonly dtype: Dtype;
  readonly terms: number;
  readonly block: number;
}

/** x rounded to float16: what products with quantized weights read. */
const ROUNDED: Terms = { dtype: float16, terms: 1, block: 16 };

/** Terms in which a float32 has no fewer digits than products of float32 keep, by the dtype of what it is multiplied with. */
const TERMS = new Map<Dtype, Terms>([
  [float16, { dtype: float16, terms: 2, block: 1 }],
  [bfloat16, { dtype: bfloat16, terms: 3, block: 1 }],
]);

/** Threads of a workgroup where some compute units have none: it waits for memory, and more threads read at once. */
const MAX_THREADS = 1024;
/** Subgroups whose parts of a sum shared memory holds, in kernels that reduce a row in a workgroup. */
const MAX_SUBGROUPS = 128;

/** So many threads, or as many as a workgroup may have that reduces a row. */
export function reducingThreads({ limits: { maxThreads, subgroup } }: Backend, wanted: number): number {
  return Math.min(wanted, maxThreads, MAX_SUBGROUPS * subgroup);
}

/** One conversion serves all products of the same x. */
const converted = new WeakMap<Value, Map<Terms, HalfRows>>();

function convert(l: Lowering, x: Value, rows: number, cols: number, how: Terms): HalfRows {
  const known = converted.get(x) ?? new Map<Terms, HalfRows>();
  converted.set(x, known);
  let found = known.get(how);
  if (!found) {
    const { dtype, terms, block } = how;
    const blocks = Math.ceil(rows / block);
    const half = l.temporary([terms, rows, cols], dtype);
    const { backend } = l;
    const isFew = blocks < tuningOf(backend).computeUnits;
    const powers = dtype === float16 ? l.temporary([blocks], float32) : undefined;
    l.emit("half_rows", [l.contiguous(x, true), half, powers], {
      spec: { DTYPE_X: x.dtype.code, BLOCK: block, TERMS: terms, DTYPE_OUT: dtype.code },
      threads: reducingThreads(backend, isFew ? MAX_THREADS : backend.limits.threads),
      push: { rows, cols },
      workgroups: blocks,
    });
    known.set(how, found = { half, powers });
  }
  return found;
}

/** x (rows, cols) in float16; `cols` is a multiple of 8. */
export function halfRows(l: Lowering, x: Value, rows: number, cols: number): HalfRows {
  if (x.dtype === float16) return { half: l.contiguous(x, true), powers: undefined };
  return convert(l, x, rows, cols, ROUNDED);
}

/** How many terms of a dtype stand for a float32; undefined if it is no dtype of 16 bits. */
export function termsOf(dtype: Dtype): number | undefined {
  return TERMS.get(dtype)?.terms;
}

/** Float32 x (rows, cols) as terms of a dtype of 16 bits, each row with its own power; `cols` is a multiple of 8. */
export function halfTerms(l: Lowering, x: Value, rows: number, cols: number, dtype: Dtype): HalfRows {
  return convert(l, x, rows, cols, TERMS.get(dtype)!);
}
