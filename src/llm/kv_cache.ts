/**
 * Keys and values of the tokens seen so far, for all layers of a model.
 *
 * Every layer owns two preallocated buffers whose rows are written in place: (B, H, D / block, capacity, block), because fused
 * decoding reads a few features of all positions at once; with blocks of D it is the plain layout. Capacity comes in steps
 * of 256 and doubles when it is outgrown. Rows beyond the tokens hold anything, NaN among it: nothing looks at them. A
 * {@link StepCache} shows the same buffers to a step whose position is an int32 array on the device: its graph is the same for
 * every step of as many tokens until the capacity changes.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import { joined, sideBySide, uninitialised } from "../array/cache.ts";
import type { Dtype, Tensor } from "../array/mod.ts";
import { untrack } from "../array/scope.ts";
import { LlmError } from "./error.ts";

/** Shape of a cache. */
export interface KvCacheOptions {
  /** Layers of the model. */
  readonly layers: number;
  /** Sequences that advance together. */
  readonly batch: number;
  /** Key/value heads. */
  readonly heads: number;
  /** Size of a head. */
  readonly headDim: number;
  /** Element type of keys and values. */
  readonly dtype: Dtype;
  /** Features of keys and of values that lie side by side, divisors of `headDim`; all unless given. */
  readonly blocks?: { readonly keys: number; readonly values: number };
  /** Most tokens that it may hold. */
  readonly limit: number;
}

/** What attention reads: all rows seen so far, or whole buffers and the number of valid rows. */
export interface KeysValues {
  /** (B, H, rows, D) */
  readonly keys: Tensor;
  /** (B, H, rows, D) */
  readonly values: Tensor;
  /** int32 (B,): valid rows; `undefined` when all are. */
  readonly lengths: Tensor | undefined;
}

/** Where a forward pass leaves its keys and values. */
export interface Cache {
  /** Opens a pass over `count` more tokens; returns the position of the first: a number, or int32 (B,). */
  begin(count: number): number | Tensor;
  /** Appends the keys and values (B, H, T, D) of one layer. The last layer closes the pass. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues;
}

const STEP = 256;
/** What two caches must share for one to take the place of the other. */
const SIZES = ["layers", "batch", "heads", "headDim"] as const;

function steps(tokens: number): number {
  return Math.ceil(tokens / STEP) * STEP;
}

/** A key/value cache; made by `model.makeCache()`, filled by `model.forward(tokens, cache)`. */
export class KvCache implements Cache {
  #options: KvCacheOptions;
  #keys: Tensor[] = [];
  #values: Tensor[] = [];
  #capacity = 0;
  #offset = 0;
  #tokens: readonly number[] = [];
  #count = 0;
  #start: Tensor | undefined;

  /** Makes an empty cache; buffers come with the first token. */
  constructor(options: KvCacheOptions) {
    this.#options = options;
  }

