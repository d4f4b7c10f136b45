/**
 * Writes Plans: the flat words of shaders/include/plan.h, from named kernels, buffers, constants and push fields.
 *
 * A builder knows slots only by number; what a slot is bound to is decided when the Plan runs.
 *
 * @module
 */

import {
  KERNEL_PUSH_WORDS,
  KERNEL_SPEC_WORDS,
  type KernelName,
  KERNELS,
  PLAN_DISJOINT,
  PLAN_DISPATCH_WORDS,
  PLAN_HEADER_WORDS,
  PLAN_MAGIC,
  PLAN_NO_SLOT,
  PLAN_PREAMBLE,
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
  /** In the order of kernels.zon; undefined if an optional buffer is absent. */
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
  /** Only the first of several runs in a row needs it; it comes before all others. */
  readonly preamble?: boolean;
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
  /** Where the words of each dispatch begin. */
  readonly #begins: number[] = [];
  /** Where words name slots. */
  readonly #slots: number[] = [];
  readonly #maxGrid: number;

  constructor(maxGrid: number) {
    this.#maxGrid = maxGrid;
  }

  /** Dispatches written so far. */
  get dispatches(): number {
    return this.#begins.length;
  }

  add(d: Dispatch): void {
    const row = KERNELS[d.kernel];
    const words = this.#words;
    this.#begins.push(words.length);
    const layout = PUSH[row.push];
    let pushWords = 0;
    for (const field of layout) pushWords += field.count;
    words.push(
      row.id | ((d.disjoint ? PLAN_DISJOINT : 0) | (d.preamble ? PLAN_PREAMBLE : 0)) << 16,
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
  }

  /** A call of a kernel made at run time. `id` is what its device gave, `spec` the size of a workgroup, `push` the grid in threads. */
  addShader(
    { id, buffers, threadgroup, push, workgroups }: {
      readonly id: number;
      readonly buffers: readonly (Binding | undefined)[];
      readonly threadgroup: readonly number[];
      readonly push: readonly number[];
      readonly workgroups: readonly number[];
    },
  ): void {
    this.#begins.push(this.#words.length);
    this.#words.push(id, buffers.length | KERNEL_SPEC_WORDS << 8 | KERNEL_PUSH_WORDS << 16, ...workgroups);
    for (const b of buffers) {
      if (b) this.#bind(b);
      else this.#words.push(PLAN_NO_SLOT, 0);
    }
    this.#words.push(...threadgroup, ...push);
  }

  #bind({ slot, byteOffset }: Binding): void {
    this.#slots.push(this.#words.length);
    this.#words.push(slot, byteOffset);
  }

  /** The finished Plan over `slots` slots, its dispatches in an order (default as they were added). `map` renumbers the slots that were used while building. */
  finish(
    slots: number,
    map: (slot: number) => number,
    order: readonly number[] = [...this.#begins.keys()],
  ): Uint32Array {
    const words = Uint32Array.from(this.#words);
    words[1] = slots;
    words[2] = this.dispatches;
    words[3] = words.length;
    for (const at of this.#slots) words[at] = map(words[at]);
    if (order.every((dispatch, i) => dispatch === i)) return words;
    const ordered = words.slice();
    let at = PLAN_HEADER_WORDS;
    for (const dispatch of order) {
      const part = words.subarray(this.#begins[dispatch], this.#begins[dispatch + 1]);
      ordered.set(part, at);
      at += part.length;
    }
    return ordered;
  }
}

/** A part of a Plan, as a Plan of its own over some of the slots, and which of the dispatches it has. */
export interface PlanPart {
  readonly words: Uint32Array;
  /** The numbers of its slots in the whole Plan. */
  readonly slots: readonly number[];
  readonly first: number;
  readonly count: number;
}

/** Kernels by id. */
const BY_ID = new Map(Object.values(KERNELS).map((row) => [row.id as number, row]));

/** Cuts a Plan into parts of `most` dispatches at most, which together do the same in their order. */
export function splitPlan(whole: Uint32Array, most: number): PlanPart[] {
  const dispatches = whole[2];
  const parts: PlanPart[] = [];
  let at = PLAN_HEADER_WORDS;
  for (let first = 0; first < dispatches; first += most) {
    const count = Math.min(most, dispatches - first);
    const begin = at;
    const bindings: number[] = []; // where words name slots
    for (let i = 0; i < count; i++) at = walkDispatch(whole, at, bindings);
    const words = Uint32Array.of(...whole.subarray(0, PLAN_HEADER_WORDS), ...whole.subarray(begin, at));
    words[PLAN_HEADER_WORDS] &= ~(PLAN_DISJOINT << 16); // nothing comes before it here
    const numbers = new Map<number, number>();
    for (const binding of bindings) {
      const slot = whole[binding];
      if (!numbers.has(slot)) numbers.set(slot, numbers.size);
      words[PLAN_HEADER_WORDS + binding - begin] = numbers.get(slot)!;
    }
    words.set([numbers.size, count, words.length], 1);
    parts.push({ words, slots: [...numbers.keys()], first, count });
  }
  return parts;
}

/** Notes where the words of the dispatch at `at` name slots, and gives where the next one begins. */
function walkDispatch(words: Uint32Array, at: number, bindings: number[]): number {
  const columns = BY_ID.get(words[at] & 0xffff)?.columns.length ?? 0;
  const [buffers, others] = [words[at + 1] & 0xff, (words[at + 1] >>> 8 & 0xff) + (words[at + 1] >>> 16)];
  const bind = (from: number, count: number): number => {
    for (let i = 0; i < count; i++) if (words[from + 2 * i] !== PLAN_NO_SLOT) bindings.push(from + 2 * i);
    return from + 2 * count;
  };
  const end = bind(at + PLAN_DISPATCH_WORDS, buffers) + others;
  return columns > 0 ? bind(end + 1, columns * words[end]) : end;
}
