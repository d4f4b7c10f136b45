/**
 * Options of reductions, running ones too, which functions and methods take.
 *
 * @module
 */

import type { Dtype } from "../../graph/dtype.ts";

/** Direction of a running reduction. */
export interface ScanOptions {
  /** From the end instead of the start. */
  readonly reverse?: boolean;
  /** Whether an element counts in its own result (default true). */
  readonly inclusive?: boolean;
}

/** Options of `cumsum`. */
export interface CumsumOptions extends ScanOptions {
  /** Element type to sum in; default that of the array, int32 for bool. */
  readonly dtype?: Dtype;
}

/** Names of {@link ScanOptions}. */
export const SCAN_OPTIONS = { reverse: true, inclusive: true } as const satisfies Record<keyof ScanOptions, true>;
/** Names of {@link CumsumOptions}. */
export const CUMSUM_OPTIONS = { ...SCAN_OPTIONS, dtype: true } as const satisfies Record<keyof CumsumOptions, true>;

/** Options of `variance` and `std`. */
export interface VarianceOptions {
  /** The same as `ddof`, in whose place it stands where it is given. */
  readonly correction?: number | null;
}

/** Names of {@link VarianceOptions}. */
export const VARIANCE_OPTIONS = { correction: true } as const satisfies Record<keyof VarianceOptions, true>;
