/**
 * Convolutions, channels last: (N, …, C) with weights (O, …, C / groups), over up to three spatial axes.
 *
 * @module
 */

import { promote } from "../../graph/dtype.ts";
import { DtypeError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node, type OpAttrs } from "../../graph/node.ts";
import { entryOf } from "../../graph/options.ts";
import { formatShape } from "../../graph/shape.ts";
import { convFits, convShape, convSpan } from "./conv_shape.ts";
import { castNode, type TensorLike, toInteger, toList, toNode } from "../tensor/convert.ts";
import { reshapeNode } from "../ops/movement.ts";
import { type Tensor, wrap } from "../tensor/tensor.ts";
import type { Promoted, RankOf } from "../tensor/types.ts";

/** One number for every spatial axis, or a list of one for each. */
export type Spatial = number | readonly number[];

/** Zeros at both ends of spatial axes, or a pair of lists: those before and those after. Negative ones crop. */
export type ConvPadding = Spatial | readonly [low: readonly number[], high: readonly number[]];

/** A convolution: of the dtype in which both meet, of as many axes as the input. */
export type Convolved<X, W> = Tensor<Promoted<X, W>, RankOf<X>>;

function isPair(padding: ConvPadding): padding is readonly [readonly number[], readonly number[]] {
  return Array.isArray(padding) && padding.length === 2 && padding.every((list) => Array.isArray(list));
}

/** A number for each of `axes` spatial axes; a list may have a single one for all. */
function spatial(op: string, name: string, value: Spatial, axes: number, exact: boolean): number[] {
  const list = typeof value === "number" ? [value] : toList(op, `whole numbers for ${name}`, value);
  for (const v of list) toInteger(op, name, v);
  if (list.length === axes) return [...list];
  if (list.length === 1 && (typeof value === "number" || !exact)) return new Array<number>(axes).fill(list[0]);
  throw new ValueError(
    `${op}() expected ${name} to be a number or a list of ${axes}: found ${list.length} numbers`,
  );
}

function positive(op: string, name: string, list: readonly number[]): void {
  if (list.some((v) => v < 1)) throw new ValueError(`${op}() expected ${name} to be positive: found ${list}`);
}

type ConvAttrs = OpAttrs["conv"];

/** Checks the operands of a convolution over `axes` spatial axes, or as many as the input has. */
function operands(op: string, input: TensorLike, weight: TensorLike, axes?: number): [Node, Node] {
  const [x, w] = [toNode(op, input), toNode(op, weight)];
  const dtype = promote(x.dtype, w.dtype);
  for (const { dtype: { kind, name } } of [x, w]) {
    if (kind !== "float") {
      throw new DtypeError(`${op}() takes float arrays only: found ${name}, use astype(mx.float32)`);
    }
  }
  const found = x.shape.length - 2;
  if (found < 1 || found > 3 || (axes !== undefined && found !== axes)) {
    const expected = axes === undefined ? "1 to 3 spatial axes" : `${axes} spatial ${axes === 1 ? "axis" : "axes"}`;
    throw new ShapeError(`${op}() expected an input (N, …, C) with ${expected}: found shape ${formatShape(x.shape)}`);
  }
  if (w.shape.length !== x.shape.length) {
    throw new ShapeError(
      `${op}() expected weights (O, …, C) with as many axes as the input: found ${formatShape(w.shape)} for an input ${
        formatShape(x.shape)
      }`,
    );
  }
  return [castNode(x, dtype), castNode(w, dtype)];
}

/** Checks attributes against operands and makes the node. */
function convNode(op: string, x: Node, w: Node, attrs: ConvAttrs): Node {
  const { stride, paddingLow, paddingHigh, kernelDilation, inputDilation, groups } = attrs;
  const shapes = `input ${formatShape(x.shape)} and weights ${formatShape(w.shape)}`;
  positive(op, "stride", stride);
  positive(op, "kernelDilation", kernelDilation);
  positive(op, "inputDilation", inputDilation);
  if (!(toInteger(op, "groups", groups) >= 1)) {
    throw new ValueError(`${op}() expected groups of 1 or more: found ${groups}`);
  }
  const channels = x.shape[x.shape.length - 1];
  const filters = w.shape[0];
  if (channels % groups !== 0 || filters % groups !== 0) {
    throw new ShapeError(`${op}() cannot cut the channels of ${shapes} into ${groups} groups`);
  }
  if (channels / groups !== w.shape[w.shape.length - 1]) {
    throw new ShapeError(
      `${op}() expected the last axis of the weights to be the input's channels, ${channels} of them in ${groups} ` +
        `${groups === 1 ? "group" : "groups"}: found ${shapes}`,
    );
  }
  stride.forEach((_, i) => {
    if (convFits(convSpan(x.shape, w.shape, attrs, i))) return;
    throw new ShapeError(
      `${op}() expected an input that is no smaller than the weights along axis ${
        i + 1
      }: found ${shapes} with padding ${paddingLow[i]} and ${paddingHigh[i]}`,
    );
  });
  return makeNode("conv", [x, w], convShape(x.shape, w.shape, attrs)!, x.dtype, attrs);
}

