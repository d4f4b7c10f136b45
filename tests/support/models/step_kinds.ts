/**
 * The kinds of fused steps that tests go through: which kernels run a step's layers, and how these wait for each other.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import type { Batch } from "./decode_steps.ts";

/** How a kind of step is asked for, and what tells that it ran. */
export interface StepKindRow {
  readonly options: Partial<typeof options>;
  /** A kernel of its layers, with barriers, and where all are in one dispatch. */
  readonly barriers: RegExp;
  readonly persistent: RegExp;
  /** What it decodes, if that is not one token of one sequence. */
  readonly batch?: Partial<Batch>;
}

const KINDS = {
  "with split_k kernels": {
    options: { gemv: "off", batched: "off" },
    barriers: /^decode_qkv_/,
    persistent: /^decode_layers/,
  },
  "with split_k kernels in words of 32 bits": {
    options: { gemv: "off", batched: "off", accumulators: "i32" },
    barriers: /^decode_qkv_i32$/,
    persistent: /^decode_qkv_i32$/,
  },
  "with gemv kernels": {
    options: { gemv: "on", batched: "off" },
    barriers: /^decode_gemv_phase$/,
    persistent: /^decode_gemv_layers$/,
  },
  "of several sequences": {
    options: { batched: "on" },
    barriers: /^batch_layers/,
    persistent: /^batch_layers/,
    batch: { positions: [270, 31, 5] },
  },
  "of a chunk": {
    options: { batched: "on" },
    barriers: /^batch_layers/,
    persistent: /^batch_layers/,
    batch: { tokens: 3 },
  },
} as const satisfies Readonly<Record<string, StepKindRow>>;

/** Their names. */
export type StepKind = keyof typeof KINDS;

/** All of them. */
export const STEP_KINDS = Object.entries(KINDS) as readonly (readonly [StepKind, StepKindRow])[];

/** How layers wait for each other on a device: what waits inside of a dispatch runs where subgroups have 32 threads. */
export function launchModesOn(device: string): readonly ("barriers" | "per_phase" | "persistent")[] {
  const { subgroup, concurrent } = mx.withDevice(device, getBackend).limits;
  if (subgroup < 32) return ["barriers"];
  return concurrent ? ["barriers", "per_phase", "persistent"] : ["barriers", "per_phase"];
}
