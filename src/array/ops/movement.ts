/**
 * Functions that move elements and compute nothing: shapes, axes, copies, casts.
 *
 * @module
 */

import { checkDtype, type Dtype, type DtypeName } from "../../graph/dtype.ts";
import { IndexError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import {
  broadcastShapes as commonShape,
  contiguousStrides,
  formatShape,
  normalizeAxis,
  sameShape,
  type Shape,
  sizeOf,
} from "../../graph/shape.ts";
import { castNode, fullNode, type TensorLike, toInteger, toList, toNode, toShape, toSizes } from "../tensor/convert.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Axis, make, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";
import type {
  DiagRank,
  Down,
  Expanded,
  Flattened,
  Larger,
  NameOf,
  RankOf,
  RankOfShape,
  Squeezed,
} from "../tensor/types.ts";

/** An axis in 0…ndim-1; throws in the name of `op`. */
export function axisOf(op: string, axis: number, shape: Shape): number {
  if (!Number.isInteger(axis)) {
    throw new ValueError(`${op}() expected a whole number for an axis: found ${quoted(axis)}`);
  }
  const found = normalizeAxis(axis, shape.length);
  if (found === undefined) {
    throw new IndexError(`${op}() axis ${axis} is out of range for an array of shape ${formatShape(shape)}`);
  }
  return found;
}

/** Axes in 0…ndim-1, ascending, all of them for null; throws in the name of `op`. */
export function axesOf(op: string, axis: Axis | undefined, shape: Shape): number[] {
  if (axis === null || axis === undefined) return shape.map((_, i) => i);
  const axes = (Array.isArray(axis) ? axis : [axis]).map((a) => axisOf(op, a, shape));
  if (new Set(axes).size !== axes.length) {
    throw new ValueError(`${op}() expected distinct axes: found (${axes.join(", ")})`);
  }
  return axes.sort((a, b) => a - b);
}

/** A node with axes of size 1 at places of the result. */
export function expandNode(node: Node, axes: readonly number[]): Node {
  if (axes.length === 0) return node;
  const sizes = [...node.shape];
  const shape = Array.from({ length: sizes.length + axes.length }, (_, i) => axes.includes(i) ? 1 : sizes.shift()!);
  return makeNode("reshape", [node], shape, node.dtype, { inserted: axes });
}

/** A node with another shape of the same size. */
export function reshapeNode(node: Node, shape: Shape): Node {
  return sameShape(node.shape, shape) ? node : makeNode("reshape", [node], shape, node.dtype, {});
}

/** A node with its axes in another order. */
export function transposeNode(node: Node, axes: readonly number[]): Node {
  if (axes.every((a, i) => a === i)) return node;
  return makeNode("transpose", [node], axes.map((a) => node.shape[a]), node.dtype, { axes });
}

/** A node repeated to the shape it broadcasts to. */
export function broadcastNode(node: Node, shape: Shape): Node {
  return sameShape(node.shape, shape) ? node : makeNode("broadcast", [node], shape, node.dtype, {});
}

/** Every `steps[i]`-th element from `starts[i]` along each axis. */
export function sliceNode(node: Node, starts: readonly number[], steps: readonly number[], shape: Shape): Node {
  if (sameShape(node.shape, shape) && starts.every((s) => s === 0) && steps.every((s) => s === 1)) return node;
  return makeNode("slice", [node], shape, node.dtype, { starts, steps });
}

/** The values cast to another element type. */
export function astype<A extends TensorLike, N extends DtypeName>(a: A, dtype: Dtype<N>): Tensor<N, RankOf<A>> {
  checkDtype(dtype, "astype");
  return wrap(castNode(toNode("astype", a), dtype));
}

/** The same elements in another shape: see reshape.ts, which programs call. */
export function reshape<A extends TensorLike, const S extends readonly number[]>(
  a: A,
  shape: S,
): Tensor<NameOf<A>, RankOfShape<S>> {
  const node = toNode("reshape", a);
  const size = sizeOf(node.shape);
  const sizes = toSizes("reshape", shape);
  const known = sizes.reduce((n, d) => d === -1 ? n : n * d, 1);
  const open = sizes.filter((d) => d === -1).length;
  const to = sizes.map((d) => d === -1 && known > 0 ? size / known : d);
  if (open > 1 || to.some((d) => !Number.isInteger(d) || d < 0) || sizeOf(to) !== size) {
    throw new ShapeError(`reshape() cannot reshape ${formatShape(node.shape)} to ${formatShape(sizes)}: sizes differ`);
  }
  return wrap(reshapeNode(node, to));
}

/** Axes `startAxis` to `endAxis` (included) as one. A 0-dimensional array becomes one of shape (1,). */
export function flatten<A extends TensorLike, const X extends readonly [startAxis?: number, endAxis?: number]>(
  a: A,
  ...axes: X
): Tensor<NameOf<A>, Flattened<X>> {
  const [startAxis = 0, endAxis = -1] = axes;
  const node = toNode("flatten", a);
  if (node.shape.length === 0) return wrap(reshapeNode(node, [1]));
  const from = axisOf("flatten", startAxis, node.shape);
  const to = axisOf("flatten", endAxis, node.shape);
  if (to < from) throw new ValueError(`flatten() expected startAxis before endAxis: found ${startAxis} and ${endAxis}`);
  const { shape } = node;
  return wrap(reshapeNode(node, [...shape.slice(0, from), sizeOf(shape.slice(from, to + 1)), ...shape.slice(to + 1)]));
}

/** One axis as several of the given sizes, one of which may be -1. */
export function unflatten<A extends TensorLike>(a: A, axis: number, shape: readonly number[]): Tensor<NameOf<A>> {
  const node = toNode("unflatten", a);
  const at = axisOf("unflatten", axis, node.shape);
  const given = toSizes("unflatten", shape);
  const known = given.reduce((n, d) => d === -1 ? n : n * d, 1);
  const sizes = given.map((d) => d === -1 ? node.shape[at] / known : d);
  if (sizeOf(sizes) !== node.shape[at] || sizes.some((d) => !Number.isInteger(d) || d < 0)) {
    throw new ShapeError(
      `unflatten() cannot split axis ${axis} of ${formatShape(node.shape)} into ${formatShape(given)}`,
    );
  }
  return wrap(reshapeNode(node, [...node.shape.slice(0, at), ...sizes, ...node.shape.slice(at + 1)]));
}

/** Without axes of size 1: all of them, or those given. */
export function squeeze<A extends TensorLike, const X extends Axis | undefined = undefined>(
  a: A,
  axis?: X,
): Tensor<NameOf<A>, Squeezed<RankOf<A>, X>> {
  const node = toNode("squeeze", a);
  const { shape } = node;
  const given = axis !== undefined && axis !== null;
  const axes = given ? axesOf("squeeze", axis, shape) : shape.flatMap((d, i) => d === 1 ? [i] : []);
  for (const i of axes) {
    if (shape[i] !== 1) {
      throw new ShapeError(`squeeze() cannot drop axis ${i} of ${formatShape(shape)}: its size is not 1`);
    }
  }
  return wrap(reshapeNode(node, shape.filter((_, i) => !axes.includes(i))));
}

/** With axes of size 1 at the given places of the result. */
export function expandDims<A extends TensorLike, const X extends number | readonly number[]>(
  a: A,
  axis: X,
): Tensor<NameOf<A>, Expanded<RankOf<A>, X>> {
  const node = toNode("expandDims", a);
  const list = typeof axis === "number" ? [axis] : toList("expandDims", "axes, or one", axis);
  const rank = node.shape.length + list.length;
  const axes = list.map((i) => {
    const found = normalizeAxis(i, rank);
    if (found === undefined) {
      throw new IndexError(`expandDims() axis ${quoted(i)} is out of range for a result of ${rank} axes`);
    }
    return found;
  });
  if (new Set(axes).size !== axes.length) {
    throw new ValueError(`expandDims() expected distinct axes: found (${list.join(", ")})`);
  }
  return wrap(expandNode(node, axes));
}

/**
 * Axes in another order; reversed without `axes`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.transpose(mx.zeros([2, 3, 4]), [2, 0, 1]).shape; // [4, 2, 3]
 * ```
 */
export function transpose<A extends TensorLike>(a: A, axes?: readonly number[] | null): Same<A> {
  const node = toNode("transpose", a);
  const rank = node.shape.length;
  const list = axes === undefined || axes === null ? undefined : toList("transpose", "axes", axes);
  const order = list?.map((i) => axisOf("transpose", i, node.shape)) ?? node.shape.map((_, i) => rank - 1 - i);
  if (order.length !== rank || new Set(order).size !== rank) {
    throw new ValueError(
      `transpose() expected each axis of ${formatShape(node.shape)} once: found (${axes!.join(", ")})`,
    );
  }
  return wrap(transposeNode(node, order));
}

/** Same as {@link transpose}. */
export function permuteDims<A extends TensorLike>(a: A, axes?: readonly number[] | null): Same<A> {
  return scoped("permuteDims", (): AnyTensor => transpose(a, axes));
}

/** With the last two axes exchanged. */
export function matrixTranspose<A extends TensorLike>(a: A): Same<A> {
  const node = toNode("matrixTranspose", a);
  const last = node.shape.length - 1;
  if (last < 1) {
    throw new ValueError(`matrixTranspose() expected at least 2 axes: found shape ${formatShape(node.shape)}`);
  }
  return swapaxes(wrap(node), last - 1, last) as AnyTensor;
}

/** With two axes exchanged. */
export function swapaxes<A extends TensorLike>(a: A, axis1: number, axis2: number): Same<A> {
  const node = toNode("swapaxes", a);
  const order = node.shape.map((_, i) => i);
  const [i, j] = [axisOf("swapaxes", axis1, node.shape), axisOf("swapaxes", axis2, node.shape)];
  [order[i], order[j]] = [order[j], order[i]];
  return wrap(transposeNode(node, order));
}

/** With one axis at another place. */
export function moveaxis<A extends TensorLike>(a: A, source: number, destination: number): Same<A> {
  const node = toNode("moveaxis", a);
  const from = axisOf("moveaxis", source, node.shape);
  const to = axisOf("moveaxis", destination, node.shape);
  const order = node.shape.map((_, i) => i).filter((i) => i !== from);
  order.splice(to, 0, from);
  return wrap(transposeNode(node, order));
}

/** Repeated along axes of size 1 and new leading axes up to `shape`. */
export function broadcastTo<A extends TensorLike, const S extends number | Shape>(
  a: A,
  shape: S,
): Tensor<NameOf<A>, RankOfShape<S>> {
  const node = toNode("broadcastTo", a);
  const to = toShape("broadcastTo", shape);
  const common = commonShape(node.shape, to);
  if (!common || !sameShape(common, to)) {
    throw new ShapeError(`broadcastTo() cannot broadcast ${formatShape(node.shape)} to ${formatShape(to)}`);
  }
  return wrap(broadcastNode(node, to));
}

/** Arrays repeated to the shape they broadcast to together. */
export function broadcastArrays(...arrays: readonly TensorLike[]): Tensor[] {
  const nodes = arrays.map((a) => toNode("broadcastArrays", a));
  const shape = commonShape(...nodes.map((n) => n.shape));
  if (!shape) {
    throw new ShapeError(
      `broadcastArrays() cannot broadcast shapes ${nodes.map((n) => formatShape(n.shape)).join(" and ")}`,
    );
  }
  return nodes.map((n) => wrap(broadcastNode(n, shape)));
}

/** The shape that shapes broadcast to, of which there must be one. */
export function broadcastShapes(...shapes: readonly Shape[]): number[] {
  if (shapes.length === 0) throw new ValueError("broadcastShapes() expected at least one shape");
  const shape = commonShape(...shapes.map((s) => toSizes("broadcastShapes", s)));
  if (shape) return shape;
  throw new ShapeError(`broadcastShapes() cannot broadcast shapes ${shapes.map(formatShape).join(" and ")}`);
}

/** With the order of elements reversed along axes. */
export function flip<A extends TensorLike>(a: A, axis?: Axis): Same<A> {
  const node = toNode("flip", a);
  const axes = axesOf("flip", axis, node.shape);
  const on = (i: number): boolean => axes.includes(i) && node.shape[i] > 0;
  return wrap(
    sliceNode(node, node.shape.map((d, i) => on(i) ? d - 1 : 0), node.shape.map((_, i) => on(i) ? -1 : 1), node.shape),
  );
}

/**
 * Any view of the elements in row-major order: strides and offset count elements. Without `strides` the shape's own are taken.
 */
export function asStrided<A extends TensorLike>(
  a: A,
  shape?: Shape,
  strides?: readonly number[],
  offset: number = 0,
): Tensor<NameOf<A>> {
  const node = toNode("asStrided", a);
  const to = shape ? toShape("asStrided", shape) : node.shape;
  const by = strides ? toList("asStrided", "strides", strides) : contiguousStrides(to);
  for (const n of [...by, offset]) toInteger("asStrided", "strides and offset", n);
  const size = sizeOf(node.shape);
  const reach = (pick: (a: number, b: number) => number): number =>
    to.reduce((n, d, i) => n + pick(0, (d - 1) * by[i]), offset);
  if (by.length !== to.length || (sizeOf(to) > 0 && (reach(Math.min) < 0 || reach(Math.max) >= size))) {
    throw new ShapeError(
      `asStrided() cannot view ${formatShape(node.shape)} as ${formatShape(to)} with strides (${
        by.join(", ")
      }) from ${offset}: outside`,
    );
  }
  return make("asStrided", [node], to, node.dtype, { strides: by, offset });
}

/** The same values in row-major order without gaps. */
export function contiguous<A extends TensorLike>(a: A): Same<A> {
  const node = toNode("contiguous", a);
  return make("contiguous", [node], node.shape, node.dtype, {});
}

/** With at least one axis. */
export function atleast1d<A extends TensorLike>(a: A): Tensor<NameOf<A>, Larger<RankOf<A>, 1>> {
  const node = toNode("atleast1d", a);
  return wrap(node.shape.length === 0 ? reshapeNode(node, [1]) : node);
}

/** With at least two axes: (n,) becomes (1, n). */
export function atleast2d<A extends TensorLike>(a: A): Tensor<NameOf<A>, Larger<RankOf<A>, 2>> {
  const node = toNode("atleast2d", a);
  const { shape } = node;
  return wrap(shape.length >= 2 ? node : reshapeNode(node, [1, ...(shape.length ? shape : [1])]));
}

/** With at least three axes: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1). */
export function atleast3d<A extends TensorLike>(a: A): Tensor<NameOf<A>, Larger<RankOf<A>, 3>> {
  const node = toNode("atleast3d", a);
  const { shape } = node;
  if (shape.length >= 3) return wrap(node);
  return wrap(reshapeNode(node, shape.length === 2 ? [...shape, 1] : [1, shape[0] ?? 1, 1]));
}

/** The elements of a diagonal of two axes, which become the last axis. Offsets above 0 lie right of the main one. */
export function diagonal<A extends TensorLike>(
  a: A,
  offset: number = 0,
  axis1: number = 0,
  axis2: number = 1,
): Tensor<NameOf<A>, Down<RankOf<A>>> {
  const node = toNode("diagonal", a);
  toInteger("diagonal", "offset", offset);
  const [i, j] = [axisOf("diagonal", axis1, node.shape), axisOf("diagonal", axis2, node.shape)];
  if (i === j) throw new ValueError(`diagonal() expected two different axes: found ${axis1} and ${axis2}`);
  const rest = node.shape.map((_, k) => k).filter((k) => k !== i && k !== j);
  const last = transposeNode(node, [...rest, i, j]);
  const lead = rest.map((k) => node.shape[k]);
  const [rows, cols] = [node.shape[i], node.shape[j]];
  const count = Math.max(0, Math.min(rows - Math.max(0, -offset), cols - Math.max(0, offset)));
  const start = count === 0 ? 0 : offset >= 0 ? offset : -offset * cols;
  // Diagonal neighbours are cols + 1 apart in the flattened matrix.
  const flat = reshapeNode(last, [...lead, rows * cols]);
  return wrap(sliceNode(flat, [...lead.map(() => 0), start], [...lead.map(() => 1), cols + 1], [...lead, count]));
}

/** A matrix with the elements of a vector on a diagonal, or the diagonal of a matrix. */
export function diag<A extends TensorLike>(
  a: A,
  k: number = 0,
): Tensor<NameOf<A>, DiagRank<RankOf<A>>> {
  const node = toNode("diag", a);
  toInteger("diag", "k", k);
  if (node.shape.length === 2) return diagonal(wrap(node), k) as AnyTensor;
  if (node.shape.length !== 1) {
    throw new ShapeError(`diag() expected a vector or a matrix: found shape ${formatShape(node.shape)}`);
  }
  const [n] = node.shape;
  const side = n + Math.abs(k);
  const base = fullNode(0, [side * side], node.dtype);
  const start = n === 0 ? 0 : k >= 0 ? k : -k * side;
  const flat = makeNode("sliceUpdate", [base, node], base.shape, node.dtype, {
    starts: [start],
    steps: [side + 1],
    donate: false,
  });
  return wrap(reshapeNode(flat, [side, side]));
}
