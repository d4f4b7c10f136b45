/**
 * Which record a device takes: the first entry whose condition holds.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { explain } from "../../backend/explain.ts";
import { options } from "../plan/options.ts";
import { SOFTWARE, WASM } from "./cpu.ts";
import { tuneDiscrete } from "./discrete.ts";
import { H200 } from "./h200.ts";
import { tuneIntegrated } from "./integrated.ts";
import type { Tuning } from "./tuning.ts";

/** PCI vendor id. */
const NVIDIA = 0x10de;
/** Bytes of shared memory that small GPUs have at most. */
const SMALL_SHARED = 32768;

interface TuningEntry {
  readonly when: (backend: Backend) => boolean;
  readonly tune: (computeUnits: number) => Tuning;
}

const hasMatrices = (backend: Backend): boolean => backend.has("coopmat_map");

/** A new record is a file beside this one and an entry here, before the entry of its class. */
const ENTRIES: readonly TuningEntry[] = [
  { when: ({ limits }) => limits.type === "wasm", tune: () => WASM },
  { when: ({ limits }) => limits.type === "cpu", tune: () => SOFTWARE },
  {
    when: (backend) => {
      const { vendorId, computeUnits, subgroup } = backend.limits;
      return vendorId === NVIDIA && computeUnits === H200.computeUnits && subgroup === 32 && hasMatrices(backend);
    },
    tune: () => H200,
  },
  { when: ({ limits }) => limits.type === "integrated", tune: tuneIntegrated },
  { when: (backend) => backend.limits.sharedBytes <= SMALL_SHARED && !hasMatrices(backend), tune: tuneIntegrated },
  { when: () => true, tune: tuneDiscrete },
];

const records = new WeakMap<Backend, Tuning>();

/** The record of a device. */
export function tuningOf(backend: Backend): Tuning {
  if (options.tuning) return options.tuning;
  let record = records.get(backend);
  if (!record) {
    record = ENTRIES.find(({ when }) => when(backend))!.tune(backend.limits.computeUnits);
    records.set(backend, record);
    explain(`${backend.name}: kernels are chosen for: ${record.name}`);
  }
  return record;
}
