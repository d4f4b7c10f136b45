/**
 * The array: a Tensor shows one node of the lazy graph and owns one reference of it.
 *
 * Methods are the free functions of the other files of this folder with `this` as first argument, in MLX's order. Those files
 * are written in terms of this class, so it does not import them: methods.ts hands it their functions.
 *
 * A Tensor that was not evaluated owns no memory. An evaluated one holds device memory until it is disposed: by `using`,
 * `mx.dispose()` or `mx.tidy()`, and otherwise by the garbage collector, some time.
 *
 * @module
 */

import type { Dtype, DtypeName } from "../../graph/dtype.ts";
import { ArrayError, ShapeError, ValueError } from "../../graph/error.ts";
import { type Definition, makeNode, type Node, type OpAttrs, type OpName } from "../../graph/node.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import { type DeviceLike, withDevice } from "../../schedule/streams.ts";
import { Hold } from "../../schedule/plan/garbage.ts";
import { readNode, realize } from "../../schedule/realize.ts";
import { arrayHtml } from "./display.ts";
import { formatArray } from "./print.ts";
import type { CumsumOptions, ScanOptions, VarianceOptions } from "./reduce_options.ts";
import type { Slice } from "./slice.ts";
import { track, untrack } from "./tracking.ts";
import type * as t from "./types.ts";
import * as values from "./values.ts";

/** One axis, several, or null for all. */
export type Axis = number | readonly number[] | null;

/** A value that every function takes if MLX takes an array there. */
export type TensorLike = Tensor | values.Scalar | values.NestedList | values.TypedArray | readonly TensorLike[];

/** One part of an index: a whole number, a `Slice`, null (a new axis), "..." (all axes between), or an array of integers. */
export type Index = number | Slice | null | "..." | Tensor | values.NestedList | Int32Array | Uint32Array;

/** The updates of {@link At}. */
export type Update = "add" | "subtract" | "multiply" | "divide" | "maximum" | "minimum";

/** An array of which no more is known: the same as `Tensor`. */
export type AnyTensor = Tensor;

type Unary = (a: Tensor) => AnyTensor;
type Binary = (a: Tensor, b: TensorLike) => AnyTensor;
type Reduction = (a: Tensor, axis?: Axis, keepdims?: boolean) => AnyTensor;
type ArgReduction = (a: Tensor, axis?: number | null, keepdims?: boolean) => AnyTensor;
type Deviation = (a: Tensor, axis?: Axis, keepdims?: boolean, ddof?: number, options?: VarianceOptions) => AnyTensor;
type Scan = (a: Tensor, axis?: number | null, options?: ScanOptions) => AnyTensor;

/** The functions that methods call. */
export interface Operations
  extends
    Readonly<Record<"negative" | "abs" | "exp" | "log" | "log2" | "log10" | "log1p" | "reciprocal", Unary>>,
    Readonly<Record<"sqrt" | "rsqrt" | "square" | "sin" | "cos", Unary>>,
    Readonly<Record<"add" | "subtract" | "multiply" | "divide" | "power" | "matmul", Binary>>,
    Readonly<Record<"sum" | "prod" | "min" | "max" | "all" | "any" | "mean" | "logsumexp", Reduction>>,
    Readonly<Record<"argmin" | "argmax", ArgReduction>>,
    Readonly<Record<"variance" | "std", Deviation>>,
    Readonly<Record<"cumprod" | "cummax" | "cummin" | "logcumsumexp", Scan>> {
  readonly round: (a: Tensor, decimals?: number) => AnyTensor;
  readonly cumsum: (a: Tensor, axis?: number | null, options?: CumsumOptions) => AnyTensor;
  readonly sort: (a: Tensor, axis?: number | null) => AnyTensor;
  readonly index: (a: Tensor, ...index: readonly Index[]) => AnyTensor;
  readonly indexPut_: (a: Tensor, index: Index | readonly Index[], value: TensorLike) => AnyTensor;
  readonly updateAt: (a: Tensor, index: readonly Index[], by: Update, value: TensorLike) => AnyTensor;
  readonly astype: (a: Tensor, dtype: Dtype) => AnyTensor;
  readonly reshape: (a: Tensor, shape: readonly number[]) => AnyTensor;
  readonly flatten: (a: Tensor, startAxis?: number, endAxis?: number) => AnyTensor;
  readonly unflatten: (a: Tensor, axis: number, shape: readonly number[]) => AnyTensor;
  readonly squeeze: (a: Tensor, axis?: Axis) => AnyTensor;
  readonly transpose: (a: Tensor, axes?: readonly number[] | null) => AnyTensor;
  readonly matrixTranspose: Unary;
  readonly diag: (a: Tensor, k?: number) => AnyTensor;
  readonly view: (a: Tensor, dtype: Dtype) => AnyTensor;
  readonly real: Unary;
  readonly imag: Unary;
  readonly conj: Unary;
  readonly swapaxes: (a: Tensor, axis1: number, axis2: number) => AnyTensor;
  readonly moveaxis: (a: Tensor, source: number, destination: number) => AnyTensor;
  readonly split: (a: Tensor, indicesOrSections: number | readonly number[], axis?: number) => AnyTensor[];
  readonly diagonal: (a: Tensor, offset?: number, axis1?: number, axis2?: number) => AnyTensor;
}

