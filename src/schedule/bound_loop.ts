/**
 * Loops whose state stays on the device: a step is traced and lowered once and then submitted again and again over the same
 * storage. Nothing is allocated, lowered or bound per step, and a backend that records Plans replays one recording.
 *
 * @module
 */

import { IndexError, ValueError } from "../graph/error.ts";
import type { Node } from "../graph/node.ts";
import { formatShape, isContiguous, sizeOf } from "../graph/shape.ts";
import { type Backend, MAX_TIMES, type SlotWords } from "../backend/backend.ts";
import { isDense } from "./compiled_function.ts";
import { Executable, type ParameterSource, takeStorages } from "./execute.ts";
import { checkStatus, statusOf } from "./decoder/megakernel.ts";
import { lower } from "./lower.ts";
import type { Better } from "./plan/context.ts";
import { options } from "./plan/options.ts";
import { realize } from "./realize.ts";
import { SharedMemory, type Storage } from "./plan/storage.ts";
import { describeArray, misfitOf, type StateSpec, type StepGraph } from "./step_graph.ts";

/** Most steps of one submission. */
export const MAX_STEPS: number = MAX_TIMES;

/** The bytes of `count` elements of a stored node in visible memory, from element `start` on, as they are, without waiting. */
export function readMappedNode(node: Node, start: number = 0, count: number = sizeOf(node.shape) - start): Uint8Array {
  const { storage, offset } = node.stored!;
  const out = new Uint8Array(count * node.dtype.bytes);
  const { backend, buffer } = storage as Storage;
  backend.readMapped(buffer, (offset + start) * node.dtype.bytes, out);
  return out;
}

/**
 * Writes elements of a stored, contiguous node from element `start` on, after the submitted work and before later work. Other
 * arrays may share its storage, so nothing is written where an element would be outside of it.
 */
export function writeStateNode(node: Node, bytes: Uint8Array, start: number = 0): void {
  const { shape, dtype, stored } = node;
  if (!stored) throw new ValueError(`only an evaluated array can be written: found one of shape ${formatShape(shape)}`);
  if (stored.packing || !isContiguous(shape, stored.strides)) {
    throw new ValueError(`only a contiguous array can be written: found a view of shape ${formatShape(shape)}`);
  }
  const size = sizeOf(shape), count = bytes.byteLength / dtype.bytes;
  const inside = Number.isInteger(start) && Number.isInteger(count) && start >= 0 && start + count <= size;
  if (!inside) throw new IndexError(`${count} elements from ${start} on cannot be written into an array of ${size}`);
  if (count === 0) return;
  const storage = stored.storage as Storage;
  storage.backend.write(storage.buffer, (stored.offset + start) * dtype.bytes, bytes);
  storage.changed();
}

/** A step that was lowered, to be bound to the arrays of a state. */
export interface LoopStep extends Disposable {
  /** Whether it was traced for a state of these shapes and dtypes. */
  fits(state: readonly StateSpec[]): boolean;
  /** Bytes of its Plans. */
  readonly planBytes: number;
  /** Whether the kernels of a region compute it, such as those of a decoder step. */
  readonly isFused: boolean;
  /** The step over a state, as a whole or to be submitted in parts. The nodes are evaluated; those that are not contiguous are refused, since their storage is shared. */
  bind(state: readonly Node[], inParts?: boolean): Loop;
  /** Whether {@link LoopStep.prepare} has nothing to do. */
  readonly ready: boolean;
  /** Does ahead what takes time when it is first bound. */
  prepare(): Promise<void>;
  /** Whether lowering left open if there is a faster step, which {@link LoopStep.probe} finds out. */
  readonly undecided: boolean;
  /** Whether tracing again gives a faster step, where lowering left that open; beside other work. */
  probe(): Promise<Better>;
}

