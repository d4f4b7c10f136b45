/**
 * Integrated GPUs: a few compute units, small shared memory, memory of the host, mostly no matrix units, subgroups of 8, 16, 32 or 64.
 *
 * Derived from those facts, measured on none. Reading weights takes tens of times longer than on an H200; the fixed costs of a phase do
 * not. So kernels that read weights once pay at any size, and work is cut into few workgroups.
 *
 * @module
 */

import { tuneDiscrete } from "./discrete.ts";
import type { Tuning } from "./tuning.ts";

/** Compute units where the driver does not tell: those of a small one. */
const UNKNOWN_UNITS = 8;

/** The record of an integrated GPU with so many compute units; 0 is unknown. */
export function tuneIntegrated(computeUnits: number): Tuning {
  const base = tuneDiscrete(computeUnits || UNKNOWN_UNITS);
  return {
    ...base,
    name: `integrated GPU of ${computeUnits || "unknown"} compute units`,
    decode: {
      ...base.decode,
      gemvMinHidden: { persistent: 0, barriers: 0 },
      batchMinSequences: [{ minHidden: 0, persistent: 2, barriers: 2 }],
      maxPrefetchBytes: 0,
    },
  };
}
