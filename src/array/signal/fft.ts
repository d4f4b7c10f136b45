/**
 * Discrete Fourier transforms, `mlx.fft`. They compute in float32 and give complex64, those back to real numbers float32.
 *
 * An axis is cut or padded with zeros to the size that is asked for. `norm` says which direction is divided by the number of elements:
 * "backward" the inverse one, "forward" the other, "ortho" both by its root.
 *
 * @module
 */

import { complex64, type Dtype, float32 } from "../../graph/dtype.ts";
import { IndexError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { formatShape, normalizeAxis } from "../../graph/shape.ts";
import { castNode, type TensorLike, toInteger, toList, toNode, toNumber } from "../tensor/convert.ts";
import { divide } from "../ops/binary.ts";
import { concatenate, roll } from "../ops/join.ts";
import { sliceNode, transposeNode } from "../ops/movement.ts";
import { pad } from "../ops/pad.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, handOn, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";
import type { RankOf } from "../tensor/types.ts";

/** Which direction is divided by the number of elements: the inverse one, both by its root, or the forward one. */
export type FftNorm = "backward" | "ortho" | "forward";

/** A spectrum of an array. */
type Spectrum<A> = Tensor<"complex64", RankOf<A>>;
/** An array of real numbers with the axes of another. */
type Real<A> = Tensor<"float32", RankOf<A>>;

/** The kind of transform along the last axis of a function; along the others it is complex. */
interface TransformKind {
  readonly name: string;
  readonly inverse: boolean;
  readonly real: boolean;
}

/** The inverse of the divisor that the kind has for a transform of n elements. */
function scaleOf({ name, inverse }: TransformKind, norm: FftNorm, n: number): number {
  if (norm === "ortho") return 1 / Math.sqrt(n);
  if (norm === "backward") return inverse ? 1 / n : 1;
  if (norm === "forward") return inverse ? 1 : 1 / n;
  throw new ValueError(`${name}() expected norm "backward", "ortho" or "forward": found ${quoted(norm)}`);
}

/** The node with an axis cut or padded with zeros to a size. */
function resized(name: string, node: Node, axis: number, size: number): Node {
  const { shape } = node;
  const cut = sliceNode(node, shape.map(() => 0), shape.map(() => 1), shape.with(axis, Math.min(size, shape[axis])));
  if (size <= shape[axis]) return cut;
  const widths = shape.map((d, i) => [0, i === axis ? size - d : 0] as const);
  return handOn(scoped(name, (): AnyTensor => pad(wrap(cut), widths)));
}

/** One axis transformed; `n` elements of the side that is not half a spectrum. */
function along(kind: TransformKind, node: Node, axis: number, n: number, norm: FftNorm): Node {
  const { name, inverse, real } = kind;
  const half = Math.floor(n / 2) + 1;
  const input = resized(name, node, axis, real && inverse ? half : n);
  const order = input.shape.map((_, i) => i);
  const last = order.length - 1;
  [order[axis], order[last]] = [order[last], order[axis]];
  const rows = transposeNode(input, order);
  const shape = rows.shape.with(last, real && !inverse ? half : n);
  const dtype: Dtype = real && inverse ? float32 : complex64;
  return transposeNode(makeNode("fft", [rows], shape, dtype, { inverse, real, scale: scaleOf(kind, norm, n) }), order);
}

/** Axes 0…ndim-1, and the size of each. */
function axesAndSizes(
  kind: TransformKind,
  node: Node,
  s: readonly number[] | null | undefined,
  axes: readonly number[] | null | undefined,
): { axes: number[]; sizes: number[] } {
  const { name, inverse, real } = kind;
  const { shape } = node;
  if (shape.length === 0) throw new ValueError(`${name}() expected an array of at least one axis`);
  if (s && !axes) throw new ValueError(`${name}() expected axes beside sizes: found ${quoted(s)} alone`);
  const given = axes ? toList<number>(name, "axes", axes) : shape.map((_, i) => i);
  const at = given.map((axis) => {
    const found = normalizeAxis(toInteger(name, "axis", axis), shape.length);
    if (found !== undefined) return found;
    throw new IndexError(`${name}() axis ${axis} is out of range for an array of shape ${formatShape(shape)}`);
  });
  if (new Set(at).size !== at.length) {
    throw new ValueError(`${name}() expected distinct axes: found (${given.join(", ")})`);
  }
  const sizes = s
    ? toList<number>(name, "sizes", s).map((n) => toInteger(name, "size", n))
    : at.map((axis) => shape[axis]);
  if (sizes.length !== at.length) {
    throw new ShapeError(`${name}() expected a size for each axis: found ${sizes.length} sizes and ${at.length} axes`);
  }
  if (!s && real && inverse && at.length > 0) sizes[at.length - 1] = 2 * (sizes[at.length - 1] - 1);
  if (sizes.some((n) => n <= 0)) {
    throw new ShapeError(`${name}() expected sizes above 0: found (${sizes.join(", ")})`);
  }
  return { axes: at, sizes };
}

function transform(
  kind: TransformKind,
  a: TensorLike,
  s: readonly number[] | null | undefined,
  axes: readonly number[] | null | undefined,
  norm: FftNorm,
): AnyTensor {
  const given = toNode(kind.name, a);
  scaleOf(kind, norm, 1);
  const found = axesAndSizes(kind, given, s, axes);
  if (found.axes.length === 0) return wrap(given);
  const { inverse } = kind;
  return scoped((): AnyTensor => {
    let node = given.dtype === complex64 ? given : castNode(given, float32);
    const steps = found.axes.map((axis, i) => [axis, found.sizes[i]] as const);
    const last = steps.pop()!;
    const others = (): void => {
      for (const [axis, n] of steps) node = along({ ...kind, real: false }, node, axis, n, norm);
    };
    // The half of a spectrum is made first and undone last.
    if (inverse) others();
    node = along(kind, node, ...last, norm);
    if (!inverse) others();
    return wrap(node);
  });
}

function transform1(
  kind: TransformKind,
  a: TensorLike,
  n: number | null | undefined,
  axis: number,
  norm: FftNorm,
): AnyTensor {
  return transform(kind, a, n === null || n === undefined ? null : [n], [axis], norm);
}

/**
 * The transform along one axis, of `n` elements.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.fft.fft([1, 0, 0, 0]).dtype; // complex64
 * ```
 */
export function fft<A extends TensorLike>(
  a: A,
  n: number | null = null,
  axis: number = -1,
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform1({ name: "fft", inverse: false, real: false }, a, n, axis, norm);
}

/**
 * The inverse of {@link fft}.
 */
export function ifft<A extends TensorLike>(
  a: A,
  n: number | null = null,
  axis: number = -1,
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform1({ name: "ifft", inverse: true, real: false }, a, n, axis, norm);
}

/**
 * The first n / 2 + 1 elements of the transform of real numbers along one axis: the others are their conjugates. The imaginary part of complex
 * numbers is left out.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.random.normal([4, 1000]);
 * const spectrum = mx.fft.rfft(x); // (4, 501)
 * mx.allclose(mx.fft.irfft(spectrum), x, 1e-4, 1e-4).item(); // true
 * ```
 */
export function rfft<A extends TensorLike>(
  a: A,
  n: number | null = null,
  axis: number = -1,
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform1({ name: "rfft", inverse: false, real: true }, a, n, axis, norm);
}

/**
 * The inverse of {@link rfft}: `n` real numbers along one axis, default 2 (size - 1).
 */
export function irfft<A extends TensorLike>(
  a: A,
  n: number | null = null,
  axis: number = -1,
  norm: FftNorm = "backward",
): Real<A> {
  return transform1({ name: "irfft", inverse: true, real: true }, a, n, axis, norm);
}

/** The transform along two axes, of sizes `s`. */
export function fft2<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = [-2, -1],
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform({ name: "fft2", inverse: false, real: false }, a, s, axes, norm);
}

