/**
 * Keys and values of many sequences in one pool of pages: a table tells which pages hold the positions of each sequence, in their order.
 * Sequences that begin alike may share pages. Which pages are whose is not decided here: src/llm/engine does that.
 *
 * Where layers have windows, there are several tables over the same memory, see page_groups.ts.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { enqueue } from "../../array/compile/evaluate.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { appendPages, gatherPages } from "../../array/fast/pages.ts";
import { StackedTensors, unstacked } from "../../array/devices/stack.ts";
import { BUFFER_RANK, bufferShape, type KvLayout, PAGE } from "../../graph/kv_layout.ts";
import { MAX_SIZE } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { inSameMemory, uninitialised, writeRows } from "../../array/devices/kv_memory.ts";
import { onDevice } from "../../array/devices/on_device.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { LayerBuffers, type LayerBufferSizes, type LayerHeads } from "./buffers.ts";
import type { LayerGroups, LayerPlace } from "./page_groups.ts";
import type { Buffers, Cache, KeysValues, StateAfter } from "./pass.ts";
import { buffersOf, countUpTo, LateStates } from "./step_cache.ts";
import { type KvHeads, sidesOf, valuesOfPosition } from "./heads.ts";
import { RingMask, ringPositions } from "./ring.ts";
import { stateBytes, type StateShape } from "./states.ts";

/** Sizes of a pool. Its dtype is that of the numbers, or `KV_CODES` where they have 8 bits. */
export interface KvPoolSizes extends Omit<LayerBufferSizes, "block" | "batch" | "layerHeads"> {
  /** The heads of each layer; absent where all layers have `heads` of `headDim`, of keys and of values. */
  readonly layerHeads?: readonly KvHeads[];
  /** Features of keys and of values that lie beside each other. */
  readonly blocks: KvLayout;
  /** Pages of each layer, or units that layers with and without windows share. */
  readonly pages: number;
  /** How those share them. Absent where all layers have the same pages. */
  readonly groups?: LayerGroups;
  /** Where the head that drafts has its keys, values and state. Absent where none drafts. */
  readonly head?: HeadPlace;
  /** State arrays of layers without keys and values. Default none. */
  readonly states?: readonly StateShape[];
  /** Slots, each for the states of one sequence. Default none. */
  readonly slots?: number;
}

/** Where a pool keeps what a head that drafts needs of each sequence. */
export interface HeadPlace {
  /** Its keys and values: the layer after those of the model. */
  readonly layer: number;
  /** The state array with the last hidden state of the model, (1, H). */
  readonly state: number;
}

/** Bytes that one page takes in all layers, or one unit in its slots, keys and values together. */
export function pageBytes(sizes: Omit<KvPoolSizes, "pages" | "blocks">): number {
  return valuesOfPosition(unitSizes(sizes)) * PAGE * sizes.dtype.bytes;
}

/** Most units of a pool. Each layer, or each slot that layers share, has an array of keys and one of values, of so many bytes at most. */
export function maxUnits(sizes: Omit<KvPoolSizes, "pages" | "blocks">, bufferBytes: number): number {
  const all = unitSizes(sizes);
  const largest = (all.layerHeads ?? [all]).reduce(
    (most, { heads, headDim, valueDim = headDim }: KvHeads) => Math.max(most, heads * Math.max(headDim, valueDim)),
    1,
  );
  return mostIn(largest * PAGE, sizes.dtype, bufferBytes);
}

/** Most slots of a pool, whose states have an array each. */
export function maxSlots({ states = [] }: Pick<KvPoolSizes, "states">, bufferBytes: number): number {
  return Math.min(...states.map(({ shape, dtype }) => mostIn(sizeOf(shape), dtype, bufferBytes)));
}

/** How often so many elements fit one array. */
function mostIn(elements: number, dtype: Dtype, bufferBytes: number): number {
  return Math.floor(Math.min(MAX_SIZE, bufferBytes / dtype.bytes) / elements);
}

/** The layers whose memory a pool has: those of the model, or the slots that they share. */
function unitSizes<S extends Omit<KvPoolSizes, "pages" | "blocks">>(sizes: S): S {
  const { groups } = sizes;
  if (!groups) return sizes;
  const { slots: layers, heads: one } = groups;
  const areAlike = one.heads === sizes.heads && one.headDim === sizes.headDim && one.valueDim === undefined;
  return { ...sizes, layers, layerHeads: areAlike ? undefined : Array<KvHeads>(layers).fill(one) };
}

/** Bytes that one slot takes. */
export function slotBytes({ states = [] }: Pick<KvPoolSizes, "states">): number {
  return stateBytes(states);
}

