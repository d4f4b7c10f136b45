/**
 * The keys and values of a cache, for all layers: preallocated buffers ({@link LayerBuffers}) whose positions are written in place.
 *
 * Capacity comes in steps of 256 and doubles when it is outgrown. Positions after the last token are never read and may hold NaN. Keys and
 * values of 8 bits, and those of a ring (ring.ts), are in pages instead, see cache_pages.ts.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { appendPositions, positionsOf } from "../../array/devices/kv_memory.ts";
import { onDevice } from "../../array/devices/on_device.ts";
import type { Tensor } from "../../array/mod.ts";
import { KV_CODES } from "../../graph/kv_codes.ts";
import { type KvLayout, PAGE, plainLayout } from "../../graph/kv_layout.ts";
import type { ModelConfig } from "../config/model.ts";
import { LayerBuffers, type LayerBufferSizes } from "./buffers.ts";
import { CachePages } from "./cache_pages.ts";
import { type KvHeads, sidesOf, valuesOfPosition } from "./heads.ts";
import type { Buffers, KeysValues } from "./pass.ts";
import { RING_CHUNK, ringPositions, type RingSizes } from "./ring.ts";
import type { StateShape } from "./states.ts";

/** Shape of a cache. */
export interface KvCacheOptions extends Omit<LayerBufferSizes, "block" | "layerHeads"> {
  /** The heads of each layer; absent where all layers have `heads` of `headDim`, of keys and of values. */
  readonly layerHeads?: readonly KvHeads[];
  /** Features of keys and of values that lie beside each other, divisors of `headDim`. Default all. */
  readonly blocks?: KvLayout;
  /** State arrays of layers without keys and values, in the order of layers. Default none. */
  readonly states?: readonly StateShape[];
  /** The device of states before the first token; default the default one. */
  readonly device?: string;
  /** How many positions the layers with keys and values see, in their order; `undefined` for all. Absent where every layer sees all. */
  readonly windows?: readonly (number | undefined)[];
  /** 8 for the codes of src/graph/kv_codes.ts. Default: numbers of `dtype`. */
  readonly bits?: 8;
  /** What tokens see of a cache that keeps the first and the last positions only. Default: it keeps all. */
  readonly ring?: RingSizes;
  /** Most tokens that it may hold. */
  readonly limit: number;
  /** Config of the model that fills it. */
  readonly config?: ModelConfig;
}

const STEP = 256;

function steps(tokens: number): number {
  return Math.ceil(tokens / STEP) * STEP;
}

/** The positions that a cache holds. */
export interface HeldPositions {
  /** How many tokens there are. */
  readonly offset: number;
  /** How many positions of them are kept. */
  readonly held: number;
}

/** Keys and values of layers. */
export class CacheBuffers {
  readonly #options: KvCacheOptions;
  readonly #keys: LayerBuffers;
  readonly #values: LayerBuffers;
  readonly #pages: CachePages | undefined;
  /** Where the tokens of a pass begin, on the device and here, and how many there are. */
  #start: Tensor | undefined;
  #offset = 0;
  #count = 0;

  /** Makes empty ones; memory comes with the first token. */
  constructor(options: KvCacheOptions) {
    const { bits, ring, batch, blocks = plainLayout(options.headDim) } = options;
    this.#options = options;
    const { keys, values } = sidesOf(options);
    const isPaged = bits !== undefined || ring !== undefined;
    const dtype = bits ? KV_CODES : options.dtype;
    // Pages come with the first token. Attention multiplies values that a ring does not show by zero: they must not be NaN.
    const sizes = { ...options, dtype, batch: isPaged ? 0 : batch, zeroed: ring !== undefined };
    this.#keys = new LayerBuffers({ ...sizes, layerHeads: keys, block: blocks.keys });
    this.#values = new LayerBuffers({ ...sizes, layerHeads: values, block: blocks.values });
    if (isPaged) this.#pages = new CachePages(batch, { keys: this.#keys, values: this.#values }, ring);
  }

  /** Keys per layer. */
  get keys(): readonly Tensor[] {
    return this.#keys.perLayer;
  }

  /** Values per layer. */
  get values(): readonly Tensor[] {
    return this.#values.perLayer;
  }

