/**
 * Keys and values of the tokens seen so far, for all layers of a model.
 *
 * Every layer owns two preallocated buffers ({@link LayerBuffers}) whose positions are written in place. Capacity comes in steps of 256
 * and doubles when it is outgrown. Positions after the last token are never read and may hold NaN. A `StepCache` gives the same
 * buffers to a step whose position is an int32 array on the device. Its graph is the same for every step of as many tokens until
 * the capacity changes.
 *
 * Keys and values of 8 bits, and those of a ring (ring.ts), are in pages instead, see cache_pages.ts.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { appendPositions, positionsOf, uninitialised } from "../../array/devices/kv_memory.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { KV_CODES } from "../../graph/kv_codes.ts";
import { isBlocked, type KvLayout, PAGE, plainLayout } from "../../graph/kv_layout.ts";
import type { ModelConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import { LayerBuffers, type LayerBufferSizes } from "./buffers.ts";
import { CachePages } from "./cache_pages.ts";
import { type KvHeads, sidesOf, valuesOfPosition } from "./heads.ts";
import type { Buffers, Cache, KeysValues } from "./pass.ts";
import { RING_CHUNK, ringPositions, type RingSizes } from "./ring.ts";
import { LayerStates, sameStates, stateBytes, type StateShape } from "./states.ts";

export type { Buffers, Cache, KeysValues };

/** Shape of a cache. */
export interface KvCacheOptions extends Omit<LayerBufferSizes, "block" | "layerHeads"> {
  /** The heads of each layer; absent where all layers have `heads` of `headDim`, of keys and of values. */
  readonly layerHeads?: readonly KvHeads[];
  /** Features of keys and of values that lie beside each other, divisors of `headDim`. Default all. */
  readonly blocks?: KvLayout;
  /** State arrays of layers without keys and values, in the order of layers. Default none. */
  readonly states?: readonly StateShape[];
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

/**
 * How a cache holds a layer: by keys and values at a place among those of all layers, or by state arrays of some numbers. With a window the
 * layer sees so many positions.
 */
export type LayerPart = { readonly place: number; readonly window?: number } | { readonly states: readonly number[] };

const STEP = 256;
/** What two caches must share for one to take the place of the other. */
const SIZES = ["layers", "batch", "heads", "headDim", "layerHeads"] as const;

function steps(tokens: number): number {
  return Math.ceil(tokens / STEP) * STEP;
}

/** A key/value cache; made by `model.makeCache()`, filled by `model.forward(tokens, cache)`. */
export class KvCache implements Cache {
  readonly #options: KvCacheOptions;
  readonly #keys: LayerBuffers;
  readonly #values: LayerBuffers;
  readonly #states: LayerStates;
  readonly #pages: CachePages | undefined;
  /** See {@link Cache.counted}: no token of a pass is padding. */
  readonly counted = undefined;
  #offset = 0;
  #tokens: readonly number[] = [];
  #count = 0;
  #start: Tensor | undefined;
  /** The first position after 0 that has all that layers with a window see. */
  #earliest = 0;
  /** Most tokens that it held. */
  #highest = 0;

  /** Makes an empty cache; buffers come with the first token. */
  constructor(options: KvCacheOptions) {
    const { blocks = plainLayout(options.headDim) } = options;
    this.#options = options;
    const { keys, values } = sidesOf(options);
    const { bits, ring, batch } = options;
    const isPaged = bits !== undefined || ring !== undefined;
    const dtype = bits ? KV_CODES : options.dtype;
    // Pages come with the first token. Attention multiplies values that a ring does not show by zero: they must not be NaN.
    const sizes = { ...options, dtype, batch: isPaged ? 0 : batch, zeroed: ring !== undefined };
    this.#keys = new LayerBuffers({ ...sizes, layerHeads: keys, block: blocks.keys });
    this.#values = new LayerBuffers({ ...sizes, layerHeads: values, block: blocks.values });
    if (isPaged) this.#pages = new CachePages(batch, { keys: this.#keys, values: this.#values }, ring);
    this.#states = new LayerStates(options.states ?? [], options.batch);
  }

