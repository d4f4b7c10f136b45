/**
 * Lists and plain objects in the fields of modules.
 *
 * @module
 */

import { isBranch as isTreeBranch } from "../array/tensor/tree.ts";

/** A list or a plain object. */
export type Branch = Readonly<Record<string, unknown>>;

/** Whether a value is a list or a plain object. */
export function isBranch(value: unknown): value is Branch {
  return isTreeBranch(value);
}

/** Whether one of the leaves of a tree is of the wanted kind, or the tree is empty and may get some. A list of settings has none. */
export function holds(tree: Branch, wanted: (leaf: unknown) => boolean): boolean {
  const parts = Object.values(tree);
  return parts.length === 0 || parts.some((part) => isBranch(part) ? holds(part, wanted) : wanted(part));
}

/** A list or plain object of the same form with other parts. */
export function mapBranch(branch: Branch, map: (name: string, part: unknown) => unknown): unknown {
  const parts = Object.entries(branch).map(([name, part]) => [name, map(name, part)] as const);
  return Array.isArray(branch) ? parts.map(([, part]) => part) : Object.fromEntries(parts);
}

/** The leaves of a tree with the names of their places, joined by dots. */
export function namedLeaves(tree: unknown, prefix: string = ""): [name: string, leaf: unknown][] {
  if (!isBranch(tree)) return [[prefix, tree]];
  return Object.entries(tree).flatMap(([name, part]) => namedLeaves(part, prefix === "" ? name : `${prefix}.${name}`));
}

/** The kind of a value, for errors. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "a list";
  if (typeof value !== "object") return `a ${typeof value}`;
  return isBranch(value) ? "an object" : value.constructor.name;
}
