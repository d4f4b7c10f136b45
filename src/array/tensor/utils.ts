/**
 * `mlx.utils`: functions of trees, which are lists and plain objects, one inside of the other, of leaves of any kind.
 *
 * A path names a leaf by the keys and positions that lead to it, with dots between: `layers.0.weight`.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- leaves of any kind

import { quoted, ValueError } from "../../graph/error.ts";
import type { Tensor } from "./tensor.ts";
import type { IsAny } from "./types.ts";
import { isBranch } from "./tree.ts";

/** Says whether a part of a tree is a leaf, though it is a list or an object. */
export type IsLeaf = (part: unknown) => boolean;

/** A tree of the form of T whose leaves are R. */
export type TreeOf<T, R> = IsAny<T> extends true ? any
  : unknown extends T ? unknown
  : T extends Tensor | ArrayBufferView | ((...args: any[]) => unknown) ? R
  : T extends object ? { -readonly [K in keyof T]: TreeOf<T[K], R> }
  : R;

/** The types of the leaves of a tree: an array of which no more is known for each array. */
export type LeafOf<T> = IsAny<T> extends true ? any
  : T extends Tensor ? Tensor
  // deno-lint-ignore ban-types -- functions of any arguments
  : T extends ArrayBufferView | Function ? T
  : T extends readonly (infer E)[] ? LeafOf<E>
  : T extends object ? LeafOf<T[keyof T]>
  : T;

/** A leaf with its path. */
export type Named<V = any> = [path: string, leaf: V];

/** Positions in lists that paths may name; beyond, a name of a file would have a list of any size made. */
const MAX_PARTS = 1 << 24;

type Branch = readonly unknown[] | Readonly<Record<string, unknown>>;

/** A part of another tree that must be there too. */
function branchAt(op: string, tree: unknown, key: string, path: string): unknown {
  if (isBranch(tree) && Object.hasOwn(tree, key)) return (tree as Record<string, unknown>)[key];
  throw new ValueError(
    `${op}() expected every tree to have the parts of the first: ${quoted(path)} is missing in another`,
  );
}

