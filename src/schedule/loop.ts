/**
 * Loops whose state stays on the device: a step is traced and lowered once and then submitted again and again over the same
 * storage. Nothing is allocated, lowered or bound per step, and a backend that records Plans replays one recording.
 *
 * @module
 */

import { ValueError } from "../graph/error.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { formatShape, sameShape, sizeOf } from "../graph/shape.ts";
import { type Backend, MAX_TIMES, type Slot } from "../backend/backend.ts";
import { stored } from "./compile.ts";
import { Executable } from "./execute.ts";
import { checkStatus, statusOf } from "./fast.ts";
import { lower } from "./lower.ts";
import { options } from "./options.ts";
import { backendOf } from "./realize.ts";
import type { Storage } from "./storage.ts";

export { FastPathFailure } from "./fast.ts";

/** Most steps of one submission. */
export const MAX_STEPS: number = MAX_TIMES;

/** The bytes of a stored node in visible memory as they are, without waiting. */
export function peekNode(node: Node): Uint8Array {
  const { storage, offset } = node.stored!;
  const out = new Uint8Array(sizeOf(node.shape) * node.dtype.bytes);
  const { backend, buffer } = storage as Storage;
  backend.peek(buffer, offset * node.dtype.bytes, out);
  return out;
}

/** A step over state nodes. After each run the same nodes hold the new values. */
export class StateLoop implements Disposable {
  readonly #backend: Backend;
  readonly #executable: Executable;
  readonly #state: readonly Node[];
  readonly #slots: readonly Slot[];
  #ticket = 0;

  /**
   * Traces `step`, which gets a parameter per state node and returns the new values in the same order, with the same
   * shapes and dtypes. State nodes are evaluated; those that are not contiguous are refused, since their storage is shared.
   */
  constructor(state: readonly Node[], step: (state: readonly Node[]) => readonly Node[]) {
    this.#state = state;
    const parameters = state.map((node, index) => makeNode("parameter", [], node.shape, node.dtype, { index }));
    for (const node of parameters) node.retain();
    const outputs = step(parameters);
    for (const node of outputs) node.retain();
    try {
      outputs.forEach((node, i) => {
        if (sameShape(node.shape, state[i].shape) && node.dtype === state[i].dtype) return;
        const found = `${formatShape(node.shape)} ${node.dtype.name}`;
        throw new ValueError(
          `a loop's state keeps shape and dtype: ${formatShape(state[i].shape)} ${state[i].dtype.name} became ${found}`,
        );
      });
      // The arrays that the step captures say where it runs; state that was not evaluated follows them.
      this.#backend = backendOf([...outputs, ...state]);
      for (const node of state) {
        const dense = stored(node, this.#backend);
        if (dense === node) continue;
        dense.release();
        throw new ValueError(`a loop needs contiguous state: found a view of shape ${formatShape(node.shape)}`);
      }
      const lowered = lower(outputs, this.#backend, { ...options, reusable: true, writeBack: parameters });
      this.#executable = new Executable(this.#backend, lowered);
    } finally {
      for (const node of [...outputs, ...parameters]) node.release();
    }
    for (const node of state) node.retain();
    this.#slots = this.#executable.bind(state);
  }

  /** Submits steps, as many as a submission takes, and returns at once: a ticket for {@link StateLoop.done}. */
  run(times: number = 1): number {
    this.#ticket = this.#executable.submit(this.#slots, times);
    for (const { stored } of this.#state) (stored!.storage as Storage).changed();
    return this.#ticket;
  }

  /**
   * Resolves when the steps up to a ticket are done, all that were submitted unless given; the event loop stays alive. Rejects
   * with a {@link FastPathFailure} where steps did not end well: the state is void, and a new loop will not try that again.
   */
  async done(ticket: number = this.#ticket): Promise<void> {
    if (ticket !== 0) await this.#backend.waitAsync(ticket);
    const { status } = this.#executable.lowered;
    if (status) checkStatus(this.#backend, statusOf(this.#backend, status.buffer));
  }

  /** Frees the Plan and its scratch memory; the state stays with its owners. */
  [Symbol.dispose](): void {
    this.#executable[Symbol.dispose]();
    for (const node of this.#state) node.release();
  }
}
