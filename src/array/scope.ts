/**
 * Lifetimes: which Tensors go when a scope ends.
 *
 * Every Tensor reports to the innermost open scope of the code that makes it. `tidy()` opens one for users, `scoped()` one
 * for functions of this library that are written in terms of others, so that what lies between is let go at once and not
 * when the garbage collector finds it. Async context carries the scope over `await`, so concurrent tasks do not mix.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { Tensor } from "./tensor.ts";

interface Scope {
  readonly parent: Scope | undefined;
  readonly made: Set<Tensor>;
  open: boolean;
}

const context = new AsyncLocalStorage<Scope>();
let synchronous: Scope | undefined;

function current(): Scope | undefined {
  let scope = synchronous ?? context.getStore();
  while (scope && !scope.open) scope = scope.parent; // a task that outlives the tidy() it was started in
  return scope;
}

/** Notes a new Tensor in the innermost scope. */
export function track(tensor: Tensor): void {
  current()?.made.add(tensor);
}

/** Takes a Tensor out of the innermost scope: it was disposed, or somebody else keeps it. */
export function untrack(tensor: Tensor): void {
  current()?.made.delete(tensor);
}

/** Ends a scope: what the result reaches moves to the scope around it, the rest is disposed. */
function close(scope: Scope, result: unknown): void {
  scope.open = false;
  const keep = new Set(tensorsOf(result));
  const outer = current();
  for (const tensor of scope.made) {
    if (!keep.has(tensor)) tensor.dispose();
    else outer?.made.add(tensor);
  }
}

/** Runs a synchronous function; Tensors it makes go at the end, those its result reaches stay. */
export function scoped<T>(fn: () => T): T {
  const outer = synchronous;
  const scope: Scope = { parent: current(), made: new Set(), open: true };
  synchronous = scope;
  let result: T | undefined;
  try {
    return result = fn();
  } finally {
    synchronous = outer;
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
  const scope: Scope = { parent: current(), made: new Set(), open: true };
  const outer = synchronous;
  synchronous = undefined;
  let result: T;
  try {
    result = context.run(scope, fn);
  } catch (error) {
    close(scope, undefined);
    throw error;
  } finally {
    synchronous = outer;
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
  const found = new Set<Tensor>();
  collect(tree, found, new Set());
  return [...found];
}

function collect(value: unknown, found: Set<Tensor>, seen: Set<object>): void {
  if (value instanceof Tensor) {
    found.add(value);
  } else if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value) && !seen.has(value)) {
    seen.add(value);
    const parts = Array.isArray(value) || value instanceof Set
      ? value
      : value instanceof Map
      ? value.values()
      : Object.values(value);
    for (const part of parts) collect(part, found, seen);
  }
}