  /**
   * Makes room for `rows` tokens in each of some caches that are alike and have no room yet, so that {@link KvCache.stack} copies
   * nothing unless one of them grows. Throws an {@link LlmError} for other caches.
   */
  static sideBySide(caches: readonly KvCache[], rows: number): void {
    const [first] = caches;
    if (!caches.every((cache) => cache.isLike(first) && cache.#capacity === 0)) {
      throw new LlmError("option", "KvCache.sideBySide() takes caches of one model that hold nothing: make new ones");
    }
    const capacity = steps(rows);
    const { layers, dtype } = first.#options;
    const shapes = first.#shapes(capacity);
    for (let layer = 0; layer < layers; layer++) {
      const [keys, values] = shapes.map((shape) => sideBySide(caches.length, shape, dtype));
      caches.forEach((cache, i) => {
        cache.#keys[layer] = owned(keys[i]);
        cache.#values[layer] = owned(values[i]);
      });
    }
    for (const cache of caches) cache.#capacity = capacity;
  }

  /** One cache of several sequences out of caches of one each, which are empty afterwards; it holds the longest one's tokens. */
  static stack(caches: readonly KvCache[]): KvCache {
    const stacked = new KvCache({ ...caches[0].#options, batch: caches.length });
    const capacity = Math.max(...caches.map((cache) => cache.#capacity));
    const join = (buffers: readonly Tensor[]): Tensor => owned(joined(buffers) ?? mx.concatenate([...buffers], 0));
    for (const cache of caches) cache.#resize(capacity);
    caches[0].#keys.forEach((_, layer) => {
      stacked.#keys[layer] = join(caches.map((cache) => cache.#keys[layer]));
      stacked.#values[layer] = join(caches.map((cache) => cache.#values[layer]));
    });
    stacked.#capacity = capacity;
    stacked.#offset = Math.max(...caches.map((cache) => cache.#offset));
    mx.eval(...stacked.state);
    for (const cache of caches) cache.dispose();
    return stacked;
  }

  /** Whether another cache is one for as many sequences of a model of the same sizes. */
  isLike(other: KvCache): boolean {
    return SIZES.every((name) => this.#options[name] === other.#options[name]);
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
    return blocks !== undefined && blocks.keys < headDim;
  }

  /** Rows that the buffers have now. */
  get capacity(): number {
    return this.#capacity;
  }

  /** Bytes that the buffers take for a number of tokens; for those that it holds room for now unless given. */
  byteLength(tokens: number = this.#capacity): number {
    const { layers, batch, heads, headDim, dtype } = this.#options;
    return 2 * layers * batch * heads * steps(tokens) * headDim * dtype.bytes;
  }

  /** Keys of all layers, then values. A forward pass is complete once these are evaluated, whether its logits are or not. */
  get state(): readonly Tensor[] {
    return [...this.#keys, ...this.#values];
  }

  /** Keys per layer. */
  get keys(): readonly Tensor[] {
    return this.#keys;
  }

  /** Values per layer. */
  get values(): readonly Tensor[] {
    return this.#values;
  }

  begin(count: number): number {
    this.reserve(count);
    this.#count = count;
    this.#start = mx.array([this.#offset], mx.int32);
    return this.#offset;
  }

  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    this.#keys[layer] = this.#write(this.#keys[layer], keys);
    this.#values[layer] = this.#write(this.#values[layer], values);
    const end = this.#offset + this.#count;
    if (layer === this.#options.layers - 1) this.#offset = end;
    const all = { lengths: undefined };
    if (end === this.#count) {
      return { keys: cast(keys, this.#keys[layer]), values: cast(values, this.#values[layer]), ...all };
    }
    const view = (buffer: Tensor): Tensor => rowsOf(buffer.index("...", mx.Slice(0, end), mx.Slice(null)));
    return { keys: view(this.#keys[layer]), values: view(this.#values[layer]), ...all };
  }

  /**
   * Makes room for `count` more tokens, and for as many more rows as padding or tokens to come may want. Throws an
   * {@link LlmError} where the tokens pass the context.
   */
  reserve(count: number, rows: number = count): void {
    const end = this.#offset + count;
    if (end > this.#options.limit) {
      throw new LlmError("context", `The context holds ${this.#options.limit} tokens: ${end} would be needed`);
    }
    this.#grow(Math.max(end, this.#offset + rows));
  }

  /**
   * Arrays of the shapes that keys and values get when the cache grows for one more token than fits, not evaluated; undefined where it
   * cannot grow.
   */
  outgrown(): Pick<KvCache, "keys" | "values"> | undefined {
    const capacity = this.#next(this.#capacity + 1);
    if (this.#capacity === 0 || this.#capacity >= this.#options.limit) return undefined;
    const grown = (buffer: Tensor): Tensor =>
      uninitialised(buffer.shape.map((size, axis) => axis === 3 ? capacity : size), buffer.dtype);
    return { keys: this.#keys.map(grown), values: this.#values.map(grown) };
  }

  /** Counts `count` tokens whose rows a {@link StepCache} has written into the buffers. */
  advance(count: number): void {
    this.#offset += count;
  }

  /** Forgets the last `count` tokens, at most all; returns how many those were. */
  trim(count: number): number {
    const trimmed = Math.min(count, this.#offset);
    this.#offset -= trimmed;
    this.remember(this.#tokens);
    return trimmed;
  }

  /** Keeps some of the sequences, in the order of their numbers; the longest of them has `offset` tokens. */
  keep(sequences: readonly number[], offset: number): void {
    const rows = mx.array([...sequences], mx.int32);
    const kept = (buffer: Tensor): Tensor => {
      const next = owned(mx.take(buffer, rows, 0));
      buffer[Symbol.dispose]();
      return next;
    };
    this.#keys = this.#keys.map(kept);
    this.#values = this.#values.map(kept);
    rows[Symbol.dispose]();
    this.#offset = offset;
    this.#options = { ...this.#options, batch: sequences.length };
  }

  /** Forgets all tokens and keeps the buffers. */
  reset(): void {
    this.trim(this.#offset);
  }

  /** Frees the buffers; the cache is empty again. */
  dispose(): void {
    mx.dispose(this.state);
    this.#keys = [];
    this.#values = [];
    this.#capacity = 0;
    this.reset();
  }

  /** Same as {@link KvCache.dispose}. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  #write(buffer: Tensor, rows: Tensor): Tensor {
    const next = append(buffer, rows, this.#start!);
    buffer[Symbol.dispose]();
    return owned(next);
  }

  /** Rows that the buffers get when more than they have are needed. */
  #next(rows: number): number {
    return Math.max(steps(rows), Math.min(2 * this.#capacity, steps(this.#options.limit)));
  }

  #grow(rows: number): void {
    if (rows > this.#capacity) this.#resize(this.#next(rows));
  }

  /** Shapes of `rows` rows of keys and of values. */
  #shapes(rows: number): readonly [number[], number[]] {
    const { batch, heads, headDim, blocks } = this.#options;
    const shape = (block: number): number[] => [batch, heads, headDim / block, rows, block];
    return [shape(blocks?.keys ?? headDim), shape(blocks?.values ?? headDim)];
  }

  #resize(capacity: number): void {
    if (capacity === this.#capacity) return;
    const { layers, dtype } = this.#options;
    const [keys, values] = this.#shapes(capacity - this.#capacity);
    const grown = (shape: number[], buffer?: Tensor): Tensor => {
      const more = uninitialised(shape, dtype);
      if (buffer === undefined) return owned(more);
      const next = mx.concatenate([buffer, more], 3);
      mx.dispose(buffer, more);
      return owned(next);
    };
    for (let layer = 0; layer < layers; layer++) {
      this.#keys[layer] = grown(keys, this.#keys[layer]);
      this.#values[layer] = grown(values, this.#values[layer]);
    }
    this.#capacity = capacity;
  }
}

/** One pass over buffers that somebody else owns, at positions that the device knows. The buffers must have room for all of it. */
export class StepCache implements Cache {
  /** Keys per layer; updated as the pass goes on. */
  readonly keys: Tensor[];
  /** Values per layer. */
  readonly values: Tensor[];
  readonly #position: Tensor;
  readonly #start: Tensor;
  #lengths: Tensor | undefined;

  /** `position` is int32 (B,): the number of rows that are valid before the pass, of each sequence. */
  constructor(keys: readonly Tensor[], values: readonly Tensor[], position: Tensor) {
    this.keys = [...keys];
    this.values = [...values];
    this.#position = position;
    this.#start = position.reshape([-1, 1]);
  }

  begin(count: number): Tensor {
    this.#lengths = mx.add(this.#position, count);
    return this.#position;
  }

  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    this.keys[layer] = append(this.keys[layer], keys, this.#start);
    this.values[layer] = append(this.values[layer], values, this.#start);
    return { keys: rowsOf(this.keys[layer]), values: rowsOf(this.values[layer]), lengths: this.#lengths };
  }
}

/** `buffer` with rows (B, H, T, D) written from row `start` (1,), or rows (B, 1), on, in place. */
function append(buffer: Tensor, rows: Tensor, start: Tensor): Tensor {
  const [B, H, blocks, , block] = buffer.shape;
  const split = cast(rows, buffer).reshape(B, H, rows.shape[2], blocks, block).transpose(0, 1, 3, 2, 4);
  return mx.sliceUpdate(buffer, split, start, [3], { donate: true });
}

/** The rows (B, H, T, D) of a buffer. */
function rowsOf(buffer: Tensor): Tensor {
  const [B, H, blocks, T, block] = buffer.shape;
  return buffer.transpose(0, 1, 3, 2, 4).reshape(B, H, T, blocks * block);
}

function cast(rows: Tensor, buffer: Tensor): Tensor {
  return rows.astype(buffer.dtype);
}

/** Takes a buffer out of the scopes of tidy(): it lives until the cache lets it go. */
function owned(buffer: Tensor): Tensor {
  untrack(buffer);
  return buffer;
}