/** A step that was bound to a state. After each run the same nodes hold the new values. */
export interface Loop extends Disposable {
  /** Submits steps, as many as a submission takes, and returns at once: a ticket for {@link Loop.done}. */
  run(times?: number): number;
  /** Submits a step, and one of another loop of the device after it; returns a ticket of each. */
  runBefore(next: Loop): readonly [number, number];
  /** How many parts {@link Loop.runPart} takes. */
  readonly parts: number;
  /** Submits a part of a step; parts are taken in their order, and the state is void until the last one is done. */
  runPart(part: number): number;
  /**
   * Resolves when the steps up to a ticket are done; the default is all that were submitted. The event loop stays alive meanwhile. `soon`
   * is that of {@link Backend.waitAsync}. Rejects with a {@link MegakernelFailure} where steps did not end well: the state is void, and a
   * new loop will not try that again.
   */
  done(ticket?: number, soon?: boolean): Promise<void>;
  /** Leaves out the rest of the submission with a ticket, where the device can; then true, and the state is void. */
  drop(ticket: number): boolean;
  /** Share of the submission with a ticket that is done, from 0 to 1; undefined if the device does not tell. */
  progress(ticket: number): number | undefined;
}

/** A step over state nodes that was lowered as one Plan. It may be bound to any nodes of the shapes and dtypes that it was traced for. */
export class LoweredStep implements LoopStep {
  readonly #backend: Backend;
  readonly #executable: Executable;
  readonly #scratch: SharedMemory;
  readonly #state: readonly StateSpec[];
  readonly #stacks: readonly boolean[];
  readonly #parts: readonly ParameterSource[];
  /** The owner of the trace and the loops over it. */
  #users = 1;

  /** Lowers a graph, which stays its owner's. Loops take their intermediates from `scratch`, if they may meet other Plans of the device. */
  constructor({ backend, state, stacks, parts, parameters, outputs }: StepGraph, scratch: SharedMemory) {
    this.#backend = backend;
    this.#state = state;
    this.#stacks = stacks;
    this.#parts = parts;
    this.#scratch = scratch;
    const lowered = lower(outputs, backend, { ...options, reusable: true, writeBack: parameters });
    this.#executable = new Executable(backend, lowered, true);
  }

  /** See {@link LoopStep.fits}. */
  fits(state: readonly StateSpec[]): boolean {
    return state.length === this.#state.length && misfitOf(this.#state, state) < 0;
  }

  /** See {@link LoopStep.planBytes}. */
  get planBytes(): number {
    return this.#executable.lowered.words?.byteLength ?? 0;
  }

  /** See {@link LoopStep.isFused}. */
  get isFused(): boolean {
    return this.#executable.lowered.sources.some(({ region }) => region !== undefined);
  }

