/**
 * From JavaScript values to nodes: scalars, nested lists and typed arrays wherever an array is taken.
 *
 * Numbers and booleans are weak: beside an array they take its dtype (a number that is not whole lifts integers to
 * float32, a whole one must be in their range). Lists are arrays of float32, or of bool when all their elements are booleans.
 *
 * @module
 */

import * as dt from "../graph/dtype.ts";
import { checkDtype, type Dtype, hostBits, hostView, promote, promoteScalar } from "../graph/dtype.ts";
import { DtypeError, quoted, ShapeError, ValueError } from "../graph/error.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { formatShape, type Shape } from "../graph/shape.ts";
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
};

/** One value in every element, as a node. */
export function fullNode(value: number, shape: Shape, dtype: Dtype): Node {
  return makeNode("full", [], shape, dtype, { value });
}

/** Host bytes as a node. */
export function dataNode(bytes: Uint8Array, shape: Shape, dtype: Dtype): Node {
  return makeNode("data", [], shape, dtype, { bytes });
}

/** The node of values with another dtype; the same node when the dtype is right already. */
export function castNode(node: Node, dtype: Dtype): Node {
  return node.dtype === dtype ? node : makeNode("elementwise", [node], node.shape, dtype, { fn: "cast" });
}

/** The node of a number, or of a boolean as 0 or 1, repeated to a shape. A whole number that an integer type cannot hold is an error. */
export function scalarNode(op: string, value: Scalar, dtype: Dtype, shape: Shape = []): Node {
  const span = 2 ** (8 * dtype.bytes);
  const low = dtype.kind === "int" ? -span / 2 : 0;
  const isWhole = dtype.kind === "int" || dtype.kind === "uint";
  if (isWhole && Number.isInteger(value) && (Number(value) < low || Number(value) >= low + span)) {
    throw new ValueError(`${op}() cannot make ${value} ${dtype.name}: it holds ${low} to ${low + span - 1}`);
  }
  return fullNode(Number(value), shape, dtype);
}

/** The node of an argument. Lists and scalars take `dtype` when given; arrays keep theirs. */
export function toNode(op: string, value: TensorLike, dtype?: Dtype): Node {
  if (value instanceof Tensor) return nodeOf(value);
  if (typeof value === "number") return scalarNode(op, value, dtype ?? dt.float32);
  if (typeof value === "boolean") return scalarNode(op, value, dtype ?? dt.bool);
  if (ArrayBuffer.isView(value)) return typedNode(op, value, dtype);
  if (Array.isArray(value)) return listNode(op, value as NestedList, dtype);
  throw new DtypeError(`${op}() expected an array, number, boolean, list or typed array: found ${describe(value)}`);
}

/** The node of an argument that must be an array of integers; lists and numbers become int32. */
export function toIndexNode(op: string, value: TensorLike): Node {
  if (hasFraction(value)) throw new DtypeError(`${op}() expected integer indices: found a number that is not whole`);
  const node = toNode(op, value, ArrayBuffer.isView(value) ? undefined : dt.int32);
  if (node.dtype.kind === "bool" || node.dtype.kind === "float") {
    throw new DtypeError(`${op}() expected integer indices: found ${node.dtype.name}, use a list or astype(mx.int32)`);
  }
  return node;
}

/** Whether a number, or one in lists, is not whole; int32 would cut it. */
function hasFraction(value: TensorLike): boolean {
  if (typeof value === "number") return !Number.isInteger(value);
  return Array.isArray(value) && value.some(hasFraction);
}

/** Nodes of operands cast to the dtype they meet in; scalars are weak. */
export function toOperands(op: string, values: readonly TensorLike[], least?: (dtype: Dtype) => Dtype): Node[] {
  const weak = (v: TensorLike): v is Scalar => typeof v === "number" || typeof v === "boolean";
  const nodes = values.map((v) => weak(v) ? undefined : toNode(op, v));
  let dtype: Dtype | undefined;
  for (const node of nodes) if (node) dtype = dtype ? promote(dtype, node.dtype) : node.dtype;
  for (const v of values) {
    if (!weak(v)) continue;
    if (dtype) dtype = promoteScalar(dtype, v);
    else dtype = values.every((w) => typeof w === "boolean") ? dt.bool : dt.float32;
  }
  const meet = least ? least(dtype!) : dtype!;
  return nodes.map((node, i) => node ? castNode(node, meet) : scalarNode(op, values[i] as Scalar, meet));
}

