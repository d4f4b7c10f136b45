/**
 * Functions that read and write at indices along one axis, and at starts that may only be known on the device.
 *
 * @module
 */

import { int32 } from "../graph/dtype.ts";
import { IndexError, ShapeError, ValueError } from "../graph/error.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { broadcastShapes, formatShape, type Shape, sizeOf } from "../graph/shape.ts";
import { castNode, type TensorLike, toIndexNode, toNode } from "./convert.ts";
import { fitValue } from "./indexing.ts";
import { axisOf, broadcastNode, reshapeNode } from "./movement.ts";
import { make, type Tensor, wrap } from "./tensor.ts";

/**
 * Elements at integer indices along an axis: `a.shape[:axis] + indices.shape + a.shape[axis+1:]`. Without an axis, of the
 * flattened array. Negative indices count from the end.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.take([[1, 2], [3, 4]], [1, 0], 0).tolist(); // [[3, 4], [1, 2]]
 * ```
 */
export function take(a: TensorLike, indices: TensorLike, axis?: number | null): Tensor {
  let node = toNode("take", a);
  if (axis === undefined || axis === null) node = reshapeNode(node, [sizeOf(node.shape)]);
  const at = axisOf("take", axis ?? 0, node.shape);
  const index = toIndexNode("take", indices);
  if (node.shape[at] === 0 && sizeOf(index.shape) > 0) throw new IndexError("take() cannot take from an empty axis");
  const shape = [...node.shape.slice(0, at), ...index.shape, ...node.shape.slice(at + 1)];
  return make("gather", [node, index], shape, node.dtype, { axis: at });
}

/** Axis and operands of the along-axis functions, broadcast on the other axes; null flattens. */
function alongAxis(
  op: string,
  a: TensorLike,
  indices: TensorLike,
  axis: number | null,
): { base: Node; index: Node; at: number } {
  let base = toNode(op, a);
  let index = toIndexNode(op, indices);
  if (axis === null) {
    base = reshapeNode(base, [sizeOf(base.shape)]);
    index = reshapeNode(index, [sizeOf(index.shape)]);
  }
  if (base.shape.length !== index.shape.length) {
    throw new ShapeError(
      `${op}() expected indices with as many axes as the array: found ${formatShape(index.shape)} and ${
        formatShape(base.shape)
      }`,
    );
  }
  const at = axisOf(op, axis ?? 0, base.shape);
  if (base.shape[at] === 0 && sizeOf(index.shape) > 0) throw new IndexError(`${op}() has indices into an empty axis`);
  return { base, index, at };
}

/** Elements at indices along an axis, one index for each place of the result; the other axes broadcast. Null flattens. */
export function takeAlongAxis(a: TensorLike, indices: TensorLike, axis: number | null = -1): Tensor {
  const { base, index, at } = alongAxis("takeAlongAxis", a, indices, axis);
  const one = (shape: Shape): number[] => shape.map((d, i) => i === at ? 1 : d);
  const common = broadcastShapes(one(base.shape), one(index.shape));
  if (!common) {
    throw new ShapeError(`takeAlongAxis() cannot broadcast ${formatShape(base.shape)} and ${formatShape(index.shape)}`);
  }
  const wide = (node: Node): Node => broadcastNode(node, common.map((d, i) => i === at ? node.shape[at] : d));
  const shape = common.map((d, i) => i === at ? index.shape[at] : d);
  return make("gatherAlong", [wide(base), wide(index)], shape, base.dtype, { axis: at });
}

/** The array with values assigned at indices along an axis; indices and values broadcast. Null flattens. */
export function putAlongAxis(
  a: TensorLike,
  indices: TensorLike,
  values: TensorLike,
  axis: number | null = null,
): Tensor {
  const { base, index, at } = alongAxis("putAlongAxis", a, indices, axis);
  const value = castNode(toNode("putAlongAxis", values, base.dtype), base.dtype);
  const shape = base.shape.map((d, i) => i === at ? index.shape[at] : d);
  const update = makeNode(
    "scatterAlong",
    [base, fitValue("putAlongAxis", index, shape), fitValue("putAlongAxis", value, shape)],
    base.shape,
    base.dtype,
    {
      axis: at,
      fn: "assign",
      donate: false,
    },
  );
  return axis === null ? wrap(reshapeNode(update, toNode("putAlongAxis", a).shape)) : wrap(update);
}

/** Whole-number axes and the node of the start of a slice; with `rows`, it may hold a start for each of them. */
function startOf(
  op: string,
  start: TensorLike,
  axes: readonly number[],
  shape: Shape,
  rows?: number,
): { at: number[]; node: Node } {
  const at = axes.map((axis) => axisOf(op, axis, shape));
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

/**
 * A part of shape `sliceSize` that begins at `start` along `axes` and at 0 along the others. The start may be an array that
 * is only known on the device; it is clamped so that the part lies inside.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.slice(mx.arange(6).reshape(2, 3), mx.array([1], mx.int32), [0], [1, 3]).tolist(); // [[3, 4, 5]]
 * ```
 */
export function slice(a: TensorLike, start: TensorLike, axes: readonly number[], sliceSize: Shape): Tensor {
  const node = toNode("slice", a);
  const { at, node: from } = startOf("slice", start, axes, node.shape);
  if (
    sliceSize.length !== node.shape.length ||
    sliceSize.some((d, i) => !Number.isInteger(d) || d < 0 || d > node.shape[i])
  ) {
    throw new ShapeError(`slice() cannot take ${formatShape(sliceSize)} out of ${formatShape(node.shape)}`);
  }
  return make("dynamicSlice", [node, from], sliceSize, node.dtype, { axes: at });
}

/** How `sliceUpdate` writes. */
export interface SliceUpdateOptions {
  /**
   * Lets the result take over the memory of `a`, so that only the update is written: how a cache appends. `a` must not be
   * used afterwards.
   */
  readonly donate?: boolean;
}

/**
 * `a` with `update` written where it begins at `start` along `axes` and at 0 along the others. The start may be an array
 * that is only known on the device; it is clamped so that the update lies inside. With a start of shape (rows, axes.length), row
 * i along the first axis of `a` and `update` begins at start i.
 */
export function sliceUpdate(
  a: TensorLike,
  update: TensorLike,
  start: TensorLike,
  axes: readonly number[],
  options: SliceUpdateOptions = {},
): Tensor {
  const node = toNode("sliceUpdate", a);
  const value = castNode(toNode("sliceUpdate", update, node.dtype), node.dtype);
  const { at, node: from } = startOf("sliceUpdate", start, axes, node.shape, value.shape[0]);
  if (value.shape.length !== node.shape.length || value.shape.some((d, i) => d > node.shape[i])) {
    throw new ShapeError(`sliceUpdate() cannot write ${formatShape(value.shape)} into ${formatShape(node.shape)}`);
  }
  return make("dynamicSliceUpdate", [node, value, from], node.shape, node.dtype, {
    axes: at,
    donate: options.donate ?? false,
  });
}
