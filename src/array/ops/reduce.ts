/**
 * Reductions over axes, running reductions along one axis, softmax.
 *
 * `axis` is one axis, a list, or null (all; also when left out). Scans and softmax work on the last axis: others are moved there.
 *
 * @module
 */

import { bool, type Dtype, float32, int32, isWide, uint32 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import { attrsOf, makeNode, type Node, type OpAttrs, type ReduceFn } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { formatShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { divide, notEqual, subtract } from "./binary.ts";
import { atLeastFloat, castNode, scalarNode, type TensorLike, toInteger, toNode } from "../tensor/convert.ts";
import { astype, axesOf, axisOf, reshapeNode, transposeNode } from "./movement.ts";
import {
  CUMSUM_OPTIONS,
  type CumsumOptions,
  SCAN_OPTIONS,
  type ScanOptions,
  VARIANCE_OPTIONS,
  type VarianceOptions,
} from "../tensor/reduce_options.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Axis, type Tensor, wrap } from "../tensor/tensor.ts";
import { abs, sqrt, square } from "./unary.ts";
import { reduceWide, scanWide, softmaxWide } from "./wide_reduce.ts";
import type { Floating } from "../tensor/results.ts";
import type { Along, FloatOf, NameOf, RankOf, RealOf, Reduced, SumOf } from "../tensor/types.ts";

export type { CumsumOptions, ScanOptions, VarianceOptions };

function reducedShape(shape: Shape, axes: readonly number[], keepdims: boolean): number[] {
  return shape.flatMap((d, i) => axes.includes(i) ? (keepdims ? [1] : []) : [d]);
}

/** Throws when the reduction has no value for an empty axis. */
function needElements(op: string, shape: Shape, axes: readonly number[]): void {
  for (const i of axes) {
    if (shape[i] === 0) throw new ValueError(`${op}() cannot reduce axis ${i} of ${formatShape(shape)}: it is empty`);
  }
}

function reduceNode(fn: ReduceFn, node: Node, axes: readonly number[], keepdims: boolean, dtype: Dtype): Node {
  if (axes.length === 0) return fn === "all" || fn === "any" ? castNode(node, bool) : castNode(node, dtype);
  const shape = reducedShape(node.shape, axes, keepdims);
  if (isWide(node.dtype) || isWide(dtype)) return reduceWide(fn, node, axes, shape, dtype);
  return makeNode("reduce", [node], shape, dtype, { fn, axes });
}

/** Dtype of sums and products: small integers and bool widen to 32 bits. */
function sumDtype(dtype: Dtype): Dtype {
  if (dtype.kind === "float" || isWide(dtype)) return dtype;
  return dtype.kind === "uint" ? uint32 : int32;
}

/**
 * Sum of elements. Small integers and bool sum in int32 or uint32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.sum([[1, 2], [3, 4]], 0).tolist(); // [4, 6]
 * ```
 */
export function sum<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<SumOf<NameOf<A>>, Reduced<RankOf<A>, X, K>> {
  const node = toNode("sum", a);
  return wrap(reduceNode("sum", node, axesOf("sum", axis, node.shape), keepdims, sumDtype(node.dtype)));
}

/** Product of elements. Small integers and bool multiply in int32 or uint32. */
export function prod<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<SumOf<NameOf<A>>, Reduced<RankOf<A>, X, K>> {
  const node = toNode("prod", a);
  return wrap(reduceNode("prod", node, axesOf("prod", axis, node.shape), keepdims, sumDtype(node.dtype)));
}

/** Smallest element; NaN wins. An empty axis is an error. */
export function min<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<NameOf<A>, Reduced<RankOf<A>, X, K>> {
  const node = toNode("min", a);
  const axes = axesOf("min", axis, node.shape);
  needElements("min", node.shape, axes);
  return wrap(reduceNode("min", node, axes, keepdims, node.dtype));
}

/** Largest element; NaN wins. An empty axis is an error. */
export function max<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<NameOf<A>, Reduced<RankOf<A>, X, K>> {
  const node = toNode("max", a);
  const axes = axesOf("max", axis, node.shape);
  needElements("max", node.shape, axes);
  return wrap(reduceNode("max", node, axes, keepdims, node.dtype));
}

/**
 * Smallest and largest element: see {@link min} and {@link max}.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [least, most] = mx.minmax([[1, 5], [3, 2]], 0);
 * least.tolist(); // [1, 2]
 * most.tolist(); // [3, 5]
 * ```
 */
export function minmax<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): [Tensor<NameOf<A>, Reduced<RankOf<A>, X, K>>, Tensor<NameOf<A>, Reduced<RankOf<A>, X, K>>] {
  return scoped("minmax", () => [min(a, axis, keepdims), max(a, axis, keepdims)]);
}

/** Whether all elements are true (not 0). */
export function all<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<"bool", Reduced<RankOf<A>, X, K>> {
  const node = toNode("all", a);
  return wrap(reduceNode("all", node, axesOf("all", axis, node.shape), keepdims, bool));
}

/** Whether any element is true (not 0). */
export function any<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<"bool", Reduced<RankOf<A>, X, K>> {
  const node = toNode("any", a);
  return wrap(reduceNode("any", node, axesOf("any", axis, node.shape), keepdims, bool));
}

/** Index (uint32) of the smallest element, the first of equals; of the flattened array without an axis. */
export function argmin<A extends TensorLike, const X extends number | null = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<"uint32", Reduced<RankOf<A>, X, K>> {
  return argReduce("argmin", a, axis, keepdims);
}

/**
 * Index (uint32) of the largest element, the first of equals; of the flattened array without an axis.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.argmax([[1, 9], [8, 2]], -1).tolist(); // [1, 0]
 * ```
 */
export function argmax<A extends TensorLike, const X extends number | null = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<"uint32", Reduced<RankOf<A>, X, K>> {
  return argReduce("argmax", a, axis, keepdims);
}

function argReduce(
  fn: "argmin" | "argmax",
  a: TensorLike,
  axis: number | null | undefined,
  keepdims: boolean,
): AnyTensor {
  const node = toNode(fn, a);
  const all = axis === null || axis === undefined;
  const at = all ? node.shape.map((_, i) => i) : [axisOf(fn, axis, node.shape)];
  needElements(fn, node.shape, at);
  const input = all ? reshapeNode(node, [sizeOf(node.shape)]) : node;
  const result = reduceNode(fn, input, all ? [0] : at, false, uint32);
  return wrap(keepdims ? reshapeNode(result, reducedShape(node.shape, at, true)) : result);
}

/** log(sum(exp(a))) without overflow. Integers give float32. An empty axis is an error. */
export function logsumexp<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<FloatOf<NameOf<A>>, Reduced<RankOf<A>, X, K>> {
  const given = toNode("logsumexp", a);
  const node = castNode(given, atLeastFloat(given.dtype));
  const axes = axesOf("logsumexp", axis, node.shape);
  needElements("logsumexp", node.shape, axes);
  return wrap(reduceNode("logsumexp", node, axes, keepdims, node.dtype));
}

/** The dtype in which means are summed: float32, or the dtype itself if that is complex64 or float64. */
function accumulatorOf(dtype: Dtype): Dtype {
  const float = atLeastFloat(dtype);
  return isWide(float) ? float : float32;
}

/** Sum in the dtype of {@link accumulatorOf} divided by a count, in the dtype given. */
function meanOf(x: Tensor, axes: readonly number[], keepdims: boolean, count: number, dtype: Dtype): Tensor {
  const node = castNode(toNode("mean", x), atLeastFloat(x.dtype));
  const total = wrap(reduceNode("sum", node, axes, keepdims, accumulatorOf(node.dtype)));
  const divisor = scalarNode("mean", count, total.dtype);
  divisor.attrs = { ...attrsOf(divisor, "full"), derived: true };
  return astype(divide(total, wrap(divisor)), dtype);
}

/** Mean of elements, summed in float32, or in complex64 and float64. Integers give float32. */
export function mean<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<FloatOf<NameOf<A>>, Reduced<RankOf<A>, X, K>> {
  const node = toNode("mean", a);
  const axes = axesOf("mean", axis, node.shape);
  const count = sizeOf(axes.map((i) => node.shape[i]));
  return scoped("mean", (): AnyTensor => meanOf(wrap(node), axes, keepdims, count, atLeastFloat(node.dtype)));
}

/** Mean squared distance from the mean, float32 of complex64; the divisor is the count less `ddof`. MLX's `var`. */
export function variance<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
  ddof: number = 0,
  options: VarianceOptions = {},
): Tensor<RealOf<FloatOf<NameOf<A>>>, Reduced<RankOf<A>, X, K>> {
  checkOptions("variance", options, VARIANCE_OPTIONS);
  const node = toNode("variance", a), freedom = options.correction ?? ddof;
  const axes = axesOf("variance", axis, node.shape);
  const count = sizeOf(axes.map((i) => node.shape[i]));
  toInteger("variance", "ddof", ddof);
  return scoped("variance", (): AnyTensor => {
    const x = wrap(castNode(node, accumulatorOf(node.dtype)));
    const centered = subtract(x, meanOf(x, axes, true, count, x.dtype));
    const distance = x.dtype.kind === "complex" ? abs(centered) : centered;
    const result = x.dtype.kind === "complex" ? float32 : atLeastFloat(node.dtype);
    return meanOf(square(distance), axes, keepdims, Math.max(count - freedom, 0), result);
  });
}

