/**
 * Recurrent state of layers: arrays of a fixed shape for each sequence, such as the last inputs of a convolution. A pass reads each array
 * and leaves the next one. A state has no positions, so it goes back only to positions where a copy was kept.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { enqueue } from "../../array/compile/evaluate.ts";
import { copied, evaluateOwned } from "../../array/devices/kv_memory.ts";
import { onDevice } from "../../array/devices/on_device.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { sameShape } from "../../graph/shape.ts";

/** A state array of one sequence. */
export interface StateShape {
  /** The layer of the model that has it. */
  readonly layer: number;
  readonly shape: readonly number[];
  readonly dtype: Dtype;
  /** Its device, where layers are on several. */
  readonly device?: string;
}

/** Most copies that are kept; the oldest one gives way. */
const MAX_CHECKPOINTS = 4;

/** Bytes of the states of a sequence. */
export function stateBytes(states: readonly StateShape[]): number {
  return states.reduce((sum, { shape, dtype }) => sum + shape.reduce((n, size) => n * size, dtype.bytes), 0);
}

/** Whether states have the same shapes. */
export function sameStates(a: readonly StateShape[], b: readonly StateShape[]): boolean {
  return a.length === b.length && a.every(({ shape }, i) => sameShape(shape, b[i].shape));
}

/** The state arrays of a cache, zeros before the first token, and copies of them at earlier positions. */
export class LayerStates {
  readonly #states: readonly StateShape[];
  readonly #batch: number;
  readonly #device: string | undefined;
  #arrays: Tensor[] = [];
  /** Copies by position, the oldest first. */
  readonly #kept = new Map<number, readonly Tensor[]>();

  /** Zeros for `batch` sequences, on a device; default the default one. */
  constructor(states: readonly StateShape[], batch: number, device?: string) {
    this.#states = states;
    this.#batch = batch;
    this.#device = device;
  }

  /** The arrays (B, …), in the order of layers. */
  get arrays(): readonly Tensor[] {
    if (this.#arrays.length === 0) {
      const make = (): void => {
        this.#arrays = this.#states.map(({ shape, dtype, device }) =>
          onDevice(device, () => detach(mx.zeros([this.#batch, ...shape], dtype)))
        );
        evaluateOwned(this.#arrays);
      };
      if (this.#device === undefined) make();
      else mx.withDevice(this.#device, make);
    }
    return this.#arrays;
  }

  /** Puts another array in the place of one, which goes. */
  replace(index: number, array: Tensor): void {
    const { dtype, device } = this.#states[index];
    this.arrays[index][Symbol.dispose]();
    this.#arrays[index] = onDevice(device, () => detach(array.astype(dtype)));
  }

  /** Computes the arrays as they are now, and submits that. */
  submit(): void {
    enqueue(this.arrays);
  }

  /** Keeps a copy of the arrays, which are those at a position. */
  keep(position: number): void {
    this.#drop(position);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size >= MAX_CHECKPOINTS) this.#drop(oldest);
    this.#kept.set(position, this.#copy(this.arrays));
  }

  /** The last position, `position` at most, that the arrays can go back to. */
  reachable(position: number): number {
    return Math.max(0, ...this.#kept.keys().filter((at) => at <= position));
  }

  /** Goes back to a position that {@link LayerStates.reachable} gave; copies of later positions go. */
  restore(position: number): void {
    for (const at of [...this.#kept.keys()]) if (at > position) this.#drop(at);
    mx.dispose(this.#arrays);
    const kept = this.#kept.get(position);
    this.#arrays = kept ? this.#copy(kept) : [];
  }

  /** Frees all arrays: they are zeros again. */
  dispose(): void {
    this.restore(0);
  }

  #drop(position: number): void {
    mx.dispose(this.#kept.get(position) ?? []);
    this.#kept.delete(position);
  }

  /** The same values in new memory: loops write to that of the arrays. */
  #copy(arrays: readonly Tensor[]): Tensor[] {
    const copies = arrays.map((array, i) =>
      onDevice(this.#states[i].device, () => detach(mx.tidy(() => copied(array))))
    );
    evaluateOwned(copies);
    return copies;
  }
}

/** Takes an array out of the scopes of tidy(): it lives until the states let it go. */
function detach(array: Tensor): Tensor {
  untrack(array);
  return array;
}
