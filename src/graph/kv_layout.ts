/**
 * How the positions of a key/value cache lie in memory: (B, H, D / block, capacity, block). So a fused step reads a few features of all
 * positions at once. With a block of a whole head this is the plain (B, H, capacity, D).
 *
 * The cache makes its buffers and views from here and marks its updates in a graph with the block (`kvBlock` of
 * `dynamicSliceUpdate`). Fused kernels are found and specialised by that mark. To change the layout, edit this file and the shaders
 * that read caches (`shaders/decode`, `shaders/decode_batched`, `shaders/coopmat`).
 *
 * @module
 */

import type { Shape } from "./shape.ts";

/** Contiguous features of keys and of values: divisors of the head size. */
export interface KvLayout {
  readonly keys: number;
  readonly values: number;
}

/** The layout that the kernels of a fused step read. */
export const FUSED_LAYOUT: KvLayout = { keys: 4, values: 8 };

/**
 * Positions of a page, where many sequences share a pool of pages. A pool is a buffer whose first dimension counts pages and that has so
 * many positions. A table (sequences, pages of one) of int32 says which pages hold the positions of a sequence, in their order. More
 * positions waste more memory at the end of each sequence; fewer ones make longer tables. Kernels take them 32 at a time.
 */
export const PAGE = 64;

/** Dimensions of a buffer. */
export const BUFFER_RANK = 5;
/** The dimension of a buffer along which positions follow each other. */
export const POSITIONS_AXIS = 3;

/** Where positions (B, H, T, D) swap places with blocks, either way. */
const AXES: readonly number[] = [0, 1, 3, 2, 4];

/** Sizes of a buffer. */
export interface KvBufferSizes {
  readonly batch: number;
  readonly heads: number;
  readonly positions: number;
  readonly headDim: number;
  readonly block: number;
}

/** The plain layout: (B, H, capacity, D). */
export function plainLayout(headDim: number): KvLayout {
  return { keys: headDim, values: headDim };
}

/** Whether the features of a head lie in more than one block. */
export function isBlocked(layout: KvLayout, headDim: number): boolean {
  return layout.keys < headDim || layout.values < headDim;
}

/** The shape of a buffer. */
export function bufferShape({ batch, heads, positions, headDim, block }: KvBufferSizes): number[] {
  return [batch, heads, headDim / block, positions, block];
}

/** The sizes of a buffer of a shape. */
export function bufferSizes([batch, heads, blocks, positions, block]: Shape): KvBufferSizes {
  return { batch, heads, positions, headDim: blocks * block, block };
}

/** How positions (B, H, T, D) become positions of a buffer: by a reshape to `shape`, then a transposition by `axes`. */
export function toBuffer(
  [B, H, T, D]: Shape,
  block: number,
): { readonly shape: number[]; readonly axes: readonly number[] } {
  return { shape: [B, H, T, D / block, block], axes: AXES };
}

/** How a buffer is seen as positions (B, H, T, D): by a transposition by `axes`, then a reshape to `shape`. */
export function toPositions(buffer: Shape): { readonly axes: readonly number[]; readonly shape: number[] } {
  const { batch, heads, positions, headDim } = bufferSizes(buffer);
  return { axes: AXES, shape: [batch, heads, positions, headDim] };
}
