/**
 * Unique elements, in a number that is given, so that shapes do not depend on values.
 *
 * @module
 */

import { int32, uint32 } from "../../graph/dtype.ts";
import { ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape, sizeOf } from "../../graph/shape.ts";
import { less, maximum, minimum, notEqual, subtract, where } from "./binary.ts";
import { castNode, type TensorLike, toInteger, toNode } from "../tensor/convert.ts";
import { arange, full, zeros } from "./creation.ts";
import { take } from "./gather.ts";
import { concatenate, split } from "./join.ts";
import { astype, reshape, reshapeNode } from "./movement.ts";
import { cumsum } from "./reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { searchsorted } from "./sequences.ts";
import { argsort } from "./sort.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import type { NameOf } from "../tensor/types.ts";

/**
 * The first `size` unique elements of the flattened array, in ascending order. Places after the last one hold `fillValue`, or the first
 * element without it. NaN is unlike every other, and last.
 *
 * Three options add results to a list, in this order. `returnIndex` gives the first place of each element (uint32). `returnInverse` gives
 * the place of each element of `a` among the unique ones (uint32, of the shape of `a`). `returnCounts` gives how often an element occurs
 * (int32), 0 after the last. Throws a ValueError for a negative size, or for an empty array without a fill value.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.unique([2, 1, 2, 3, 1], 3).tolist(); // [1, 2, 3]
 * const [values, counts] = mx.unique([2, 1, 2, 3, 1], 4, false, false, true, 0);
 * values.tolist(); // [1, 2, 3, 0]
 * counts.tolist(); // [2, 2, 1, 0]
 * ```
 */
export function unique<A extends TensorLike>(
  a: A,
  size: number,
  returnIndex?: false,
  returnInverse?: false,
  returnCounts?: false,
  fillValue?: TensorLike | null,
): Tensor<NameOf<A>, 1>;
/** With more results. */
export function unique<A extends TensorLike>(
  a: A,
  size: number,
  returnIndex?: boolean,
  returnInverse?: boolean,
  returnCounts?: boolean,
  fillValue?: TensorLike | null,
): [Tensor<NameOf<A>, 1>, ...Tensor[]];
export function unique(
  a: TensorLike,
  size: number,
  returnIndex: boolean = false,
  returnInverse: boolean = false,
  returnCounts: boolean = false,
  fillValue: TensorLike | null = null,
): AnyTensor | AnyTensor[] {
  if (toInteger("unique", "size", size) < 0) throw new ValueError(`unique() expected a size from 0 on: found ${size}`);
  const node = toNode("unique", a), count = sizeOf(node.shape);
  const filler = fillValue === null ? undefined : castNode(toNode("unique", fillValue, node.dtype), node.dtype);
  if (filler && sizeOf(filler.shape) !== 1) {
    throw new ShapeError(`unique() expected fillValue to have one element: found shape ${formatShape(filler.shape)}`);
  }
  if (count === 0 && size > 0 && !filler) {
    throw new ValueError("unique() expected a fillValue for an array without elements");
  }
  return scoped("unique", () => {
    const flat = wrap(reshapeNode(node, [count]));
    const results = count === 0
      ? [full([size], filler ? reshape(wrap(filler), []) : 0, node.dtype), ...nothing(size)]
      : firstOnes(flat, size, filler && wrap(reshapeNode(filler, [1])));
    const [values, index, inverse, counts] = results as AnyTensor[];
    const asked = [
      ...(returnIndex ? [index] : []),
      ...(returnInverse ? [reshape(inverse, node.shape)] : []),
      ...(returnCounts ? [counts] : []),
    ];
    return asked.length > 0 ? [values, ...asked] : values;
  });
}

/** Indices, inverse and counts of no elements. */
function nothing(size: number): AnyTensor[] {
  return [zeros([size], uint32), zeros([0], uint32), zeros([size], int32)];
}

/** Values, indices, inverse and counts of some elements. */
function firstOnes(flat: AnyTensor, size: number, filler: AnyTensor | undefined): AnyTensor[] {
  const order = argsort(flat) as AnyTensor, sorted = take(flat, order, 0) as AnyTensor;
  const [first, rest] = split(sorted, [1]) as AnyTensor[];
  const begins = concatenate([full([1], 1, int32), astype(notEqual(rest, split(sorted, [flat.size - 1])[0]), int32)]);
  // The number of the group that each sorted element is in.
  const group = subtract(cumsum(begins), 1) as AnyTensor;
  const wanted = arange(size, int32);
  const from = searchsorted(group, wanted), to = searchsorted(group, wanted, "right");
  const there = less(from, flat.size), at = minimum(from, flat.size - 1);
  const inverse = maximum(minimum(take(group, argsort(order), 0), size - 1), 0);
  return [
    where(there, take(sorted, at, 0), filler ?? first),
    where(there, take(order, at, 0), split(order, [1])[0]),
    astype(inverse, uint32),
    subtract(astype(to, int32), astype(from, int32)),
  ];
}