/**
 * Convolution of any kind over one to three spatial axes: `input` (N, …, C), `weight` (O, …, C / groups). `padding` may be a pair of
 * lists, before and after. `inputDilation` sets elements of the input apart, `flip` takes weights back to front.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.ones([1, 8, 8, 3]);
 * const w = mx.ones([4, 3, 3, 3]);
 * mx.convGeneral(x, w, 1, [[1, 0], [1, 0]]).shape; // [1, 8, 6, 4]
 * ```
 */
export function convGeneral<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: ConvPadding = 0,
  kernelDilation: Spatial = 1,
  inputDilation: Spatial = 1,
  groups: number = 1,
  flip: boolean = false,
): Convolved<X, W> {
  const op = "convGeneral";
  const [x, w] = operands(op, input, weight);
  const axes = x.shape.length - 2;
  const [low, high]: readonly Spatial[] = isPair(padding) ? padding : [padding, padding];
  return wrap(convNode(op, x, w, {
    stride: spatial(op, "stride", stride, axes, false),
    paddingLow: spatial(op, "padding", low, axes, false),
    paddingHigh: spatial(op, "padding", high, axes, false),
    kernelDilation: spatial(op, "kernelDilation", kernelDilation, axes, false),
    inputDilation: spatial(op, "inputDilation", inputDilation, axes, false),
    groups,
    flip,
  }));
}

/** A convolution over `axes` spatial axes. */
function convolution(
  axes: number,
  input: TensorLike,
  weight: TensorLike,
  stride: Spatial,
  padding: Spatial,
  dilation: Spatial,
  groups: number,
): Node {
  const op = `conv${axes}d`;
  // As in MLX numbers stand for all spatial axes, so conv1d takes any number of them.
  const [x, w] = operands(op, input, weight, axes === 1 ? undefined : axes);
  axes = x.shape.length - 2;
  const both = spatial(op, "padding", padding, axes, true);
  return convNode(op, x, w, {
    stride: spatial(op, "stride", stride, axes, true),
    paddingLow: both,
    paddingHigh: both,
    kernelDilation: spatial(op, "dilation", dilation, axes, true),
    inputDilation: new Array<number>(axes).fill(1),
    groups,
    flip: false,
  });
}

/** Convolution over one axis: `input` (N, L, C), `weight` (O, K, C / groups). */
export function conv1d<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: Spatial = 0,
  dilation: Spatial = 1,
  groups: number = 1,
): Convolved<X, W> {
  return wrap(convolution(1, input, weight, stride, padding, dilation, groups));
}

/**
 * Convolution over two axes: `input` (N, H, W, C), `weight` (O, KH, KW, C / groups).
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const image = mx.random.normal([1, 32, 32, 3]);
 * const weight = mx.random.normal([16, 3, 3, 3]);
 * mx.conv2d(image, weight, 2, 1).shape; // [1, 16, 16, 16]
 * ```
 */
export function conv2d<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: Spatial = 0,
  dilation: Spatial = 1,
  groups: number = 1,
): Convolved<X, W> {
  return wrap(convolution(2, input, weight, stride, padding, dilation, groups));
}

/** Convolution over three axes: `input` (N, D, H, W, C), `weight` (O, KD, KH, KW, C / groups). */
export function conv3d<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: Spatial = 0,
  dilation: Spatial = 1,
  groups: number = 1,
): Convolved<X, W> {
  return wrap(convolution(3, input, weight, stride, padding, dilation, groups));
}

