/**
 * Memory of caches of keys and values.
 *
 * @module
 */

import { type Dtype, int32 } from "../../graph/dtype.ts";
import { bufferSizes, POSITIONS_AXIS, toBuffer, toPositions } from "../../graph/kv_layout.ts";
import { makeNode } from "../../graph/node.ts";
import { contiguousStrides, type Shape } from "../../graph/shape.ts";
import type { Storage } from "../../schedule/plan/storage.ts";
import { realize } from "../../schedule/realize.ts";
import { updateSlice } from "../ops/slice_update.ts";
import { nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";

/** Arrays that are evaluated in one graph: the plan cache keeps graphs of few nodes. */
const TOGETHER = 12;

/** An array of whatever its memory holds, NaN among it: for positions that are written before they are read. */
export function uninitialised(shape: Shape, dtype: Dtype): Tensor {
  return wrap(makeNode("data", [], shape, dtype, {}));
}

/** The parts of an array (n, …) along its first axis, in the same memory. The array stays. */
export function splitSlab(array: Tensor): Tensor[] {
  const { shape: [count, ...shape], dtype, stored } = nodeOf(array);
  return Array.from({ length: count }, (_, i) => {
    if (!stored) return array.index(i); // it has no device yet
    const { storage, offset, strides: [stride, ...strides] } = stored;
    const part = makeNode("stored", [], shape, dtype, {});
    storage.retain();
    part.stored = { storage, offset: offset + i * stride, strides };
    return wrap(part);
  });
}

/**
 * An evaluated, contiguous array as another one of as many elements in the same memory. A loop whose state has both must use other
 * elements of each.
 */
export function inSameMemory(array: Tensor, shape: Shape): Tensor {
  const { stored, dtype } = nodeOf(array);
  const view = makeNode("stored", [], shape, dtype, {});
  const { storage, offset } = stored!;
  storage.retain();
  view.stored = { storage, offset, strides: contiguousStrides(shape) };
  return wrap(view);
}

/** Positions (B, H, T, D) written in place into a cache's buffer, from row `start` (1,) or positions (B, 1) on: the new buffer. */
export function appendPositions(buffer: Tensor, positions: Tensor, start: Tensor): Tensor {
  const { batch, heads, headDim, block } = bufferSizes(buffer.shape);
  const { shape, axes } = toBuffer([batch, heads, positions.shape[2], headDim], block);
  const update = positions.astype(buffer.dtype).reshape(shape).transpose([...axes]);
  return updateSlice(buffer, update, start, [POSITIONS_AXIS], { donate: true, kvBlock: block });
}

/** Positions (B, H, T, D) written in place into the first positions of a buffer, or of buffer `at` in a stack: the new array. */
export function writePositions(array: Tensor, positions: Tensor, at?: number): Tensor {
  const buffer = at === undefined ? array.shape : array.shape.slice(1);
  const { batch, heads, headDim, block } = bufferSizes(buffer);
  const { shape, axes } = toBuffer([batch, heads, positions.shape[2], headDim], block);
  const update = positions.astype(array.dtype).reshape(shape).transpose([...axes]);
  if (at === undefined) return updateSlice(array, update, startAt(0), [POSITIONS_AXIS], { donate: true });
  return updateSlice(array, update.reshape([1, ...update.shape]), startAt(at), [0], { donate: true });
}

/** The values of an array in new memory. */
export function copied(array: Tensor): Tensor {
  const { shape, dtype } = array;
  return wrap(makeNode("concatenate", [nodeOf(array)], shape, dtype, { axis: 0 }));
}

/** Evaluates arrays that their owner frees, in graphs that the plan cache keeps. They are no reason to look for forgotten arrays. */
export function evaluateOwned(arrays: readonly Tensor[]): void {
  for (let i = 0; i < arrays.length; i += TOGETHER) {
    const nodes = arrays.slice(i, i + TOGETHER).map(nodeOf);
    realize(nodes);
    for (const { stored } of nodes) (stored?.storage as Storage | undefined)?.countNoMore();
  }
}

/** Row `rows[i]` of an array (n, …) is replaced by `values[i]`, in place: the new array. Rows that are named twice get either value. */
export function writeRows(array: Tensor, values: Tensor, rows: Tensor): Tensor {
  const inputs = [array, rows, values.astype(array.dtype)].map(nodeOf);
  return wrap(makeNode("scatter", inputs, array.shape, array.dtype, { axis: 0, fn: "assign", donate: true }));
}

function startAt(index: number): Tensor {
  return wrap(makeNode("data", [], [1], int32, { bytes: new Uint8Array(Int32Array.of(index).buffer) }));
}

/** The positions (B, H, capacity, D) of the buffer of a cache. */
export function positionsOf(buffer: Tensor): Tensor {
  const { axes, shape } = toPositions(buffer.shape);
  return buffer.transpose([...axes]).reshape(shape);
}