let ops: Operations;

/** Gives methods the functions that they call; methods.ts does it, once. */
export function installOperations(operations: Operations): void {
  ops = operations;
}

// Access that only this library has to a Tensor; set in the class, which reaches the private field.

/** A Tensor that shows a node. */
export let wrap: (node: Node) => AnyTensor;
/** The node that a Tensor shows; an error once it was disposed. */
export let nodeOf: (tensor: Tensor) => Node;
/** Lets a Tensor show another node of the same shape and dtype. */
export let rebind: (tensor: Tensor, node: Node) => void;
/** Ends a Tensor and gives its node to the caller, which must hold it at once. */
export let handOn: (tensor: Tensor) => Node;

/**
 * Methods for Python's operators and for what numpy's arrays have besides MLX's. Each is the free function of its name with `this` as
 * first argument; methods.ts puts them into the prototype.
 */
export interface OperatorMethods<out N extends DtypeName, out R extends number> {
  /** `this == b`, elementwise (bool). */
  equal<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this != b`, elementwise (bool). */
  notEqual<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this < b`, elementwise (bool). */
  less<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this <= b`, elementwise (bool). */
  lessEqual<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this > b`, elementwise (bool). */
  greater<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this >= b`, elementwise (bool). */
  greaterEqual<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** Whether both are not 0. */
  logicalAnd<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** Whether one of both is not 0. */
  logicalOr<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** The larger of both; NaN wins. */
  maximum<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The smaller of both; NaN wins. */
  minimum<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** this / b, rounded down. */
  floorDivide<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The remainder of this / b, with the sign of b. */
  remainder<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits that both have. */
  bitwiseAnd<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits that one of both has. */
  bitwiseOr<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits that exactly one of both has. */
  bitwiseXor<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits shifted left by b. */
  leftShift<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits shifted right by b. */
  rightShift<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** Whether elements are 0. */
  logicalNot(): Tensor<"bool", R>;
  /** All bits turned. */
  bitwiseInvert(): Tensor<N, R>;
  /** Elements limited to low…high; null leaves one side open. */
  clip(low: TensorLike | null, high: TensorLike | null): Tensor;
  /** Elements at integer indices along an axis, or of the flattened array. */
  take<I extends TensorLike, X extends number | null = null>(
    indices: I,
    axis?: X,
  ): Tensor<N, t.Taken<R, t.RankOf<I>, X>>;
  /** Every element `repeats` times along an axis, or of the flattened array. */
  repeat<X extends number | null = null>(repeats: number, axis?: X): Tensor<N, t.Along<R, X>>;
  /** Indices (uint32) that sort along an axis; null flattens the array. */
  argsort<X extends number | null = -1>(axis?: X): Tensor<"uint32", t.Along<R, X>>;
  /** Sum of a diagonal. */
  trace(offset?: number, axis1?: number, axis2?: number): Tensor<t.SumOf<N>, t.Down<t.Down<R>>>;
}

/** The methods that methods.ts adds. */
// deno-lint-ignore no-explicit-any -- not known
export interface Tensor<out N extends DtypeName = any, out R extends number = any> extends OperatorMethods<N, R> {}

/**
 * An n-dimensional array of one element type, evaluated lazily. Made by `mx.array()` and the other functions.
 *
 * `Tensor<"float32", 2>` has two axes of float32; TypeScript knows what follows from the calls. `Tensor` alone, which is
 * `Tensor<any, any>`, says nothing of either: it goes wherever an array goes, and what it gives is `any`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const rows: number[][] = mx.matmul([[1, 2], [3, 4]], mx.ones([2, 3])).tolist();
 * const same: boolean = mx.all(mx.equal(rows, rows)).item();
 * ```
 */
// deno-lint-ignore no-explicit-any -- not known
export class Tensor<out N extends DtypeName = any, out R extends number = any> {
  #node: Node | undefined;
  #hold: Hold;

