/**
 * Switches of the scheduler.
 *
 * @module
 */

import { environment } from "../../backend/devices.ts";
import type { Node } from "../../graph/node.ts";
import type { Tuning } from "../tuning/tuning.ts";

/** How to lower. */
export interface LowerOptions {
  /** False expands every fused op into its composite and dispatches every elementwise op by itself. */
  readonly fuse: boolean;
  /** Whether sequences of ops become regions. */
  readonly regions: "auto" | "on" | "off";
  /** The Plan runs more than once: only parameters may be written in place. */
  readonly reusable?: boolean;
  /** Output i is written back into parameter i at the end, unless it already was updated in place. */
  readonly writeBack?: readonly Node[];
}

/** Options of the scheduler; change them between evaluations only. */
export const options: {
  /** Several ops in one dispatch. */
  fuse: boolean;
  /** Whether sequences of ops become regions: "auto" if that is faster, "on" wherever it is possible. */
  regions: "auto" | "on" | "off";
  /** How decode kernels add, where the device can; else the best deterministic way. */
  accumulators: "u64" | "i32" | undefined;
  /**
   * How decoders wait inside of a loop. "auto" follows `decoder/megakernel.ts`, "try" uses its test on every device. The others always
   * apply: one dispatch ("persistent"), the same kernels with a dispatch for each phase ("per_phase"), or barriers.
   */
  launchMode: "auto" | "try" | "persistent" | "per_phase" | "barriers";
  /** Whether several sequences have kernels of their own: "auto" if that is faster, "on" wherever it is possible. */
  batched: "auto" | "on" | "off";
  /** Whether workgroups make whole rows of the layers of one sequence: "auto" if that is faster, "on" wherever it is possible. */
  gemv: "auto" | "on" | "off";
  /** Products of quantized weights on matrix units where the device has them, or "emulated" through shared memory, slowly, for tests. */
  matrices: "auto" | "emulated";
  /** The record by which kernels are chosen on every device, for tests and measurements; undefined: each device takes its own. */
  tuning: Tuning | undefined;
  /** Looks at an incomplete sum before a dispatch is given up, if it is not the usual number. */
  spinLimit: number | undefined;
} = {
  fuse: true,
  regions: "auto",
  accumulators: undefined,
  launchMode: ({ "0": "barriers", "1": "try" } as const)[environment("VKMX_FAST") ?? ""] ?? "auto",
  batched: "auto",
  gemv: "auto",
  matrices: "auto",
  tuning: undefined,
  spinLimit: undefined,
};

/**
 * Switches fusion: off, fused ops run as their composites of primitives and every elementwise op is a dispatch of its own.
 * Results are the same within the accuracy of the dtype; it is there to compare both ways.
 */
export function setFusion(on: boolean): void {
  options.fuse = on;
}
