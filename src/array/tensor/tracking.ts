/**
 * Which scope a new array belongs to: the innermost open one of the code that makes it. scope.ts opens and ends scopes.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";

/** Arrays that go together. */
export interface Scope {
  readonly parent: Scope | undefined;
  readonly made: Set<Disposable>;
  open: boolean;
}

const context = new AsyncLocalStorage<Scope>();
let synchronous: Scope | undefined;

/** The innermost open scope. */
export function current(): Scope | undefined {
  let scope = synchronous ?? context.getStore();
  while (scope && !scope.open) scope = scope.parent; // a task that outlives the tidy() it was started in
  return scope;
}

/** A scope inside the innermost one. */
export function openScope(): Scope {
  return { parent: current(), made: new Set(), open: true };
}

/** Runs a synchronous function whose arrays belong to `scope`, or to that of its async context without one. */
export function runIn<T>(scope: Scope | undefined, fn: () => T): T {
  const outer = synchronous;
  synchronous = scope;
  try {
    return fn();
  } finally {
    synchronous = outer;
  }
}

/** Runs a function whose arrays belong to `scope`, also those that it makes after an `await`. */
export function runAsyncIn<T>(scope: Scope, fn: () => T): T {
  return runIn(undefined, () => context.run(scope, fn));
}

/** Notes a new array in the innermost scope. */
export function track(array: Disposable): void {
  current()?.made.add(array);
}

/** Takes an array out of the innermost scope: it was disposed, or another owner keeps it. */
export function untrack(array: Disposable): void {
  current()?.made.delete(array);
}
