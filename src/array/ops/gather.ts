/**
 * Functions that read and write at indices along one axis, and at starts that may only be known on the device.
 *
 * @module
 */

import { int32 } from "../../graph/dtype.ts";
import { IndexError, ShapeError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { broadcastShapes, formatShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { castNode, type TensorLike, toIndexNode, toNode, toSizes } from "../tensor/convert.ts";
import { startOf, takeSlice, updateSlice } from "./slice_update.ts";
import { axisOf, broadcastNode, reshapeNode } from "./movement.ts";
import { make, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";
import type { Along, NameOf, RankOf, Taken } from "../tensor/types.ts";

/**
 * Elements at integer indices along an axis: `a.shape[:axis] + indices.shape + a.shape[axis+1:]`. Without an axis, of the
 * flattened array. Negative indices count from the end; those outside are clamped.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.take([[1, 2], [3, 4]], [1, 0], 0).tolist(); // [[3, 4], [1, 2]]
 * ```
 */
export function take<A extends TensorLike, I extends TensorLike, X extends number | null = null>(
  a: A,
  indices: I,
  axis?: X,
): Tensor<NameOf<A>, Taken<RankOf<A>, RankOf<I>, X>> {
  let node = toNode("take", a);
  if (axis === undefined || axis === null) node = reshapeNode(node, [sizeOf(node.shape)]);
  const at = axisOf("take", axis ?? 0, node.shape);
  const index = toIndexNode("take", indices);
  if (node.shape[at] === 0 && sizeOf(index.shape) > 0) throw new IndexError("take() cannot take from an empty axis");
  const shape = [...node.shape.slice(0, at), ...index.shape, ...node.shape.slice(at + 1)];
  return make("gather", [node, index], shape, node.dtype, { axis: at });
}

/** Array and axis of the along-axis functions; null flattens the array. The indices need as many axes as it then has. */
function alongAxis(op: string, a: TensorLike, indices: Node, axis: number | null): { base: Node; at: number } {
  const node = toNode(op, a);
  const base = axis === null ? reshapeNode(node, [sizeOf(node.shape)]) : node;
  const at = axisOf(op, axis ?? 0, base.shape);
  if (base.shape.length !== indices.shape.length) {
    throw new ShapeError(
      `${op}() expected indices with as many axes as the array: found ${formatShape(indices.shape)} and ${
        formatShape(base.shape)
      }`,
    );
  }
  return { base, at };
}

/**
 * Elements at indices along an axis, one index for each place of the result; the other axes broadcast. Null flattens the array
 * and takes a vector of indices.
 */
export function takeAlongAxis<A extends TensorLike, X extends number | null = -1>(
  a: A,
  indices: TensorLike,
  axis: X = -1 as X,
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  const index = toIndexNode("takeAlongAxis", indices);
  const { base, at } = alongAxis("takeAlongAxis", a, index, axis);
  if (base.shape[at] === 0 && sizeOf(index.shape) > 0) {
    throw new IndexError("takeAlongAxis() has indices into an empty axis");
  }
  const one = (shape: Shape): number[] => shape.map((d, i) => i === at ? 1 : d);
  const common = broadcastShapes(one(base.shape), one(index.shape));
  if (!common) {
    throw new ShapeError(`takeAlongAxis() cannot broadcast ${formatShape(base.shape)} and ${formatShape(index.shape)}`);
  }
  const wide = (node: Node): Node => broadcastNode(node, common.map((d, i) => i === at ? node.shape[at] : d));
  const shape = common.map((d, i) => i === at ? index.shape[at] : d);
  return make("gatherAlong", [wide(base), wide(index)], shape, base.dtype, { axis: at });
}

/**
 * The array with values assigned at indices along an axis; indices and values broadcast to each other, and with the array on the
 * other axes. Null flattens the array and takes a vector of indices. An array without elements stays as it is.
 */
export function putAlongAxis<A extends TensorLike>(
  a: A,
  indices: TensorLike,
  values: TensorLike,
  axis: number | null = null,
): Same<A> {
  const op = "putAlongAxis";
  const given = toNode(op, a);
  const { base, at } = alongAxis(op, a, toNode(op, indices, int32), axis);
  if (sizeOf(base.shape) === 0) return wrap(given);
  const index = toIndexNode(op, indices);
  let value = castNode(toNode(op, values, base.dtype), base.dtype);
  // Leading axes of size 1 beyond those of the indices are dropped, as in MLX.
  while (value.shape.length > index.shape.length && value.shape[0] === 1) {
    value = reshapeNode(value, value.shape.slice(1));
  }
  const both = broadcastShapes(index.shape, value.shape);
  const one = (shape: Shape): number[] => shape.map((d, i) => i === at ? 1 : d);
  const around = both?.length === base.shape.length ? broadcastShapes(one(base.shape), one(both)) : undefined;
  if (!both || !around) {
    throw new ShapeError(
      `${op}() cannot broadcast an array of shape ${formatShape(base.shape)}, indices ${
        formatShape(index.shape)
      } and values ${formatShape(value.shape)}`,
    );
  }
  const sized = (size: number): number[] => around.map((d, i) => i === at ? size : d);
  const [shape, places] = [sized(base.shape[at]), sized(both[at])];
  const update = makeNode(
    "scatterAlong",
    [broadcastNode(base, shape), broadcastNode(index, places), broadcastNode(value, places)],
    shape,
    base.dtype,
    { axis: at, fn: "assign", donate: false },
  );
  return wrap(axis === null ? reshapeNode(update, given.shape) : update);
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
export function slice<A extends TensorLike>(
  a: A,
  start: TensorLike,
  axes: readonly number[],
  sliceSize: Shape,
): Same<A> {
  const node = toNode("slice", a);
  const { at, node: from } = startOf("slice", start, axes, node.shape);
  const sizes = toSizes("slice", sliceSize);
  if (
    sizes.length !== node.shape.length ||
    sizes.some((d, i) => !Number.isInteger(d) || d < 0 || d > node.shape[i])
  ) {
    throw new ShapeError(`slice() cannot take ${formatShape(sizes)} out of ${formatShape(node.shape)}`);
  }
  return wrap(takeSlice(node, from, at, sizes));
}

/** How `sliceUpdate` writes. */
export interface SliceUpdateOptions {
  /**
   * Lets the result take over the memory of `a`, so that only the update is written: how a cache appends. `a` must not be
   * used afterwards.
   */
  readonly donate?: boolean;
}

const SLICE_UPDATE_OPTIONS = { donate: true } as const satisfies Record<keyof SliceUpdateOptions, true>;

/**
 * `a` with `update` written where it begins at `start` along `axes` and at 0 along the others. The start may be an array
 * that is only known on the device; it is clamped so that the update lies inside. With a start of shape (rows, axes.length), row
 * i along the first axis of `a` and `update` begins at start i.
 */
export function sliceUpdate<A extends TensorLike>(
  a: A,
  update: TensorLike,
  start: TensorLike,
  axes: readonly number[],
  options: SliceUpdateOptions = {},
): Same<A> {
  checkOptions("sliceUpdate", options, SLICE_UPDATE_OPTIONS);
  return updateSlice(a, update, start, axes, { donate: options.donate ?? false });
}
