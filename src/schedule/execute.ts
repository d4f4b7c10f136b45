/**
 * Runs lowered graphs: allocates results and the arenas, binds slots, submits, and says where outputs lie.
 *
 * @module
 */

import {
  type Backend,
  encodeSlots,
  newSlots,
  pickSlots,
  type PlanHandle,
  setSlot,
  type Slot,
  type SlotWords,
} from "../backend/backend.ts";
import type { Node, Stored } from "../graph/node.ts";
import type { Lowered } from "./lower.ts";
import { type PlanPart, splitPlan } from "./plan/builder.ts";
import { profiler } from "./plan/profile.ts";
import { Storage } from "./plan/storage.ts";

/** Outputs of a run; each holds one reference of its storage. `ticket` is 0 when nothing had to run. */
export interface RunResult {
  readonly outputs: readonly Stored[];
  readonly ticket: number;
}

/** The target of a parameter: a node of the state, or which part of one along its first axis. */
export interface ParameterSource {
  readonly node: number;
  readonly part: number;
}

/** Dispatches of a part of a Plan. */
const PART_DISPATCHES = 2;

/** A lowered graph with its compiled Plan and arenas, ready to run again and again. Holds the storage that the Plan reads. */
export class Executable implements Disposable {
  readonly lowered: Lowered;
  readonly #backend: Backend;
  #plan: PlanHandle | undefined;
  #arenas: readonly Storage[] = [];
  /** The Plan in parts, once they were asked for. */
  #parts: readonly (PlanPart & { readonly plan: PlanHandle })[] | undefined;
  /** The slots, those that every run shares filled in, and the numbers of the others. */
  #shared: { readonly slots: SlotWords; readonly open: readonly number[] } | undefined;

