/**
 * One pass over tokens: where they stand, and the masks of attention, which layers share.
 *
 * Each sequence has T tokens: a row of them, or all sequences one after another in one row. Attention tells them apart, other modules need
 * not.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Cache, KeysValues } from "../kv/cache.ts";

/** The positions of a pass over T tokens of each sequence. */
export class Pass {
  /** The position of the first token: a number, or int32 (B,). */
  readonly offset: number | Tensor;
  /** T: how many tokens follow each other. */
  readonly rows: number;
  readonly #masks = new Map<string, Tensor>();
  readonly #others = new Map<string, Pass>();
  /** Keys and values by the layer that made them, for layers that share them. */
  readonly keysValues: Map<number, KeysValues> = new Map();

  /** Takes the position of the first token and how many there are. */
  constructor(offset: number | Tensor, rows: number) {
    this.offset = offset;
    this.rows = rows;
  }

  /** The pass over `count` tokens of each row that a cache opens, or that begins where there is none. */
  static open(cache: Cache | undefined, count: number): Pass {
    return new Pass(cache?.begin(count) ?? 0, cache?.tile ?? count);
  }

  /** The same for the layers of a device, where they are on several: each has masks of its own. */
  on(device: string | undefined): Pass {
    if (device === undefined) return this;
    const there = this.#others.get(device) ?? new Pass(this.offset, this.rows);
    this.#others.set(device, there);
    return there;
  }

  /** How many sequences the tokens (B, …) or (1, …) of a pass are of. */
  sequences([rows, tokens]: readonly number[]): number {
    return tokens === this.rows ? rows : rows * tokens / this.rows;
  }

  /** What each token sees: the positions up to its own, or the last `window` of those. */
  seen(window: number | undefined): Pick<mx.fast.AttentionOptions, "window"> & { readonly mask: "causal" | null } {
    const { offset, rows } = this;
    const mask = rows > 1 ? "causal" : null;
    const seesAll = window === undefined || (typeof offset === "number" && offset + rows <= window);
    return seesAll ? { mask } : { mask, window };
  }

  /** The same as a mask over what a cache holds, which layers share; of a ring what that shows. */
  mask(given: number | undefined, { keys: { shape: [, , keys] }, ring }: KeysValues): Tensor | "causal" | null {
    if (ring) return ring.mask(this.positions, given);
    const { mask: plain, window } = this.seen(given);
    if (window === undefined || window === null) return plain;
    const name = `${window} ${keys}`;
    const mask = this.#masks.get(name) ?? this.#windowMask(window, keys);
    this.#masks.set(name, mask);
    return mask;
  }

  /** The positions of the tokens, int32 (1 or B, 1, T, 1). */
  get positions(): Tensor {
    const row = mx.arange(0, this.rows, 1, mx.int32).reshape(1, 1, -1, 1);
    return mx.add(row, typeof this.offset === "number" ? this.offset : this.offset.reshape(-1, 1, 1, 1));
  }

  #windowMask(window: number, keys: number): Tensor {
    const column = mx.arange(0, keys, 1, mx.int32);
    const { positions } = this;
    return mx.logicalAnd(mx.lessEqual(column, positions), mx.greater(column, mx.subtract(positions, window)));
  }
}
