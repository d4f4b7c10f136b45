/**
 * Slices whose start the device knows: what the public functions and caches of keys and values share.
 *
 * @module
 */

import { int32 } from "../graph/dtype.ts";
import { ShapeError, ValueError } from "../graph/error.ts";
import type { Node, OpAttrs } from "../graph/node.ts";
import { formatShape, type Shape, sizeOf } from "../graph/shape.ts";
import { castNode, type TensorLike, toIndexNode, toList, toNode } from "./convert.ts";
import { axisOf, reshapeNode } from "./movement.ts";
import { make, type Tensor } from "./tensor.ts";

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
  if (at.length > 3) throw new ValueError(`${op}() takes up to 3 axes: found ${at.length}`);
  const perRow = node.shape.length === 2 && rows !== undefined && rows === shape[0] && node.shape[0] === rows &&
    node.shape[1] === at.length && !at.includes(0);
  if (!perRow && sizeOf(node.shape) !== at.length) {
    throw new ShapeError(
      `${op}() expected a start for each of ${at.length} axes: found shape ${formatShape(node.shape)}`,
    );
  }
  return { at, node: perRow ? castNode(node, int32) : reshapeNode(castNode(node, int32), [at.length]) };
}

/** `sliceUpdate` with the attributes of its node. */
export function updateSlice(
  a: TensorLike,
  update: TensorLike,
  start: TensorLike,
  axes: readonly number[],
  attrs: Omit<OpAttrs["dynamicSliceUpdate"], "axes">,
): Tensor {
  const node = toNode("sliceUpdate", a);
  const value = castNode(toNode("sliceUpdate", update, node.dtype), node.dtype);
  const { at, node: from } = startOf("sliceUpdate", start, axes, node.shape, value.shape[0]);
  if (value.shape.length !== node.shape.length || value.shape.some((d, i) => d > node.shape[i])) {
    throw new ShapeError(`sliceUpdate() cannot write ${formatShape(value.shape)} into ${formatShape(node.shape)}`);
  }
  return make("dynamicSliceUpdate", [node, value, from], node.shape, node.dtype, {
    ...attrs,
    axes: at,
  });
}
