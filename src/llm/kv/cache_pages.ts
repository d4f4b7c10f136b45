/**
 * Keys and values of a cache in pages, as an engine has them. The buffers are pools that grow by pages, and a table names the pages of each
 * sequence. Caches with codes of 8 bits and rings (ring.ts) have pages, since the kernels of both are those of pages.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { enqueue } from "../../array/compile/evaluate.ts";
import { uninitialised } from "../../array/devices/kv_memory.ts";
import { gatherPages } from "../../array/fast/pages.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import type { LayerBuffers } from "./buffers.ts";
import type { Buffers, KeysValues } from "./pass.ts";
import { PagedCache } from "./paged.ts";
import { ringColumns, ringPositions, type RingSizes } from "./ring.ts";

/** The pools of keys and of values. */
type Pools = Readonly<Record<"keys" | "values", LayerBuffers>>;

/** The pages of a cache's sequences. */
export class CachePages {
  readonly #batch: number;
  readonly #pools: Pools;
  readonly #ring: RingSizes | undefined;
  #table: Tensor | undefined;
  #sizes: Tensor | undefined;
  /** The pass that goes on. */
  #pass: PagedCache | undefined;

  /** None yet, of `batch` sequences. */
  constructor(batch: number, pools: Pools, ring: RingSizes | undefined) {
    this.#batch = batch;
    this.#pools = pools;
    this.#ring = ring;
  }

  /** Pages that a sequence has. */
  get columns(): number {
    return this.#table?.shape[1] ?? 0;
  }

  /** Pages that a sequence takes for a number of positions. */
  columnsFor(positions: number): number {
    return this.#ring ? ringColumns(this.#ring, positions) : Math.ceil(positions / PAGE);
  }

  /** Positions that they have room for: without end once a ring has all of its pages. */
  get capacity(): number {
    const { columns } = this;
    if (!this.#ring || columns === 0) return columns * PAGE;
    return columns < this.columnsFor(Infinity) ? ringPositions(columns) : Infinity;
  }

  /** What a step needs beside the pools. */
  get parts(): Pick<Buffers, "table" | "ring"> {
    return { ...(this.#table && { table: this.#table }), ...(this.#sizes && { ring: this.#sizes }) };
  }

  /** Gives each sequence so many pages. */
  grow(columns: number): void {
    for (const pool of Object.values(this.#pools)) {
      if (pool.positions === 0) pool.grow(PAGE);
      pool.grow(PAGE, this.#batch * columns);
    }
    mx.dispose(this.parts);
    // Page p of sequence b is p * batch + b: more pages leave those that are there.
    const rows = Array.from(
      { length: this.#batch },
      (_, b) => Array.from({ length: columns }, (_, p) => p * this.#batch + b),
    );
    this.#table = detach(mx.array(rows, mx.int32));
    if (this.#ring) this.#sizes = detach(mx.array([this.#ring.keep, this.#ring.last], mx.int32));
  }

  /** Pools and a table of the shapes that they have after {@link CachePages.grow}, not evaluated. */
  grown(columns: number): Buffers {
    const [keys, values] = [this.#pools.keys, this.#pools.values].map((pool) =>
      pool.grown(PAGE, this.#batch * columns)
    );
    const table = uninitialised([this.#batch, columns], mx.int32);
    return { keys, values, table, ...(this.#ring && { ring: uninitialised([2], mx.int32) }) };
  }

  /** Opens a pass over `count` tokens from a position on. */
  begin(count: number, position: number): void {
    this.#pass = this.#passOver(this.#pools.keys.perLayer, this.#pools.values.perLayer, position);
    this.#pass.begin(count);
  }

  /** Appends keys and values (B, H, T, D) of a layer. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    const pass = this.#pass!;
    const held = pass.update(layer, keys, values);
    this.#pools.keys.replace(layer, pass.keys[layer]);
    this.#pools.values.replace(layer, pass.values[layer]);
    return held;
  }

  /** The first `first` positions (B, H, held, D) of a layer before `offset`, then the last ones of those, `held` in all. */
  read(
    layer: number,
    which: "keys" | "values",
    { offset, first, held, dtype }: { offset: number; first: number; held: number; dtype: Dtype },
  ): Tensor {
    return mx.tidy(() => {
      const all = gatherPages(this.#pools[which].perLayer[layer], this.#table!, dtype);
      if (!this.#ring) return all.index("...", mx.Slice(0, held), mx.Slice(null));
      const size = ringPositions(this.columns);
      const slot = (i: number): number => i < first ? i : PAGE + (offset - held + i) % size;
      return mx.take(all, mx.array(Array.from({ length: held }, (_, i) => slot(i)), mx.int32), 2);
    });
  }

  /** Writes keys and values (B, H, n, D) of a layer: the first `first` of them from position 0 on, the others before position `end`. */
  fill(layer: number, keys: Tensor, values: Tensor, first: number, end: number): void {
    const count = keys.shape[2];
    const parts = [[0, first, 0], [first, count, end - count + first]] as const;
    for (const [from, to, position] of parts.filter(([from, to]) => to > from)) {
      const [written, writtenValues] = mx.tidy(() => {
        const { keys: pool, values: valuePool } = this.#pools;
        const pass = this.#passOver([pool.perLayer[layer]], [valuePool.perLayer[layer]], position);
        pass.begin(to - from);
        const [part, valuePart] = [keys, values].map((all) => all.index("...", mx.Slice(from, to), mx.Slice(null)));
        pass.update(0, part, valuePart);
        return [pass.keys[0], pass.values[0]];
      });
      enqueue([written, writtenValues]);
      this.#pools.keys.replace(layer, written);
      this.#pools.values.replace(layer, writtenValues);
    }
  }

  /** Frees the table; there are no pages any more. */
  dispose(): void {
    mx.dispose(this.parts);
    this.#table = this.#sizes = this.#pass = undefined;
  }

  #passOver(keys: readonly Tensor[], values: readonly Tensor[], position: number): PagedCache {
    const start = mx.array(new Array<number>(this.#batch).fill(position), mx.int32);
    return new PagedCache({ keys, values, ...this.parts }, start, this.#table!);
  }
}

/** Takes an array out of the scopes of tidy(): it lives until the cache lets it go. */
function detach(array: Tensor): Tensor {
  untrack(array);
  return array;
}