/** The inverse of {@link fft2}. */
export function ifft2<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = [-2, -1],
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform({ name: "ifft2", inverse: true, real: false }, a, s, axes, norm);
}

/** The transform of real numbers along two axes, of sizes `s`; along the last one only the first s / 2 + 1 elements. */
export function rfft2<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = [-2, -1],
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform({ name: "rfft2", inverse: false, real: true }, a, s, axes, norm);
}

/** The inverse of {@link rfft2}: real numbers, by default 2 (size - 1) along the last axis. */
export function irfft2<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = [-2, -1],
  norm: FftNorm = "backward",
): Real<A> {
  return transform({ name: "irfft2", inverse: true, real: true }, a, s, axes, norm);
}

/** The transform along all axes unless some are given, of sizes `s`. */
export function fftn<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = null,
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform({ name: "fftn", inverse: false, real: false }, a, s, axes, norm);
}

/** The inverse of {@link fftn}. */
export function ifftn<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = null,
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform({ name: "ifftn", inverse: true, real: false }, a, s, axes, norm);
}

/** The transform of real numbers along `axes` (default all), of sizes `s`; along the last one only the first s / 2 + 1 elements. */
export function rfftn<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = null,
  norm: FftNorm = "backward",
): Spectrum<A> {
  return transform({ name: "rfftn", inverse: false, real: true }, a, s, axes, norm);
}

