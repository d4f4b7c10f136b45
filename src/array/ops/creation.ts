/**
 * Functions that make arrays.
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
  int64,
  isComplex,
  isDtype,
} from "../../graph/dtype.ts";
import { DtypeError, quoted, ValueError } from "../../graph/error.ts";
import { makeNode } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import { add, equal, greaterEqual, multiply, where } from "./binary.ts";
import {
  castNode,
  encode,
  fullNode,
  scalarNode,
  type TensorLike,
  toInteger,
  toNode,
  toShape,
} from "../tensor/convert.ts";
import { astype, broadcastTo, expandDims, reshape } from "./movement.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, make, Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";
import type { NameOf, RankOf, RankOfShape } from "../tensor/types.ts";

/**
 * An array of a number, nested lists or a typed array. Numbers become float32 and booleans bool unless a dtype is given;
 * typed arrays keep their element type (Float64Array becomes float32). Arrays in lists are stacked: dtypes meet as in arithmetic,
 * shapes must be equal.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.array([[1, 2], [3, 4]]).shape; // [2, 2]
 * mx.array([1, 2, 3], mx.int32).tolist(); // [1, 2, 3]
 * mx.array([mx.array([1, 2]), [3, 4]]).shape; // [2, 2]
 * ```
 */
export function array<A extends TensorLike, N extends DtypeName = NameOf<A>>(
  value: A,
  dtype?: Dtype<N>,
): Tensor<N, RankOf<A>> {
  if (dtype !== undefined) checkDtype(dtype, "array");
  // A double is data as lists of them are: GPUs hold float64 and have no kernels that would make it.
  const double = dtype?.name === "float64" && typeof value === "number";
  const node = double ? encode("array", [value], [], dtype) : toNode("array", value, dtype);
  return wrap(dtype ? castNode(node, dtype) : node);
}

/** Options of {@link asarray}. */
export interface AsarrayOptions {
  /** false is refused, as in MLX: an array made of values has values of its own. */
  readonly copy?: boolean | null;
}

const ASARRAY_OPTIONS = { copy: true } as const satisfies Record<keyof AsarrayOptions, true>;

/** As {@link array}. Arrays share their values until one of them is assigned to, so `copy: true` costs nothing. */
export function asarray<A extends TensorLike, N extends DtypeName = NameOf<A>>(
  a: A,
  dtype?: Dtype<N> | null,
  options: AsarrayOptions = {},
): Tensor<N, RankOf<A>> {
  checkOptions("asarray", options, ASARRAY_OPTIONS);
  if (options.copy === false) throw new ValueError("asarray() cannot do without a copy: leave out copy: false");
  return scoped("asarray", (): AnyTensor => array(a, dtype ?? undefined));
}

/** An array of one value. The default dtype is the value's: float32 for numbers. */
export function full<const S extends number | Shape, A extends TensorLike, N extends DtypeName = NameOf<A>>(
  shape: S,
  value: A,
  dtype?: Dtype<N>,
): Tensor<N, RankOfShape<S>> {
  const to = toShape("full", shape);
  if (typeof value === "number") return wrap(scalarNode("full", value, dtype ?? float32, to));
  if (typeof value === "bigint") return wrap(scalarNode("full", value, dtype ?? int64, to));
  if (isComplex(value)) return wrap(scalarNode("full", value, dtype ?? complex64, to));
  const node = toNode("full", value);
  if (dtype !== undefined) checkDtype(dtype, "full");
  return scoped("full", (): AnyTensor => broadcastTo(wrap(dtype ? castNode(node, dtype) : node), to));
}

/**
 * An array of zeros.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.zeros([2, 3]).shape; // [2, 3]
 * ```
 */
export function zeros<const S extends number | Shape, N extends DtypeName = "float32">(
  shape: S,
  dtype: Dtype<N> = float32 as Dtype<N>,
): Tensor<N, RankOfShape<S>> {
  return wrap(scalarNode("zeros", 0, dtype, toShape("zeros", shape)));
}

/** An array of ones. */
export function ones<const S extends number | Shape, N extends DtypeName = "float32">(
  shape: S,
  dtype: Dtype<N> = float32 as Dtype<N>,
): Tensor<N, RankOfShape<S>> {
  return wrap(scalarNode("ones", 1, dtype, toShape("ones", shape)));
}