/** float32 for everything that is not a float already. */
export function atLeastFloat(dtype: Dtype): Dtype {
  return dtype.kind === "float" ? dtype : dt.float32;
}

function describe(value: unknown): string {
  return value === null ? "null" : typeof value === "object" ? value.constructor?.name ?? "object" : typeof value;
}

function typedNode(op: string, value: ArrayBufferView, dtype?: Dtype): Node {
  const own = TYPED_DTYPES[value.constructor.name];
  if (!own) {
    const { name } = value.constructor;
    const why = name.startsWith("Big") ? "64-bit integers are not supported, use int32 or uint32" : "use a typed array";
    throw new DtypeError(`${op}() does not take ${name}: ${why}`);
  }
  const values = value as TypedArray;
  if (value instanceof Float64Array || (dtype && dtype !== own)) return encode(values, [values.length], dtype ?? own);
  const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice(); // the caller may reuse its buffer
  return dataNode(bytes, [values.length], own);
}

function listNode(op: string, list: NestedList, dtype?: Dtype): Node {
  const shape: number[] = [];
  for (let level: unknown = list; isList(level); level = level[0]) shape.push(level.length);
  const flat: Scalar[] = [];
  flatten(op, list, shape, 0, flat);
  const all = flat.length > 0 && flat.every((v) => typeof v === "boolean");
  return encode(flat, shape, dtype ?? (all ? dt.bool : dt.float32));
}

function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || ArrayBuffer.isView(value);
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
    if (leaf && (typeof value === "number" || typeof value === "boolean")) out.push(value);
    else if (!leaf && isList(value)) flatten(op, value, shape, depth + 1, out);
    else if (value instanceof Tensor) {
      throw new DtypeError(`${op}() cannot take arrays inside a list: use mx.stack(list)`);
    } else if (isList(value) || typeof value === "number") {
      throw new ShapeError(`${op}() cannot mix scalars and lists at depth ${depth}`);
    } else throw new DtypeError(`${op}() expected numbers or booleans in a list: found ${describe(value)}`);
  }
}

function encode(values: ArrayLike<Scalar>, shape: Shape, dtype: Dtype): Node {
  checkDtype(dtype);
  const bytes = new Uint8Array(values.length * dtype.bytes);
  const view = hostView(dtype, bytes);
  for (let i = 0; i < values.length; i++) view[i] = hostBits(dtype, values[i]);
  return dataNode(bytes, shape, dtype);
}

/** A shape argument: one size or a list of sizes. */
export function toShape(op: string, shape: number | Shape): number[] {
  const list = typeof shape === "number" ? [shape] : toSizes(op, shape);
  for (const d of list) {
    if (!Number.isInteger(d) || d < 0) {
      throw new ShapeError(`${op}() expected sizes that are whole and not negative: found ${formatShape(list)}`);
    }
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

/** A list argument; `what` says of what, for the error. */
export function toList<T>(op: string, what: string, value: readonly T[]): readonly T[] {
  if (Array.isArray(value)) return value;
  throw new ValueError(`${op}() expected a list of ${what}: found ${describe(value)}`);
}

/** A list of arrays. */
export function toArrays(op: string, arrays: readonly TensorLike[]): readonly TensorLike[] {
  return toList(op, `arrays, such as ${op}([a, b])`, arrays);
}

/** A list of sizes, which are not checked. */
export function toSizes(op: string, shape: Shape): number[] {
  if (isList(shape)) return Array.from(shape);
  throw new ShapeError(`${op}() expected a list of sizes: found ${describe(shape)}`);
}

/** A whole number argument. */
export function toInteger(op: string, name: string, value: number): number {
  if (Number.isInteger(value)) return value;
  throw new ValueError(`${op}() expected ${name} to be a whole number: found ${quoted(value)}`);
}
