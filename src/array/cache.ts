/**
 * Caches of keys and values: the layout and the element type that suit the device of a model, and memory for them.
 *
 * @module
 */

import { type Dtype, float16, float32 } from "../graph/dtype.ts";
import { cacheBlocks as blocksOn, type DecoderSizes } from "../schedule/decoder.ts";
import { backendOf } from "../schedule/realize.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { contiguousStrides, isContiguous, type Shape, sizeOf } from "../graph/shape.ts";
import { SharedMemory } from "../schedule/storage.ts";
import { nodeOf, type Tensor, wrap } from "./tensor.ts";

/** An array of whatever its memory holds, NaN among it: for rows that are written before they are read. */
export function uninitialised(shape: Shape, dtype: Dtype): Tensor {
  return wrap(makeNode("data", [], shape, dtype, {}));
}

/** Such arrays, one behind the other in memory that they share: {@link joined} finds them so. */
export function sideBySide(count: number, shape: Shape, dtype: Dtype): Tensor[] {
  const memory = new SharedMemory();
  const size = sizeOf(shape);
  const bytes = count * size * dtype.bytes;
  return Array.from(
    { length: count },
    (_, i) => wrap(makeNode("data", [], shape, dtype, { within: { memory, bytes, offset: i * size } })),
  );
}

/**
 * The memory of evaluated arrays of one shape and dtype as one array, joined along the first axis, where they lie one behind the
 * other; undefined where they do not. What is written to it is written to them.
 */
export function joined(arrays: readonly Tensor[]): Tensor | undefined {
  const nodes = arrays.map(nodeOf);
  const [{ shape, dtype, stored }] = nodes;
  if (!stored || stored.packing) return undefined;
  const size = sizeOf(shape);
  const follows = ({ stored: s }: Node, i: number): boolean =>
    s !== undefined && s.storage === stored.storage && s.offset === stored.offset + i * size &&
    isContiguous(shape, s.strides);
  if (!nodes.every(follows)) return undefined;
  const whole = makeNode("stored", [], [shape[0] * nodes.length, ...shape.slice(1)], dtype, {});
  stored.storage.retain();
  whole.stored = { storage: stored.storage, offset: stored.offset, strides: contiguousStrides(whole.shape) };
  return wrap(whole);
}

/** Features that should lie side by side in a cache for one sequence of a model with these sizes, on the device of its weights. */
export function cacheBlocks(
  weights: readonly Tensor[],
  sizes: DecoderSizes,
): { readonly keys: number; readonly values: number } {
  return blocksOn(backendOf(weights.slice(0, 1).map(nodeOf)), sizes); // one tells for all
}

/**
 * Element type of a cache for a model whose activations are `dtype`, on the device of its weights. The CPU reads the whole cache
 * for every token, so float32 rows are kept in float16 there, unless VKMX_EXACT=1 asks for all digits.
 */
export function cacheDtype(weights: readonly Tensor[], dtype: Dtype): Dtype {
  const rounds = dtype === float32 && backendOf(weights.map(nodeOf)).has("packed_matvec");
  return rounds ? float16 : dtype;
}