  /** Keys and values in few arrays. */
  get slabs(): Buffers {
    return { keys: this.#keys.slabs, values: this.#values.slabs, ...this.#pages?.parts };
  }

  /** Positions that there is room for. A ring that has its pages has room for all. */
  get capacity(): number {
    return this.#pages ? Math.min(this.#pages.capacity, steps(this.#options.limit)) : this.#keys.positions;
  }

  /** Bytes that a number of tokens takes, in all layers or in one. */
  byteLength(tokens: number, layer?: number): number {
    const { batch, bits, dtype } = this.#options;
    const { bytes } = bits ? KV_CODES : dtype;
    const positions = this.#pages ? this.#pages.columnsFor(steps(tokens)) * PAGE : steps(tokens);
    return batch * valuesOfPosition(this.#options, layer) * positions * bytes;
  }

  /** Keys or values of a layer, computed when they are read. */
  read(layer: number, which: "keys" | "values", { offset, held }: HeldPositions): Tensor {
    const { dtype, devices, ring: { keep: first } = { keep: 0 } } = this.#options;
    const buffers = { keys: this.#keys, values: this.#values }[which];
    return onDevice(
      devices?.[layer],
      () => this.#pages?.read(layer, which, { offset, first, held, dtype }) ?? buffers.read(layer, offset),
    );
  }

  /** Fills a layer with the first `first` and the last positions of `count` tokens, as far as they are given. */
  fill(layer: number, keys: Tensor, values: Tensor, first: number, count: number): void {
    onDevice(this.#options.devices?.[layer], () => this.#fill(layer, keys, values, first, count));
  }

  #fill(layer: number, keys: Tensor, values: Tensor, first: number, count: number): void {
    if (this.#pages) return this.#pages.fill(layer, keys, values, first, count);
    const lacking = count - keys.shape[2];
    const [allKeys, allValues] = [keys, values].map((last) => lacking > 0 ? zerosBefore(last, lacking) : last);
    this.#keys.write(layer, allKeys);
    this.#values.write(layer, allValues);
    mx.dispose(allKeys, allValues);
  }

  /** Begins a pass of `count` tokens after `offset` others. */
  begin(count: number, offset: number): void {
    this.#count = count;
    this.#offset = offset;
    this.#pages?.begin(count, offset);
    this.#start = mx.array([offset], mx.int32);
  }

  /** Appends the keys and values of a pass to a layer, and gives all that its tokens see. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    return this.#pages?.update(layer, keys, values) ?? this.#append(layer, keys, values, this.#offset + this.#count);
  }

  /** Appends to the buffers of a layer; they hold positions up to `end` then. */
  #append(layer: number, keys: Tensor, values: Tensor, end: number): KeysValues {
    const [heldKeys, heldValues] = [this.#write(this.#keys, layer, keys), this.#write(this.#values, layer, values)];
    const all = { lengths: undefined };
    if (end === this.#count) return { keys: cast(keys, heldKeys), values: cast(values, heldValues), ...all };
    const view = (buffer: Tensor): Tensor => positionsOf(buffer.index("...", mx.Slice(0, end), mx.Slice(null)));
    return { keys: view(heldKeys), values: view(heldValues), ...all };
  }

  /** Appends positions to the buffer of a layer, and gives the new one. */
  #write(buffers: LayerBuffers, layer: number, positions: Tensor): Tensor {
    const next = appendPositions(buffers.perLayer[layer], positions, this.#start!);
    buffers.replace(layer, next);
    return next;
  }

  /** Positions that there is room for when more than now are needed. */
  next(positions: number, capacity: number = this.capacity): number {
    return Math.max(steps(positions), Math.min(2 * capacity, steps(this.#options.limit)));
  }

  /** Makes room for so many positions. */
  grow(positions: number): void {
    if (positions <= this.capacity) return;
    const capacity = this.next(positions);
    if (this.#pages) return this.#pages.grow(this.#pages.columnsFor(capacity));
    this.#keys.grow(capacity);
    this.#values.grow(capacity);
  }

  /** Buffers of the shapes that these get with room for so many positions, not evaluated. */
  grown(capacity: number): Buffers {
    if (this.#pages) return this.#pages.grown(this.#pages.columnsFor(capacity));
    return { keys: this.#keys.grown(capacity), values: this.#values.grown(capacity) };
  }

  /** The first position whose token still sees all that it saw, after `highest` tokens were written: above 0 in a ring that went round. */
  firstWhole(highest: number): number {
    if (!this.#options.ring || !this.#pages) return 0;
    // A pass may have written as much after what it counted.
    const isWhole = highest + RING_CHUNK <= ringPositions(this.#pages.columnsFor(Infinity));
    return isWhole ? 0 : highest - RING_CHUNK;
  }

  /** Frees the memory. */
  dispose(): void {
    this.#keys.dispose();
    this.#values.dispose();
    this.#pages?.dispose();
  }
}

function cast(positions: Tensor, buffer: Tensor): Tensor {
  return positions.astype(buffer.dtype);
}

/** Zeros of `count` positions, then positions (B, H, T, D): attention reads no NaN where it sees nothing. */
function zerosBefore(positions: Tensor, count: number): Tensor {
  return mx.tidy(() => {
    const [B, H, , D] = positions.shape;
    return mx.concatenate([mx.zeros([B, H, count, D], positions.dtype), positions], 2);
  });
}