/** An array whose values are not said, for one that is written before it is read: they are zeros. */
export function empty<const S extends number | Shape, N extends DtypeName = "float32">(
  shape: S,
  dtype: Dtype<N> = float32 as Dtype<N>,
): Tensor<N, RankOfShape<S>> {
  return wrap(scalarNode("empty", 0, dtype, toShape("empty", shape)));
}

/** As {@link empty}, of the shape of `a` and by default its dtype. */
export function emptyLike<A extends TensorLike, N extends DtypeName = NameOf<A>>(
  a: A,
  dtype?: Dtype<N>,
): Tensor<N, RankOf<A>> {
  const node = toNode("emptyLike", a);
  return wrap(scalarNode("emptyLike", 0, dtype ?? node.dtype, node.shape));
}

/** Zeros of the shape of `a` and by default its dtype. */
export function zerosLike<A extends TensorLike, N extends DtypeName = NameOf<A>>(
  a: A,
  dtype?: Dtype<N>,
): Tensor<N, RankOf<A>> {
  const node = toNode("zerosLike", a);
  return wrap(scalarNode("zerosLike", 0, dtype ?? node.dtype, node.shape));
}

/** Ones of the shape of `a` and by default its dtype. */
export function onesLike<A extends TensorLike, N extends DtypeName = NameOf<A>>(
  a: A,
  dtype?: Dtype<N>,
): Tensor<N, RankOf<A>> {
  const node = toNode("onesLike", a);
  return wrap(scalarNode("onesLike", 1, dtype ?? node.dtype, node.shape));
}

/** One value in the shape of `a` and by default its dtype. */
export function fullLike<A extends TensorLike, N extends DtypeName = NameOf<A>>(
  a: A,
  value: TensorLike,
  dtype?: Dtype<N>,
): Tensor<N, RankOf<A>> {
  const node = toNode("fullLike", a);
  const to = dtype ?? node.dtype;
  checkDtype(to, "fullLike");
  return scoped(
    "fullLike",
    (): AnyTensor => broadcastTo(wrap(castNode(toNode("fullLike", value, to), to)), node.shape),
  );
}

/**
 * Numbers from `start` up to but not including `stop`, `step` apart; with one argument from 0. int32 when all are whole, or int64 where
 * one of them is beyond that, which the result's type does not tell; otherwise float32. Unless a dtype is given, also in place of
 * `stop` or `step`. With an infinite step `start` alone, if it is before `stop`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.arange(3).tolist(); // [0, 1, 2]
 * mx.arange(0, 1, 0.25).tolist(); // [0, 0.25, 0.5, 0.75]
 * ```
 */
export function arange<N extends DtypeName = "int32" | "float32">(
  start: number,
  stop?: number | null | Dtype<N>,
  step?: number | null | Dtype<N>,
  dtype?: Dtype<N>,
): Tensor<N, 1> {
  if (isDtype(stop)) return arange(start, null, null, stop);
  if (isDtype(step)) return arange(start, stop, null, step);
  const by = step ?? 1;
  const [from, to] = stop === undefined || stop === null ? [0, start] : [start, stop];
  if (![from, to].every(Number.isFinite) || typeof by !== "number" || Number.isNaN(by)) {
    throw new ValueError(`arange() expected finite numbers: found ${[from, to, by].map(quoted).join(", ")}`);
  }
  if (by === 0) throw new ValueError("arange() expected a step that is not 0");
  if (dtype !== undefined) checkDtype(dtype, "arange");
  const type = dtype ?? rangeDtype([from, to, by]);
  if (type.kind === "bool") throw new DtypeError(`arange() cannot make ${type.name}`);
  if (type.kind === "complex") {
    return scoped("arange", (): AnyTensor => astype(arange(start, stop, step, float32), type as Dtype));
  }
  if (!Number.isFinite(by)) {
    const count = Math.sign(by) * (to - from) > 0 ? 1 : 0;
    return make("arange", [], [count], type, { start: type.kind === "float" ? from : Math.trunc(from), step: 0 });
  }
  const count = toShape("arange", Math.max(0, Math.ceil((to - from) / by)));
  if (type.kind === "float") return make("arange", [], count, type, { start: from, step: by });
  // The first two numbers are truncated, and their difference is the step of all, as in MLX.
  const first = Math.trunc(from);
  return make("arange", [], count, type, { start: first, step: Math.trunc(from + by) - first });
}

