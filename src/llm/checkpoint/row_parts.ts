/**
 * Matrices that are larger than an array may be: they are loaded as several arrays, each with some of their rows.
 *
 * Kernels count elements in 31 bits, and a device has a largest buffer. The vectors of tokens that Gemma 4 E2B adds in its layers are
 * 2.3 billion numbers, 4.7 GB in 16 bits. A table of vectors works in parts, as a token needs one row. Other matrices are refused.
 *
 * @module
 */

import { MAX_SIZE } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";

/** The largest array. */
export interface ArrayLimits {
  readonly elements: number;
  readonly bytes: number;
}

/** That of any device. */
const ANY_DEVICE: ArrayLimits = { elements: MAX_SIZE, bytes: Infinity };

/** The largest array of a device whose buffers have so many bytes. */
export function arrayLimits(maxBufferBytes: number): ArrayLimits {
  return { elements: MAX_SIZE, bytes: maxBufferBytes };
}

/** An array that is not read: its shape, and bytes of an element. */
interface Sized {
  readonly shape: readonly number[];
  readonly elementBytes: number;
}

/** Rows of a part are a multiple of this, as tiles of matrices have. */
const TILE = 16;

/** The rows of each part of an array; undefined for one that may be whole, or of which one row is too large. */
export function partRows({ shape, elementBytes }: Sized, most: ArrayLimits = ANY_DEVICE): number | undefined {
  const [count, ...rest] = shape;
  const row = sizeOf(rest);
  const rows = Math.floor(Math.min(most.elements, most.bytes / elementBytes) / row);
  if (shape.length === 0 || rows >= count || rows === 0) return undefined;
  const tile = rows < TILE ? 1 : TILE;
  const parts = Math.ceil(count / (Math.floor(rows / tile) * tile));
  return Math.ceil(count / parts / tile) * tile;
}

/** The first row and the number of rows of each part. */
export function partsOfRows(count: number, rows: number): { readonly first: number; readonly rows: number }[] {
  const parts = Math.ceil(count / rows);
  return Array.from({ length: parts }, (_, i) => ({ first: i * rows, rows: Math.min(rows, count - i * rows) }));
}

/** The path of a module's part. */
export function partPath(path: string, part: number): string {
  return `${path}.parts.${part}`;
}

const PART = /^(.*)\.parts\.\d+((?:\.(?:weight|scales|biases))?)$/;

/** The name of the whole that an array is a part of; undefined for one that is no part. */
export function wholeName(name: string): string | undefined {
  const [, path, end] = PART.exec(name) ?? [];
  return path === undefined ? undefined : path + end;
}

/** The name of a stored array's part. */
export function partName(name: string, part: number): string {
  const { path, end } = splitName(name);
  return partPath(path, part) + end;
}

const ENDS = /\.(?:weight|scales|biases)$/;

/** The path of the module of a stored array, and the rest of its name. */
export function splitName(name: string): { readonly path: string; readonly end: string } {
  const [end = ""] = ENDS.exec(name) ?? [];
  return { path: name.slice(0, name.length - end.length), end };
}
