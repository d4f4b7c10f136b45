/**
 * How many rows the step has that reads a part of a prompt.
 *
 * @module
 */

/**
 * Tiles of a traced prompt by its tokens. The prompt's rows are a multiple of its tile, or of the device's least tile if that is larger. The
 * first entry whose `upTo` is not passed counts. Kernels work in such tiles.
 */
const TILES: readonly { readonly upTo: number; readonly multiple: number }[] = [
  { upTo: 16, multiple: 1 },
  { upTo: 256, multiple: 32 },
  { upTo: 1024, multiple: 64 },
  { upTo: Infinity, multiple: 128 },
];

/** Rows of the step that reads `count` tokens on a device whose least tile has `tile` rows: few numbers serve all prompts. */
export function paddedLength(count: number, tile: number): number {
  if (tile === 1) return count;
  const rows = Math.max(tile, TILES.find(({ upTo }) => count <= upTo)!.multiple);
  return Math.ceil(count / rows) * rows;
}
