/**
 * The array: a Tensor shows one node of the lazy graph and owns one reference of it.
 *
 * Methods are the free functions of the other files of this folder with `this` as first argument, in MLX's order. They and
 * this class need each other: the imports between them are cycles of function bodies, nothing runs at import.
 *
 * A Tensor that was not evaluated owns no memory. An evaluated one holds device memory until it is disposed: by `using`,
 * `mx.dispose()` or `mx.tidy()`, and otherwise by the garbage collector, some time.
 *
 * @module
 */

import type { Dtype } from "../graph/dtype.ts";
import { ArrayError, ShapeError, ValueError } from "../graph/error.ts";
import { makeNode, type Node, type OpAttrs, type OpName } from "../graph/node.ts";
import { type Shape, sizeOf } from "../graph/shape.ts";
import { withDevice } from "../schedule/devices.ts";
import { Hold } from "../schedule/plan/garbage.ts";
import { readNode, realize } from "../schedule/realize.ts";
import type { Scalar, TensorLike } from "./convert.ts";
import * as binary from "./binary.ts";
import * as indexing from "./indexing.ts";
import * as join from "./join.ts";
import * as linalg from "./products.ts";
import * as movement from "./movement.ts";
import { formatArray } from "./print.ts";
import * as reduce from "./reduce.ts";
import { track, untrack } from "./scope.ts";
import * as sort from "./sort.ts";
import * as unary from "./unary.ts";
import * as values from "./values.ts";

/** One axis, several, or null for all. */
export type Axis = number | readonly number[] | null;

// What only this library may do with a Tensor; set where the private field is in reach.

/** A Tensor that shows a node. */
export let wrap: (node: Node) => Tensor;
/** The node that a Tensor shows; an error once it was disposed. */
export let nodeOf: (tensor: Tensor) => Node;
/** Lets a Tensor show another node of the same shape and dtype. */
export let rebind: (tensor: Tensor, node: Node) => void;
/** Ends a Tensor and gives its node to the caller, who must hold it at once. */
export let handOn: (tensor: Tensor) => Node;

/** An n-dimensional array of one element type, evaluated lazily. Made by `mx.array()` and the other functions. */
export class Tensor {
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
  get dtype(): Dtype {
    return this.#live().dtype;
  }

