/**
 * Keys and values of many sequences in one pool of pages: a table tells which pages hold the positions of each sequence, in their order.
 * Sequences that begin alike may share pages. Which pages are whose is not decided here: src/llm/engine does that.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { appendPages, gatherPages } from "../../array/fast/pages.ts";
import { unstacked } from "../../array/devices/stack.ts";
import { type KvLayout, PAGE } from "../../graph/kv_layout.ts";
import { uninitialised, writeRows } from "../../array/devices/kv_memory.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { LayerBuffers, type LayerBufferSizes } from "./buffers.ts";
import type { Buffers, Cache, KeysValues } from "./pass.ts";
import { buffersOf, countUpTo } from "./step_cache.ts";
import { type KvHeads, sidesOf, valuesOfPosition } from "./heads.ts";
import { RingMask, ringPositions } from "./ring.ts";
import { stateBytes, type StateShape } from "./states.ts";

/** Sizes of a pool. Its dtype is that of the numbers, or `KV_CODES` where they have 8 bits. */
export interface KvPoolSizes extends Omit<LayerBufferSizes, "block" | "batch" | "layerHeads"> {
  /** The heads of each layer; absent where all layers have `heads` of `headDim`, of keys and of values. */
  readonly layerHeads?: readonly KvHeads[];
  /** Features of keys and of values that lie beside each other. */
  readonly blocks: KvLayout;
  /** Pages of each layer. */
  readonly pages: number;
  /** State arrays of layers without keys and values. Default none. */
  readonly states?: readonly StateShape[];
  /** Slots, each for the states of one sequence. Default none. */
  readonly slots?: number;
}

/** Bytes that one page takes in all layers, keys and values together. */
export function pageBytes(sizes: Omit<KvPoolSizes, "pages" | "blocks">): number {
  return valuesOfPosition(sizes) * PAGE * sizes.dtype.bytes;
}

/** Bytes that one slot takes. */
export function slotBytes({ states = [] }: Pick<KvPoolSizes, "states">): number {
  return stateBytes(states);
}

/** The pages of all layers of a model. Their memory is taken when it is first used. */
export class KvPool implements Disposable {
  readonly #keys: LayerBuffers;
  readonly #values: LayerBuffers;
  #states: readonly Tensor[] | undefined;
  /** Its sizes. */
  readonly sizes: KvPoolSizes;