  /** Whether another cache is one for as many sequences of a model of the same sizes. */
  isLike(other: KvCache): boolean {
    const [states, others] = [this, other].map((cache) => cache.#options.states ?? []);
    const alike = SIZES.every((name) => JSON.stringify(this.#options[name]) === JSON.stringify(other.#options[name]));
    return alike && sameStates(states, others);
  }

  /** Whether layers have a recurrent state: then {@link KvCache.trim} goes back only to some positions. */
  get hasState(): boolean {
    return (this.#options.states ?? []).length > 0;
  }

  /** Number of tokens held: the position of the next one. */
  get offset(): number {
    return this.#offset;
  }

  /** Ids of the tokens that it holds; none where something else than generation filled it. */
  get tokens(): readonly number[] {
    return this.#tokens.length === this.#offset ? this.#tokens : [];
  }

  /** Notes ids from the first token on; more than are held do not count. */
  remember(tokens: readonly number[]): void {
    this.#tokens = tokens.slice(0, this.#offset);
  }

  /** Most tokens that it may hold. */
  get limit(): number {
    return this.#options.limit;
  }

  /** Whether it lies as fused decoding wants it: then a token takes little by itself. */
  get fused(): boolean {
    const { blocks, headDim } = this.#options;
    return blocks !== undefined && isBlocked(blocks, headDim);
  }

  /** Positions that the buffers have now. A ring that has its pages has room for all. */
  get capacity(): number {
    return this.#pages ? Math.min(this.#pages.capacity, steps(this.limit)) : this.#keys.positions;
  }

  /** Bytes that the buffers take for a number of tokens; default the current capacity. */
  byteLength(tokens: number = this.capacity): number {
    const { batch, bits, dtype, states = [] } = this.#options;
    const { bytes } = bits ? KV_CODES : dtype;
    const positions = this.#pages ? this.#pages.columnsFor(steps(tokens)) * PAGE : steps(tokens);
    return batch * (valuesOfPosition(this.#options) * positions * bytes + stateBytes(states));
  }

  /** Bits of the codes of keys and values; undefined where those are numbers of `dtype`. */
  get kvBits(): 8 | undefined {
    return this.#options.bits;
  }

  /** What tokens see where only the first and the last positions are kept; undefined where all are. */
  get ring(): RingSizes | undefined {
    return this.#options.ring;
  }

  /** Most tokens of a pass: of a ring a few hundred. */
  get maxPass(): number {
    return this.ring ? RING_CHUNK : Infinity;
  }

  /** Keys of all layers, then values, then states. A forward pass is complete once these are evaluated, whether its logits are or not. */
  get state(): readonly Tensor[] {
    return [...this.keys, ...this.values, ...this.#states.arrays];
  }

  /** Keys per layer. */
  get keys(): readonly Tensor[] {
    return this.#keys.perLayer;
  }

  /** Values per layer. */
  get values(): readonly Tensor[] {
    return this.#values.perLayer;
  }

  /** Keys and values as the state of a loop wants them: in few arrays. */
  get buffers(): Buffers {
    const states = this.hasState && { states: this.#states.arrays };
    return { keys: this.#keys.slabs, values: this.#values.slabs, ...states, ...this.#pages?.parts };
  }

  /** Config of the model that fills it, where that is known. */
  get config(): ModelConfig | undefined {
    return this.#options.config;
  }

  /** Element type of keys and values. */
  get dtype(): Dtype {
    return this.#options.dtype;
  }

  /** Layers that have keys and values of their own. */
  get layers(): number {
    return this.#options.layers;
  }

  /** How it holds each layer of the model. */
  get parts(): readonly LayerPart[] {
    const { layers, states = [], windows } = this.#options;
    const count = layers + new Set(states.map(({ layer }) => layer)).size;
    let place = 0;
    return Array.from({ length: count }, (_, layer) => {
      const own = states.flatMap((state, index) => state.layer === layer ? [index] : []);
      if (own.length > 0) return { states: own };
      const window = windows?.[place];
      return { place: place++, ...(window !== undefined && { window }) };
    });
  }

  /** How many positions {@link KvCache.read} gives: all, or of a ring those that its last token saw. */
  get held(): number {
    const { keep, last } = this.ring ?? { keep: 0, last: Infinity };
    return Math.min(this.#offset, keep + last);
  }

  /** Shape (B, H, held, D) of the keys of a layer of the tokens that it holds, or of their values. */
  shapeOf(layer: number, which: "keys" | "values"): readonly [number, number, number, number] {
    const { batch } = this.#options;
    const { heads, headDim } = sidesOf(this.#options)[which]?.[layer] ?? this.#options;
    return [batch, heads, this.held, headDim];
  }

  /** Keys or values of a layer, of {@link KvCache.shapeOf}, computed when they are read. */
  read(layer: number, which: "keys" | "values"): Tensor {
    if (this.#pages) {
      const { held, dtype, ring: { keep: first } = { keep: 0 } } = this;
      return this.#pages.read(layer, which, { offset: this.#offset, first, held, dtype });
    }
    return { keys: this.#keys, values: this.#values }[which].read(layer, this.#offset);
  }

  /**
   * Fills an empty cache with `count` tokens, layer by layer. `keysValuesOf` gives the keys and values (B, H, count, D) of a layer; they are
   * disposed after they were written. Of a layer with a window the last ones are enough, all that the next token sees. Of a
   * ring they are the first and the last ones. The cache then goes back only to where these are all that a token sees. `stateOf` gives each state array (B, …), if layers have some. Throws an
   * {@link LlmError} if the tokens exceed the context.
   */
  fill(
    count: number,
    keysValuesOf: (layer: number) => Pick<KeysValues, "keys" | "values">,
    stateOf?: (index: number) => Tensor,
  ): void {
    if (this.#offset > 0) throw new LlmError("option", "KvCache.fill() takes a cache that holds nothing");
    this.reserve(count);
    for (let layer = 0; layer < this.#options.layers; layer++) {
      const { keys, values } = keysValuesOf(layer);
      const lacking = count - keys.shape[2];
      const { keep, last: seen } = this.ring ?? { keep: 0, last: this.#options.windows?.[layer] ?? Infinity };
      const first = Math.min(keep, keys.shape[2]);
      if (this.#pages) this.#pages.fill(layer, keys, values, first, count);
      else {
        const [allKeys, allValues] = [keys, values].map((last) => lacking > 0 ? zerosBefore(last, lacking) : last);
        this.#keys.write(layer, allKeys);
        this.#values.write(layer, allValues);
        mx.dispose(allKeys, allValues);
      }
      mx.dispose(keys, values);
      if (lacking > 0) this.#earliest = Math.max(this.#earliest, first + lacking + seen - 1);
    }
    for (const index of (this.#options.states ?? []).keys()) this.#states.replace(index, stateOf!(index));
    this.#states.submit();
    this.advance(count);
  }

  begin(count: number): number {
    if (count > this.maxPass) {
      throw new LlmError("option", `A cache with maxKvSize takes ${this.maxPass} tokens at once: ${count} were given`);
    }
    this.reserve(count);
    this.#count = count;
    this.#pages?.begin(count, this.#offset);
    this.#start = mx.array([this.#offset], mx.int32);
    return this.#offset;
  }

  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    const end = this.#offset + this.#count;
    const held = this.#pages?.update(layer, keys, values) ?? this.#append(layer, keys, values, end);
    if (layer === this.#options.layers - 1) this.advance(this.#count);
    return held;
  }

  /** Appends to the buffers of a layer; they hold positions up to `end` then. */
  #append(layer: number, keys: Tensor, values: Tensor, end: number): KeysValues {
    const [heldKeys, heldValues] = [this.#write(this.#keys, layer, keys), this.#write(this.#values, layer, values)];
    const all = { lengths: undefined };
    if (end === this.#count) return { keys: cast(keys, heldKeys), values: cast(values, heldValues), ...all };
    const view = (buffer: Tensor): Tensor => positionsOf(buffer.index("...", mx.Slice(0, end), mx.Slice(null)));
    return { keys: view(heldKeys), values: view(heldValues), ...all };
  }

  /**
   * Makes room for `count` more tokens, and for as many more positions as padding or tokens to come may want. Throws an
   * {@link LlmError} where the tokens pass the context.
   */
  reserve(count: number, positions: number = count): void {
    const end = this.#offset + count;
    if (end > this.#options.limit) {
      throw new LlmError("context", `The context holds ${this.#options.limit} tokens: ${end} would be needed`);
    }
    this.#grow(Math.max(end, this.#offset + positions));
  }

  /**
   * Buffers of the shapes that the cache gets when it grows for one more token than fits, not evaluated; undefined where it cannot
   * grow.
   */
  outgrown(): Buffers | undefined {
    const capacity = this.#next(this.capacity + 1);
    if (this.capacity === 0 || this.capacity >= this.#options.limit) return undefined;
    const alike = this.#states.arrays.map(({ shape, dtype }) => uninitialised(shape, dtype));
    const states = this.hasState && { states: alike };
    if (this.#pages) return { ...this.#pages.grown(this.#pages.columnsFor(capacity)), ...states };
    return { keys: this.#keys.grown(capacity), values: this.#values.grown(capacity), ...states };
  }

  /** See {@link Cache.readState}. */
  readState(index: number): Tensor {
    return this.#states.arrays[index];
  }

  /** See {@link Cache.writeState}. */
  writeState(index: number, state: Tensor): void {
    this.#states.replace(index, state);
  }

  /** Counts `count` tokens whose positions a {@link StepCache} has written into the buffers. */
  advance(count: number): void {
    this.#offset += count;
    this.#highest = Math.max(this.#highest, this.#offset);
  }

  /**
   * Keeps a copy of the recurrent state after the tokens that it holds, so that {@link KvCache.trim} can come back. The last four copies
   * stay. Generation keeps one at the end of each prompt. Without recurrent layers it does nothing.
   *
   * @example
   * ```ts ignore
   * using cache = model.makeCache();
   * model.forward(question, cache);
   * cache.checkpoint();
   * model.forward(answer, cache);
   * cache.trim(answer.size); // to the end of the question
   * ```
   */
  checkpoint(): void {
    if (this.hasState && this.#offset > 0) this.#states.keep(this.#offset);
  }

  /**
   * The last position, `position` at most, that {@link KvCache.trim} can go back to. It is `position` itself in most caches. Recurrent
   * layers, windows from a file and rings lack earlier positions.
   */
  reachable(position: number): number {
    if (position === this.#offset) return position;
    const reachable = this.hasState ? this.#states.reachable(position) : position;
    return reachable < this.#whole ? 0 : reachable;
  }

  /**
   * Forgets the last `count` tokens, at most all; returns how many those were. Throws an {@link LlmError} if the cache cannot go back to the
   * position before those tokens, see {@link KvCache.reachable}. For recurrent layers {@link KvCache.checkpoint} keeps a position.
   */
  trim(count: number): number {
    const trimmed = Math.min(count, this.#offset);
    const position = this.#offset - trimmed;
    const reachable = this.reachable(position);
    if (reachable !== position) {
      const [what, advice] = position < this.#whole
        ? ["earlier positions that its tokens see are gone: it", ""]
        : ["the state of recurrent layers", ". Call checkpoint() there"];
      const why = `${what} goes back to ${reachable} and not to ${position}${advice}`;
      throw new LlmError("option", `A cache of ${this.#offset} tokens cannot forget ${count}: ${why}`);
    }
    if (this.hasState && trimmed > 0) this.#states.restore(position);
    this.#offset = position;
    if (position === 0) this.#earliest = this.#highest = 0;
    this.remember(this.#tokens);
    return trimmed;
  }

  /** Forgets all tokens and keeps the buffers. */
  reset(): void {
    this.trim(this.#offset);
  }

  /** Frees the buffers; the cache is empty again. */
  dispose(): void {
    this.#keys.dispose();
    this.#values.dispose();
    this.#states.dispose();
    this.#pages?.dispose();
    this.reset();
  }

  /** Same as {@link KvCache.dispose}. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Appends positions to the buffer of a layer, and gives the new one. */
  #write(buffers: LayerBuffers, layer: number, positions: Tensor): Tensor {
    const next = appendPositions(buffers.perLayer[layer], positions, this.#start!);
    buffers.replace(layer, next);
    return next;
  }

  /** Positions that the buffers get when more than they have are needed. */
  #next(positions: number): number {
    return Math.max(steps(positions), Math.min(2 * this.capacity, steps(this.#options.limit)));
  }

  #grow(positions: number): void {
    if (positions <= this.capacity) return;
    const capacity = this.#next(positions);
    if (this.#pages) return this.#pages.grow(this.#pages.columnsFor(capacity));
    this.#keys.grow(capacity);
    this.#values.grow(capacity);
  }

  /** The first position after 0 that has all that a token there sees. */
  get #whole(): number {
    if (!this.ring || !this.#pages) return this.#earliest;
    // A pass may have written as much after what it counted.
    const isWhole = this.#highest + RING_CHUNK <= ringPositions(this.#pages.columnsFor(Infinity));
    return Math.max(this.#earliest, isWhole ? 0 : this.#highest - RING_CHUNK);
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
