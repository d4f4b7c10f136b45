/**
 * From JavaScript values to nodes: scalars, nested lists and typed arrays wherever an array is taken.
 *
 * Numbers and booleans are weak: beside an array they take its dtype. A number that is not whole lifts integers to float32, a whole one
 * must be in their range. Lists are arrays of float32, or of bool when all their elements are booleans. A list with arrays is a stack of
 * them.
 *
 * @module
 */

import * as dt from "../../graph/dtype.ts";
import {
  checkDtype,
  type Complex,
  type Dtype,
  float32,
  hostView,
  isComplex,
  isHalf,
  promote,
  promoteScalar,
  setHostValue,
} from "../../graph/dtype.ts";
import { DtypeError, kindOf, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { attrsOf, makeNode, MAX_SIZE, type Node } from "../../graph/node.ts";
import { formatShape, sameShape, type Shape } from "../../graph/shape.ts";
import { nodeOf, Tensor, type TensorLike } from "./tensor.ts";
import type { NestedList, Scalar, TypedArray } from "./values.ts";

export type { NestedList, Scalar, TensorLike, TypedArray };

const TYPED_DTYPES: Readonly<Record<string, Dtype>> = {
  Uint8Array: dt.uint8,
  Uint8ClampedArray: dt.uint8,
  Uint16Array: dt.uint16,
  Uint32Array: dt.uint32,
  Int8Array: dt.int8,
  Int16Array: dt.int16,
  Int32Array: dt.int32,
  Float16Array: dt.float16,
  Float32Array: dt.float32,
  Float64Array: dt.float32,
  BigInt64Array: dt.int64,
  BigUint64Array: dt.uint64,
};

/** One value in every element, as a node. */
export function fullNode(value: number | bigint | Complex, shape: Shape, dtype: Dtype): Node {
  return makeNode("full", [], shape, dtype, { value });
}

/** Host bytes as a node. */
export function dataNode(bytes: Uint8Array, shape: Shape, dtype: Dtype): Node {
  return makeNode("data", [], shape, dtype, { bytes });
}

/** The node of values with another dtype; the same node when the dtype is right already. */
export function castNode(node: Node, dtype: Dtype): Node {
  if (node.dtype === dtype) return node;
  // There and back: float32 holds all numbers of shorter floats.
  const from = node.dtype === float32 && isCast(node) ? node.inputs[0] : undefined;
  if (from?.dtype === dtype && isHalf(dtype)) return from;
  return makeNode("elementwise", [node], node.shape, dtype, { fn: "cast" });
}

/** Whether a node that is still to be computed is a cast. */
function isCast(node: Node): boolean {
  return node.op === "elementwise" && attrsOf(node, "elementwise").fn === "cast";
}

/** The node of a value, of a boolean as 0 or 1, repeated to a shape. A whole number that an integer type cannot hold is an error. */
export function scalarNode(op: string, value: Scalar, dtype: Dtype, shape: Shape = []): Node {
  checkDtype(dtype, op);
  if (isComplex(value)) {
    if (dtype.kind === "complex") return fullNode(value, shape, dtype);
    throw new DtypeError(`${op}() cannot make a complex number ${dtype.name}`);
  }
  const isWhole = dtype.kind === "int" || dtype.kind === "uint";
  if (isWhole && (typeof value === "bigint" || Number.isInteger(value))) {
    const span = 1n << BigInt(8 * dtype.bytes);
    const low = dtype.kind === "int" ? -span / 2n : 0n;
    const whole = BigInt(value);
    if (whole < low || whole >= low + span) {
      throw new ValueError(`${op}() cannot make ${value} ${dtype.name}: it holds ${low} to ${low + span - 1n}`);
    }
    return fullNode(Number.isSafeInteger(value) ? Number(value) : whole, shape, dtype);
  }
  return fullNode(Number(value), shape, dtype);
}

/** The node of an argument. Lists and scalars take `dtype` when given; arrays keep theirs. */
export function toNode(op: string, value: TensorLike, dtype?: Dtype): Node {
  if (value instanceof Tensor) return nodeOf(value);
  if (typeof value === "number") return scalarNode(op, value, dtype ?? dt.float32);
  if (typeof value === "boolean") return scalarNode(op, value, dtype ?? dt.bool);
  if (typeof value === "bigint") return scalarNode(op, value, dtype ?? dt.int64);
  if (isComplex(value)) return scalarNode(op, value, dtype ?? dt.complex64);
  if (ArrayBuffer.isView(value)) return typedNode(op, value, dtype);
  if (Array.isArray(value)) return listNode(op, value as NestedList, dtype);
  throw new DtypeError(
    `${op}() expected an array, number, boolean, bigint, complex number, list or typed array: found ${kindOf(value)}`,
  );
}

/** The node of an argument that must be an array of integers; lists and numbers become int32. */
export function toIndexNode(op: string, value: TensorLike): Node {
  if (hasFraction(value)) throw new DtypeError(`${op}() expected integer indices: found a number that is not whole`);
  const node = toNode(op, value, ArrayBuffer.isView(value) ? undefined : dt.int32);
  if (node.dtype.kind !== "int" && node.dtype.kind !== "uint") {
    throw new DtypeError(`${op}() expected integer indices: found ${node.dtype.name}, use a list or astype(mx.int32)`);
  }
  return dt.isWide(node.dtype) ? narrowIndices(node) : node;
}

/** Indices of 64 bits as int32, those beyond at its ends: a cast alone would drop their high halves. */
function narrowIndices(node: Node): Node {
  const at = (fn: string, x: Node, bound: number): Node =>
    makeNode("elementwise", [x, fullNode(bound, x.shape, x.dtype)], x.shape, x.dtype, { fn });
  const below = at("minimum", node, 2 ** 31 - 1);
  return castNode(node.dtype.kind === "int" ? at("maximum", below, -(2 ** 31)) : below, dt.int32);
}

/** Whether a number, or one in lists, is not whole; int32 would cut it. */
function hasFraction(value: TensorLike): boolean {
  if (typeof value === "number") return !Number.isInteger(value);
  return Array.isArray(value) && value.some(hasFraction);
}

/** Nodes of operands cast to the dtype they meet in; scalars are weak. */
export function toOperands(op: string, values: readonly TensorLike[], least?: (dtype: Dtype) => Dtype): Node[] {
  const nodes = Array.from(values, (v) => isScalar(v) ? undefined : toNode(op, v)); // also of holes
  let dtype: Dtype | undefined;
  for (const node of nodes) if (node) dtype = dtype ? promote(dtype, node.dtype) : node.dtype;
  for (const v of values) {
    if (!isScalar(v)) continue;
    if (dtype) dtype = promoteScalar(dtype, v);
    else dtype = scalarsDtype(values as readonly Scalar[]);
  }
  const meet = least ? least(dtype!) : dtype!;
  return nodes.map((node, i) => node ? castNode(node, meet) : scalarNode(op, values[i] as Scalar, meet));
}

/** Whether an argument is one value. */
function isScalar(value: unknown): value is Scalar {
  return typeof value === "number" || typeof value === "boolean" || typeof value === "bigint" || isComplex(value);
}

/** The dtype of values that have no array beside them: complex, bool or int64 where all are, else float32. */
function scalarsDtype(values: readonly Scalar[]): Dtype {
  if (values.some(isComplex)) return dt.complex64;
  if (values.length > 0 && values.every((value) => typeof value === "boolean")) return dt.bool;
  return values.length > 0 && values.every((value) => typeof value === "bigint") ? dt.int64 : dt.float32;
}

/** float32 for everything that is not inexact already. */
export function atLeastFloat(dtype: Dtype): Dtype {
  return dtype.kind === "float" || dtype.kind === "complex" ? dtype : dt.float32;
}

function typedNode(op: string, value: ArrayBufferView, dtype?: Dtype): Node {
  const own = TYPED_DTYPES[value.constructor.name];
  if (!own) {
    throw new DtypeError(`${op}() does not take ${value.constructor.name}: use a typed array`);
  }
  const values = value as TypedArray;
  if (value instanceof Float64Array || (dtype && dtype !== own)) {
    return encode(op, values, [values.length], dtype ?? own);
  }
  const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice(); // the caller may reuse its buffer
  return dataNode(bytes, [values.length], own);
}

/** Whether an array lies in a list, however deep. */
function hasArray(list: readonly unknown[]): boolean {
  return list.some((value) => value instanceof Tensor || (Array.isArray(value) && hasArray(value)));
}

/** The node of a list with arrays in it: its entries stacked, in the dtype that they meet in. */
function stackedNode(op: string, list: readonly TensorLike[]): Node {
  const nodes = toOperands(op, list);
  const { shape, dtype } = nodes[0];
  for (const other of nodes) {
    if (sameShape(other.shape, shape)) continue;
    const found = `${formatShape(shape)} beside ${formatShape(other.shape)}`;
    throw new ShapeError(`${op}() expected entries of one shape in a list: found ${found}`);
  }
  const rows = nodes.map((node) => makeNode("reshape", [node], [1, ...shape], dtype, {}));
  return rows.length === 1 ? rows[0] : makeNode("concatenate", rows, [rows.length, ...shape], dtype, { axis: 0 });
}

function listNode(op: string, list: NestedList, dtype?: Dtype): Node {
  if (hasArray(list)) {
    const node = stackedNode(op, list as readonly TensorLike[]);
    return dtype ? castNode(node, dtype) : node;
  }
  const shape: number[] = [];
  for (let level: unknown = list; isList(level); level = level[0]) shape.push(level.length);
  const flat: Scalar[] = [];
  flatten(op, list, shape, 0, flat);
  return encode(op, flat, shape, dtype ?? scalarsDtype(flat));
}

function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

function flatten(op: string, list: ArrayLike<unknown>, shape: Shape, depth: number, out: Scalar[]): void {
  if (list.length !== shape[depth]) {
    throw new ShapeError(
      `${op}() expected lists of one length at each depth: found ${list.length} beside ${shape[depth]}`,
    );
  }
  for (let i = 0; i < list.length; i++) {
    const value = list[i];
    const leaf = depth === shape.length - 1;
    if (leaf && isScalar(value)) out.push(value);
    else if (!leaf && isList(value)) flatten(op, value, shape, depth + 1, out);
    else if (isList(value) || isScalar(value)) {
      throw new ShapeError(`${op}() cannot mix scalars and lists at depth ${depth}`);
    } else {
      const expected = "numbers, booleans, bigints or complex numbers";
      throw new DtypeError(`${op}() expected ${expected} in a list: found ${kindOf(value)}`);
    }
  }
}

/** The node of values that lie on the host, in row-major order. */
export function encode(op: string, values: ArrayLike<Scalar>, shape: Shape, dtype: Dtype): Node {
  checkDtype(dtype, op);
  const bytes = new Uint8Array(values.length * dtype.bytes);
  const view = hostView(dtype, bytes);
  for (let i = 0; i < values.length; i++) setHostValue(dtype, view, i, values[i]);
  return dataNode(bytes, shape, dtype);
}

/** A shape argument: one size or a list of sizes. */
export function toShape(op: string, shape: number | Shape): number[] {
  const list = typeof shape === "number" ? [shape] : toSizes(op, shape);
  for (const d of list) {
    if (!Number.isInteger(d) || d < 0) {
      throw new ShapeError(`${op}() expected sizes that are whole and not negative: found ${formatShape(list)}`);
    }
    if (d > MAX_SIZE) throw new ShapeError(`${op}() expected sizes below 2^31: found ${formatShape(list)}`);
  }
  return list;
}

/** A number argument; it may be infinite or NaN. */
export function toNumber(op: string, name: string, value: number): number {
  if (typeof value !== "number") {
    throw new ValueError(`${op}() expected ${name} to be a number: found ${quoted(value)}`);
  }
  return value;
}

/** A list argument; `what` names its elements, for the error. */
export function toList<T>(op: string, what: string, value: readonly T[]): readonly T[] {
  if (Array.isArray(value)) return Array.from(value); // holes are undefined
  throw new ValueError(`${op}() expected a list of ${what}: found ${kindOf(value)}`);
}

/** A list of arrays. */
export function toArrays(op: string, arrays: readonly TensorLike[]): readonly TensorLike[] {
  return toList(op, `arrays, such as ${op}([a, b])`, arrays);
}

/** A list of sizes, which are not checked. */
export function toSizes(op: string, shape: Shape): number[] {
  if (!isList(shape)) throw new ShapeError(`${op}() expected a list of sizes: found ${kindOf(shape)}`);
  const sizes = Array.from(shape);
  const other = sizes.find((d) => typeof d !== "number");
  if (other === undefined && !sizes.includes(undefined!)) return sizes;
  throw new ShapeError(`${op}() expected a list of sizes: found ${kindOf(other)} in it`);
}

/** A whole number argument. */
export function toInteger(op: string, name: string, value: number): number {
  if (Number.isInteger(value)) return value;
  throw new ValueError(`${op}() expected ${name} to be a whole number: found ${quoted(value)}`);
}