/** Square root of {@link variance}. */
export function std<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
  ddof: number = 0,
  options: VarianceOptions = {},
): Tensor<RealOf<FloatOf<NameOf<A>>>, Reduced<RankOf<A>, X, K>> {
  return scoped("std", (): AnyTensor => sqrt(variance(a, axis, keepdims, ddof, options)));
}

/** Number of elements that are not 0 (int32). */
export function countNonzero<A extends TensorLike, const X extends Axis = null, K extends boolean = false>(
  a: A,
  axis?: X,
  keepdims: K = false as K,
): Tensor<"int32", Reduced<RankOf<A>, X, K>> {
  return scoped("countNonzero", (): AnyTensor => sum(notEqual(a, 0), axis, keepdims));
}

/** Applies `build` to the array with axes moved last and flattened into one, and undoes the move. */
function onLastAxis(node: Node, axes: readonly number[], build: (last: Node) => Node): Node {
  const rest = node.shape.map((_, i) => i).filter((i) => !axes.includes(i));
  const order = [...rest, ...axes];
  const moved = transposeNode(node, order);
  const flat = reshapeNode(moved, [...rest.map((i) => node.shape[i]), sizeOf(axes.map((i) => node.shape[i]))]);
  return transposeNode(reshapeNode(build(flat), moved.shape), node.shape.map((_, i) => order.indexOf(i)));
}

