/**
 * Caches of keys and values: the layout and the element type that suit the device of a model, and memory for them.
 *
 * @module
 */

import { type Dtype, float16, float32 } from "../graph/dtype.ts";
import { cacheBlocks as blocksOn, type DecoderFeatures, type DecoderSizes } from "../schedule/decoder/spec.ts";
import { backendOf } from "../schedule/realize.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { contiguousStrides, isContiguous, sameShape, type Shape, sizeOf } from "../graph/shape.ts";
import { SharedMemory } from "../schedule/plan/storage.ts";
import { nodeOf, type Tensor, wrap } from "./tensor.ts";

/** An array of whatever its memory holds, NaN among it: for rows that are written before they are read. */
export function uninitialised(shape: Shape, dtype: Dtype): Tensor {
  return wrap(makeNode("data", [], shape, dtype, {}));
}

/**
 * Such arrays in memory that they share, where they lie beside each other as if an array of `count` times the size along `axis` had been
 * cut along it: {@link joined} finds them so.
 */
export function sideBySide(count: number, shape: Shape, axis: number, dtype: Dtype): Tensor[] {
  const memory = new SharedMemory();
  const bytes = count * sizeOf(shape) * dtype.bytes;
  const size = sizeOf(shape.slice(axis));
  const strides = contiguousStrides(shape.with(axis, count * shape[axis]));
  return Array.from({ length: count }, (_, i) => {
    const within = { memory, bytes, offset: i * size, strides };
    return wrap(makeNode("data", [], shape, dtype, { within }));
  });
}

/**
 * The memory of evaluated arrays of one dtype and shape, (…, n, …), as one array (…, count * n, …) along `axis`, where they lie so beside
 * each other; undefined where they do not. What is written to it is written to them.
 */
export function joined(arrays: readonly Tensor[], axis: number): Tensor | undefined {
  const nodes = arrays.map(nodeOf);
  const [{ shape, dtype, stored }] = nodes;
  if (!stored || stored.packing) return undefined;
  const { storage, offset, strides } = stored;
  const size = sizeOf(shape.slice(axis));
  const follows = ({ shape: other, stored: s }: Node, i: number): boolean =>
    s !== undefined && s.storage === storage && s.offset === offset + i * size && sameShape(other, shape) &&
    sameShape(s.strides, strides) && isContiguous(shape.slice(axis), s.strides.slice(axis));
  if (!nodes.every(follows)) return undefined;
  const whole = makeNode("stored", [], shape.with(axis, nodes.length * shape[axis]), dtype, {});
  storage.retain();
  whole.stored = { storage, offset, strides: strides.with(axis, size / shape[axis]) };
  return wrap(whole);
}

/** The parts of an array (n, …) along its first axis, in the same memory. The array stays. */
export function takenApart(array: Tensor): Tensor[] {
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

/** Features that should lie side by side in a cache for one sequence of a model with these sizes, on the device of its weights. */
export function cacheBlocks(
  weights: readonly Tensor[],
  sizes: DecoderSizes,
  features: DecoderFeatures,
): { readonly keys: number; readonly values: number } {
  return blocksOn(backendOf(weights.slice(0, 1).map(nodeOf)), sizes, features); // one tells for all
}

/**
 * Element type of a cache for a model whose activations are `dtype`, on the device of its weights. The CPU reads the whole cache
 * for every token, so float32 rows are kept in float16 there, unless VKMX_EXACT=1 asks for all digits.
 */
export function cacheDtype(weights: readonly Tensor[], dtype: Dtype): Dtype {
  const rounds = dtype === float32 && backendOf(weights.slice(0, 1).map(nodeOf)).has("packed_matvec");
  return rounds ? float16 : dtype;
}
