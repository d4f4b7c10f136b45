/**
 * Trees: lists, plain objects and maps of arrays, as functions that are transformed take and give them.
 *
 * Leaves are identified by their places, not by their values: the same array in two places is two leaves.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import { Tensor } from "./tensor.ts";

/** Whether a value is a list or an object whose parts belong to the tree. */
export function isBranch(value: unknown): value is readonly unknown[] | Readonly<Record<string, unknown>> {
  if (Array.isArray(value)) return true;
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** The leaves of a tree, in order: all that is no list and no plain object. */
export function leavesOf(tree: unknown): unknown[] {
  if (!isBranch(tree)) return [tree];
  return (Array.isArray(tree) ? tree : Object.values(tree)).flatMap(leavesOf);
}

/** The arrays among the leaves of a tree, in order; one that stands in two places is there twice. */
export function arraysOf(tree: unknown): Tensor[] {
  return leavesOf(tree).filter((leaf) => leaf instanceof Tensor);
}

/** A tree of the same form with other leaves. */
export function mapLeaves(tree: unknown, fn: (leaf: unknown) => unknown): unknown {
  if (Array.isArray(tree)) return tree.map((part) => mapLeaves(part, fn));
  if (!isBranch(tree)) return fn(tree);
  return Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, mapLeaves(part, fn)]));
}

/** A tree of the same form with other arrays, in the order of {@link arraysOf}; all other values stay. */
export function withArrays(tree: unknown, arrays: readonly unknown[]): unknown {
  let at = 0;
  return mapLeaves(tree, (leaf) => leaf instanceof Tensor ? arrays[at++] : leaf);
}

/** Throws in the name of `op` if a leaf of an argument is neither an array nor missing. */
export function checkArrays(op: string, what: string, tree: unknown): void {
  for (const leaf of leavesOf(tree)) {
    if (leaf instanceof Tensor || leaf === null || leaf === undefined) continue;
    const found = typeof leaf === "object" ? leaf.constructor?.name ?? "an object" : typeof leaf;
    throw new ValueError(`${op}() expected ${what} to be arrays, or lists and plain objects of arrays: found ${found}`);
  }
}
