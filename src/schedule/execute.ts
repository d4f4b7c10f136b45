/**
 * Runs lowered graphs: allocates results and the arena, binds slots, submits, and says where outputs lie.
 *
 * @module
 */

import type { Backend, PlanHandle, Slot } from "../backend/backend.ts";
import type { Node, Stored } from "../graph/node.ts";
import type { Lowered } from "./lower.ts";
import { profiler } from "./profile.ts";
import { Storage } from "./storage.ts";

/** Outputs of a run; each holds one reference of its storage. `ticket` is 0 when nothing had to run. */
export interface RunResult {
  readonly outputs: readonly Stored[];
  readonly ticket: number;
}

/** A lowered graph with its compiled Plan and arena, ready to run again and again. Holds the storage that the Plan reads. */
export class Executable implements Disposable {
  readonly lowered: Lowered;
  readonly #backend: Backend;
  #plan: PlanHandle | undefined;
  #arena: Storage | undefined;

  constructor(backend: Backend, lowered: Lowered) {
    this.#backend = backend;
    this.lowered = lowered;
    try {
      if (lowered.arenaBytes > 0) this.#arena = new Storage(backend, lowered.arenaBytes);
      if (lowered.words) this.#plan = backend.compile(lowered.words);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  /** Submits the Plan over stored, contiguous `parameters`; results are fresh storage, or parameters written in place. */
  run(parameters: readonly Node[]): RunResult {
    const backend = this.#backend;
    const storages: Storage[] = [];
    const fresh: Storage[] = [];
    try {
      const slots = this.lowered.slots.map((binding): Slot => {
        switch (binding.kind) {
          case "storage":
            storages.push(binding.storage);
            return { buffer: binding.storage.buffer, byteOffset: 0 };
          case "parameter": {
            const { dtype, stored } = parameters[binding.index];
            const storage = stored!.storage as Storage;
            storages.push(storage);
            return { buffer: storage.buffer, byteOffset: stored!.offset * dtype.bytes };
          }
          case "result": {
            const storage = new Storage(backend, binding.bytes);
            fresh.push(storage);
            storages.push(storage);
            return { buffer: storage.buffer, byteOffset: 0 };
          }
          case "arena":
            storages.push(this.#arena!);
            return { buffer: this.#arena!.buffer, byteOffset: binding.byteOffset };
          default:
            return binding satisfies never;
        }
      });
      const ticket = this.#plan === undefined ? 0 : backend.run(this.#plan, slots);
      if (this.#plan !== undefined) profiler.record(backend, this.#plan, ticket, this.lowered.kernels);
      const outputs = this.lowered.outputs.map(({ slot, offset, strides }): Stored => {
        const storage = storages[slot];
        storage.retain();
        const binding = this.lowered.slots[slot];
        const base = binding.kind === "parameter" ? parameters[binding.index].stored!.offset : 0;
        return { storage, offset: base + offset, strides };
      });
      return { outputs, ticket };
    } finally {
      for (const storage of fresh) storage.release(); // outputs hold theirs
    }
  }

  [Symbol.dispose](): void {
    if (this.#plan !== undefined) this.#backend.release(this.#plan);
    this.#plan = undefined;
    this.#arena?.release();
    this.#arena = undefined;
    for (const slot of this.lowered.slots) if (slot.kind === "storage") slot.storage.release();
  }
}
