/**
 * JavaScript's values: numbers, nested lists, typed arrays, and how arrays become them. Conversion evaluates an array.
 *
 * @module
 */

import {
  bfloat16,
  type Complex,
  float16,
  type HostArray,
  hostValue,
  hostView,
  type Scalar,
} from "../../graph/dtype.ts";
import { ShapeError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape, sizeOf } from "../../graph/shape.ts";
import { readNode } from "../../schedule/realize.ts";

export type { Complex, Scalar };

/** The result of `tolist()`: a value, or lists of them as deep as the array has axes. */
export type NestedValue = Scalar | NestedValue[];

/** The result of `toTypedArray()`. */
export type HostValues =
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Float16Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/** Typed arrays that become arrays of the same element type; Float64Array becomes float32 where no dtype is given. */
export type TypedArray = HostValues | Uint8ClampedArray;

/** Scalars in lists of lists; all lists of one depth have the same length. */
export type NestedList = readonly (Scalar | NestedList | TypedArray)[];

/** The elements in row-major order, 16-bit floats as their bits, complex numbers as pairs. */
export function elements(node: Node): HostArray {
  return hostView(node.dtype, readNode(node));
}

/** The value of one element. */
export function item(node: Node): Scalar {
  const { shape, dtype } = node;
  if (sizeOf(shape) !== 1) {
    throw new ShapeError(`item() expected an array of one element: found shape ${formatShape(shape)}`);
  }
  return hostValue(dtype, elements(node), 0);
}

/** Lists as deep as there are axes. */
export function tolist(node: Node): NestedValue {
  const { shape, dtype } = node;
  const view = elements(node);
  const build = (depth: number, start: number, size: number): NestedValue => {
    if (depth === shape.length) return hostValue(dtype, view, start);
    const step = size / shape[depth];
    return Array.from({ length: shape[depth] }, (_, i) => build(depth + 1, start + i * step, step));
  };
  return build(0, 0, sizeOf(shape));
}

/** A typed array of the dtype, of float32 for bfloat16, of pairs of real and imaginary part for complex64. */
export function toTypedArray(node: Node): HostValues {
  const { dtype } = node;
  const view = elements(node);
  if (dtype === float16) return new Float16Array(view.buffer, view.byteOffset, view.length);
  if (dtype === bfloat16) {
    return Float32Array.from({ length: view.length }, (_, i) => hostValue(dtype, view, i) as number);
  }
  return view;
}
