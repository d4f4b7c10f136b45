/**
 * The parts of prompts that a step reads, as the arrays of one forward pass.
 *
 * A pass takes tokens in tiles. The tokens of a tile follow each other in one sequence, and each tile has the pages of its sequence. One
 * part alone is one tile. Several are cut into tiles of the same few tokens, the last one of each padded. So parts of any lengths make
 * a pass with little padding, and its shape depends on how many tiles there are. Where kernels compute in tiles anyway, few numbers of
 * tiles serve all steps, and few numbers of pages and of ends.
 *
 * What padding computes goes to the positions after a part, which are not known yet, or to page 0.
 *
 * @module
 */

import { PAGE } from "../../graph/kv_layout.ts";
import { paddedLength } from "../decode/padding.ts";
import { powerOfTwo } from "./steps/choice.ts";
import { bucketOf, columnsFor } from "./runner_context.ts";
import type { PrefillRow } from "./step.ts";

/** Tokens of a tile of several parts, on devices that compute rows in tiles and on others. */
const TILES = { tiled: 32, other: 4 } as const;

/** What a pass of several parts has at least where rows cost little: each shape is traced once, which takes longer than the padding. */
const TOGETHER = { pages: 16, ends: 8 } as const;

/** What a batch depends on of a device. */
export interface BatchDevice {
  /** Rows that cost as much as one. */
  readonly tile: number;
  readonly tiled: boolean;
}

/** What the trace of a pass over parts of several prompts depends on: tiles, pages of each, and ends of prompts. */
export interface BatchShape {
  readonly tiles: number;
  readonly columns: number;
  readonly ends: number;
}

/** Arrays of a pass over n tiles. */
export interface ForwardBatch {
  readonly tiles: number;
  /** The tokens, n tiles of as many each. */
  readonly ids: Int32Array<ArrayBuffer>;
  /** The token after each of those; after the last known one that one again. */
  readonly after: Int32Array<ArrayBuffer>;
  /** The position of the first token of each tile. */
  readonly positions: Int32Array<ArrayBuffer>;
  /** For each group of layers the pages of each tile, a row of `columns` each. */
  readonly tables: readonly Int32Array<ArrayBuffer>[];
  readonly columns: number;
  /** The slot of recurrent states of each tile. */
  readonly slots: Int32Array<ArrayBuffer>;
  /** Indices of the last tokens of parts that end their prompts, the last one repeated. Of a batch without such parts, that of the first part. */
  readonly last: Uint32Array<ArrayBuffer>;
}

/** Tokens of a tile where a pass has several parts. */
export function tileOf({ tile, tiled }: BatchDevice): number {
  return tiled ? Math.max(tile, TILES.tiled) : TILES.other;
}

/** Tiles of a pass that needs so many: where kernels compute in tiles anyway, four numbers between a power of two and the next. */
function paddedTiles(count: number, { tiled }: BatchDevice): number {
  const step = tiled ? Math.max(1, powerOfTwo(count) / 8) : 1;
  return Math.ceil(count / step) * step;
}

/** The tiles of each part, and the shape of a pass over all. */
function shapeOf(
  rows: readonly PrefillRow[],
  size: number,
  device: BatchDevice,
): { readonly needed: readonly number[]; readonly shape: BatchShape } {
  const needed = rows.map(({ count }) => Math.ceil(count / size));
  const least = device.tiled && rows.length > 1 ? TOGETHER : { pages: 1, ends: 1 };
  const pages = rows.map(({ from }, i) => Math.ceil((from + needed[i] * size) / PAGE));
  const ends = rows.filter(({ last }) => last).length;
  return {
    needed,
    shape: {
      tiles: paddedTiles(needed.reduce((a, b) => a + b, 0), device),
      columns: columnsFor(Math.max(least.pages, ...pages)),
      ends: ends === 0 ? 1 : bucketOf(Math.max(least.ends, ends), device.tiled),
    },
  };
}

/** The arrays of a pass over parts of prompts. With `within` they have the shape of another pass over several; undefined where they do not fit. */
export function forwardBatch(rows: readonly PrefillRow[], device: BatchDevice): ForwardBatch;
export function forwardBatch(
  rows: readonly PrefillRow[],
  device: BatchDevice,
  within: BatchShape | undefined,
): ForwardBatch | undefined;
export function forwardBatch(
  rows: readonly PrefillRow[],
  device: BatchDevice,
  within?: BatchShape,
): ForwardBatch | undefined {
  const [first] = rows;
  const size = rows.length > 1 || within ? tileOf(device) : paddedLength(first.count, device.tile);
  const { needed, shape } = shapeOf(rows, size, device);
  const { tiles, columns, ends: lasts } = within ?? shape;
  if (tiles < shape.tiles || columns < shape.columns || lasts < shape.ends) return undefined;
  const ends = rows.filter(({ last }) => last).length;
  const batch: ForwardBatch = {
    tiles,
    ids: new Int32Array(tiles * size),
    after: new Int32Array(tiles * size),
    positions: new Int32Array(tiles),
    tables: first.sequence.tables.map(() => new Int32Array(tiles * columns)),
    columns,
    slots: new Int32Array(tiles),
    last: new Uint32Array(lasts),
  };
  let [tile, end] = [0, 0];
  for (const [i, { sequence, from, count, last }] of rows.entries()) {
    const { tokens, tables, slot } = sequence;
    batch.ids.fill(tokens[from + count - 1], tile * size, (tile + needed[i]) * size);
    batch.ids.set(tokens.slice(from, from + count), tile * size);
    batch.after.fill(tokens[from + count] ?? tokens[from + count - 1], tile * size, (tile + needed[i]) * size);
    batch.after.set(tokens.slice(from + 1, from + count), tile * size);
    if (last) batch.last.fill(tile * size + count - 1, end++);
    const known = tables.map((table) => table.slice(0, Math.ceil((from + count) / PAGE)));
    for (let j = 0; j < needed[i]; j++, tile++) {
      batch.positions[tile] = from + j * size;
      for (const [group, table] of batch.tables.entries()) table.set(known[group], tile * columns);
      batch.slots[tile] = slot;
    }
  }
  if (ends === 0) batch.last[0] = first.count - 1;
  return batch;
}
