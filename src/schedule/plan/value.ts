/**
 * Where the elements of a node lie while its graph is lowered: the vocabulary of rules and fusers.
 *
 * A {@link Value} is a slot, an offset and strides. Views only change offset and strides.
 *
 * @module
 */

import type { Dtype } from "../../graph/dtype.ts";
import type { Packing } from "../../graph/node.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";

/** How the last dimension lies where its elements are together only `size` at a time. */
export interface Blocks {
  readonly size: number;
  /** Elements from block to block. */
  readonly stride: number;
}

/** Where the positions (B, H, T, D) of keys or values are in pages: along the third dimension, `size` to a page. */
export interface Pages {
  readonly size: number;
  /** int32 (B, T / size): the pages of each sequence. */
  readonly table: Value;
  /** The pool (pages, H, D / block, size, block) that they are of. */
  readonly pool: Value;
  /** What they have once they are joined: another dtype than the pool's where that has codes. */
  readonly dtype: Dtype;
}

/** Where elements lie. Offset and strides count elements. */
export interface Value {
  readonly slot: number;
  readonly offset: number;
  readonly strides: readonly number[];
  readonly shape: Shape;
  readonly dtype: Dtype;
  /** Where the elements do not lie like that: lowering unpacks them for kernels that do not know. */
  readonly packing?: Packing;
  /** Where the last dimension, whose stride then is 1, lies in blocks: lowering joins them for all that do not know. */
  readonly blocks?: Blocks;
  /** Where positions are in pages: the first stride is from page to page, and lowering joins them for all that do not know. */
  readonly pages?: Pages;
}

/** The same elements, walked in another way. */
export function view(value: Value, shape: Shape, strides: readonly number[], offset = value.offset): Value {
  return { ...value, shape, strides, offset };
}

/** Neighbouring rows of an array. */
export interface RowRange {
  readonly first: number;
  readonly count: number;
}

/** Some rows of a value, where they are; all of them by default. */
export function rowsIn(value: Value, rows: RowRange | undefined): Value {
  if (!rows) return value;
  const { shape: [, ...row], strides, offset } = value;
  return view(value, [rows.count, ...row], strides, offset + rows.first * strides[0]);
}

/** Row-major rows over the last axis. */
export function matrixShape(shape: Shape): { rows: number; cols: number } {
  const cols = shape[shape.length - 1] ?? 1;
  return { rows: sizeOf(shape.slice(0, -1)), cols };
}