/** A transposed convolution over `axes` spatial axes: one of the dilated input with weights back to front. */
function transposed(
  axes: number,
  input: TensorLike,
  weight: TensorLike,
  stride: Spatial,
  padding: Spatial,
  dilation: Spatial,
  outputPadding: Spatial,
  groups: number,
): Node {
  const op = `convTranspose${axes}d`;
  const [x, w] = operands(op, input, weight, axes);
  const steps = spatial(op, "dilation", dilation, axes, true);
  const cropped = spatial(op, "padding", padding, axes, true);
  const more = spatial(op, "outputPadding", outputPadding, axes, true);
  const low = cropped.map((crop, i) => steps[i] * (w.shape[i + 1] - 1) - crop);
  return convNode(op, x, w, {
    stride: new Array<number>(axes).fill(1),
    paddingLow: low,
    paddingHigh: low.map((pad, i) => pad + more[i]),
    kernelDilation: steps,
    inputDilation: spatial(op, "stride", stride, axes, true),
    groups,
    flip: true,
  });
}

/** Transposed convolution over one axis: `input` (N, L, C), `weight` (O, K, C / groups). `outputPadding` lengthens the result. */
export function convTranspose1d<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: Spatial = 0,
  dilation: Spatial = 1,
  outputPadding: Spatial = 0,
  groups: number = 1,
): Convolved<X, W> {
  return wrap(transposed(1, input, weight, stride, padding, dilation, outputPadding, groups));
}

/** Transposed convolution over two axes: `input` (N, H, W, C), `weight` (O, KH, KW, C / groups). */
export function convTranspose2d<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: Spatial = 0,
  dilation: Spatial = 1,
  outputPadding: Spatial = 0,
  groups: number = 1,
): Convolved<X, W> {
  return wrap(transposed(2, input, weight, stride, padding, dilation, outputPadding, groups));
}

/** Transposed convolution over three axes: `input` (N, D, H, W, C), `weight` (O, KD, KH, KW, C / groups). */
export function convTranspose3d<X extends TensorLike, W extends TensorLike>(
  input: X,
  weight: W,
  stride: Spatial = 1,
  padding: Spatial = 0,
  dilation: Spatial = 1,
  outputPadding: Spatial = 0,
  groups: number = 1,
): Convolved<X, W> {
  return wrap(transposed(3, input, weight, stride, padding, dilation, outputPadding, groups));
}

/** Which part of the overlap of two sequences {@link convolve} gives. */
export type ConvolveMode = "full" | "same" | "valid";

/**
 * Discrete convolution of two vectors. "full" gives every overlap, "same" as many elements as the longer vector has, "valid" the overlaps
 * with one vector within the other.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.convolve([1, 2, 3], [0, 1, 0.5]).tolist(); // [0, 1, 2.5, 4, 1.5]
 * ```
 */
export function convolve<A extends TensorLike, V extends TensorLike>(
  a: A,
  v: V,
  mode: ConvolveMode = "full",
): Tensor<Promoted<A, V>, 1> {
  const op = "convolve";
  let [long, short] = [toNode(op, a), toNode(op, v)];
  for (const { shape } of [long, short]) {
    if (shape.length !== 1 || shape[0] === 0) {
      throw new ShapeError(`convolve() takes vectors that are not empty: found shape ${formatShape(shape)}`);
    }
  }
  if (short.shape[0] > long.shape[0]) [long, short] = [short, long];
  const [n, k] = [long.shape[0], short.shape[0]];
  const padding: Record<ConvolveMode, readonly [number, number]> = {
    full: [k - 1, k - 1],
    same: [Math.floor(k / 2), k - 1 - Math.floor(k / 2)],
    valid: [0, 0],
  };
  const ends = entryOf(padding, mode);
  if (!ends) {
    throw new ValueError(`convolve() expected mode to be "full", "same" or "valid": found ${quoted(mode)}`);
  }
  const [x, w] = operands(op, wrap(reshapeNode(long, [1, n, 1])), wrap(reshapeNode(short, [1, k, 1])), 1);
  const [low, high] = ends;
  const ones = { stride: [1], kernelDilation: [1], inputDilation: [1] };
  const result = convNode(op, x, w, { ...ones, paddingLow: [low], paddingHigh: [high], groups: 1, flip: true });
  return wrap(reshapeNode(result, [result.shape[1]]));
}
