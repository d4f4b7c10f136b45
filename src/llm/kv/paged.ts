/**
 * Keys and values of many sequences in one pool of pages: a table tells which pages hold the positions of each sequence, in their order.
 * Sequences that begin alike may share pages. Which pages are whose is not decided here: src/llm/engine does that.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { appendPages, gatherPages } from "../../array/fast/pages.ts";
import { unstacked } from "../../array/devices/stack.ts";
import { type KvLayout, PAGE } from "../../graph/kv_layout.ts";
import { LayerBuffers, type LayerBufferSizes } from "./buffers.ts";
import type { Buffers, Cache, KeysValues } from "./cache.ts";

/** Sizes of a pool. Its dtype is that of the numbers, or `KV_CODES` where they have 8 bits. */
export interface KvPoolSizes extends Omit<LayerBufferSizes, "block" | "batch"> {
  /** Features of keys and of values that lie beside each other. */
  readonly blocks: KvLayout;
  /** Pages of each layer. */
  readonly pages: number;
}

/** Bytes that one page takes in all layers, keys and values together. */
export function pageBytes({ layers, heads, headDim, dtype }: Omit<KvPoolSizes, "pages" | "blocks">): number {
  return 2 * layers * heads * PAGE * headDim * dtype.bytes;
}

/** The pages of all layers of a model. Their memory is taken when it is first used. */
export class KvPool implements Disposable {
  readonly #keys: LayerBuffers;
  readonly #values: LayerBuffers;
  /** Its sizes. */
  readonly sizes: KvPoolSizes;

  /** Pages that hold nothing yet. */
  constructor(sizes: KvPoolSizes) {
    this.sizes = sizes;
    const { pages: batch, blocks } = sizes;
    [this.#keys, this.#values] = [blocks.keys, blocks.values].map((block) => {
      const buffers = new LayerBuffers({ ...sizes, batch, block });
      buffers.grow(PAGE);
      return buffers;
    });
  }

  /** Keys and values as the state of a loop wants them: in few arrays. */
  get buffers(): Buffers {
    return { keys: this.#keys.slabs, values: this.#values.slabs };
  }

  /** Element type of keys and values. */
  get dtype(): Dtype {
    return this.sizes.dtype;
  }

  /** Frees the pages. */
  [Symbol.dispose](): void {
    this.#keys.dispose();
    this.#values.dispose();
  }
}

/** One pass over pages of a pool, of B sequences at positions that the device knows. */
export class PagedCache implements Cache {
  /** Keys per layer; updated as the pass goes on. */
  readonly keys: Tensor[];
  /** Values per layer. */
  readonly values: Tensor[];
  readonly #position: Tensor;
  readonly #table: Tensor;
  #lengths: Tensor | undefined;

  /**
   * `position` is int32 (B,): the positions that each sequence has before the pass. `table` is int32 (B, P): the pages of each, with
   * room for the pass.
   */
  constructor(buffers: Buffers, position: Tensor, table: Tensor) {
    this.keys = unstacked(buffers.keys);
    this.values = unstacked(buffers.values);
    this.#position = position;
    this.#table = table;
  }

  /** See {@link Cache.begin}. */
  begin(count: number): Tensor {
    this.#lengths = mx.add(this.#position, count);
    return this.#position;
  }

  /** See {@link Cache.update}. */
  update(layer: number, keys: Tensor, values: Tensor): KeysValues {
    this.keys[layer] = appendPages(this.keys[layer], keys, this.#table, this.#position);
    this.values[layer] = appendPages(this.values[layer], values, this.#table, this.#position);
    const [all, allValues] = [this.keys[layer], this.values[layer]].map((pool) =>
      gatherPages(pool, this.#table, keys.dtype)
    );
    return { keys: all, values: allValues, lengths: this.#lengths };
  }
}
