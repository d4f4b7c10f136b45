/**
 * Caches that keep the first positions of a sequence and the last ones, as mlx-lm's `RotatingKVCache` does. Memory is that of a fixed number of
 * pages however long the sequence gets.
 *
 * Page 0 has the first positions. The others are a ring of M positions: position p is in slot p % M. The ring grows with the sequence up to
 * its M. Attention reads all of them in the order of memory. RoPE was applied before, so only the mask needs to know which position a slot
 * has. The ring is longer than what attention sees. So a pass of many tokens, with its padding, overwrites nothing that its first token
 * sees, and some tokens can be forgotten.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { PAGE } from "../../graph/kv_layout.ts";

/** What a token sees. */
export interface RingSizes {
  /** The first positions, at most {@link PAGE}. */
  readonly keep: number;
  /** The last positions, its own among them. */
  readonly last: number;
}

/** Tokens of a pass at most, and tokens that can be forgotten: more than steps on their way ever are. */
export const RING_CHUNK = 256;

/** The pages of a ring that holds so many positions of one sequence, page 0 among them. Until it has all of its pages nothing is overwritten. */
export function ringColumns({ last }: RingSizes, positions: number): number {
  return 1 + Math.ceil(Math.min(positions, last + 2 * RING_CHUNK) / PAGE);
}

/** Positions of a ring with so many pages, page 0 among them. */
export function ringPositions(columns: number): number {
  return (columns - 1) * PAGE;
}

/** Which positions the slots of a ring have after a pass, and which of them a token sees. */
export class RingMask {
  readonly #sizes: Tensor;
  readonly #columns: number;
  readonly #end: Tensor;
  readonly #masks = new Map<number | undefined, Tensor>();

  /** `sizes` is int32 (2,): keep and last. `end` is int32 (B,): the last position that the pass wrote. */
  constructor(sizes: Tensor, columns: number, end: Tensor) {
    this.#sizes = sizes;
    this.#columns = columns;
    this.#end = end;
  }

  /** bool (B, 1, T, slots) for tokens at `positions`, int32 (1 or B, 1, T, 1), of a layer with a window or without. */
  mask(positions: Tensor, window: number | undefined): Tensor {
    const mask = this.#masks.get(window) ?? this.#made(positions, window);
    this.#masks.set(window, mask);
    return mask;
  }

  #made(positions: Tensor, window: number | undefined): Tensor {
    const [keep, last] = mx.split(this.#sizes, 2, 0);
    const first = mx.arange(0, PAGE, 1, mx.int32);
    const before = mx.subtract(positions, last); // the last position that the ring does not show
    const shown = mx.logicalAnd(mx.less(first, keep), mx.lessEqual(first, before));
    const end = this.#end.reshape([-1, 1, 1, 1]);
    const slots = mx.arange(0, ringPositions(this.#columns), 1, mx.int32);
    const held = mx.subtract(end, mx.remainder(mx.subtract(end, slots), slots.size)); // below 0 where nothing was written
    const seen = mx.logicalAnd(mx.lessEqual(held, positions), mx.greater(held, mx.maximum(before, -1)));
    const left = window === undefined ? undefined : mx.subtract(positions, window);
    const within = (mask: Tensor, at: Tensor): Tensor => left ? mx.logicalAnd(mask, mx.greater(at, left)) : mask;
    return mx.concatenate([within(shown, first), within(seen, held)], -1);
  }
}
