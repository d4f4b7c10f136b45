/**
 * Places intermediates: lifetimes in, blocks of one arena out.
 *
 * Values whose lifetimes do not overlap share a block; a block is never shared in part, so hazards can be tracked per block.
 * Greedy over dispatch order: a new value takes the free block that fits best, or grows the largest free one.
 *
 * @module
 */

/** A value that lives from the dispatch that writes it to the last one that reads it. */
export interface Lifetime {
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

/** Which block each value got, and where the blocks lie in the arena. */
export interface Placement {
  readonly blockOf: readonly number[];
  readonly offsets: readonly number[];
  readonly bytes: number;
}

const ALIGN = 256;
/** Bytes behind each block that wide loads may touch. */
const SLACK = 64;

/** Assigns blocks; `lifetimes` must be ordered by `first`. */
export function place(lifetimes: readonly Lifetime[]): Placement {
  const sizes: number[] = [];
  const freeAt: number[] = []; // dispatch after which a block is free again
  const blockOf = lifetimes.map(({ bytes, first, last }) => {
    let best = -1;
    let largest = -1;
    for (let b = 0; b < sizes.length; b++) {
      if (freeAt[b] >= first) continue;
      if (sizes[b] >= bytes && (best < 0 || sizes[b] < sizes[best])) best = b;
      if (largest < 0 || sizes[b] > sizes[largest]) largest = b;
    }
    const block = best >= 0 ? best : largest;
    if (block < 0) {
      sizes.push(bytes);
      freeAt.push(last);
      return sizes.length - 1;
    }
    sizes[block] = Math.max(sizes[block], bytes);
    freeAt[block] = last;
    return block;
  });
  let at = 0;
  const offsets = sizes.map((size) => {
    const offset = at;
    at += Math.ceil((size + SLACK) / ALIGN) * ALIGN;
    return offset;
  });
  return { blockOf, offsets, bytes: at };
}
