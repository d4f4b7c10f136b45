/**
 * Random numbers from explicit keys or from a global state, the same streams as MLX's.
 *
 * Bits come from Threefry 2x32. The global state is one key that every draw without a key splits. It lives on the host, so drawing never
 * waits for a device.
 *
 * @module
 */

import {
  checkDtype,
  complex64,
  type Dtype,
  type DtypeName,
  float32,
  float64,
  int32,
  isWide,
  uint32,
} from "../../graph/dtype.ts";
import { DtypeError, ShapeError, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import * as op from "../ops/binary.ts";
import { castNode, fullNode, type TensorLike, toNode, toShape } from "../tensor/convert.ts";
import { toFloat } from "../ops/elementwise.ts";
import { defineFused } from "../fast/fused.ts";
import { take } from "../ops/gather.ts";
import { keyOf } from "./keys.ts";
import { keyNode, nextKey, seedState } from "./random_state.ts";
import { svd } from "../linalg/factors.ts";
import { astype, axisOf, broadcastTo, expandDims, reshape, squeeze } from "../ops/movement.ts";
import { matmul } from "../linalg/products.ts";
import { argmax, cumsum, softmax, sum } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { argsort } from "../ops/sort.ts";
import { type AnyTensor, make, type Tensor, wrap } from "../tensor/tensor.ts";
import { abs, erf, erfinv, floor, log, log1p, negative, sign, sqrt } from "../ops/unary.ts";
import { view } from "../ops/view.ts";
import type { Same } from "../tensor/results.ts";
import type { Down, RankOf, RankOfShape, Up } from "../tensor/types.ts";

export { state } from "./random_state.ts";

/** A key, or one for each of `rows`. */
function keyArgument(name: string, value: TensorLike | null | undefined, rows?: number): Node {
  if (value === undefined || value === null) return nextKey();
  const node = toNode(name, value, uint32);
  const perRow = rows !== undefined && sameShape(node.shape, [rows, 2]);
  if (node.dtype !== uint32 || !(perRow || sameShape(node.shape, [2]))) {
    throw new ShapeError(
      `${name}() expected a key, uint32 of shape (2,): found ${node.dtype.name} of shape ${formatShape(node.shape)}`,
    );
  }
  return node;
}

/** Sets the global random state, so that the draws that follow repeat. */
export function seed(value: number | bigint): void {
  seedState(value);
}

/**
 * A key for the functions of this namespace.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.random.uniform(0, 1, [3], mx.float32, mx.random.key(0)).tolist(); // about [0.9653, 0.3147, 0.6330]
 * ```
 */
export function key(seed: number | bigint): Tensor<"uint32", 1> {
  return wrap(keyNode(keyOf(seed)));
}

/** `num` independent keys (num, 2) out of one, or (rows, num, 2) out of each of (rows, 2). */
export function split<K extends TensorLike>(key: K, num: number = 2): Tensor<"uint32", Up<RankOf<K>>> {
  const node = toNode("split", key, uint32);
  const rows = node.shape.length === 2 ? [node.shape[0]] : [];
  return scoped("split", (): AnyTensor => bits([...rows, ...toShape("split", num), 2], wrap(node)));
}

/** Random uint32 words; with a key for each row (rows, 2), those of a row depend on its key alone. */
export function bits<const S extends number | Shape = readonly []>(
  shape: S = [] as unknown as S,
  key?: TensorLike,
): Tensor<"uint32", RankOfShape<S>> {
  const to = toShape("bits", shape);
  return make("randomBits", [keyArgument("bits", key, to[0])], to, uint32, {});
}

/** The largest value below 1 of each float type. */
const BELOW_ONE: Readonly<Record<string, number>> = {
  float16: 1 - 2 ** -11,
  bfloat16: 1 - 2 ** -8,
  float32: 1 - 2 ** -24,
};

/** The dtype of random floats, default float32; throws for dtypes that are no such floats and none of `more`. */
function floatDtype(name: string, dtype: Dtype | null, ...more: readonly Dtype[]): Dtype {
  if (dtype === null) return float32;
  checkDtype(dtype, name);
  if (BELOW_ONE[dtype.name] === undefined && !more.includes(dtype)) {
    const names = [...Object.keys(BELOW_ONE), ...more.map((type) => type.name)];
    throw new DtypeError(`${name}() makes ${names.join(", ")}: found ${dtype.name}`);
  }
  return dtype;
}

/** Uniform numbers of low ≤ x < high. */
export function uniform<const S extends number | Shape = readonly [], N extends DtypeName = "float32">(
  low: TensorLike = 0,
  high: TensorLike = 1,
  shape: S = [] as unknown as S,
  dtype: Dtype<N> | null = null,
  key?: TensorLike,
): Tensor<N, RankOfShape<S>> {
  return uniformBetween("uniform", low, high, shape, floatDtype("uniform", dtype), key);
}

/** {@link uniform} in the name of `name`. */
function uniformBetween(
  name: string,
  low: TensorLike,
  high: TensorLike,
  shape: number | Shape,
  dtype: Dtype,
  key?: TensorLike,
): AnyTensor {
  const to = toShape(name, shape);
  const [lo, hi] = [low, high].map((v) => castNode(toNode(name, v, dtype), dtype));
  const bounds = broadcastShapes(lo.shape, hi.shape, to);
  if (!bounds || !sameShape(bounds, to)) {
    throw new ShapeError(
      `${name}() cannot broadcast bounds ${formatShape(lo.shape)} and ${formatShape(hi.shape)} to ${formatShape(to)}`,
    );
  }
  return scoped((): AnyTensor => {
    const word = op.multiply(astype(bits(to, wrap(keyArgument(name, key, to[0]))), float32), 2 ** -32);
    const unit = astype(op.minimum(word, BELOW_ONE[dtype.name]), dtype);
    if (low === 0 && high === 1) return unit;
    return op.add(op.multiply(op.subtract(wrap(hi), wrap(lo)), unit), wrap(lo));
  });
}

function wrapKey(name: string, key: TensorLike | undefined): Tensor {
  return wrap(keyArgument(name, key));
}

/** Axes of normal numbers: those of their shape, unless means or deviations that are arrays have more. */
type NormalRank<S, M> = [M] extends [number | null] ? RankOfShape<S> : number;

/**
 * Normal numbers of mean `loc` and standard deviation `scale`; complex64 ones have real and imaginary parts of half the variance.
 * The numbers of `shape` broadcast with both.
 */
export function normal<
  const S extends number | Shape = readonly [],
  N extends DtypeName = "float32",
  L extends TensorLike | null = null,
  C extends TensorLike | null = null,
>(
  shape: S = [] as unknown as S,
  dtype: Dtype<N> | null = null,
  loc: L = null as L,
  scale: C = null as C,
  key?: TensorLike,
): Tensor<N, NormalRank<S, L | C>> {
  const to = floatDtype("normal", dtype, float64, complex64);
  return scoped("normal", (): AnyTensor => {
    // No dtype of 16 bits: uniforms of it would reach -1 and 1, if the inverse is infinite.
    const wide = isWide(to) ? to : float32;
    const size = toShape("normal", shape);
    const samples = STANDARD[wide.name as keyof typeof STANDARD](size, key);
    const spread = scale === null ? samples : op.multiply(samples, array(scale, wide));
    return astype(loc === null ? spread : op.add(spread, array(loc, wide)), to);
  });
}

/** complex64 numbers of mean 0 and variance 1. */
function standardComplex(shape: Shape, key?: TensorLike): AnyTensor {
  const parts = op.multiply(standardNormal([...shape, 2], key), Math.SQRT1_2);
  return squeeze(view(parts, complex64), -1);
}

/** float32 numbers of mean 0 and standard deviation 1. */
function standardNormal(shape: Shape, key?: TensorLike): AnyTensor {
  return normalNode([keyArgument("normal", key, shape[0])], shape, float32, {});
}

const normalNode = defineFused("randomNormal", ({ shape }, words) => {
  return op.multiply(erfinv(uniformBetween("normal", -BELOW_ONE.float32, 1, shape, float32, words)), Math.SQRT2);
});

/** float64 numbers of mean 0 and standard deviation 1, of uniform ones in float32 as MLX makes them. */
function standardDouble(shape: Shape, key?: TensorLike): AnyTensor {
  const unit = uniformBetween("normal", -BELOW_ONE.float32, 1, shape, float32, key);
  return op.multiply(erfinv(astype(unit, float64)), Math.SQRT2);
}

/** Standard normal numbers by the dtype that they are computed in. */
const STANDARD = { float32: standardNormal, float64: standardDouble, complex64: standardComplex } as const;

function array(value: TensorLike, dtype: Dtype): Tensor {
  return wrap(castNode(toNode("random", value, dtype), dtype));
}

/**
 * Vectors (…, n) of the means (…, n) and covariances (…, n, n), float32; the covariances must be positive semi-definite. Their root is
 * that of a singular value decomposition, which runs on the CPU. `shape` is that of the result without its last axis, to which those of
 * means and covariances broadcast.
 */
export function multivariateNormal(
  mean: TensorLike,
  cov: TensorLike,
  shape: number | Shape = [],
  dtype: Dtype | null = null,
  key?: TensorLike,
): Tensor<"float32"> {
  const name = "multivariateNormal";
  if (dtype !== null) checkDtype(dtype, name);
  if (dtype !== null && dtype !== float32) throw new DtypeError(`${name}() makes float32: found ${dtype.name}`);
  const [m, c] = [toNode(name, mean, float32), toNode(name, cov, float32)];
  const n = m.shape.at(-1);
  if (n === undefined || c.shape.length < 2 || c.shape.at(-1) !== n || c.shape.at(-2) !== n) {
    throw new ShapeError(
      `${name}() expected a mean (…, n) and a covariance (…, n, n): found ${formatShape(m.shape)} and ${
        formatShape(c.shape)
      }`,
    );
  }
  const to = broadcastShapes(c.shape.slice(0, -2), m.shape.slice(0, -1), toShape(name, shape));
  if (!to) {
    throw new ShapeError(
      `${name}() cannot broadcast ${formatShape(m.shape)} and ${formatShape(c.shape)} to ${
        formatShape(toShape(name, shape))
      }`,
    );
  }
  return scoped("multivariateNormal", (): AnyTensor => {
    const [u, s, vt] = svd(wrap(castNode(c, float32)), true);
    const root = matmul(op.multiply(u, expandDims(sqrt(s), -2)), vt);
    const samples = expandDims(standardNormal([...to, n], key), -2);
    return op.add(wrap(castNode(m, float32)), squeeze(matmul(samples, root), -2));
  });
}

/** Normal numbers limited to lower…upper, drawn by inverting the distribution. */
export function truncatedNormal<N extends DtypeName = "float32">(
  lower: TensorLike,
  upper: TensorLike,
  shape: number | Shape | null = null,
  dtype: Dtype<N> | null = null,
  key?: TensorLike,
): Tensor<N> {
  const to = floatDtype("truncatedNormal", dtype);
  return scoped("truncatedNormal", (): AnyTensor => {
    const [lo, hi] = [array(lower, to), array(upper, to)];
    const size = shape ?? op.add(lo, hi).shape;
    const edge = (bound: Tensor): Tensor => erf(op.divide(bound, Math.SQRT2));
    const samples = op.multiply(
      erfinv(uniformBetween("truncatedNormal", edge(lo), edge(hi), size, to, key)),
      Math.SQRT2,
    );
    return op.maximum(op.minimum(hi, samples), lo);
  });
}

/** Bool that is true with probability p. */
export function bernoulli(
  p: TensorLike = 0.5,
  shape: number | Shape | null = null,
  key?: TensorLike,
): Tensor<"bool"> {
  const node = toNode("bernoulli", p);
  if (node.dtype.kind !== "float") {
    throw new DtypeError(`bernoulli() expected float probabilities: found ${node.dtype.name}`);
  }
  const to = shape === null ? node.shape : toShape("bernoulli", shape);
  return scoped(
    "bernoulli",
    (): AnyTensor => broadcastTo(op.less(uniformBetween("bernoulli", 0, 1, to, float32, key), wrap(node)), to),
  );
}

/**
 * Whole numbers of low ≤ x < high, or bool; `low` if there are none between them. They come from uniform float32 numbers, as
 * in MLX: ranges of more than 2^24 numbers have gaps.
 */
export function randint<const S extends number | Shape = readonly [], N extends DtypeName = "int32">(
  low: TensorLike,
  high: TensorLike,
  shape: S = [] as unknown as S,
  dtype: Dtype<N> | null = null,
  key?: TensorLike,
): Tensor<N, RankOfShape<S>> {
  const to: Dtype = dtype ?? int32;
  checkDtype(to, "randint");
  if (to.kind === "float" || to.kind === "complex") {
    throw new DtypeError(`randint() makes integers and bool only: found ${to.name}`);
  }
  return scoped("randint", (): AnyTensor => {
    const drawn = astype(floor(uniformBetween("randint", low, high, shape, float32, key)), to);
    // float32 may round the bounds and what lies between them up to `high` and beyond.
    const [least, most] = [wholeBound(low, 0, to), wholeBound(high, 1, to)];
    return op.maximum(op.minimum(drawn, most), least);
  });
}

/** A bound of {@link randint} less `by`, exact also if float32 is not. */
function wholeBound(bound: TensorLike, by: number, dtype: Dtype): Tensor {
  if (typeof bound === "number") return wrap(fullNode(Math.trunc(bound - by), [], dtype));
  const array = wrap(toNode("randint", bound));
  return astype(by === 0 ? array : op.subtract(array, by), dtype);
}

/** Numbers of the standard Gumbel distribution. */
export function gumbel<const S extends number | Shape = readonly [], N extends DtypeName = "float32">(
  shape: S = [] as unknown as S,
  dtype: Dtype<N> | null = null,
  key?: TensorLike,
): Tensor<N, RankOfShape<S>> {
  const to = floatDtype("gumbel", dtype);
  return scoped(
    "gumbel",
    (): AnyTensor => negative(log(negative(log(uniformBetween("gumbel", 0, 1, shape, to, key))))),
  );
}

/** Numbers of the Laplace distribution of mean `loc` and width `scale`. */
export function laplace<const S extends number | Shape = readonly [], N extends DtypeName = "float32">(
  shape: S = [] as unknown as S,
  dtype: Dtype<N> | null = null,
  loc: number = 0,
  scale: number = 1,
  key?: TensorLike,
): Tensor<N, RankOfShape<S>> {
  const to = floatDtype("laplace", dtype, float64);
  return scoped("laplace", (): AnyTensor => {
    // Uniform in float32 whatever the dtype: 16-bit ones would reach -1 and 1, if the logarithm is infinite.
    const unit = uniformBetween("laplace", -BELOW_ONE.float32, 1, shape, float32, key);
    const u = to === float64 ? astype(unit, float64) : unit;
    const samples = astype(op.multiply(sign(u), log1p(negative(abs(u)))), to);
    const scaled = scale === 1 ? samples : op.multiply(samples, scale);
    return loc === 0 ? scaled : op.add(scaled, loc);
  });
}

/** The numbers 0…x-1 in random order (uint32), or an array with the slices of an axis in random order. */
export function permutation<A extends TensorLike>(
  x: A,
  axis?: number,
  key?: TensorLike,
): A extends number ? Tensor<"uint32", 1> : Same<A>;
export function permutation(x: TensorLike, axis: number = 0, key?: TensorLike): AnyTensor {
  if (typeof x === "number") {
    return scoped("permutation", (): AnyTensor => argsort(bits(x, wrapKey("permutation", key))));
  }
  const node = toNode("permutation", x);
  const at = axisOf("permutation", axis, node.shape);
  return scoped("permutation", (): AnyTensor => take(wrap(node), permutation(node.shape[at], 0, key), at));
}

/** Options of {@link categorical}. */
export interface CategoricalOptions {
  /** Shape of the result; logits without their axis broadcast to it. */
  readonly shape?: Shape;
  /** How many to draw from each row: a new last axis. */
  readonly numSamples?: number;
  /** Random key; default the global state. */
  readonly key?: TensorLike;
}

const CATEGORICAL_OPTIONS = { shape: true, numSamples: true, key: true } as const satisfies Record<
  keyof CategoricalOptions,
  true
>;

/**
 * Indices (uint32) drawn with the probabilities softmax(logits) along an axis.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.random.categorical(mx.zeros([5, 10])).shape; // [5]
 * ```
 */
export function categorical<A extends TensorLike>(logits: A, axis?: number): Tensor<"uint32", Down<RankOf<A>>>;
/** With a shape, a number of draws, or a key. */
export function categorical(logits: TensorLike, axis: number, options: CategoricalOptions): Tensor<"uint32">;
export function categorical(logits: TensorLike, axis: number = -1, options: CategoricalOptions = {}): Tensor<"uint32"> {
  checkOptions("categorical", options, CATEGORICAL_OPTIONS);
  const node = toNode("categorical", logits);
  const at = axisOf("categorical", axis, node.shape);
  const rows = node.shape.filter((_, i) => i !== at);
  const { shape, numSamples, key } = options;
  if (shape && numSamples !== undefined) throw new ValueError("categorical() expected shape or numSamples, not both");
  const to = shape
    ? toShape("categorical", shape)
    : [...rows, ...(numSamples === undefined ? [] : toShape("categorical", numSamples))];
  const fit = shape && broadcastShapes(rows, to);
  if (shape && (!fit || !sameShape(fit, to))) {
    throw new ShapeError(`categorical() cannot broadcast rows ${formatShape(rows)} to shape ${formatShape(to)}`);
  }
  return scoped("categorical", (): AnyTensor => {
    const x = toFloat("categorical", wrap(node));
    if (sizeOf(rows) === 1 && to.length > 0) return inverseCdf(reshape(x, [-1]), to, key);
    // Gumbel noise makes argmax a draw. It has the result's shape with the categories at the logits' axis.
    const wide = numSamples === undefined ? x : expandDims(x, -1);
    const fromEnd = at - wide.ndim;
    const noise = gumbel(to.toSpliced(to.length + 1 + fromEnd, 0, node.shape[at]), float32, key);
    return argmax(op.add(wide, noise), fromEnd);
  });
}

/** Draws from one row: the last index whose probability mass before it is not above a uniform number. */
function inverseCdf(row: Tensor, shape: Shape, key: TensorLike | undefined): Tensor {
  const before = cumsum(softmax(astype(row, float32), -1), -1, { inclusive: false });
  const u = uniformBetween("categorical", 0, 1, shape, float32, key);
  return astype(op.subtract(sum(astype(op.lessEqual(before, expandDims(u, -1)), int32), -1), 1), uint32);
}
