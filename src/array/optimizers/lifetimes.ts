/**
 * Lifetimes of an optimizer's arrays: new parameters and state outlive the scopes around an update, and those that an update replaces
 * end with it. Arrays of the program, as the first parameters are, never do.
 *
 * @module
 */

import { isTracing } from "../compile/compile.ts";
import { isReplaceable, markReplaceable } from "../tensor/replaceable.ts";
import { scoped, tensorsOf } from "../tensor/scope.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { current, untrack } from "../tensor/tracking.ts";

/** Replaced arrays that wait until a model has got the new ones. */
let waiting: Set<Tensor> | undefined;

/** Lets arrays outlive the scopes around them, but for that of a function that is being traced. */
export function keep(tree: unknown): void {
  if (isTracing()) return;
  for (const array of tensorsOf(tree)) if (isReplaceable(array)) untrack(array);
}

/**
 * Runs `fn` and lets go what it made besides its result and the arrays in `state`, which is looked at when `fn` is done. State is kept,
 * the result belongs to the scope around.
 */
export function making<T>(state: () => unknown, fn: () => T): T {
  const { result, left } = scoped(() => {
    const result = fn(), left = state(), scope = current()!;
    for (const array of tensorsOf([result, left])) if (scope.made.has(array)) markReplaceable(array);
    return { result, left };
  });
  keep(left);
  return result;
}

/** Ends those of some arrays that an optimizer made, at once or when {@link afterwards} does. */
export function letGo(arrays: Iterable<unknown>): void {
  for (const array of arrays) {
    if (!isReplaceable(array)) continue;
    if (waiting) waiting.add(array);
    else array.dispose();
  }
}

/** Runs `fn`, and frees replaced arrays only when it is done. If it throws, the arrays stay. */
export function afterwards<T>(fn: () => T): T {
  if (waiting) return fn();
  const replaced = waiting = new Set();
  let result: T;
  try {
    result = fn();
  } finally {
    waiting = undefined;
  }
  for (const array of replaced) array.dispose();
  return result;
}
