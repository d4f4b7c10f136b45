/**
 * A cache of the tokens seen so far: how many there are, their keys and values (cache_buffers.ts) and the states of recurrent layers
 * (states.ts). A `StepCache` gives the same buffers to a step whose position is an int32 array on the device. Its graph is the same for
 * every step of as many tokens until the capacity changes.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { uninitialised } from "../../array/devices/kv_memory.ts";
import { onDevice } from "../../array/devices/on_device.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { isBlocked } from "../../graph/kv_layout.ts";
import type { ModelConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import { CacheBuffers, type KvCacheOptions } from "./cache_buffers.ts";
import { sidesOf } from "./heads.ts";
import { areAlike, type LayerPart, layerParts } from "./layer_parts.ts";
import type { Buffers, Cache, KeysValues } from "./pass.ts";
import { Reach } from "./reach.ts";
import { RING_CHUNK, type RingSizes } from "./ring.ts";
import { LayerStates, stateBytes } from "./states.ts";

export type { Buffers, Cache, KeysValues, KvCacheOptions };

/** A key/value cache; made by `model.makeCache()`, filled by `model.forward(tokens, cache)`. */
export class KvCache implements Cache {
  readonly #options: KvCacheOptions;
  readonly #buffers: CacheBuffers;
  readonly #states: LayerStates;
  readonly #reach: Reach;
  /** See {@link Cache.counted}: no token of a pass is padding. */
  readonly counted = undefined;
  #offset = 0;
  #tokens: readonly number[] = [];
  #count = 0;
  /** Makes an empty cache; buffers come with the first token. */
  constructor(options: KvCacheOptions) {
    this.#options = options;
    this.#buffers = new CacheBuffers(options);
    this.#states = new LayerStates(options.states ?? [], options.batch, options.device);
    this.#reach = new Reach(this.#buffers, this.hasState ? this.#states : undefined);
  }

  /** Whether another cache is one for as many sequences of a model of the same sizes. */
  isLike(other: KvCache): boolean {
    return areAlike(this.#options, other.#options);
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
    return this.#buffers.capacity;
  }

  /** Bytes that the buffers take for a number of tokens; default the current capacity. */
  byteLength(tokens: number = this.capacity): number {
    const { batch, states = [] } = this.#options;
    return this.#buffers.byteLength(tokens) + batch * stateBytes(states);
  }

  /** The same of each layer of the model. Layers that share the keys and values of others take none. */
  byteLengths(tokens: number): number[] {
    const { batch, states = [] } = this.#options;
    return this.parts.map((part) =>
      "place" in part
        ? this.#buffers.byteLength(tokens, part.place)
        : batch * stateBytes(part.states.map((index) => states[index]))
    );
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
    return this.#buffers.keys;
  }

  /** Values per layer. */
  get values(): readonly Tensor[] {
    return this.#buffers.values;
  }

  /** Keys and values as the state of a loop wants them: in few arrays. */
  get buffers(): Buffers {
    const { keys, values, ...pages } = this.#buffers.slabs;
    return { keys, values, ...(this.hasState && { states: this.#states.arrays }), ...pages };
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
    return layerParts(this.#options);
  }

  /** How many positions {@link KvCache.read} gives: all, or of a ring those that its last token saw. */
  get held(): number {
    return Math.min(this.#offset, this.ring ? this.ring.keep + this.ring.last : Infinity);
  }

  /** Shape (B, H, held, D) of the keys of a layer of the tokens that it holds, or of their values. */
  shapeOf(layer: number, which: "keys" | "values"): readonly [number, number, number, number] {
    const { heads, headDim } = sidesOf(this.#options)[which]?.[layer] ?? this.#options;
    return [this.#options.batch, heads, this.held, headDim];
  }

  /** Keys or values of a layer, of {@link KvCache.shapeOf}, computed when they are read. */
  read(layer: number, which: "keys" | "values"): Tensor {
    return this.#buffers.read(layer, which, this);
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
      this.#buffers.fill(layer, keys, values, first, count);
      mx.dispose(keys, values);
      if (lacking > 0) this.#reach.begin(first + lacking + seen - 1);
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
    this.#buffers.begin(count, this.#offset);
    return this.#offset;
  }

  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    const held = this.#buffers.update(layer, keys, values);
    if (layer === this.#options.layers - 1) this.advance(this.#count);
    return held;
  }

  /**
   * Makes room for `count` more tokens, and for as many more positions as padding or tokens to come may want. Throws an
   * {@link LlmError} where the tokens pass the context.
   */
  reserve(count: number, positions: number = count): void {
    const end = this.#offset + count;
    const { limit } = this;
    if (end > limit) throw new LlmError("context", `The context holds ${limit} tokens: ${end} would be needed`);
    this.#buffers.grow(Math.max(end, this.#offset + positions));
  }

  /**
   * Buffers of the shapes that the cache gets when it grows for one more token than fits, `times` times one after another. They are not
   * evaluated. Undefined where it cannot grow so often, or has room for `positions` before.
   */
  outgrown(times: number = 1, positions: number = Infinity): Buffers | undefined {
    let { capacity } = this;
    for (let i = 0; i < times; i++) {
      if (capacity === 0 || capacity >= Math.min(this.#options.limit, positions)) return undefined;
      capacity = this.#buffers.next(capacity + 1, capacity);
    }
    const alike = this.#states.arrays.map(({ shape, dtype }, i) =>
      onDevice(this.#options.states![i].device, () => uninitialised(shape, dtype))
    );
    return { ...this.#buffers.grown(capacity), ...(this.hasState && { states: alike }) };
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
    this.#reach.note(this.#offset);
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
    return this.#reach.last(position, this.#offset);
  }

  /**
   * Forgets the last `count` tokens, at most all; returns how many those were. Throws an {@link LlmError} if the cache cannot go back to the
   * position before those tokens, see {@link KvCache.reachable}. For recurrent layers {@link KvCache.checkpoint} keeps a position.
   */
  trim(count: number): number {
    const trimmed = Math.min(count, this.#offset);
    const position = this.#offset - trimmed;
    this.#reach.check(count, this.#offset);
    if (this.hasState && trimmed > 0) this.#states.restore(position);
    this.#offset = position;
    if (position === 0) this.#reach.reset();
    this.remember(this.#tokens);
    return trimmed;
  }

  /** Forgets all tokens and keeps the buffers. */
  reset(): void {
    this.trim(this.#offset);
  }

  /** Frees the buffers; the cache is empty again. */
  dispose(): void {
    this.#buffers.dispose();
    this.#states.dispose();
    this.reset();
  }

  /** Same as {@link KvCache.dispose}. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}