  /** Pages that hold nothing yet. */
  constructor(sizes: KvPoolSizes) {
    this.sizes = sizes;
    const { pages: batch, blocks } = sizes;
    const sides = sidesOf(sizes);
    [this.#keys, this.#values] = (["keys", "values"] as const).map((side) => {
      const buffers = new LayerBuffers({ ...sizes, layerHeads: sides[side], batch, block: blocks[side] });
      buffers.grow(PAGE);
      return buffers;
    });
  }

  /** Keys and values as the state of a loop wants them: in few arrays. */
  get buffers(): Buffers {
    const { states = [], slots = 0 } = this.sizes;
    const made = states.length > 0 && (this.#states ??= states.map((state) => slotsOf(state, slots)));
    return { keys: this.#keys.slabs, values: this.#values.slabs, ...(made && { states: made }) };
  }

  /** Element type of keys and values. */
  get dtype(): Dtype {
    return this.sizes.dtype;
  }

  /** Frees the pages. */
  [Symbol.dispose](): void {
    this.#keys.dispose();
    this.#values.dispose();
    mx.dispose(this.#states ?? []);
    this.#states = undefined;
  }
}

/** Slots of one state array. */
function slotsOf({ shape, dtype }: StateShape, slots: number): Tensor {
  const array = uninitialised([slots, ...shape], dtype);
  untrack(array);
  return array;
}

/** One pass over pages of a pool, of B sequences at positions that the device knows. */
export class PagedCache implements Cache {
  /** Keys per layer; updated as the pass goes on. */
  readonly keys: Tensor[];
  /** Values per layer. */
  readonly values: Tensor[];
  /** State arrays of all slots; updated as the pass goes on. */
  readonly states: Tensor[];
  readonly #position: Tensor;
  readonly #table: Tensor;
  readonly #slots: Tensor | undefined;
  /** See {@link Cache.tile}. */
  readonly tile: number | undefined;
  readonly #last: Tensor | undefined;
  readonly #sizes: Tensor | undefined;
  /** The tables that a pass writes through, and where it begins in each. */
  #places: readonly (readonly [table: Tensor, start: Tensor])[] = [];
  #ring: RingMask | undefined;
  #lengths: Tensor | undefined;
  #counted: Tensor | undefined;

  /**
   * `position` is int32 (B,): the positions that each sequence has before the pass. `table` is int32 (B, P): the pages of each, with
   * room for the pass. With `buffers.ring` they are a ring, see ring.ts. `slots` is int32 (B,): where the states of each are, if layers
   * have some; without it the states are those of the sequences. `last` is the index of the last token of the pass that is no padding, uint32 (1,).
   *
   * With `tile`, tokens are (1, B * tile), and B counts tiles of so many tokens that follow each other. Several may be of one sequence: they
   * have its pages and positions of their own. Each sees what all of the pass have written before its positions.
   */
  constructor(
    buffers: Buffers,
    position: Tensor,
    table: Tensor,
    { slots, last, tile }: { readonly slots?: Tensor; readonly last?: Tensor; readonly tile?: number } = {},
  ) {
    this.keys = unstacked(buffers.keys);
    this.values = unstacked(buffers.values);
    this.states = [...buffers.states ?? []];
    this.#position = position;
    this.#table = table;
    this.#slots = slots;
    this.#last = last;
    this.tile = tile;
    this.#sizes = buffers.ring;
  }

  /** Pages and slots as the pass left them. */
  get buffers(): Buffers {
    return { ...buffersOf(this), table: this.#table, ...(this.#sizes && { ring: this.#sizes }) };
  }

  /** See {@link Cache.counted}. */
  get counted(): Tensor | undefined {
    return this.#counted;
  }

  /** See {@link Cache.readState}. A slot holds what its last sequence left there until this one has a token. */
  readState(index: number): Tensor {
    if (!this.#slots) return this.states[index];
    const state = mx.take(this.states[index], this.#slots, 0);
    const begun = mx.greater(this.#position, 0).reshape([-1, ...new Array(state.ndim - 1).fill(1)]);
    return mx.where(begun, state, mx.array(0, state.dtype));
  }

  /** See {@link Cache.writeState}. */
  writeState(index: number, state: Tensor): void {
    this.states[index] = this.#slots
      ? writeRows(this.states[index], state, this.#slots)
      : state.astype(this.states[index].dtype);
  }

  /** See {@link Cache.begin}. */
  begin(count: number): Tensor {
    const end = mx.add(this.#position, this.tile ?? count);
    this.#places = [[this.#table, this.#position]];
    if (this.#sizes) {
      const columns = this.#table.shape[1];
      const [first, ring] = mx.split(this.#table, [1], 1);
      const start = mx.remainder(this.#position, ringPositions(columns));
      // Positions outside of a table are left out: page 0 gets the first ones. A pass that reaches the end of the ring goes on at its begin.
      this.#places = [[first, this.#position], [mx.concatenate([ring, ring], 1), start]];
      this.#ring = new RingMask(this.#sizes, columns, mx.subtract(end, 1));
    } else this.#lengths = end;
    this.#counted = this.#last && countUpTo(this.#last, count);
    return this.#position;
  }

  /** See {@link Cache.update}. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    for (const [table, start] of this.#places) {
      this.keys[layer] = appendPages(this.keys[layer], keys, table, start);
      this.values[layer] = appendPages(this.values[layer], values, table, start);
    }
    const [all, allValues] = [this.keys[layer], this.values[layer]].map((pool) =>
      gatherPages(pool, this.#table, keys.dtype)
    );
    return { keys: all, values: allValues, lengths: this.#lengths, ...(this.#ring && { ring: this.#ring }) };
  }
}