function scan(
  op: string,
  fn: OpAttrs["scan"]["fn"],
  a: Node,
  axis: number | null | undefined,
  options: ScanOptions,
): AnyTensor {
  checkOptions(op, options, SCAN_OPTIONS);
  const all = axis === null || axis === undefined;
  const node = all ? reshapeNode(a, [sizeOf(a.shape)]) : a;
  const at = all ? 0 : axisOf(op, axis, node.shape);
  const attrs = { fn, reverse: options.reverse ?? false, exclusive: !(options.inclusive ?? true) };
  return wrap(
    onLastAxis(
      node,
      [at],
      (last) => isWide(last.dtype) ? scanWide(last, attrs) : makeNode("scan", [last], last.shape, last.dtype, attrs),
    ),
  );
}

/**
 * Running sum along an axis; of the flattened array without one.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.cumsum([1, 2, 3]).tolist(); // [1, 3, 6]
 * mx.cumsum([1, 2, 3], 0, { reverse: true, inclusive: false }).tolist(); // [5, 3, 0]
 * ```
 */
export function cumsum<A extends TensorLike, X extends number | null = null>(
  a: A,
  axis?: X,
  options: CumsumOptions = {},
): Tensor<SumOf<NameOf<A>>, Along<RankOf<A>, X>> {
  checkOptions("cumsum", options, CUMSUM_OPTIONS);
  const node = toNode("cumsum", a);
  const { dtype = node.dtype === bool ? int32 : node.dtype, ...rest } = options;
  return scan("cumsum", "sum", castNode(node, dtype), axis, rest);
}

/** Running product along an axis; of the flattened array without one. */
export function cumprod<A extends TensorLike, X extends number | null = null>(
  a: A,
  axis?: X,
  options: ScanOptions = {},
): Tensor<SumOf<NameOf<A>>, Along<RankOf<A>, X>> {
  return scan("cumprod", "prod", toNode("cumprod", a), axis, options);
}

/** Running maximum along an axis; of the flattened array without one. */
export function cummax<A extends TensorLike, X extends number | null = null>(
  a: A,
  axis?: X,
  options: ScanOptions = {},
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  return scan("cummax", "max", toNode("cummax", a), axis, options);
}

/** Running minimum along an axis; of the flattened array without one. */
export function cummin<A extends TensorLike, X extends number | null = null>(
  a: A,
  axis?: X,
  options: ScanOptions = {},
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  return scan("cummin", "min", toNode("cummin", a), axis, options);
}

/** Running log(sum(exp(a))) along an axis; of the flattened array without one. Integers give float32. */
export function logcumsumexp<A extends TensorLike, X extends number | null = null>(
  a: A,
  axis?: X,
  options: ScanOptions = {},
): Tensor<FloatOf<NameOf<A>>, Along<RankOf<A>, X>> {
  const node = toNode("logcumsumexp", a);
  return scan("logcumsumexp", "logsumexp", castNode(node, atLeastFloat(node.dtype)), axis, options);
}

/**
 * exp(a) / sum(exp(a)) over an axis, several, or all, in float32 inside, or in complex64 and float64. Integers give float32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.softmax([[0, 0], [0, 100]], -1).tolist(); // [[0.5, 0.5], [0, 1]]
 * ```
 */
export function softmax<A extends TensorLike>(a: A, axis?: Axis): Floating<A> {
  const given = toNode("softmax", a);
  const node = castNode(given, atLeastFloat(given.dtype));
  const axes = axesOf("softmax", axis, node.shape);
  const row = (last: Node): Node =>
    isWide(last.dtype) ? softmaxWide(last) : makeNode("softmax", [last], last.shape, last.dtype, {});
  return wrap(onLastAxis(node, axes, row));
}
