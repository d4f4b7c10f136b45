/**
 * Functions that put arrays together, cut them up, repeat and shift them.
 *
 * @module
 */

import { ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape, sameShape, sizeOf } from "../../graph/shape.ts";
import { type TensorLike, toArrays, toInteger, toList, toNode, toOperands, toShape } from "../tensor/convert.ts";
import { axisOf, broadcastNode, expandDims, reshape, reshapeNode, sliceNode, squeeze } from "./movement.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Axis, make, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";
import type { Along, Down, Larger, NameOf, RankOf, RankOfShape, Single, Up } from "../tensor/types.ts";

/**
 * Arrays joined along an existing axis; null flattens them first. Dtypes meet as in arithmetic.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.concatenate([mx.zeros([2, 3]), mx.ones([1, 3])]).shape; // [3, 3]
 * ```
 */
export function concatenate<A extends TensorLike, X extends number | null = 0>(
  arrays: readonly A[],
  axis: X = 0 as X,
): Tensor<Single<NameOf<A>>, Along<RankOf<A>, X>> {
  const list = toArrays("concatenate", arrays);
  if (list.length === 0) throw new ValueError("concatenate() expected at least one array");
  let nodes = toOperands("concatenate", list);
  if (axis === null) nodes = nodes.map((n) => reshapeNode(n, [sizeOf(n.shape)]));
  const first = nodes[0].shape;
  const at = axisOf("concatenate", axis ?? 0, first);
  for (const { shape } of nodes) {
    if (shape.length !== first.length || shape.some((d, i) => i !== at && d !== first[i])) {
      throw new ShapeError(
        `concatenate() cannot join ${formatShape(first)} and ${formatShape(shape)} along axis ${axis}`,
      );
    }
  }
  if (nodes.length === 1) return wrap(nodes[0]);
  const shape = first.map((d, i) => i === at ? nodes.reduce((n, x) => n + x.shape[at], 0) : d);
  return make("concatenate", nodes, shape, nodes[0].dtype, { axis: at });
}

/** Arrays of one shape joined along a new axis. */
export function stack<A extends TensorLike>(
  arrays: readonly A[],
  axis: number = 0,
): Tensor<Single<NameOf<A>>, Up<RankOf<A>>> {
  if (toArrays("stack", arrays).length === 0) throw new ValueError("stack() expected at least one array");
  const nodes = toOperands("stack", arrays);
  for (const { shape } of nodes) {
    if (!sameShape(shape, nodes[0].shape)) {
      throw new ShapeError(
        `stack() expected equal shapes: found ${formatShape(nodes[0].shape)} and ${formatShape(shape)}`,
      );
    }
  }
  return scoped("stack", (): AnyTensor => concatenate(nodes.map((n) => expandDims(wrap(n), axis)), axis));
}

/** The arrays along an axis, that axis dropped. */
export function unstack<A extends TensorLike>(a: A, axis: number = 0): Tensor<NameOf<A>, Down<RankOf<A>>>[] {
  const node = toNode("unstack", a);
  const at = axisOf("unstack", axis, node.shape);
  return scoped("unstack", (): AnyTensor[] => split(wrap(node), node.shape[at], at).map((piece) => squeeze(piece, at)));
}

/** Most pieces of an axis without elements. */
const MAX_EMPTY_PIECES = 2 ** 16;

/** Pieces along an axis: a number of equal ones, or cut at the given indices. */
export function split<A extends TensorLike>(
  a: A,
  indicesOrSections: number | readonly number[],
  axis: number = 0,
): Same<A>[] {
  const node = toNode("split", a);
  const at = axisOf("split", axis, node.shape);
  const size = node.shape[at];
  let cuts: number[];
  if (typeof indicesOrSections === "number") {
    const each = size / toInteger("split", "sections", indicesOrSections);
    if (indicesOrSections < 1 || !Number.isInteger(each) || indicesOrSections > Math.max(size, MAX_EMPTY_PIECES)) {
      throw new ShapeError(
        `split() cannot cut axis ${axis} of ${formatShape(node.shape)} into ${indicesOrSections} equal pieces`,
      );
    }
    cuts = Array.from({ length: indicesOrSections + 1 }, (_, i) => i * each);
  } else {
    const clamp = (i: number): number => Math.min(size, Math.max(0, i < 0 ? i + size : i));
    const indices = toList("split", "indices, or a number of sections", indicesOrSections);
    cuts = [0, ...indices.map((i) => clamp(toInteger("split", "indices", i))), size];
  }
  const steps = node.shape.map(() => 1);
  return cuts.slice(1).map((end, i) => {
    const shape = node.shape.map((d, j) => j === at ? Math.max(0, end - cuts[i]) : d);
    return wrap(sliceNode(node, node.shape.map((_, j) => j === at ? cuts[i] : 0), steps, shape));
  });
}

