/**
 * A table of vectors in parts, each an array of its own: one that is larger than an array may be.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";

/** A table of vectors, which may also be a head. */
export type Table = Module & {
  forward(ids: Tensor, dtype?: Dtype): Tensor;
  asLinear(x: Tensor): Tensor;
};

/** Tables of vectors one after another, which act as one. */
export class PartedTable extends Module {
  /** The tables. */
  parts: Table[];
  /** The rows of each. */
  readonly #rows: readonly number[];

  /** Takes tables and the number of rows of each. */
  constructor(parts: readonly Table[], rows: readonly number[]) {
    super();
    this.parts = [...parts];
    this.#rows = rows;
  }

  /** The same tables with others in their places. */
  map(make: (table: Table) => Table): PartedTable {
    return new PartedTable(this.parts.map(make), this.#rows);
  }

  /**
   * Integers (…) → vectors (…, dims). Each part gives a vector for each of them, and one is chosen: which part has a row is known on the
   * device only. In a part without it any other row is read, since a gather stays within its array. Negative ones count from the end.
   */
  override forward(given: Tensor, dtype?: Dtype): Tensor {
    const count = this.#rows.reduce((sum, own) => sum + own, 0);
    const signed = given.astype(mx.int32); // numbers of rows may not fit the dtype of ids
    const isSigned = given.dtype.kind !== "uint";
    const ids = isSigned ? mx.where(mx.less(signed, 0), mx.add(signed, count), signed) : signed;
    let first = 0;
    return this.parts.map((table, i) => {
      const from = first;
      first += this.#rows[i];
      return { from, vectors: table.forward(from === 0 ? ids : mx.subtract(ids, from), dtype) };
    }).reduce((before, { from, vectors }) => {
      const isHere = mx.expandDims(mx.greaterEqual(ids, from), -1);
      return { from, vectors: mx.where(isHere, vectors, before.vectors) };
    }).vectors;
  }

  /** x (…, dims) → (…, vectors): products with all of them. */
  asLinear(x: Tensor): Tensor {
    return mx.concatenate(this.parts.map((table) => table.asLinear(x)), -1);
  }
}