  /** See {@link LoopStep.bind}. */
  bind(state: readonly Node[], inParts: boolean = false): BoundLoop {
    const misfit = misfitOf(this.#state, state);
    if (misfit >= 0) {
      const [expected, found] = [this.#state[misfit], state[misfit]].map(describeArray);
      throw new ValueError(`a loop was traced for ${expected}: found ${found}`);
    }
    realize(state, this.#backend);
    state.forEach((node, i) => {
      if (!isDense(node, this.#stacks[i] ? 1 : 0)) {
        throw new ValueError(`a loop needs contiguous state: found a view of shape ${formatShape(node.shape)}`);
      }
      // Its owner frees it. A cache of 100 MB that grows would else be a reason for a whole collection of 25 ms.
      (node.stored?.storage as Storage | undefined)?.countNoMore();
    });
    const scratch = inParts ? new SharedMemory() : this.#scratch; // other Plans may run between parts
    const arenas = takeStorages(this.#executable.lowered.arenas, (bytes, i) => scratch.take(this.#backend, bytes, i));
    const slots = this.#executable.bind(state, this.#parts, arenas);
    this.#users++;
    return new BoundLoop(this.#backend, this.#executable, state, arenas, slots, () => this.#release());
  }

  /** Whether {@link LoweredStep.prepare} has nothing to do. */
  get ready(): boolean {
    return this.#executable.ready;
  }

  /** Does ahead what takes time when it is first bound. */
  prepare(): Promise<void> {
    return this.#executable.prepare();
  }

  /** See {@link LoopStep.undecided}. */
  get undecided(): boolean {
    return this.#executable.lowered.probe !== undefined;
  }

  /** Whether tracing again gives a faster step, where lowering left that open; beside other work. */
  async probe(): Promise<Better> {
    const { probe } = this.#executable.lowered;
    if (!probe) return undefined;
    this.#users++; // it reads the storages of the Plan
    try {
      return await probe.run();
    } finally {
      this.#release();
    }
  }

  #release(): void {
    if (--this.#users === 0) this.#executable[Symbol.dispose]();
  }

  /** Ends the trace once the loops over it have ended. */
  [Symbol.dispose](): void {
    this.#release();
  }
}

/** A step bound to state nodes: {@link LoweredStep.bind}. After each run the same nodes hold the new values. */
export class BoundLoop implements Loop {
  readonly #backend: Backend;
  readonly #executable: Executable;
  readonly #state: readonly Node[];
  readonly #arenas: readonly Storage[];
  readonly #slots: SlotWords;
  readonly #end: () => void;
  #ticket = 0;

  /** Takes over the references of `arenas`; `end` is called when the loop goes. */
  constructor(
    backend: Backend,
    executable: Executable,
    state: readonly Node[],
    arenas: readonly Storage[],
    slots: SlotWords,
    end: () => void,
  ) {
    this.#backend = backend;
    this.#executable = executable;
    this.#state = state;
    this.#arenas = arenas;
    this.#end = end;
    for (const node of state) node.retain();
    this.#slots = slots;
  }

  /** Submits steps, as many as a submission takes, and returns at once: a ticket for {@link BoundLoop.done}. */
  run(times: number = 1): number {
    return this.#submitted(this.#executable.submit(this.#slots, times));
  }

  /** Submits a step, and one of another loop of the device after it; returns a ticket of each. */
  runBefore(next: Loop): readonly [number, number] {
    if (!(next instanceof BoundLoop)) return [this.run(), next.run()];
    const [own, after] = this.#executable.submitBefore(this.#slots, next.#executable, next.#slots);
    return [this.#submitted(own), next.#submitted(after)];
  }

  /** How many parts {@link BoundLoop.runPart} takes. */
  get parts(): number {
    return this.#executable.parts;
  }

  /** Submits a part of a step; parts are taken in their order, and the state is void until the last one is done. */
  runPart(part: number): number {
    return this.#submitted(this.#executable.submitPart(this.#slots, part));
  }

  #submitted(ticket: number): number {
    this.#ticket = ticket;
    for (const { stored } of this.#state) {
      const storage = stored!.storage as Storage;
      storage.ticket = this.#ticket;
      storage.changed();
    }
    return this.#ticket;
  }

  /**
   * Resolves when the steps up to a ticket are done; the default is all that were submitted. The event loop stays alive meanwhile. `soon`
   * is that of {@link Backend.waitAsync}. Rejects with a {@link MegakernelFailure} where steps did not end well: the state is void, and a
   * new loop will not try that again.
   */
  async done(ticket: number = this.#ticket, soon?: boolean): Promise<void> {
    if (ticket !== 0) await this.#backend.waitAsync(ticket, soon);
    const { status } = this.#executable.lowered;
    if (status) checkStatus(this.#backend, statusOf(this.#backend, status.buffer));
  }

  /** Leaves out the rest of the submission with a ticket, where the device can; then true, and the state is void. */
  drop(ticket: number): boolean {
    return this.#backend.drop(ticket);
  }

  /** Share of the submission with a ticket that is done, from 0 to 1; undefined if the device does not tell. */
  progress(ticket: number): number | undefined {
    return this.#backend.progress(ticket);
  }

  /** Ends the loop; the state stays with its owners. */
  [Symbol.dispose](): void {
    for (const arena of this.#arenas) arena.release();
    for (const node of this.#state) node.release();
    this.#end();
  }
}