/** The dtype of numbers that begin, end and step so; an infinite step is none of the numbers. */
function rangeDtype(numbers: readonly number[]): Dtype {
  if (!numbers.every(Number.isInteger)) return float32;
  return numbers.every((n) => n >= -(2 ** 31) && n < 2 ** 31) ? int32 : int64;
}

/**
 * `num` numbers from `start` to `stop`, which is included unless `endpoint` is false. A dtype may stand in place of `num` or `endpoint`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.linspace(0, 1, 5).tolist(); // [0, 0.25, 0.5, 0.75, 1]
 * mx.linspace(0, 8, 3, mx.int32).tolist(); // [0, 4, 8]
 * ```
 */
export function linspace<N extends DtypeName = "float32">(
  start: number,
  stop: number,
  num: number | Dtype<N> = 50,
  endpoint: boolean | Dtype<N> = true,
  dtype: Dtype<N> = float32 as Dtype as Dtype<N>,
): Tensor<N, 1> {
  if (isDtype(num)) return linspace(start, stop, 50, true, num);
  if (isDtype(endpoint)) return linspace(start, stop, num, true, endpoint);
  if (toInteger("linspace", "num", num) < 0) {
    throw new ValueError(`linspace() expected num not to be negative: found ${num}`);
  }
  const steps = endpoint ? num - 1 : num;
  return scoped("linspace", (): AnyTensor => {
    if (num <= 1) return full([num], start, dtype);
    // Both ends exact: (1 - t) * start + t * stop.
    const exact = dtype === float64 ? float64 : float32;
    const t = multiply(wrap(makeNode("arange", [], [num], exact, { start: 0, step: 1 })), 1 / steps);
    const reverse = add(multiply(t, -1), 1);
    const line = add(multiply(reverse, start), multiply(t, stop));
    if (!endpoint) return astype(line, dtype);
    const last = wrap(makeNode("arange", [], [num], int32, { start: 0, step: 1 }));
    return astype(where(greaterEqual(last, num - 1), stop, line), dtype);
  });
}

/** An (n, m) matrix with ones on diagonal k. A dtype may stand in place of `m` or `k`. */
export function eye<N extends DtypeName = "float32">(
  n: number,
  m: number | null | Dtype<N> = null,
  k: number | Dtype<N> = 0,
  dtype: Dtype<N> = float32 as Dtype<N>,
): Tensor<N, 2> {
  if (isDtype(m)) return eye(n, null, 0, m);
  if (isDtype(k)) return eye(n, m, 0, k);
  const [rows, cols] = toShape("eye", [n, m ?? n]);
  return scoped("eye", (): AnyTensor => astype(compare("equal", rows, cols, k), dtype));
}

/** The n by n identity matrix. */
export function identity<N extends DtypeName = "float32">(
  n: number,
  dtype: Dtype<N> = float32 as Dtype<N>,
): Tensor<N, 2> {
  return scoped("identity", (): AnyTensor => eye(n, n, 0, dtype));
}

/** An (n, m) matrix with ones on and below diagonal k. A dtype may stand in place of `m` or `k`. */
export function tri<N extends DtypeName = "float32">(
  n: number,
  m: number | null | Dtype<N> = null,
  k: number | Dtype<N> = 0,
  dtype: Dtype<N> = float32 as Dtype<N>,
): Tensor<N, 2> {
  if (isDtype(m)) return tri(n, null, 0, m);
  if (isDtype(k)) return tri(n, m, 0, k);
  const [rows, cols] = toShape("tri", [n, m ?? n]);
  return scoped("tri", (): AnyTensor => astype(compare("greater_equal", rows, cols, k), dtype));
}

/** The matrices of the last two axes with zeros above diagonal k. */
export function tril<A extends TensorLike>(a: A, k: number = 0): Same<A> {
  return triangle("tril", a, k);
}