function join(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

/** A branch with other parts. */
function rebuilt(tree: Branch, part: (value: unknown, key: string) => unknown): unknown {
  return Array.isArray(tree)
    ? tree.map((value, i) => part(value, String(i)))
    : Object.fromEntries(Object.entries(tree).map(([key, value]) => [key, part(value, key)]));
}

function map(
  op: string,
  fn: (path: string, leaf: unknown, ...rest: unknown[]) => unknown,
  tree: unknown,
  rest: readonly unknown[],
  isLeaf: IsLeaf | null,
  path: string,
): unknown {
  if (isLeaf?.(tree) || !isBranch(tree)) return fn(path, tree, ...rest);
  return rebuilt(tree, (value, key) => {
    const name = join(path, key);
    return map(op, fn, value, rest.map((other) => branchAt(op, other, key, name)), isLeaf, name);
  });
}

/**
 * A tree of the same form with what `fn` gives for each leaf. The leaves at the same places of the trees in `rest`, which may have more
 * parts, are further arguments. MLX's `tree_map`. A tree of `rest` that lacks a part is a ValueError.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.utils.treeMap((x: number) => x + 1, { a: 1, b: [2, 3] }); // { a: 2, b: [3, 4] }
 * mx.utils.treeMap((x: number, y: number) => x * y, [1, 2], [[3, 4]]); // [3, 8]
 * ```
 */
export function treeMap<T, R>(
  fn: (leaf: LeafOf<T>, ...rest: any[]) => R,
  tree: T,
  rest?: readonly unknown[],
  isLeaf?: null,
): TreeOf<T, R>;
/** With a function of leaves that types do not tell. */
export function treeMap<T, R>(
  fn: (leaf: any, ...rest: any[]) => R,
  tree: T,
  rest?: readonly unknown[],
  isLeaf?: null,
): TreeOf<T, R>;
/** With leaves that are lists or objects, which types do not tell. */
export function treeMap<R>(
  fn: (leaf: any, ...rest: any[]) => R,
  tree: unknown,
  rest?: readonly unknown[],
  isLeaf?: IsLeaf | null,
): unknown;
export function treeMap(
  fn: (leaf: any, ...rest: any[]) => unknown,
  tree: unknown,
  rest: readonly unknown[] = [],
  isLeaf: IsLeaf | null = null,
): unknown {
  return map("treeMap", (_, leaf, ...others) => fn(leaf, ...others), tree, rest, isLeaf, "");
}

/**
 * {@link treeMap} whose function also takes the path of the leaf, as first argument. Paths get `path` as a prefix. MLX's
 * `tree_map_with_path`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.utils.treeMapWithPath((path) => path, { layers: [{ w: 0 }, { w: 0 }] }); // { layers: [{ w: "layers.0.w" }, { w: "layers.1.w" }] }
 * ```
 */
export function treeMapWithPath<T, R>(
  fn: (path: string, leaf: LeafOf<T>, ...rest: any[]) => R,
  tree: T,
  rest?: readonly unknown[],
  isLeaf?: null,
  path?: string,
): TreeOf<T, R>;
/** With a function of leaves that types do not tell. */
export function treeMapWithPath<T, R>(
  fn: (path: string, leaf: any, ...rest: any[]) => R,
  tree: T,
  rest?: readonly unknown[],
  isLeaf?: null,
  path?: string,
): TreeOf<T, R>;
/** With leaves that are lists or objects, which types do not tell. */
export function treeMapWithPath<R>(
  fn: (path: string, leaf: any, ...rest: any[]) => R,
  tree: unknown,
  rest?: readonly unknown[],
  isLeaf?: IsLeaf | null,
  path?: string,
): unknown;
export function treeMapWithPath(
  fn: (path: string, leaf: any, ...rest: any[]) => unknown,
  tree: unknown,
  rest: readonly unknown[] = [],
  isLeaf: IsLeaf | null = null,
  path: string = "",
): unknown {
  return map("treeMapWithPath", fn, tree, rest, isLeaf, path);
}

/**
 * The leaves of a tree with their paths, in order: a list of pairs. They are added to `destination`, a list or an object, if it is given.
 * The first character of `prefix` is left out, as in MLX. MLX's `tree_flatten`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.utils.treeFlatten({ a: { b: 1 }, c: [2, 3] }); // [["a.b", 1], ["c.0", 2], ["c.1", 3]]
 * mx.utils.treeFlatten({ a: { b: 1 } }, "", null, {}); // { "a.b": 1 }
 * ```
 */
export function treeFlatten<T, D extends Named[] | Record<string, unknown> = Named<LeafOf<T>>[]>(
  tree: T,
  prefix: string = "",
  isLeaf: IsLeaf | null = null,
  destination?: D,
): D {
  const found: Named[] | Record<string, unknown> = destination ?? [];
  if (!isBranch(found)) throw new ValueError("treeFlatten() expected destination to be a list or a plain object");
  const walk = (part: unknown, path: string): void => {
    if (!isLeaf?.(part) && isBranch(part)) {
      for (const [key, value] of Object.entries(part)) walk(value, `${path}.${key}`);
    } else if (Array.isArray(found)) found.push([path.slice(1), part]);
    else {Object.defineProperty(found, path.slice(1), {
        value: part,
        writable: true,
        enumerable: true,
        configurable: true,
      });}
  };
  walk(tree, prefix);
  return found as D;
}

/**
 * The tree of leaves with paths, as {@link treeFlatten} gives them. Where all names of a level are whole numbers it is a list, whose gaps
 * are empty objects. MLX's `tree_unflatten`. Two leaves of one path are a ValueError.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.utils.treeUnflatten([["hello.world", 42]]); // { hello: { world: 42 } }
 * mx.utils.treeUnflatten({ "a.0": 1, "a.1": 2 }); // { a: [1, 2] }
 * ```
 */
export function treeUnflatten(
  tree: readonly (readonly [string, unknown])[] | Readonly<Record<string, unknown>>,
): any {
  const items = Array.isArray(tree) ? tree as readonly (readonly [string, unknown])[] : Object.entries(tree);
  if (items.length === 1 && items[0][0] === "") return items[0][1];
  const names = new Set<string>();
  for (const [path] of items) {
    if (names.has(path)) throw new ValueError(`treeUnflatten() found ${quoted(path)} twice`);
    names.add(path);
  }
  return unflatten(items);
}

function unflatten(items: readonly (readonly [string, unknown])[]): unknown {
  if (items.length === 1 && items[0][0] === "") return items[0][1];
  const children = new Map<string, [string, unknown][]>();
  for (const [path, value] of items) {
    const dot = path.indexOf(".");
    const key = dot < 0 ? path : path.slice(0, dot), rest = dot < 0 ? "" : path.slice(dot + 1);
    if (path === "" && items.length > 1) {
      throw new ValueError("treeUnflatten() found a path that ends where another goes on");
    }
    children.set(key, [...children.get(key) ?? [], [rest, value]]);
  }
  const numbers = [...children.keys()].map((key) => /^\d+$/.test(key) ? Number(key) : NaN);
  const isList = !numbers.some(Number.isNaN) && new Set(numbers).size === numbers.length;
  if (!isList) return Object.fromEntries([...children].map(([key, parts]) => [key, unflatten(parts)]));
  const length = Math.max(-1, ...numbers) + 1;
  if (length > MAX_PARTS) {
    throw new ValueError(`treeUnflatten() makes lists of up to ${MAX_PARTS} parts: found position ${length - 1}`);
  }
  const list: unknown[] = Array.from({ length }, () => ({}));
  [...children.values()].forEach((parts, i) => list[numbers[i]] = unflatten(parts));
  return list;
}

/**
 * Folds all leaves with `fn`, one after another: of `initializer` and the first leaf, then of that and the next. Without an
 * initializer the first leaf begins. MLX's `tree_reduce`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.utils.treeReduce((sum: number, x: number) => sum + x, { a: [1, 2, 3], b: [4, 5] }, 0); // 15
 * ```
 */
export function treeReduce<T, A>(
  fn: (accumulated: A, leaf: LeafOf<T>) => A,
  tree: T,
  initializer?: A | null,
  isLeaf?: null,
): A;
/** With leaves that are lists or objects, which types do not tell. */
export function treeReduce<A>(
  fn: (accumulated: any, leaf: any) => A,
  tree: unknown,
  initializer?: A | null,
  isLeaf?: IsLeaf | null,
): A;
export function treeReduce<A>(
  fn: (accumulated: any, leaf: any) => A,
  tree: unknown,
  initializer?: A | null,
  isLeaf: IsLeaf | null = null,
): A {
  const leaves = treeFlatten(tree, "", isLeaf).map(([, leaf]) => leaf);
  return leaves.reduce(
    (accumulated, leaf) => accumulated === null || accumulated === undefined ? leaf : fn(accumulated, leaf),
    initializer as unknown,
  ) as A;
}

function isEmpty(tree: unknown): boolean {
  return isBranch(tree) && Object.keys(tree).length === 0;
}

/**
 * The parts of two trees in one. An empty list or object is as if it were missing. Leaves that are in both are what `mergeFn` makes of
 * them; without it they are a ValueError. MLX's `tree_merge`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.utils.treeMerge({ a: 1, b: { c: 2 } }, { b: { d: 3 } }); // { a: 1, b: { c: 2, d: 3 } }
 * mx.utils.treeMerge([1, 2], [3, 4], (a: number, b: number) => a + b); // [4, 6]
 * ```
 */
export function treeMerge<A, B>(treeA: A, treeB: B, mergeFn?: null): A & B;
/** With leaves that are made of two. */
export function treeMerge(treeA: unknown, treeB: unknown, mergeFn: ((a: any, b: any) => unknown) | null): any;
export function treeMerge(
  treeA: unknown,
  treeB: unknown,
  mergeFn: ((a: any, b: any) => unknown) | null = null,
): unknown {
  if (isEmpty(treeA) && isEmpty(treeB)) {
    if (Array.isArray(treeA) !== Array.isArray(treeB)) {
      throw new ValueError("treeMerge() cannot merge an empty list and an empty object");
    }
    return Array.isArray(treeA) ? [] : {};
  }
  const a = isEmpty(treeA) ? undefined : treeA, b = isEmpty(treeB) ? undefined : treeB;
  if (a === null || a === undefined) return b;
  if (b === null || b === undefined) return a;
  if (isBranch(a) && isBranch(b) && Array.isArray(a) === Array.isArray(b)) {
    const part = (tree: Branch, key: string): unknown =>
      Object.hasOwn(tree, key) ? (tree as Record<string, unknown>)[key] : undefined;
    const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])];
    const merged = keys.map((key) => [key, treeMerge(part(a, key), part(b, key), mergeFn)] as const);
    return Array.isArray(a) ? merged.map(([, value]) => value) : Object.fromEntries(merged);
  }
  if (!mergeFn) {
    throw new ValueError(
      "treeMerge() found leaves at the same place of both trees: give a mergeFn that makes one of them",
    );
  }
  return mergeFn(a, b);
}
