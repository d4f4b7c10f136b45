/**
 * Writes Plans: the flat words of shaders/include/plan.h, from named kernels, buffers, constants and push fields.
 *
 * A builder knows slots only by number; what a slot is bound to is decided when the Plan runs.
 *
 * @module
 */

import {
  type KernelName,
  KERNELS,
  PLAN_DISJOINT,
  PLAN_MAGIC,
  PLAN_NO_SLOT,
  PLAN_OPENING,
  PUSH,
} from "../../backend/kernels.ts";
import { float32Bits } from "../../graph/dtype.ts";

/** A place in a slot that a kernel reads or writes. */
export interface Binding {
  readonly slot: number;
  readonly byteOffset: number;
}

/** One call of a kernel. */
export interface Dispatch {
  readonly kernel: KernelName;
  /** In the order of kernels.zon; undefined where an optional buffer is absent. */
  readonly buffers: readonly (Binding | undefined)[];
  /** By name; all of the kernel's names must be there. THREADS comes first in the table and here. */
  readonly spec: Readonly<Record<string, number>>;
  /** Fields of the push block; arrays may be shorter than declared and are filled with `fill` (shapes 1, else 0). */
  readonly push: Readonly<Record<string, number | readonly number[]>>;
  /** Number of workgroups; folded over x and y when it passes the device's limit. Or all three axes. */
  readonly workgroups: number | readonly [number, number, number];
  /** Rows of the table of addresses, each in the order of the kernel's columns. */
  readonly table?: readonly (readonly Binding[])[];
  /** Its writes do not overlap those of the dispatch before it. */
  readonly disjoint?: boolean;
  /** Only the first of several runs in a row needs it; stands in front of all others. */
  readonly opening?: boolean;
}

/** Splits a number of workgroups over x and y so that neither passes `maxGrid`; kernels undo it with flat_workgroup(). */
function foldGrid(workgroups: number, maxGrid: number): [number, number, number] {
  if (workgroups <= maxGrid) return [workgroups, 1, 1];
  const y = Math.ceil(workgroups / maxGrid);
  return [Math.ceil(workgroups / y), y, 1];
}

/** Collects dispatches and writes them as Plan words. */
export class PlanBuilder {
  #words: number[] = [PLAN_MAGIC, 0, 0, 0];
  #dispatches = 0;
  /** Where words name slots. */
  readonly #slots: number[] = [];
  readonly #maxGrid: number;

  constructor(maxGrid: number) {
    this.#maxGrid = maxGrid;
  }

  /** Dispatches written so far. */
  get dispatches(): number {
    return this.#dispatches;
  }

  add(d: Dispatch): void {
    const row = KERNELS[d.kernel];
    const words = this.#words;
    const layout = PUSH[row.push];
    let pushWords = 0;
    for (const field of layout) pushWords += field.count;
    words.push(
      row.id | ((d.disjoint ? PLAN_DISJOINT : 0) | (d.opening ? PLAN_OPENING : 0)) << 16,
      row.buffers.length | (row.spec.length << 8) | (pushWords << 16),
      ...(typeof d.workgroups === "number" ? foldGrid(d.workgroups, this.#maxGrid) : d.workgroups),
    );
    for (let i = 0; i < row.buffers.length; i++) {
      const b = d.buffers[i];
      if (b) this.#bind(b);
      else words.push(PLAN_NO_SLOT, 0);
    }
    for (const name of row.spec) {
      const value = d.spec[name];
      if (value === undefined) throw new Error(`${d.kernel}: specialisation constant ${name} is missing`);
      words.push(value >>> 0);
    }
    for (const field of layout) {
      const value = d.push[field.name];
      if (value === undefined) throw new Error(`${d.kernel}: push field ${field.name} is missing`);
      if (typeof value !== "number" && value.length > field.count) {
        throw new Error(`${d.kernel}: push field ${field.name} holds ${field.count} words, found ${value.length}`);
      }
      const fill = field.name.endsWith("shape") ? 1 : 0;
      for (let i = 0; i < field.count; i++) {
        const v = typeof value === "number" ? value : value[i] ?? fill;
        words.push(field.type === "f32" ? float32Bits(v) : v >>> 0);
      }
    }
    if (row.columns.length > 0) {
      words.push(d.table?.length ?? 0);
      for (const b of d.table?.flat() ?? []) this.#bind(b);
    }
    this.#dispatches++;
  }

  #bind({ slot, byteOffset }: Binding): void {
    this.#slots.push(this.#words.length);
    this.#words.push(slot, byteOffset);
  }

  /** The finished Plan over `slots` slots. `map` renumbers the slots that were used while building. */
  finish(slots: number, map: (slot: number) => number): Uint32Array {
    const words = Uint32Array.from(this.#words);
    words[1] = slots;
    words[2] = this.#dispatches;
    words[3] = words.length;
    for (const at of this.#slots) words[at] = map(words[at]);
    return words;
  }
}