/** The matrices of the last two axes with zeros below diagonal k. */
export function triu<A extends TensorLike>(a: A, k: number = 0): Same<A> {
  return triangle("triu", a, k);
}

function triangle(op: "tril" | "triu", a: TensorLike, k: number): AnyTensor {
  const node = toNode(op, a);
  const { shape } = node;
  toInteger(op, "k", k);
  if (shape.length < 2) throw new ValueError(`${op}() expected at least 2 axes: found ${shape.length}`);
  return scoped(op, (): AnyTensor => {
    const below = compare("greater_equal", shape[shape.length - 2], shape[shape.length - 1], op === "tril" ? k : k - 1);
    const x = wrap(node);
    const zero = wrap(fullNode(0, [], node.dtype));
    return op === "tril" ? where(below, x, zero) : where(below, zero, x);
  });
}

/** row + k compared with column, as a bool (rows, cols). */
function compare(fn: "equal" | "greater_equal", rows: number, cols: number, k: number): Tensor {
  const row = makeNode("arange", [], [rows], int32, { start: toInteger("eye", "k", k), step: 1 });
  const col = makeNode("arange", [], [cols], int32, { start: 0, step: 1 });
  const left = expandDims(wrap(row), 1);
  return fn === "equal" ? equal(left, wrap(col)) : greaterEqual(left, wrap(col));
}

/** How `meshgrid` orders axes. */
export interface MeshgridOptions {
  /** Whether results stay of size 1 along the other axes. */
  readonly sparse?: boolean;
  /** "xy" (default) swaps the first two axes, "ij" does not. */
  readonly indexing?: "xy" | "ij";
}

const MESHGRID_OPTIONS = { sparse: true, indexing: true } as const satisfies Record<keyof MeshgridOptions, true>;

/** Whether an argument is no array. */
function isOptions(value: unknown): value is MeshgridOptions {
  const isArray = value instanceof Tensor || Array.isArray(value) || ArrayBuffer.isView(value) || isComplex(value);
  return typeof value === "object" && !isArray;
}

/**
 * Coordinate arrays of a grid from coordinate vectors, which are given one by one or in a list, options after them.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [x, y] = mx.meshgrid([1, 2, 3], [4, 5]);
 * x.tolist(); // [[1, 2, 3], [1, 2, 3]]
 * mx.meshgrid([[1, 2, 3], [4, 5]], { indexing: "ij" })[1].tolist(); // [[4, 5], [4, 5], [4, 5]]
 * ```
 */
export function meshgrid(arrays: readonly TensorLike[], options?: MeshgridOptions): Tensor[];
/** The same of arrays one by one. */
export function meshgrid(...arraysAndOptions: readonly (TensorLike | MeshgridOptions)[]): Tensor[];
export function meshgrid(
  arrays?: TensorLike | readonly TensorLike[] | MeshgridOptions,
  options?: TensorLike | MeshgridOptions,
  ...more: readonly (TensorLike | MeshgridOptions)[]
): Tensor[] {
  const given = [arrays, options, ...more].filter((part) => part !== undefined);
  const named = given.find(isOptions) ?? {};
  const vectors = given.filter((part) => !isOptions(part)) as TensorLike[];
  const list = vectors.length === 1 && Array.isArray(vectors[0]) ? vectors[0] as readonly TensorLike[] : vectors;
  checkOptions("meshgrid", named, MESHGRID_OPTIONS);
  const { sparse = false, indexing = "xy" } = named;
  if (indexing !== "xy" && indexing !== "ij") {
    throw new ValueError(`meshgrid() expected indexing to be "xy" or "ij": found ${quoted(indexing)}`);
  }
  const nodes = list.map((a) => toNode("meshgrid", a));
  const place = (i: number): number => indexing === "xy" && i < 2 && nodes.length > 1 ? 1 - i : i;
  return scoped("meshgrid", () => {
    const lines = nodes.map((node, i) => {
      const shape = new Array<number>(nodes.length).fill(1);
      shape[place(i)] = sizeOf(node.shape);
      return reshape(wrap(node), shape);
    });
    if (sparse) return lines;
    const all = nodes.map((_, i) => sizeOf(nodes[place(i)].shape));
    return lines.map((line) => broadcastTo(line, all));
  });
}
