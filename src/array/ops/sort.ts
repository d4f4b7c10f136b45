/**
 * Sorting and functions based on it. Ascending, stable, NaN last; along the last axis by default, null flattens.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import { quoted, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { formatShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { add, divide, where } from "./binary.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import { toFloat } from "./elementwise.ts";
import { axesOf, axisOf, reshapeNode, sliceNode, transposeNode } from "./movement.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Axis, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { isnan } from "./unary.ts";

import type { Along, FloatOf, NameOf, RankOf, Reduced } from "../tensor/types.ts";

function sortNode(op: "sort" | "argsort", name: string, node: Node, axis: number | null): Node {
  if (axis === null || node.shape.length === 0) {
    const flat = reshapeNode(node, [sizeOf(node.shape)]);
    return reshapeNode(sortNode(op, name, flat, -1), axis === null ? flat.shape : node.shape);
  }
  const at = axisOf(name, axis, node.shape);
  const order = node.shape.map((_, i) => i);
  const last = order.length - 1;
  [order[at], order[last]] = [order[last], order[at]];
  const moved = transposeNode(node, order);
  return transposeNode(makeNode(op, [moved], moved.shape, op === "argsort" ? uint32 : node.dtype, {}), order);
}

/**
 * Elements in ascending order along an axis.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.sort([3, 1, 2]).tolist(); // [1, 2, 3]
 * ```
 */
export function sort<A extends TensorLike, X extends number | null = -1>(
  a: A,
  axis: X = -1 as X,
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  return wrap(sortNode("sort", "sort", toNode("sort", a), axis));
}

/** Indices (uint32) that sort the array along an axis; equal elements keep their order. */
export function argsort<A extends TensorLike, X extends number | null = -1>(
  a: A,
  axis: X = -1 as X,
): Tensor<"uint32", Along<RankOf<A>, X>> {
  return wrap(sortNode("argsort", "argsort", toNode("argsort", a), axis));
}

function checkPlace(op: string, kth: number, shape: Shape, axis: number | null): void {
  const size = axis === null ? sizeOf(shape) : shape[axisOf(op, axis, shape)];
  if (!Number.isInteger(kth) || kth < -size || kth >= size) {
    throw new ValueError(`${op}() place ${quoted(kth)} is out of range for axis ${axis} of ${formatShape(shape)}`);
  }
}

/** The array with the element at `kth` where sorting puts it, smaller ones before and larger ones after it. */
export function partition<A extends TensorLike, X extends number | null = -1>(
  a: A,
  kth: number,
  axis: X = -1 as X,
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  const node = toNode("partition", a);
  checkPlace("partition", kth, node.shape, axis);
  return wrap(sortNode("sort", "partition", node, axis));
}

/** Indices (uint32) that partition the array: see {@link partition}. */
export function argpartition<A extends TensorLike, X extends number | null = -1>(
  a: A,
  kth: number,
  axis: X = -1 as X,
): Tensor<"uint32", Along<RankOf<A>, X>> {
  const node = toNode("argpartition", a);
  checkPlace("argpartition", kth, node.shape, axis);
  return wrap(sortNode("argsort", "argpartition", node, axis));
}

/** The k largest elements along an axis, in ascending order. */
export function topk<A extends TensorLike, X extends number | null = -1>(
  a: A,
  k: number,
  axis: X = -1 as X,
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  const node = toNode("topk", a);
  const size = axis === null ? sizeOf(node.shape) : node.shape[axisOf("topk", axis, node.shape)];
  if (!Number.isInteger(k) || k < 0 || k > size) {
    throw new ValueError(`topk() expected k between 0 and ${size} for ${formatShape(node.shape)}: found ${quoted(k)}`);
  }
  const sorted = sortNode("sort", "topk", node, axis);
  const at = axis === null ? 0 : axisOf("topk", axis, node.shape);
  const starts = sorted.shape.map((_, i) => i === at ? size - k : 0);
  return wrap(sliceNode(sorted, starts, starts.map(() => 1), sorted.shape.map((d, i) => i === at ? k : d)));
}

/** Middle element of the sorted ones, or the mean of the two in the middle; NaN if there is one. Integers give float32. */
export function median<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<FloatOf<NameOf<A>>, Reduced<RankOf<A>, X, K>> {
  const node = toNode("median", a);
  const axes = axesOf("median", axis, node.shape);
  const count = sizeOf(axes.map((i) => node.shape[i]));
  if (count === 0) throw new ValueError(`median() cannot reduce ${formatShape(node.shape)}: an axis is empty`);
  const rest = node.shape.map((_, i) => i).filter((i) => !axes.includes(i));
  const lead = rest.map((i) => node.shape[i]);
  return scoped("median", (): AnyTensor => {
    const flat = reshapeNode(transposeNode(node, [...rest, ...axes]), [...lead, count]);
    const sorted = nodeOf(sort(toFloat("median", wrap(flat))));
    const middle = (i: number): Tensor =>
      wrap(sliceNode(sorted, [...lead.map(() => 0), i], sorted.shape.map(() => 1), [...lead, 1]));
    const low = middle(Math.floor((count - 1) / 2));
    const value = count % 2 === 1 ? low : divide(add(low, middle(count / 2)), 2);
    const last = middle(count - 1); // NaN sorts after all numbers
    const median = where(isnan(last), last, value);
    return wrap(reshapeNode(nodeOf(median), keepdims ? node.shape.map((d, i) => axes.includes(i) ? 1 : d) : lead));
  });
}
