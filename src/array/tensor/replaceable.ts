/**
 * Arrays that end where another takes their place: parameters and state that an optimizer made, also in a compiled function.
 *
 * @module
 */

import type { Tensor } from "./tensor.ts";

const marked = new WeakSet<object>();

/** Says that an array ends when it is replaced. */
export function markReplaceable(array: Tensor): void {
  marked.add(array);
}

/** Whether a value is an array that ends when it is replaced. */
export function isReplaceable(value: unknown): value is Tensor {
  return typeof value === "object" && value !== null && marked.has(value);
}
