/**
 * Slices of an axis, as in Python.
 *
 * @module
 */

import { IndexError, quoted } from "../../graph/error.ts";

/** A range of indices: start, stop (excluded) and step; null leaves one open. */
export interface Slice {
  /** First index; negative counts from the end. */
  readonly start: number | null;
  /** Index to stop before; negative counts from the end. */
  readonly stop: number | null;
  /** Distance between indices; negative walks backwards. */
  readonly step: number | null;
}

/** An object that {@link Slice} makes: the only slices that an index takes. */
export class SliceIndex implements Slice {
  constructor(readonly start: number | null, readonly stop: number | null, readonly step: number | null) {}
}

/**
 * A range of indices for `x.index()`: Python's `start:stop:step`. With one argument it is `start:`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.arange(6).index(mx.Slice(1, null, 2)).tolist(); // [1, 3, 5]
 * ```
 */
export function Slice(start: number | null = null, stop: number | null = null, step: number | null = null): Slice {
  for (const v of [start, stop, step]) {
    if (v === null || (typeof v === "number" && v === (v | 0))) continue;
    throw new IndexError(`Slice() expected whole numbers of 32 bits or null: found ${quoted(v)}`);
  }
  if (step === 0) throw new IndexError("Slice() expected a step that is not 0");
  return new SliceIndex(start, stop, step);
}