  /** Number of axes. */
  get ndim(): number {
    return this.#live().shape.length;
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
  *[Symbol.iterator](): IterableIterator<Tensor> {
    const { shape } = this.#live();
    if (shape.length === 0) throw new ShapeError("a 0-dimensional array cannot be iterated");
    for (let i = 0; i < shape[0]; i++) yield this.index(i);
  }

  /** The array with its axes reversed. */
  get T(): Tensor {
    return movement.transpose(this);
  }

  /** The value of an array of one element; evaluates it. */
  item(): Scalar {
    return values.item(this.#live());
  }

  /** The values as nested lists (a number or boolean for 0 axes); evaluates the array. */
  tolist(): values.NestedValue {
    return values.tolist(this.#live());
  }

  /** The values in row-major order as a typed array; bfloat16 widens to float32, bool is bytes 0 and 1. Evaluates the array. */
  toTypedArray(): values.HostValues {
    return values.toTypedArray(this.#live());
  }

  /** A copy on another device, such as "wasm" or "vulkan:0"; evaluates the array. */
  to(device: string): Tensor {
    const { shape, dtype } = this.#live();
    const node = makeNode("data", [], shape, dtype, { bytes: readNode(this.#live()) });
    withDevice(device, () => realize([node]));
    return wrap(node);
  }

  /** The array as MLX prints it; evaluates it. */
  toString(): string {
    return this.#node ? formatArray(this.#node) : "array(disposed)";
  }

  /** What `JSON.stringify()` writes: the values as {@link Tensor.tolist} gives them. */
  toJSON(): values.NestedValue {
    return this.tolist();
  }

  /** Text where text is wanted; an error where an operator wants a number, since JavaScript's do not work on arrays. */
  [Symbol.toPrimitive](hint: string): string {
    if (hint === "string") return this.toString();
    throw new ValueError("operators do not work on arrays: use mx.add(a, b) and the like, or item() for one number");
  }

  /** Text in Deno's and Node's consoles. */
  [Symbol.for("Deno.customInspect")](): string {
    return this.toString();
  }

  /** Text in Jupyter notebooks. */
  [Symbol.for("Jupyter.display")](): Record<string, string> {
    return { "text/plain": this.toString() };
  }

  // ---- indexing ----

  /** Reads elements: see {@link indexing.index}. */
  index(...index: readonly indexing.Index[]): Tensor {
    return indexing.index(this, ...index);
  }

  /** Assigns elements; this array then shows the new values, arrays made from it before keep the old ones. */
  indexPut_(index: indexing.Index | readonly indexing.Index[], value: TensorLike): Tensor {
    return indexing.indexPut_(this, index, value);
  }

  /** Updates at an index that count every occurrence of repeated indices: `x.at(index).add(1)`. */
  at(...index: readonly indexing.Index[]): indexing.At {
    return new indexing.At(this, index);
  }

  // ---- movement ----

  /** The values cast to another element type. */
  astype(dtype: Dtype): Tensor {
    return movement.astype(this, dtype);
  }

  /** The same elements in another shape; one size may be -1. Takes sizes or one list. */
  reshape(...shape: readonly number[] | readonly [readonly number[]]): Tensor {
    return movement.reshape(this, (typeof shape[0] === "object" ? shape[0] : shape) as readonly number[]);
  }

  /** Axes `startAxis` to `endAxis` as one. */
  flatten(startAxis: number = 0, endAxis: number = -1): Tensor {
    return movement.flatten(this, startAxis, endAxis);
  }

  /** One axis as several. */
  unflatten(axis: number, shape: readonly number[]): Tensor {
    return movement.unflatten(this, axis, shape);
  }

  /** Without axes of size 1. */
  squeeze(axis?: Axis): Tensor {
    return movement.squeeze(this, axis);
  }

  /** Axes in another order; reversed without arguments. Takes axes or one list. */
  transpose(...axes: readonly number[] | readonly [readonly number[]]): Tensor {
    return movement.transpose(
      this,
      axes.length === 0 ? null : (typeof axes[0] === "object" ? axes[0] : axes) as readonly number[],
    );
  }

  /** With two axes exchanged. */
  swapaxes(axis1: number, axis2: number): Tensor {
    return movement.swapaxes(this, axis1, axis2);
  }

  /** With one axis at another place. */
  moveaxis(source: number, destination: number): Tensor {
    return movement.moveaxis(this, source, destination);
  }

  /** Pieces along an axis. */
  split(indicesOrSections: number | readonly number[], axis: number = 0): Tensor[] {
    return join.split(this, indicesOrSections, axis);
  }

  /** The elements of a diagonal. */
  diagonal(offset: number = 0, axis1: number = 0, axis2: number = 1): Tensor {
    return movement.diagonal(this, offset, axis1, axis2);
  }

  // ---- arithmetic ----

  /** this + b */
  add(b: TensorLike): Tensor {
    return binary.add(this, b);
  }

  /** this - b */
  subtract(b: TensorLike): Tensor {
    return binary.subtract(this, b);
  }

  /** this * b */
  multiply(b: TensorLike): Tensor {
    return binary.multiply(this, b);
  }

  /** this / b; integers give float32. */
  divide(b: TensorLike): Tensor {
    return binary.divide(this, b);
  }

  /** this raised to b */
  power(b: TensorLike): Tensor {
    return binary.power(this, b);
  }

  /** Matrix product with b. */
  matmul(b: TensorLike): Tensor {
    return linalg.matmul(this, b);
  }

  /** -this */
  negative(): Tensor {
    return unary.negative(this);
  }

  /** Absolute values. */
  abs(): Tensor {
    return unary.abs(this);
  }

  /** Exponential. */
  exp(): Tensor {
    return unary.exp(this);
  }

  /** Natural logarithm. */
  log(): Tensor {
    return unary.log(this);
  }

  /** Logarithm to base 2. */
  log2(): Tensor {
    return unary.log2(this);
  }

  /** Logarithm to base 10. */
  log10(): Tensor {
    return unary.log10(this);
  }

  /** log(1 + this) */
  log1p(): Tensor {
    return unary.log1p(this);
  }

  /** 1 / this */
  reciprocal(): Tensor {
    return unary.reciprocal(this);
  }

  /** Rounded to a number of decimals, halves to even. */
  round(decimals: number = 0): Tensor {
    return unary.round(this, decimals);
  }

  /** Square root. */
  sqrt(): Tensor {
    return unary.sqrt(this);
  }

  /** 1 / sqrt(this) */
  rsqrt(): Tensor {
    return unary.rsqrt(this);
  }

  /** this * this */
  square(): Tensor {
    return unary.square(this);
  }

  /** Sine. */
  sin(): Tensor {
    return unary.sin(this);
  }

  /** Cosine. */
  cos(): Tensor {
    return unary.cos(this);
  }

  // ---- reductions ----

  /** Sum over an axis, several, or all. */
  sum(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.sum(this, axis, keepdims);
  }

  /** Product over an axis, several, or all. */
  prod(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.prod(this, axis, keepdims);
  }

  /** Smallest element over an axis, several, or all. */
  min(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.min(this, axis, keepdims);
  }

  /** Largest element over an axis, several, or all. */
  max(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.max(this, axis, keepdims);
  }

  /** Whether all elements are true. */
  all(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.all(this, axis, keepdims);
  }

  /** Whether any element is true. */
  any(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.any(this, axis, keepdims);
  }

  /** Index of the smallest element. */
  argmin(axis?: number | null, keepdims: boolean = false): Tensor {
    return reduce.argmin(this, axis, keepdims);
  }

  /** Index of the largest element. */
  argmax(axis?: number | null, keepdims: boolean = false): Tensor {
    return reduce.argmax(this, axis, keepdims);
  }

  /** Mean over an axis, several, or all. */
  mean(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.mean(this, axis, keepdims);
  }

  /** Variance over an axis, several, or all. */
  variance(axis?: Axis, keepdims: boolean = false, ddof: number = 0): Tensor {
    return reduce.variance(this, axis, keepdims, ddof);
  }

  /** Standard deviation over an axis, several, or all. */
  std(axis?: Axis, keepdims: boolean = false, ddof: number = 0): Tensor {
    return reduce.std(this, axis, keepdims, ddof);
  }

  /** log(sum(exp(this))) over an axis, several, or all. */
  logsumexp(axis?: Axis, keepdims: boolean = false): Tensor {
    return reduce.logsumexp(this, axis, keepdims);
  }

  /** Running sum. */
  cumsum(axis?: number | null, options: reduce.CumsumOptions = {}): Tensor {
    return reduce.cumsum(this, axis, options);
  }

  /** Running product. */
  cumprod(axis?: number | null, options: reduce.ScanOptions = {}): Tensor {
    return reduce.cumprod(this, axis, options);
  }

  /** Running maximum. */
  cummax(axis?: number | null, options: reduce.ScanOptions = {}): Tensor {
    return reduce.cummax(this, axis, options);
  }

  /** Running minimum. */
  cummin(axis?: number | null, options: reduce.ScanOptions = {}): Tensor {
    return reduce.cummin(this, axis, options);
  }

  /** Ascending along an axis. */
  sort(axis: number | null = -1): Tensor {
    return sort.sort(this, axis);
  }
}

/** A Tensor of a new node. */
export function make<K extends OpName>(
  op: K,
  inputs: readonly Node[],
  shape: Shape,
  dtype: Dtype,
  attrs: OpAttrs[K],
  composite?: () => Node,
): Tensor {
  return wrap(makeNode(op, inputs, shape, dtype, attrs, composite));
}
