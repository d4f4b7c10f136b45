/**
 * Slices whose start is an array on the device: the parts that public functions and key/value caches share.
 *
 * @module
 */

import { int32 } from "../../graph/dtype.ts";
import { ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node, type OpAttrs } from "../../graph/node.ts";
import { formatShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { castNode, type TensorLike, toIndexNode, toList, toNode } from "../tensor/convert.ts";
import { axisOf, reshapeNode, sliceNode } from "./movement.ts";
import { type Tensor, wrap } from "../tensor/tensor.ts";

/** Most axes of a node that takes or writes a slice: the push block of the copy kernel has room for no more. */
const NODE_AXES = 3;

/** Whole-number axes and the node of the start of a slice; with `rows`, it may hold a start for each of them. */
export function startOf(
  op: string,
  start: TensorLike,
  axes: readonly number[],
  shape: Shape,
  rows?: number,
): { at: number[]; node: Node } {
  const at = toList(op, "axes", axes).map((axis) => axisOf(op, axis, shape));
  if (new Set(at).size !== at.length) {
    throw new ValueError(`${op}() expected distinct axes: found (${axes.join(", ")})`);
  }
  const node = toIndexNode(op, start);
  const perRow = node.shape.length === 2 && rows !== undefined && rows === shape[0] && node.shape[0] === rows &&
    node.shape[1] === at.length && !at.includes(0);
  if (!perRow && sizeOf(node.shape) !== at.length) {
    throw new ShapeError(
      `${op}() expected a start for each of ${at.length} axes: found shape ${formatShape(node.shape)}`,
    );
  }
  if (perRow && at.length > NODE_AXES) {
    throw new ValueError(`${op}() takes up to ${NODE_AXES} axes with a start for each row: found ${at.length}`);
  }
  return { at, node: perRow ? castNode(node, int32) : reshapeNode(castNode(node, int32), [at.length]) };
}

/** The axes of one node with their part of the start, and the remaining axes. */
function firstAxes(axes: readonly number[], start: Node): { now: number[]; rest: number[]; starts: [Node, Node] } {
  const [now, rest] = [axes.slice(0, NODE_AXES), axes.slice(NODE_AXES)];
  if (rest.length === 0) return { now, rest, starts: [start, start] };
  const part = (from: number, count: number): Node => sliceNode(start, [from], [1], [count]);
  return { now, rest, starts: [part(0, now.length), part(now.length, rest.length)] };
}

/** The shape of `x` with other sizes but along `whole`. */
function sized(x: Node, sizes: Shape, whole: readonly number[]): number[] {
  return x.shape.map((d, i) => whole.includes(i) ? d : sizes[i]);
}

/** A part of shape `sizes` that begins at `start` along axes: a slab along some of them, then the part of that. */
export function takeSlice(x: Node, start: Node, axes: readonly number[], sizes: Shape): Node {
  const { now, rest, starts } = firstAxes(axes, start);
  const slab = makeNode("dynamicSlice", [x, starts[0]], sized(x, sizes, rest), x.dtype, { axes: now });
  return rest.length === 0 ? slab : takeSlice(slab, starts[1], rest, sizes);
}

type UpdateAttrs = Omit<OpAttrs["dynamicSliceUpdate"], "axes">;

/** `x` with `value` written: into a slab along some axes, which is written back. */
function writeSlice(x: Node, value: Node, start: Node, axes: readonly number[], attrs: UpdateAttrs): Node {
  const { now, rest, starts } = firstAxes(axes, start);
  const slab = (): Node =>
    makeNode("dynamicSlice", [x, starts[0]], sized(x, value.shape, rest), x.dtype, { axes: now });
  const update = rest.length === 0 ? value : writeSlice(slab(), value, starts[1], rest, { donate: true });
  return makeNode("dynamicSliceUpdate", [x, update, starts[0]], x.shape, x.dtype, { ...attrs, axes: now });
}

/** `sliceUpdate` with the attributes of its node. */
export function updateSlice(
  a: TensorLike,
  update: TensorLike,
  start: TensorLike,
  axes: readonly number[],
  attrs: UpdateAttrs,
): Tensor {
  const node = toNode("sliceUpdate", a);
  const value = castNode(toNode("sliceUpdate", update, node.dtype), node.dtype);
  const { at, node: from } = startOf("sliceUpdate", start, axes, node.shape, value.shape[0]);
  if (value.shape.length !== node.shape.length || value.shape.some((d, i) => d > node.shape[i])) {
    throw new ShapeError(`sliceUpdate() cannot write ${formatShape(value.shape)} into ${formatShape(node.shape)}`);
  }
  return wrap(writeSlice(node, value, from, at, attrs));
}
