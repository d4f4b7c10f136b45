/**
 * Places intermediates: lifetimes in, blocks of arenas out.
 *
 * Values whose lifetimes do not overlap share a block; a block is never shared in part, so hazards can be tracked per block. The largest
 * value comes first, and makes a block of its size. Smaller ones fill the gaps, each in the smallest block that is free for as long as it
 * lives. This is "greedy by size" of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (arXiv 2001.03288).
 * Blocks lie in as few buffers as the largest size of a buffer allows, each an arena.
 *
 * @module
 */

/** A value that lives from the dispatch that writes it to the last one that reads it. */
export interface Lifetime {
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

/** Where a block lies. */
export interface BlockPlace {
  readonly arena: number;
  readonly byteOffset: number;
}

/** Which block each value got, where the blocks lie, and the bytes of each arena. */
export interface Placement {
  readonly blockOf: readonly number[];
  readonly places: readonly BlockPlace[];
  readonly arenas: readonly number[];
}

const ALIGN = 256;
/** Bytes after each block that wide loads may touch. */
const SLACK = 64;

/** A block, and when it is taken: spans in their order that do not overlap. */
interface Block {
  readonly bytes: number;
  readonly spans: Lifetime[];
}

/** Where in the order of a block's spans a lifetime fits in; -1 if it overlaps one. */
function gapFor({ spans }: Block, { first, last }: Lifetime): number {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (spans[middle].last < first) low = middle + 1;
    else high = middle;
  }
  return low === spans.length || spans[low].first > last ? low : -1;
}

/** Assigns blocks to arenas of `most` bytes at most, unless one block is larger. */
export function place(lifetimes: readonly Lifetime[], most: number): Placement {
  const blocks: Block[] = []; // the largest first
  const blockOf = new Array<number>(lifetimes.length);
  const bySize = [...lifetimes.keys()].sort((a, b) => lifetimes[b].bytes - lifetimes[a].bytes || a - b);
  for (const i of bySize) {
    const value = lifetimes[i];
    let block = blocks.length - 1;
    let gap = -1;
    while (block >= 0 && (gap = gapFor(blocks[block], value)) < 0) block--;
    if (block < 0) block = blocks.push({ bytes: value.bytes, spans: [value] }) - 1;
    else blocks[block].spans.splice(gap, 0, value);
    blockOf[i] = block;
  }
  const arenas: number[] = [];
  const places = blocks.map((block): BlockPlace => {
    const bytes = Math.ceil((block.bytes + SLACK) / ALIGN) * ALIGN;
    if (arenas.length === 0 || arenas[arenas.length - 1] + bytes > most) arenas.push(0);
    const arena = arenas.length - 1;
    const byteOffset = arenas[arena];
    arenas[arena] += bytes;
    return { arena, byteOffset };
  });
  return { blockOf, places, arenas };
}
