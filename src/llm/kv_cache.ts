/**
 * Keys and values of the tokens seen so far, for all layers of a model.
 *
 * Every layer owns two preallocated buffers (B, H, capacity, D) whose rows are written in place. Capacity comes in steps
 * of 256 and doubles when it is outgrown. A step of one token is told its position and the number of valid rows by int32
 * arrays on the device and sees whole buffers: its graph is the same for every token until the capacity changes.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
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
  /** Most tokens that it may hold. */
  readonly limit: number;
}

/** Where the tokens of one forward pass stand. */
export interface Positions {
  /** Position of the first one: a number, or int32 (1,) for a single token. */
  readonly offset: number | Tensor;
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

const STEP = 256;

function steps(tokens: number): number {
  return Math.ceil(tokens / STEP) * STEP;
}

/** A key/value cache; made by `model.makeCache()`, filled by `model.forward(tokens, cache)`. */
export class KvCache {
  readonly #options: KvCacheOptions;
  #keys: Tensor[] = [];
  #values: Tensor[] = [];
  #capacity = 0;
  #offset = 0;
  #count = 0;
  #start: Tensor | undefined;
  #lengths: Tensor | undefined;

  /** Makes an empty cache; buffers come with the first token. */
  constructor(options: KvCacheOptions) {
    this.#options = options;
  }

  /** Number of tokens held: the position of the next one. */
  get offset(): number {
    return this.#offset;
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

  /** The buffers. A forward pass is complete once these are evaluated, whether its logits are or not. */
  get state(): readonly Tensor[] {
    return [...this.#keys, ...this.#values];
  }

  /** Opens a forward pass over `count` more tokens: makes room and says where they stand. */
  begin(count: number): Positions {
    const end = this.#offset + count;
    if (end > this.#options.limit) {
      throw new LlmError("context", `The context holds ${this.#options.limit} tokens: ${end} would be needed`);
    }
    this.#reserve(end);
    this.#count = count;
    this.#start = mx.array([this.#offset], mx.int32);
    this.#lengths = count === 1 ? mx.array(new Array<number>(this.#options.batch).fill(end), mx.int32) : undefined;
    return { offset: count === 1 ? this.#start : this.#offset };
  }

  /** Appends the keys and values (B, H, T, D) of one layer, in place. The last layer closes the pass. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    this.#keys[layer] = this.#write(this.#keys[layer], keys);
    this.#values[layer] = this.#write(this.#values[layer], values);
    const end = this.#offset + this.#count;
    if (layer === this.#options.layers - 1) this.#offset = end;
    const view = (buffer: Tensor): Tensor =>
      this.#count === 1 ? buffer : buffer.index("...", mx.Slice(0, end), mx.Slice());
    return { keys: view(this.#keys[layer]), values: view(this.#values[layer]), lengths: this.#lengths };
  }

  /** Forgets the last `count` tokens, at most all; returns how many those were. */
  trim(count: number): number {
    const trimmed = Math.min(count, this.#offset);
    this.#offset -= trimmed;
    return trimmed;
  }

  /** Forgets all tokens and keeps the buffers. */
  reset(): void {
    this.#offset = 0;
  }

  /** Frees the buffers; the cache is empty again. */
  dispose(): void {
    mx.dispose(this.state);
    this.#keys = [];
    this.#values = [];
    this.#capacity = 0;
    this.#offset = 0;
  }

  /** Same as {@link KvCache.dispose}. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  #write(buffer: Tensor, rows: Tensor): Tensor {
    const next = mx.sliceUpdate(buffer, rows, this.#start!, [2], { donate: true });
    buffer[Symbol.dispose]();
    return owned(next);
  }

  #reserve(rows: number): void {
    if (rows <= this.#capacity) return;
    const { layers, batch, heads, headDim, dtype, limit } = this.#options;
    const capacity = Math.max(steps(rows), Math.min(2 * this.#capacity, steps(limit)));
    const empty = (): Tensor => mx.zeros([batch, heads, capacity - this.#capacity, headDim], dtype);
    const grown = (buffer?: Tensor): Tensor => {
      if (buffer === undefined) return owned(empty());
      const next = mx.concatenate([buffer, empty()], 2);
      buffer[Symbol.dispose]();
      return owned(next);
    };
    for (let layer = 0; layer < layers; layer++) {
      this.#keys[layer] = grown(this.#keys[layer]);
      this.#values[layer] = grown(this.#values[layer]);
    }
    this.#capacity = capacity;
  }
}

/** Takes a buffer out of the scopes of tidy(): it lives until the cache lets it go. */
function owned(buffer: Tensor): Tensor {
  untrack(buffer);
  return buffer;
}
