/**
 * The residual of a prompt between two products, and the dispatch that adds to it and normalises it.
 *
 * @module
 */

import { float16, float32 } from "../../graph/dtype.ts";
import { sizeOf } from "../../graph/shape.ts";
import { reducingThreads } from "../ops/matmul/half_rows.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { tuningOf } from "../tuning/choose.ts";

/** A residual: what it was, and parts that are still to be added. */
export interface PartialResidual {
  readonly value: Value;
  /** Whether the value is a residual of these regions, which may be written in place. */
  readonly own: boolean;
  readonly parts?: Value;
  /** The choice of experts, where parts (rows, chosen, features) are what they gave. */
  readonly choice?: Value;
  /** Added to the parts (features,). */
  readonly bias?: Value;
  readonly scale?: number;
  /** Parts of an expert of all rows. */
  readonly beside?: Beside;
}

/** Parts (splits, rows, features) in float16 that are added too, by the sigmoid of a score (rows, 1) if there is one. */
interface Beside {
  readonly parts: Value;
  readonly score: Value | undefined;
  readonly scale: number;
}

/** What a norm of a residual needs, and where it goes. */
interface NormOf {
  readonly weight: Value;
  readonly eps: number;
  readonly normed: Value;
}

/** Threads of a workgroup, which has a row. */
const THREADS = 256;
/** The most, where some compute units have no row: a thread has four features then. */
const MAX_THREADS = 1024;

/** Threads for rows of so many features. */
function threadsOf({ backend }: Lowering, rows: number, width: number): number {
  const isFew = rows < tuningOf(backend).computeUnits;
  const wanted = isFew ? Math.min(2 ** Math.ceil(Math.log2(width / 4)), MAX_THREADS) : THREADS;
  return reducingThreads(backend, Math.max(wanted, THREADS));
}

/** Adds the parts of a residual, to `total` if there is one, and normalises the sum. */
export function emitAddNorm(
  l: Lowering,
  { value, parts, choice, bias, beside, scale = 1 }: PartialResidual,
  total: Value | undefined,
  norm: NormOf | undefined,
): void {
  const width = value.shape[value.shape.length - 1];
  const rows = sizeOf(value.shape) / width;
  const added = [choice, beside?.parts, beside?.score, bias];
  l.emit("add_norm", [value, parts, norm?.weight, total, norm?.normed, ...added], {
    threads: threadsOf(l, rows, width),
    spec: {
      COLS: width,
      DTYPE_X: value.dtype.code,
      DTYPE_PARTS: (parts?.dtype ?? float16).code,
      DTYPE_WEIGHT: (norm?.weight.dtype ?? float32).code,
      DTYPE_TOTAL: (total?.dtype ?? float32).code,
      DTYPE_OUT: (norm?.normed ?? value).dtype.code,
      CHOSEN: choice ? 1 : 0,
      DTYPE_SCORE: (beside?.score?.dtype ?? float32).code,
      DTYPE_BIAS: (bias?.dtype ?? float32).code,
    },
    push: {
      rows,
      splits: parts?.shape[choice ? 1 : 0] ?? 0,
      scale,
      eps: norm?.eps ?? 0,
      beside: beside?.parts.shape[0] ?? 0,
      beside_scale: beside?.scale ?? 0,
    },
    workgroups: rows,
  });
}
