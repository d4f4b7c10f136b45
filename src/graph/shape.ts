/**
 * Pure arithmetic on shapes and strides. Strides count elements; a stride of 0 repeats.
 *
 * @module
 */

import { kindOf } from "./error.ts";

/** Sizes from the slowest to the fastest dimension; `[]` is a scalar. */
export type Shape = readonly number[];

/** Number of elements. */
export function sizeOf(shape: Shape): number {
  let n = 1;
  for (const d of shape) n *= d;
  return n;
}

/** Strides of a contiguous array. */
export function contiguousStrides(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let s = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = s;
    s *= shape[i];
  }
  return strides;
}

/** Whether elements lie one after the other in row-major order, or there are none. Dimensions of size 1 do not matter. */
export function isContiguous(shape: Shape, strides: readonly number[]): boolean {
  if (shape.includes(0)) return true;
  let s = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] === 1) continue;
    if (strides[i] !== s) return false;
    s *= shape[i];
  }
  return true;
}

/**
 * Whether two elements may share an address, as those of a broadcast do. The stride of a dimension must exceed the reach of all
 * dimensions with smaller strides. A few interleaved views without a shared address fail this test and count as overlapping.
 */
export function overlaps(shape: Shape, strides: readonly number[]): boolean {
  if (shape.includes(0)) return false;
  const steps = shape.map((size, i) => ({ size, by: Math.abs(strides[i]) })).filter((d) => d.size > 1);
  let reach = 0;
  for (const { size, by } of steps.sort((a, b) => a.by - b.by)) {
    if (by <= reach) return true;
    reach += (size - 1) * by;
  }
  return false;
}

/** Whether two shapes are equal. */
export function sameShape(a: Shape, b: Shape): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The shape that NumPy broadcasting gives, or undefined when the shapes do not fit. */
export function broadcastShapes(...shapes: Shape[]): number[] | undefined {
  const rank = Math.max(0, ...shapes.map((s) => s.length));
  const out = new Array<number>(rank).fill(1);
  for (const shape of shapes) {
    for (let i = 0; i < shape.length; i++) {
      const o = rank - shape.length + i;
      if (shape[i] === out[o] || shape[i] === 1) continue;
      if (out[o] !== 1) return undefined;
      out[o] = shape[i];
    }
  }
  return out;
}

/** Strides that read an array of `shape` as if it had the shape `to` (which it must broadcast to). */
export function broadcastStrides(shape: Shape, strides: readonly number[], to: Shape): number[] {
  const pad = to.length - shape.length;
  return to.map((d, i) => (i < pad || (shape[i - pad] === 1 && d !== 1) ? 0 : strides[i - pad]));
}

/** An axis in 0..rank-1 from one that may count from the end; undefined when out of range. */
export function normalizeAxis(axis: number, rank: number): number | undefined {
  if (!Number.isInteger(axis) || axis < -rank || axis >= rank) return undefined;
  return axis < 0 ? axis + rank : axis;
}

/** Strides of a view with another shape over the same elements, or undefined when it needs a copy. */
export function reshapeStrides(shape: Shape, strides: readonly number[], to: Shape): number[] | undefined {
  if (sizeOf(shape) === 0) return contiguousStrides(to);
  const old: { size: number; stride: number }[] = [];
  shape.forEach((size, i) => size !== 1 && old.push({ size, stride: strides[i] }));
  const out = new Array<number>(to.length).fill(0);
  let from = 0;
  let dst = 0;
  while (from < old.length) {
    // Match the smallest run of old dimensions with a run of new ones of the same size.
    let oldEnd = from + 1;
    let oldSize = old[from].size;
    while (dst < to.length && to[dst] === 1) dst++;
    if (dst >= to.length) return undefined;
    let newEnd = dst + 1;
    let newSize = to[dst];
    while (oldSize !== newSize) {
      if (newSize < oldSize) newSize *= to[newEnd++];
      else oldSize *= old[oldEnd++].size;
    }
    for (let i = from; i < oldEnd - 1; i++) {
      if (old[i].stride !== old[i + 1].stride * old[i + 1].size) return undefined;
    }
    let s = old[oldEnd - 1].stride;
    for (let i = newEnd - 1; i >= dst; i--) {
      out[i] = s;
      s *= to[i];
    }
    from = oldEnd;
    dst = newEnd;
  }
  return out;
}

/**
 * Merges neighbouring dimensions that every operand walks as one, and drops those of size 1. Returns the merged shape and one stride
 * list per operand. A scalar becomes shape [1]. Without elements the strides do not matter: each list is [0].
 */
export function collapse(
  shape: Shape,
  operands: readonly (readonly number[])[],
): { shape: number[]; strides: number[][] } {
  if (shape.includes(0)) return { shape: [0], strides: operands.map(() => [0]) };
  const outShape: number[] = [];
  const outStrides: number[][] = operands.map(() => []);
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 1) continue;
    const last = outShape.length - 1;
    const merges = last >= 0 && operands.every((s, o) => outStrides[o][last] === s[i] * shape[i]);
    if (merges) {
      outShape[last] *= shape[i];
      operands.forEach((s, o) => outStrides[o][last] = s[i]);
    } else {
      outShape.push(shape[i]);
      operands.forEach((s, o) => outStrides[o].push(s[i]));
    }
  }
  if (outShape.length === 0) return { shape: [1], strides: operands.map(() => [0]) };
  return { shape: outShape, strides: outStrides };
}

/** "(2, 3)", as error messages print shapes. */
export function formatShape(shape: Shape): string {
  return `(${shape.map((d) => typeof d === "number" ? d : kindOf(d)).join(", ")}${shape.length === 1 ? "," : ""})`;
}
