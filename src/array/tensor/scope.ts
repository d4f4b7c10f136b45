/**
 * Lifetimes: which Tensors go when a scope ends.
 *
 * Every Tensor reports to the innermost open scope of the code that makes it. `tidy()` opens one for users. `scoped()` opens one for
 * functions of this library that are written in terms of others. Their intermediate Tensors then go at once, not at a garbage
 * collection. Async context carries the scope over `await`, so concurrent tasks do not mix.
 *
 * @module
 */

import { inNameOf } from "../../graph/error.ts";
import { Tensor } from "./tensor.ts";
import { current, openScope, runAsyncIn, runIn, type Scope } from "./tracking.ts";

/** Ends a scope: Tensors that the result reaches move to the scope around it, the rest is disposed. */
function close(scope: Scope, result: unknown): void {
  scope.open = false;
  const keep = new Set<Disposable>(tensorsOf(result));
  const outer = current();
  for (const tensor of scope.made) {
    if (!keep.has(tensor)) tensor[Symbol.dispose]();
    else outer?.made.add(tensor);
  }
}

/**
 * Runs a synchronous function; Tensors it makes go at the end, those its result reaches stay. With the name of a public function before
 * it, errors of inner functions are in that name: a caller of `clip()` knows of no `maximum()`.
 */
export function scoped<T>(fn: () => T): T;
export function scoped<T>(op: string, fn: () => T): T;
export function scoped<T>(...[first, second]: [() => T] | [string, () => T]): T {
  const [op, fn] = typeof first === "string" ? [first, second!] : [undefined, first];
  const scope = openScope();
  let result: T | undefined;
  try {
    return result = runIn(scope, fn);
  } catch (error) {
    throw op === undefined ? error : inNameOf(op, error);
  } finally {
    close(scope, result);
  }
}

/**
 * Runs `fn` and disposes every array made inside, except those that its result reaches (also inside arrays and objects).
 * With an async function the arrays go when its promise settles.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const norm = mx.tidy(() => mx.sqrt(mx.sum(mx.square(mx.array([3, 4])))));
 * norm.item(); // 5
 * ```
 */
export function tidy<T>(fn: () => T): T {
  const scope = openScope();
  let result: T;
  try {
    result = runAsyncIn(scope, fn);
  } catch (error) {
    close(scope, undefined);
    throw error;
  }
  if (!(result instanceof Promise)) {
    close(scope, result);
    return result;
  }
  const settled = result.then((value) => {
    close(scope, value);
    return value;
  }, (error) => {
    close(scope, undefined);
    throw error;
  });
  return settled as T;
}

/**
 * Disposes arrays, also those inside arrays and objects. Disposing twice is harmless.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const weights = { a: mx.ones([2]), b: [mx.zeros([3])] };
 * mx.dispose(weights);
 * ```
 */
export function dispose(...trees: readonly unknown[]): void {
  for (const tensor of tensorsOf(trees)) tensor.dispose();
}

/** All Tensors that a value reaches through arrays, maps, sets and object properties. */
export function tensorsOf(tree: unknown): Tensor[] {
  return [...reach(tree).found];
}

/** The same, and the objects on the way to them. */
export function reach(tree: unknown): { readonly found: ReadonlySet<Tensor>; readonly seen: ReadonlySet<object> } {
  const found = new Set<Tensor>(), seen = new Set<object>();
  collect(tree, found, seen);
  return { found, seen };
}

function collect(value: unknown, found: Set<Tensor>, seen: Set<object>): void {
  if (value instanceof Tensor) {
    found.add(value);
  } else if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value) && !seen.has(value)) {
    seen.add(value);
    for (const part of valuesIn(value)) collect(part, found, seen);
  }
}

/** The values of an object that may reach Tensors. */
export function valuesIn(value: object): readonly unknown[] {
  if (Array.isArray(value)) return value;
  return value instanceof Map || value instanceof Set ? [...value.values()] : Object.values(value);
}