  /** Compiles the Plan and takes its arenas now, or with `borrows` compiles when it is first bound, and is given arenas each time. */
  constructor(backend: Backend, lowered: Lowered, borrows: boolean = false) {
    this.#backend = backend;
    this.lowered = lowered;
    try {
      if (borrows) return;
      this.#arenas = takeStorages(lowered.arenas, (bytes) => new Storage(backend, bytes));
      this.#compile();
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  #compile(): void {
    const { words } = this.lowered;
    if (words) this.#plan ??= profiler.host("compiling", () => this.#backend.compile(words));
  }

  /** Whether the Plan is compiled, or there is none. */
  get ready(): boolean {
    return this.lowered.words === undefined || this.#plan !== undefined;
  }

  /** Does ahead what takes time when it is first bound. */
  async prepare(): Promise<void> {
    if (!this.ready) await this.#backend.prepare(this.lowered.words!);
  }

  /**
   * Submits the Plan over stored, contiguous `parameters`; results are fresh storage, or parameters written in place. The default
   * stream is the first one.
   */
  run(parameters: readonly Node[], stream?: number): RunResult {
    const fresh: Storage[] = [];
    try {
      const storages = this.#bind(parameters, fresh);
      const ticket = this.submit(this.#slots(storages, parameters), 1, stream);
      const outputs = this.lowered.outputs.map(({ slot, offset, strides }): Stored => {
        const storage = storages[slot];
        storage.retain();
        storage.ticket = ticket;
        const binding = this.lowered.slots[slot];
        const base = binding.kind === "parameter" ? parameters[binding.index].stored!.offset : 0;
        return { storage, offset: base + offset, strides };
      });
      return { outputs, ticket };
    } finally {
      for (const storage of fresh) storage.release(); // outputs hold theirs
    }
  }

  /** The slots of a Plan without results, over parts of `state`: the same for every run over that state and those arenas. */
  bind(state: readonly Node[], parts: readonly ParameterSource[], arenas: readonly Storage[]): SlotWords {
    this.#compile();
    const { slots, open } = this.#shared ??= this.#share();
    const bound = slots.slice();
    for (const i of open) {
      const binding = this.lowered.slots[i];
      if (binding.kind === "arena") setSlot(bound, i, arenas[binding.arena].buffer, binding.byteOffset);
      if (binding.kind !== "parameter") continue;
      const { node, part } = parts[binding.index];
      const { buffer, byteOffset } = placeOf(state[node], part);
      setSlot(bound, i, buffer, byteOffset);
    }
    return bound;
  }

  #share(): { readonly slots: SlotWords; readonly open: readonly number[] } {
    const open: number[] = [];
    const slots = this.lowered.slots.map((binding, i): Slot => {
      if (binding.kind === "storage") return { buffer: binding.storage.buffer, byteOffset: 0 };
      open.push(i);
      return { buffer: 0, byteOffset: 0 };
    });
    return { slots: encodeSlots(slots), open };
  }

  /** Submits the Plan over bound slots, `times` times in a row; the ticket is 0 when there is nothing to run. */
  submit(slots: SlotWords, times: number = 1, stream?: number): number {
    const plan = this.#plan;
    if (plan === undefined) return 0;
    const ticket = profiler.host("enqueuing", () => this.#backend.run(plan, slots, times, stream));
    profiler.record(this.#backend, plan, ticket, this.lowered.sources, times);
    return ticket;
  }

  /** Submits the Plan over bound slots, and after it that of another one on the same device; returns their tickets. */
  submitBefore(slots: SlotWords, next: Executable, nextSlots: SlotWords): readonly [number, number] {
    const first = this.#plan, second = next.#plan;
    if (first === undefined || second === undefined) return [this.submit(slots), next.submit(nextSlots)];
    const tickets = profiler.host(
      "enqueuing",
      () => this.#backend.runPair({ plan: first, slots }, { plan: second, slots: nextSlots }),
    );
    profiler.record(this.#backend, first, tickets[0], this.lowered.sources, 1);
    profiler.record(this.#backend, second, tickets[1], next.lowered.sources, 1);
    return tickets;
  }

  /** How many parts {@link Executable.submitPart} takes, in their order. */
  get parts(): number {
    const { words } = this.lowered;
    this.#parts ??= (words ? splitPlan(words, PART_DISPATCHES) : []).map((part) => ({
      ...part,
      plan: this.#backend.compile(part.words),
    }));
    return this.#parts.length;
  }

  /** Submits a part of the Plan over bound slots: parts after it may follow later, or never. */
  submitPart(whole: SlotWords, part: number): number {
    const { plan, slots, first, count } = this.#parts![part];
    const ticket = profiler.host("enqueuing", () => this.#backend.run(plan, pickSlots(whole, slots)));
    profiler.record(this.#backend, plan, ticket, this.lowered.sources.slice(first, first + count), 1);
    return ticket;
  }

  /** The storage of each slot; results are allocated into `fresh`. */
  #bind(parameters: readonly Node[], fresh: Storage[]): Storage[] {
    return this.lowered.slots.map((_, i) => this.#storage(i, parameters, fresh));
  }

  #storage(i: number, parameters: readonly Node[], fresh: Storage[]): Storage {
    const binding = this.lowered.slots[i];
    switch (binding.kind) {
      case "storage":
        return binding.storage;
      case "parameter":
        return parameters[binding.index].stored!.storage as Storage;
      case "result": {
        const storage = new Storage(this.#backend, binding.bytes);
        storage.countAsResult();
        fresh.push(storage);
        return storage;
      }
      case "arena":
        return this.#arenas[binding.arena];
      default:
        return binding satisfies never;
    }
  }

  #slots(storages: readonly Storage[], parameters: readonly Node[]): SlotWords {
    const words = newSlots(storages.length);
    for (let i = 0; i < storages.length; i++) {
      const binding = this.lowered.slots[i];
      const offset = binding.kind === "arena"
        ? binding.byteOffset
        : binding.kind === "parameter"
        ? placeOf(parameters[binding.index]).byteOffset
        : 0;
      setSlot(words, i, storages[i].buffer, offset);
    }
    return words;
  }

  [Symbol.dispose](): void {
    if (this.#plan !== undefined) this.#backend.release(this.#plan);
    this.#plan = undefined;
    for (const { plan } of this.#parts ?? []) this.#backend.release(plan);
    this.#parts = undefined;
    for (const arena of this.#arenas) arena.release();
    this.#arenas = [];
    for (const slot of this.lowered.slots) if (slot.kind === "storage") slot.storage.release();
  }
}

/** A storage of each size; none is held if one is not to be had. */
export function takeStorages(sizes: readonly number[], take: (bytes: number, i: number) => Storage): Storage[] {
  const taken: Storage[] = [];
  try {
    sizes.forEach((bytes, i) => taken.push(take(bytes, i)));
    return taken;
  } catch (error) {
    for (const storage of taken) storage.release();
    throw error;
  }
}

/** Where a stored node lies, or one of its parts along the first axis. */
function placeOf({ dtype, stored }: Node, part: number = 0): Slot {
  const { storage, offset, strides } = stored!;
  const at = part > 0 ? offset + part * strides[0] : offset; // a scalar has no strides
  return { buffer: (storage as Storage).buffer, byteOffset: at * dtype.bytes };
}
