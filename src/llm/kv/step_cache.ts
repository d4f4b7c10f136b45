/**
 * One pass over the buffers of a cache at positions that the device knows, for steps that are traced once and run many times.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { appendPositions, positionsOf } from "../../array/devices/kv_memory.ts";
import type { Tensor } from "../../array/mod.ts";
import { type StackedTensors, unstacked } from "../../array/devices/stack.ts";
import type { Buffers, Cache, KeysValues, StateAfter } from "./pass.ts";

/** One pass over buffers that somebody else owns, at positions that the device knows. The buffers must have room for all of it. */
export class StepCache implements Cache {
  /** Keys per layer; updated as the pass goes on. */
  readonly keys: Tensor[];
  /** Values per layer. */
  readonly values: Tensor[];
  /** State arrays; updated as the pass goes on. */
  readonly states: Tensor[];
  readonly #position: Tensor;
  readonly #start: Tensor;
  readonly #last: Tensor | undefined;
  #lengths: Tensor | undefined;
  #counted: Tensor | undefined;
  readonly #late: LateStates | undefined;

  /**
   * `position` is int32 (B,): the number of positions that are valid before the pass, of each sequence. `states` are the state arrays. `last`
   * is the index of the last token of the pass that is no padding, uint32 (1,). With `drafts`, {@link StepCache.settle} says at the end how many
   * tokens count.
   */
  constructor(
    keys: readonly (Tensor | StackedTensors)[],
    values: readonly (Tensor | StackedTensors)[],
    position: Tensor,
    { states = [], last, drafts = false }: {
      readonly states?: readonly Tensor[];
      readonly last?: Tensor;
      readonly drafts?: boolean;
    } = {},
  ) {
    this.keys = unstacked(keys);
    this.values = unstacked(values);
    this.states = [...states];
    this.#position = position;
    this.#start = position.reshape([-1, 1]);
    this.#last = last;
    this.#late = drafts ? new LateStates() : undefined;
  }

  /** Keys, values and states as the pass left them. */
  get buffers(): Buffers {
    return buffersOf(this);
  }

  /** See {@link Cache.counted}. */
  get counted(): Tensor | undefined {
    return this.#counted;
  }

  begin(count: number): Tensor {
    this.#lengths = mx.add(this.#position, count);
    this.#counted = this.#last && countUpTo(this.#last, count);
    return this.#position;
  }

  /** See {@link Cache.readState}. */
  readState(index: number): Tensor {
    return this.states[index];
  }

  /** See {@link Cache.writeState}. */
  writeState(index: number, state: Tensor, after: StateAfter): void {
    const write = (value: Tensor): void => void (this.states[index] = value.astype(this.states[index].dtype));
    if (this.#late) this.#late.add(after, write);
    else write(state);
  }

  /** Leaves the states after the first tokens of a pass over drafted ones, as many as `counted` (B,) says. */
  settle(counted: Tensor): void {
    this.#late?.settle(counted);
  }

  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    this.keys[layer] = appendPositions(this.keys[layer], keys, this.#start);
    this.values[layer] = appendPositions(this.values[layer], values, this.#start);
    return { keys: positionsOf(this.keys[layer]), values: positionsOf(this.values[layer]), lengths: this.#lengths };
  }
}

/** State arrays of a pass that learns at its end how many of its tokens count. */
export class LateStates {
  readonly #all: ((counted: Tensor) => void)[] = [];

  /** Has `write` take what `after` gives, once the number of tokens is known. Both run in the stream of the layer at hand. */
  add(after: StateAfter, write: (state: Tensor) => void): void {
    const own = mx.defaultStream();
    this.#all.push((counted) => mx.stream(own, () => write(after(counted))));
  }

  /** Computes the arrays after as many tokens as `counted` (B,) says. */
  settle(counted: Tensor): void {
    for (const settle of this.#all.splice(0)) settle(counted);
  }
}

/** The arrays of a pass as a part of a loop's state. */
export function buffersOf(
  { keys, values, states }: { readonly keys: Tensor[]; readonly values: Tensor[]; readonly states: Tensor[] },
): Buffers {
  return { keys, values, ...(states.length > 0 && { states }) };
}

/** Tokens up to index `last` (1,), which is limited to the rows as in `take`: int32 (1,). */
export function countUpTo(last: Tensor, rows: number): Tensor {
  return mx.add(mx.minimum(last, rows - 1).astype(mx.int32), 1);
}
