/**
 * What a forward pass reads and writes of a cache, whichever keeps it: a `KvCache`, a `StepCache` or a `PagedCache`.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import type { StackedTensors } from "../../array/devices/stack.ts";
import type { RingMask } from "./ring.ts";

/** What attention reads: all positions seen so far, or whole buffers and the number of valid positions. */
export interface KeysValues {
  /** (B, H, positions, D) */
  readonly keys: Tensor;
  /** (B, H, positions, D) */
  readonly values: Tensor;
  /** int32 (B,): valid positions; `undefined` when all are. */
  readonly lengths: Tensor | undefined;
  /** Which positions those of a ring are; absent where they follow each other. */
  readonly ring?: RingMask;
}

/** A state array after the first tokens of a pass, as many as `counted` (B,) says. */
export type StateAfter = (counted: Tensor) => Tensor;

/** Where a forward pass leaves its keys and values. */
export interface Cache {
  /** Opens a pass over `count` more tokens; returns the position of the first: a number, or int32 (B,), of each tile if there are tiles. */
  begin(count: number): number | Tensor;
  /** Appends the keys and values (B, H, T, D) of one layer of attention. The last one closes the pass. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues;
  /** State array number `index` (B, …) as the tokens before the pass left it: zeros before the first one. */
  readState(index: number): Tensor;
  /**
   * Leaves a state array for the next pass. `after` gives the one after the first tokens of the pass, for numbers int32 (B,) of them. A pass
   * over drafted tokens knows those numbers at its end.
   */
  writeState(index: number, state: Tensor, after: StateAfter): void;
  /** Where a pass has tokens of several sequences in one row, (1, n * tile): how many follow each other. Absent where each has a row. */
  readonly tile?: number | undefined;
  /** How many tokens of the pass are no padding, int32 (1,); `undefined` if all are. States are those after the last of them. */
  readonly counted: Tensor | undefined;
}

/** Keys and values of all layers: their buffers, or stacks of them. */
export interface Buffers {
  readonly keys: readonly (Tensor | StackedTensors)[];
  readonly values: readonly (Tensor | StackedTensors)[];
  /** State arrays of layers without keys and values; absent if there are none. */
  readonly states?: readonly Tensor[];
  /** int32 (B, P): the pages of each sequence, where keys and values are in pages. */
  readonly table?: Tensor;
  /** Keys and values of the head that drafts, in a loop that has one. */
  readonly draftKeys?: readonly (Tensor | StackedTensors)[];
  readonly draftValues?: readonly (Tensor | StackedTensors)[];
  /** int32 (2,): how many first and last positions tokens see, where the pages are a ring. */
  readonly ring?: Tensor;
}