/** Every element `repeats` times along an axis; null flattens first. */
export function repeat<A extends TensorLike, X extends number | null = null>(
  a: A,
  repeats: number,
  axis: X = null as X,
): Tensor<NameOf<A>, Along<RankOf<A>, X>> {
  let node = toNode("repeat", a);
  if (toInteger("repeat", "repeats", repeats) < 0) {
    throw new ValueError(`repeat() expected repeats not to be negative: found ${repeats}`);
  }
  if (axis === null) node = reshapeNode(node, [sizeOf(node.shape)]);
  const at = axisOf("repeat", axis ?? 0, node.shape);
  const around = (middle: number[]): number[] => [...node.shape.slice(0, at), ...middle, ...node.shape.slice(at + 1)];
  const wide = broadcastNode(reshapeNode(node, around([node.shape[at], 1])), around([node.shape[at], repeats]));
  return wrap(reshapeNode(wide, around([node.shape[at] * repeats])));
}

/** The array repeated `reps` times along each axis. */
export function tile<A extends TensorLike, const S extends number | readonly number[]>(
  a: A,
  reps: S,
): Tensor<NameOf<A>, Larger<RankOf<A>, RankOfShape<S>>> {
  const node = toNode("tile", a);
  const list = typeof reps === "number" ? [reps] : toList("tile", "repetitions, or one number", reps);
  const rank = Math.max(list.length, node.shape.length);
  const shape = [...new Array<number>(rank - node.shape.length).fill(1), ...node.shape];
  const times = [...new Array<number>(rank - list.length).fill(1), ...list];
  const inner = reshapeNode(node, shape.flatMap((d) => [1, d]));
  const wide = broadcastNode(inner, toShape("tile", shape.flatMap((d, i) => [times[i], d])));
  return wrap(reshapeNode(wide, shape.map((d, i) => d * times[i])));
}

/**
 * Elements shifted along axes, those that leave at the end come in at the start; null shifts the flattened array. Several shifts of
 * one axis add up.
 */
export function roll<A extends TensorLike>(
  a: A,
  shift: number | readonly number[],
  axis: Axis = null,
): Same<A> {
  const node = toNode("roll", a);
  const given = typeof shift === "number" ? [shift] : toList("roll", "shifts, or one number", shift);
  const total = given.reduce((n, s) => n + toInteger("roll", "shift", s), 0);
  if (axis === null) {
    return scoped(
      "roll",
      (): AnyTensor => reshape(rollAxis(wrap(reshapeNode(node, [sizeOf(node.shape)])), total, 0), node.shape),
    );
  }
  const axes = (typeof axis === "number" ? [axis] : toList("roll", "axes, or one", axis)).map((i) =>
    axisOf("roll", i, node.shape)
  );
  const shifts = typeof shift === "number" || typeof axis === "number" ? axes.map(() => total) : given;
  if (shifts.length !== axes.length) {
    throw new ValueError(
      `roll() expected a shift for each axis: found ${shifts.length} shifts and ${axes.length} axes`,
    );
  }
  return scoped("roll", (): AnyTensor => axes.reduce((x, at, i) => rollAxis(x, shifts[i], at), wrap(node)));
}

function rollAxis(x: Tensor, shift: number, axis: number): Tensor {
  const size = x.shape[axis];
  if (size === 0) return x;
  const by = ((toInteger("roll", "shift", shift) % size) + size) % size;
  const [head, tail] = split(x, [size - by], axis);
  return by === 0 ? x : concatenate([tail, head], axis);
}