/** The share of pages, or of slots if that is larger, that each device has; none where layers are on one. */
export function deviceShares(sizes: Omit<KvPoolSizes, "pages" | "blocks">): Map<string, number> {
  const { devices = [], states = [] } = sizes;
  const shares = new Map<string, number>();
  const names = new Set([...devices, ...states.flatMap(({ device }) => device ?? [])]);
  for (const name of names) {
    const values = devices.reduce((sum, one, layer) => sum + (one === name ? valuesOfPosition(sizes, layer) : 0), 0);
    const own = states.filter(({ device }) => device === name);
    shares.set(name, Math.max(values / (valuesOfPosition(sizes) || 1), stateBytes(own) / (stateBytes(states) || 1)));
  }
  return shares;
}

/** The pages of all layers of a model. Their memory is taken when it is first used. */
export class KvPool implements Disposable {
  readonly #keys: LayerBuffers;
  readonly #values: LayerBuffers;
  #states: readonly Tensor[] | undefined;
  /** The memory of keys and of values as the layers of each table see it; absent where one table has all layers. */
  readonly #views: Partial<Record<"keys" | "values", Buffers["keys"]>> = {};
  readonly #device: string | undefined;
  /** Its sizes. */
  readonly sizes: KvPoolSizes;

  /** Pages that hold nothing yet, on a device; default the default one. */
  constructor(sizes: KvPoolSizes, device?: string) {
    this.sizes = sizes;
    this.#device = device;
    const all = unitSizes(sizes);
    const { pages: batch, blocks, groups, head } = sizes;
    const sides = sidesOf(all);
    [this.#keys, this.#values] = (["keys", "values"] as const).map((side) => {
      // Masks multiply what a window does not show by zero: pages that were given back must hold no NaN. Nor does a head get all positions.
      const zeroed = groups !== undefined || head !== undefined;
      const buffers = new LayerBuffers({ ...all, layerHeads: sides[side], batch, block: blocks[side], zeroed });
      buffers.grow(PAGE);
      return buffers;
    });
  }

  /**
   * Keys and values as the state of a loop wants them: in few arrays. With several tables they are those of the layers of the first
   * table, of the second one and so on. Arrays of two tables have the same memory, and no page of it is in both tables.
   */
  get buffers(): Buffers {
    const { states = [], slots = 0 } = this.sizes;
    const made = states.length > 0 && (this.#states ??= states.map((state) => slotsOf(state, slots)));
    const [keys, values] = ([["keys", this.#keys], ["values", this.#values]] as const).map(([side, { slabs }]) =>
      this.#viewsOf(side, slabs)
    );
    return { keys, values, ...(made && { states: made }) };
  }

  #viewsOf(side: "keys" | "values", slabs: Buffers["keys"]): Buffers["keys"] {
    const { groups, blocks } = this.sizes;
    if (!groups || groups.tables.length === 1) return slabs;
    return this.#views[side] ??= this.#onDevice(() => {
      const heads = sidesOf({ ...this.sizes, layerHeads: groups.tableHeads })[side]!;
      return groups.tables.flatMap(({ ratio }, table) =>
        slabs.map((slab) => viewOf(slab, { ...heads[table], block: blocks[side], ratio }))
      );
    });
  }

  #onDevice<T>(work: () => T): T {
    return this.#device === undefined ? work() : mx.withDevice(this.#device, work);
  }

  /** Element type of keys and values. */
  get dtype(): Dtype {
    return this.sizes.dtype;
  }

  /** Frees the pages. */
  [Symbol.dispose](): void {
    mx.dispose(this.#views);
    delete this.#views.keys;
    delete this.#views.values;
    this.#keys.dispose();
    this.#values.dispose();
    mx.dispose(this.#states ?? []);
    this.#states = undefined;
  }
}

/**
 * A pool's array in other sizes, in the same memory: each page is cut into `ratio` pages of other heads. In a layout of blocks heads
 * are alike.
 */
function viewOf(
  slab: Tensor | StackedTensors,
  { heads, headDim, block, ratio }: LayerHeads & { readonly block: number; readonly ratio: number },
): Tensor | StackedTensors {
  const array = slab instanceof StackedTensors ? slab.arrays as Tensor : slab;
  const [pages, , , , contiguous] = array.shape.slice(-BUFFER_RANK);
  const own = contiguous === block ? block : headDim;
  const shape = bufferShape({ batch: pages * ratio, heads, positions: PAGE, headDim, block: own });
  enqueue(array);
  const view = inSameMemory(array, [...array.shape.slice(0, -BUFFER_RANK), ...shape]);
  untrack(view);
  return slab instanceof StackedTensors ? new StackedTensors(view) : view;
}

/** Slots of one state array. */
function slotsOf({ shape, dtype, device }: StateShape, slots: number): Tensor {
  const array = onDevice(device, () => uninitialised([slots, ...shape], dtype));
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
  /** The table, where it is a part of the buffers. */
  readonly #table: Tensor | undefined;
  /** One, or one of each group of layers. */
  readonly #tables: readonly Tensor[];
  readonly #layers: readonly LayerPlace[] | undefined;
  readonly #slots: Tensor | undefined;
  /** See {@link Cache.tile}. */
  readonly tile: number | undefined;
  readonly #last: Tensor | undefined;
  readonly #sizes: Tensor | undefined;
  /** The parts of a ring's table that a pass writes through, and where it begins in each. */
  #ringPlaces: readonly (readonly [table: Tensor, start: Tensor])[] | undefined;
  #ring: RingMask | undefined;
  #lengths: Tensor | undefined;
  #counted: Tensor | undefined;
  readonly #late: LateStates | undefined;

  /**
   * `position` is int32 (B,): the positions that each sequence has before the pass. `tables` are int32 (B, P): the pages of each, with
   * room for the pass. One table serves all layers, or `layers` has the table of each and its place among the layers of that. With `buffers.ring` they are a ring, see ring.ts. `slots` is int32 (B,): where the states of each are, if layers
   * have some; without it the states are those of the sequences. `last` is the index of the last token of the pass that is no padding, uint32 (1,).
   * With `drafts`, {@link PagedCache.settle} says at the end how many tokens of each sequence count.
   *
   * With `tile`, tokens are (1, B * tile), and B counts tiles of so many tokens that follow each other. Several may be of one sequence: they
   * have its pages and positions of their own. Each sees what all of the pass have written before its positions.
   */
  constructor(
    buffers: Buffers,
    position: Tensor,
    tables: Tensor | readonly Tensor[],
    { slots, last, tile, layers, drafts = false }: {
      readonly slots?: Tensor;
      readonly last?: Tensor;
      readonly tile?: number;
      readonly layers?: readonly LayerPlace[] | undefined;
      readonly drafts?: boolean;
    } = {},
  ) {
    this.keys = unstacked(buffers.keys);
    this.values = unstacked(buffers.values);
    this.states = [...buffers.states ?? []];
    this.#position = position;
    this.#table = tables instanceof mx.Tensor ? tables : undefined;
    this.#tables = tables instanceof mx.Tensor ? [tables] : tables;
    this.#layers = layers;
    this.#slots = slots;
    this.#last = last;
    this.tile = tile;
    this.#sizes = buffers.ring;
    this.#late = drafts ? new LateStates() : undefined;
  }

  /** Pages and slots as the pass left them. */
  get buffers(): Buffers {
    return {
      ...buffersOf(this),
      ...(this.#table && { table: this.#table }),
      ...(this.#sizes && { ring: this.#sizes }),
    };
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
  writeState(index: number, state: Tensor, after: StateAfter): void {
    const write = (value: Tensor): void => {
      this.states[index] = this.#slots
        ? writeRows(this.states[index], value, this.#slots)
        : value.astype(this.states[index].dtype);
    };
    if (this.#late) this.#late.add(after, write);
    else write(state);
  }

  /** See {@link StepCache.settle}. */
  settle(counted: Tensor): void {
    this.#late?.settle(counted);
  }

  /** See {@link Cache.begin}. */
  begin(count: number): Tensor {
    const end = mx.add(this.#position, this.tile ?? count);
    if (this.#sizes) {
      const [table] = this.#tables;
      const columns = table.shape[1];
      const [first, ring] = mx.split(table, [1], 1);
      const start = mx.remainder(this.#position, ringPositions(columns));
      // Positions outside of a table are left out: page 0 gets the first ones. A pass that reaches the end of the ring goes on at its begin.
      this.#ringPlaces = [[first, this.#position], [mx.concatenate([ring, ring], 1), start]];
      this.#ring = new RingMask(this.#sizes, columns, mx.subtract(end, 1));
    } else this.#lengths = end;
    this.#counted = this.#last && countUpTo(this.#last, count);
    return this.#position;
  }

  /** See {@link Cache.update}. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    const { table: number, slot } = this.#layers?.[layer] ?? { table: 0, slot: layer };
    const at = number * this.keys.length / this.#tables.length + slot;
    const own = this.#tables[number];
    for (const [table, start] of this.#ringPlaces ?? [[own, this.#position]]) {
      this.keys[at] = appendPages(this.keys[at], keys, table, start);
      this.values[at] = appendPages(this.values[at], values, table, start);
    }
    const [all, allValues] = [this.keys[at], this.values[at]].map((pool) => gatherPages(pool, own, keys.dtype));
    return { keys: all, values: allValues, lengths: this.#lengths, ...(this.#ring && { ring: this.#ring }) };
  }
}