/** The inverse of {@link rfftn}: real numbers, by default 2 (size - 1) along the last axis. */
export function irfftn<A extends TensorLike>(
  a: A,
  s: readonly number[] | null = null,
  axes: readonly number[] | null = null,
  norm: FftNorm = "backward",
): Real<A> {
  return transform({ name: "irfftn", inverse: true, real: true }, a, s, axes, norm);
}

/** Rolls axes (default all) by what `by` makes of their sizes. */
function shifted(
  name: string,
  a: TensorLike,
  axes: number | readonly number[] | null | undefined,
  by: (n: number) => number,
): AnyTensor {
  const node = toNode(name, a);
  const given = axes ?? node.shape.map((_, i) => i);
  const at = (typeof given === "number" ? [given] : toList<number>(name, "axes, or one", given)).map((axis) => {
    const found = normalizeAxis(toInteger(name, "axis", axis), node.shape.length);
    if (found !== undefined) return found;
    throw new IndexError(`${name}() axis ${axis} is out of range for an array of shape ${formatShape(node.shape)}`);
  });
  return at.length === 0 ? wrap(node) : roll(wrap(node), at.map((axis) => by(node.shape[axis])), at);
}

/** A spectrum with the frequency 0 in the middle of the axes (default all). */
export function fftshift<A extends TensorLike>(a: A, axes: number | readonly number[] | null = null): Same<A> {
  return shifted("fftshift", a, axes, (n) => Math.floor(n / 2)) as Same<A>;
}

/** The inverse of {@link fftshift}, which differs from it where a size is odd. */
export function ifftshift<A extends TensorLike>(a: A, axes: number | readonly number[] | null = null): Same<A> {
  return shifted("ifftshift", a, axes, (n) => -Math.floor(n / 2)) as Same<A>;
}

/** `count` frequencies, divided by n d. */
/** Multiples of 1 / (n d): so many from 0 on, then so many up to -1. */
function frequencies(name: string, n: number, d: number, parts: (n: number) => [number, number]): AnyTensor {
  if (toInteger(name, "n", n) <= 0) throw new ValueError(`${name}() expected n above 0: found ${n}`);
  if (toNumber(name, "d", d) === 0) throw new ValueError(`${name}() expected d other than 0`);
  const [zero, below] = parts(n);
  return scoped(name, (): AnyTensor => {
    const from = (start: number, size: number): Tensor =>
      wrap(makeNode("arange", [], [size], float32, { start, step: 1 }));
    return divide(below === 0 ? from(0, zero) : concatenate([from(0, zero), from(-below, below)]), n * d);
  });
}

/** The frequencies of the elements of a spectrum of n samples that are `d` apart: 0, 1, …, -2, -1 divided by n d. */
export function fftfreq(n: number, d: number = 1): Tensor<"float32", 1> {
  return frequencies("fftfreq", n, d, (n) => [Math.ceil(n / 2), Math.floor(n / 2)]);
}

/** The frequencies of the elements of half a spectrum: 0, 1, …, n / 2 divided by n d. */
export function rfftfreq(n: number, d: number = 1): Tensor<"float32", 1> {
  return frequencies("rfftfreq", n, d, (n) => [Math.floor(n / 2) + 1, 0]);
}