  private constructor(node: Node) {
    this.#node = node;
    this.#hold = new Hold(this, node);
    track(this);
  }

  static {
    wrap = (node) => new Tensor(node);
    nodeOf = (tensor) => tensor.#live();
    rebind = (tensor, node) => {
      tensor.#live();
      const old = tensor.#hold;
      tensor.#hold = new Hold(tensor, node);
      tensor.#node = node;
      old.release();
    };
    handOn = (tensor) => {
      const node = tensor.#live();
      tensor.#hold.handOn();
      tensor.#node = undefined;
      untrack(tensor);
      return node;
    };
  }

  #live(): Node {
    if (!this.#node) throw new ArrayError("disposed", "the array was disposed and cannot be used");
    return this.#node;
  }

  /** Whether the array was disposed. */
  get isDisposed(): boolean {
    return this.#node === undefined;
  }

  /** Lets the array's memory go. A second call does nothing. */
  dispose(): void {
    if (!this.#node) return;
    untrack(this);
    this.#node = undefined;
    this.#hold.release();
  }

  /** Same as {@link Tensor.dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Sizes of the axes. */
  get shape(): number[] {
    return [...this.#live().shape];
  }

  /** Element type. */
  get dtype(): Dtype<N> {
    return this.#live().dtype as Dtype<N>;
  }

  /** Number of axes. */
  get ndim(): R {
    return this.#live().shape.length as R;
  }

  /** Number of elements. */
  get size(): number {
    return sizeOf(this.#live().shape);
  }

  /** Bytes of one element. */
  get itemsize(): number {
    return this.#live().dtype.bytes;
  }

  /** Bytes of all elements. */
  get nbytes(): number {
    return this.size * this.itemsize;
  }

  /** Length of the first axis. */
  get length(): number {
    const { shape } = this.#live();
    if (shape.length === 0) throw new ShapeError("length is not defined for a 0-dimensional array");
    return shape[0];
  }

  /** The arrays along the first axis, so that `for (const row of x)` and `const [q, k] = x` work. */
  *[Symbol.iterator](): IterableIterator<Tensor<N, t.Down<R>>> {
    const { shape } = this.#live();
    if (shape.length === 0) throw new ShapeError("a 0-dimensional array cannot be iterated");
    for (let i = 0; i < shape[0]; i++) yield ops.index(this, i);
  }

  /** The array with its axes reversed. */
  get T(): Tensor<N, R> {
    return ops.transpose(this);
  }

  /** The array with its last two axes exchanged. */
  get mT(): Tensor<N, R> {
    return ops.matrixTranspose(this);
  }

  /** The real parts: float32 of complex64, other dtypes as they are. */
  get real(): Tensor<t.RealOf<N>, R> {
    return ops.real(this);
  }

  /** The imaginary parts: float32 of complex64, zeros of other dtypes. */
  get imag(): Tensor<t.RealOf<N>, R> {
    return ops.imag(this);
  }

  /** The complex conjugates; other dtypes as they are. */
  conj(): Tensor<N, R> {
    return ops.conj(this);
  }

  /** The bytes as elements of another dtype. See `mx.view`. */
  view<M extends DtypeName>(dtype: Dtype<M>): Tensor<M, R> {
    return ops.view(this, dtype);
  }

  /** The value of an array of one element; evaluates it. */
  item(): t.Item<N> {
    return values.item(this.#live()) as t.Item<N>;
  }

  /** The values as nested lists (a number or boolean for 0 axes); evaluates the array. */
  tolist(): t.Nested<t.Item<N>, R> {
    return values.tolist(this.#live()) as t.Nested<t.Item<N>, R>;
  }

  /** The values in row-major order as a typed array; bfloat16 widens to float32, bool is bytes 0 and 1. Evaluates the array. */
  toTypedArray(): t.HostArrayOf<N> {
    return values.toTypedArray(this.#live()) as t.HostArrayOf<N>;
  }

  /** A copy on another device, such as "wasm" or "vulkan:0"; evaluates the array. */
  to(device: DeviceLike): Tensor<N, R> {
    const { shape, dtype } = this.#live();
    const node = makeNode("data", [], shape, dtype, { bytes: readNode(this.#live()) });
    node.stream = undefined; // where it goes is said
    withDevice(device, () => realize([node]));
    return wrap(node);
  }

  /** The array as MLX prints it; evaluates it. */
  toString(): string {
    return this.#node ? formatArray(this.#node) : "array(disposed)";
  }

  /** The values for `JSON.stringify()`: the values as {@link Tensor.tolist} gives them. */
  toJSON(): t.Nested<t.Item<N>, R> {
    return this.tolist();
  }

  /** Text where text is wanted; an error if an operator wants a number, since JavaScript's do not work on arrays. */
  [Symbol.toPrimitive](hint: string): string {
    if (hint === "string") return this.toString();
    throw new ValueError("operators do not work on arrays: use mx.add(a, b) and the like, or item() for one number");
  }

  /** Text in Deno's and Node's consoles. */
  [Symbol.for("Deno.customInspect")](): string {
    return this.toString();
  }

  /** Text in Node's console. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }

  /** Text and a table in notebooks, with a heat map if there are two axes of numbers. */
  [Symbol.for("Jupyter.display")](): Record<string, string> {
    return { "text/plain": this.toString(), ...(this.#node && { "text/html": arrayHtml(this.#node) }) };
  }

  // ---- indexing ----

  /** Elements at an index of whole numbers, slices, null, "..." and integer arrays: see {@link Index}. */
  index<const I extends readonly Index[]>(...index: I): Tensor<N, t.Indexed<R, I>> {
    return ops.index(this, ...index);
  }

  /** Assigns elements; this array then shows the new values, arrays made from it before keep the old ones. */
  indexPut_(index: Index | readonly Index[], value: TensorLike): Tensor<N, R> {
    return ops.indexPut_(this, index, value);
  }

  /** Updates at an index that count every occurrence of repeated indices: `x.at(index).add(1)`. */
  at(...index: readonly Index[]): At<N, R> {
    return new At(this, index);
  }

  // ---- movement ----

  /** The values cast to another element type. */
  astype<M extends DtypeName>(dtype: Dtype<M>): Tensor<M, R> {
    return ops.astype(this, dtype);
  }

  /** The same elements in another shape; one size may be -1. Takes sizes or one list. */
  reshape<const S extends readonly number[] | readonly [readonly number[]]>(
    ...shape: S
  ): Tensor<N, t.RankOfSizes<S>> {
    return ops.reshape(this, (typeof shape[0] === "object" ? shape[0] : shape) as readonly number[]);
  }

  /** Axes `startAxis` to `endAxis` as one. */
  flatten<const X extends readonly [startAxis?: number, endAxis?: number]>(...axes: X): Tensor<N, t.Flattened<X>> {
    return ops.flatten(this, ...axes);
  }

  /** One axis as several. */
  unflatten(axis: number, shape: readonly number[]): Tensor<N> {
    return ops.unflatten(this, axis, shape);
  }

  /** Without axes of size 1. */
  squeeze<const X extends Axis | undefined = undefined>(axis?: X): Tensor<N, t.Squeezed<R, X>> {
    return ops.squeeze(this, axis);
  }

  /** Axes in another order; reversed without arguments. Takes axes or one list. */
  transpose(...axes: readonly number[] | readonly [readonly number[]]): Tensor<N, R> {
    return ops.transpose(
      this,
      axes.length === 0 ? null : (typeof axes[0] === "object" ? axes[0] : axes) as readonly number[],
    );
  }

  /** With two axes exchanged. */
  swapaxes(axis1: number, axis2: number): Tensor<N, R> {
    return ops.swapaxes(this, axis1, axis2);
  }

  /** With one axis at another place. */
  moveaxis(source: number, destination: number): Tensor<N, R> {
    return ops.moveaxis(this, source, destination);
  }

  /** Pieces along an axis. */
  split(indicesOrSections: number | readonly number[], axis: number = 0): Tensor<N, R>[] {
    return ops.split(this, indicesOrSections, axis);
  }

  /** The elements of a diagonal. */
  diagonal(offset: number = 0, axis1: number = 0, axis2: number = 1): Tensor<N, t.Down<R>> {
    return ops.diagonal(this, offset, axis1, axis2);
  }

  /** A matrix with the elements of this vector on a diagonal, or the diagonal of this matrix. */
  diag(k: number = 0): Tensor<N, t.DiagRank<R>> {
    return ops.diag(this, k);
  }

  // ---- arithmetic ----

  /** this + b */
  add<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>> {
    return ops.add(this, b);
  }

  /** this - b */
  subtract<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>> {
    return ops.subtract(this, b);
  }

  /** this * b */
  multiply<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>> {
    return ops.multiply(this, b);
  }

  /** this / b; integers give float32. */
  divide<B extends TensorLike>(b: B): Tensor<t.FloatOf<t.Promoted<Tensor<N, R>, B>>, t.Larger<R, t.RankOf<B>>> {
    return ops.divide(this, b);
  }

  /** this raised to b */
  power<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>> {
    return ops.power(this, b);
  }

  /** Matrix product with b. */
  matmul<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.ProductRank<R, t.RankOf<B>>> {
    return ops.matmul(this, b);
  }

  /** -this */
  negative(): Tensor<N, R> {
    return ops.negative(this);
  }

  /** Absolute values. */
  abs(): Tensor<N, R> {
    return ops.abs(this);
  }

  /** Exponential. */
  exp(): Tensor<t.FloatOf<N>, R> {
    return ops.exp(this);
  }

  /** Natural logarithm. */
  log(): Tensor<t.FloatOf<N>, R> {
    return ops.log(this);
  }

  /** Logarithm to base 2. */
  log2(): Tensor<t.FloatOf<N>, R> {
    return ops.log2(this);
  }

  /** Logarithm to base 10. */
  log10(): Tensor<t.FloatOf<N>, R> {
    return ops.log10(this);
  }

  /** log(1 + this) */
  log1p(): Tensor<t.FloatOf<N>, R> {
    return ops.log1p(this);
  }

  /** 1 / this */
  reciprocal(): Tensor<t.FloatOf<N>, R> {
    return ops.reciprocal(this);
  }

  /** Rounded to a number of decimals, halves to even. */
  round(decimals: number = 0): Tensor<N, R> {
    return ops.round(this, decimals);
  }

  /** Square root. */
  sqrt(): Tensor<t.FloatOf<N>, R> {
    return ops.sqrt(this);
  }

  /** 1 / sqrt(this) */
  rsqrt(): Tensor<t.FloatOf<N>, R> {
    return ops.rsqrt(this);
  }

  /** this * this */
  square(): Tensor<N, R> {
    return ops.square(this);
  }

  /** Sine. */
  sin(): Tensor<t.FloatOf<N>, R> {
    return ops.sin(this);
  }

  /** Cosine. */
  cos(): Tensor<t.FloatOf<N>, R> {
    return ops.cos(this);
  }

  // ---- reductions ----

  /** Sum over an axis, several, or all. */
  sum<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<t.SumOf<N>, t.Reduced<R, X, K>> {
    return ops.sum(this, axis, keepdims);
  }

  /** Product over an axis, several, or all. */
  prod<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<t.SumOf<N>, t.Reduced<R, X, K>> {
    return ops.prod(this, axis, keepdims);
  }

  /** Smallest element over an axis, several, or all. */
  min<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<N, t.Reduced<R, X, K>> {
    return ops.min(this, axis, keepdims);
  }

  /** Largest element over an axis, several, or all. */
  max<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<N, t.Reduced<R, X, K>> {
    return ops.max(this, axis, keepdims);
  }

  /** Whether all elements are true. */
  all<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<"bool", t.Reduced<R, X, K>> {
    return ops.all(this, axis, keepdims);
  }

  /** Whether any element is true. */
  any<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<"bool", t.Reduced<R, X, K>> {
    return ops.any(this, axis, keepdims);
  }

  /** Index of the smallest element. */
  argmin<const X extends number | null = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<"uint32", t.Reduced<R, X, K>> {
    return ops.argmin(this, axis, keepdims);
  }

  /** Index of the largest element. */
  argmax<const X extends number | null = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<"uint32", t.Reduced<R, X, K>> {
    return ops.argmax(this, axis, keepdims);
  }

  /** Mean over an axis, several, or all. */
  mean<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<t.FloatOf<N>, t.Reduced<R, X, K>> {
    return ops.mean(this, axis, keepdims);
  }

  /** Variance over an axis, several, or all. */
  variance<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
    ddof: number = 0,
    options: VarianceOptions = {},
  ): Tensor<t.FloatOf<N>, t.Reduced<R, X, K>> {
    return ops.variance(this, axis, keepdims, ddof, options);
  }

  /** Same as {@link Tensor.variance}. */
  var<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
    ddof: number = 0,
    options: VarianceOptions = {},
  ): Tensor<t.FloatOf<N>, t.Reduced<R, X, K>> {
    return ops.variance(this, axis, keepdims, ddof, options);
  }

  /** Standard deviation over an axis, several, or all. */
  std<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
    ddof: number = 0,
    options: VarianceOptions = {},
  ): Tensor<t.FloatOf<N>, t.Reduced<R, X, K>> {
    return ops.std(this, axis, keepdims, ddof, options);
  }

  /** log(sum(exp(this))) over an axis, several, or all. */
  logsumexp<const X extends Axis = null, K extends boolean = false>(
    axis?: X,
    keepdims: K = false as K,
  ): Tensor<t.FloatOf<N>, t.Reduced<R, X, K>> {
    return ops.logsumexp(this, axis, keepdims);
  }

  /** Running sum. */
  cumsum<X extends number | null = null>(axis?: X, options: CumsumOptions = {}): Tensor<t.SumOf<N>, t.Along<R, X>> {
    return ops.cumsum(this, axis, options);
  }

  /** Running product. */
  cumprod<X extends number | null = null>(axis?: X, options: ScanOptions = {}): Tensor<t.SumOf<N>, t.Along<R, X>> {
    return ops.cumprod(this, axis, options);
  }

  /** Running maximum. */
  cummax<X extends number | null = null>(axis?: X, options: ScanOptions = {}): Tensor<N, t.Along<R, X>> {
    return ops.cummax(this, axis, options);
  }

  /** Running minimum. */
  cummin<X extends number | null = null>(axis?: X, options: ScanOptions = {}): Tensor<N, t.Along<R, X>> {
    return ops.cummin(this, axis, options);
  }

  /** Running logarithm of the sum of exponentials. */
  logcumsumexp<X extends number | null = null>(
    axis?: X,
    options: ScanOptions = {},
  ): Tensor<t.FloatOf<N>, t.Along<R, X>> {
    return ops.logcumsumexp(this, axis, options);
  }

  /** Ascending along an axis. */
  sort<X extends number | null = -1>(axis: X = -1 as X): Tensor<N, t.Along<R, X>> {
    return ops.sort(this, axis);
  }
}

/**
 * Updates at an index in which repeated indices count each time: made by `x.at(...)`. Each returns a new array.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.zeros([3]).at([0, 0, 2]).add([1, 2, 3]).tolist(); // [3, 0, 3]
 * ```
 */
// deno-lint-ignore no-explicit-any -- not known
export class At<N extends DtypeName = any, R extends number = any> {
  readonly #array: Tensor<N, R>;
  readonly #index: readonly Index[];

  /** Use `x.at(...index)`. */
  constructor(array: Tensor<N, R>, index: readonly Index[]) {
    this.#array = array;
    this.#index = index;
  }

  /** The array with `value` added. */
  add(value: TensorLike): Tensor<N, R> {
    return ops.updateAt(this.#array, this.#index, "add", value);
  }

  /** The array with `value` subtracted. */
  subtract(value: TensorLike): Tensor<N, R> {
    return ops.updateAt(this.#array, this.#index, "subtract", value);
  }

  /** The array multiplied by `value`. */
  multiply(value: TensorLike): Tensor<N, R> {
    return ops.updateAt(this.#array, this.#index, "multiply", value);
  }

  /** The array divided by `value`; for floats: the reciprocal of a whole number other than 1 is rounded to 0, as in MLX. */
  divide(value: TensorLike): Tensor<N, R> {
    return ops.updateAt(this.#array, this.#index, "divide", value);
  }

  /** The larger of the array and `value`. */
  maximum(value: TensorLike): Tensor<N, R> {
    return ops.updateAt(this.#array, this.#index, "maximum", value);
  }

  /** The smaller of the array and `value`. */
  minimum(value: TensorLike): Tensor<N, R> {
    return ops.updateAt(this.#array, this.#index, "minimum", value);
  }
}

/** A Tensor of a new node. */
export function make<K extends OpName>(
  op: K,
  inputs: readonly Node[],
  shape: Shape,
  dtype: Dtype,
  attrs: OpAttrs[K],
  composite?: (node: Definition) => Node,
): AnyTensor {
  return wrap(makeNode(op, inputs, shape, dtype, attrs, composite));
}
