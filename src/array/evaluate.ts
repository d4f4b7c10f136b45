/**
 * When lazy arrays become values.
 *
 * @module
 */

import { realize, realizeAsync } from "../schedule/realize.ts";
import { tensorsOf } from "./scope.ts";
import { nodeOf } from "./tensor.ts";

/**
 * Evaluates arrays, also those inside arrays and objects, as one piece of work. MLX's `eval`. Work is submitted when it
 * returns; reading values waits for it.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const y = mx.exp(mx.ones([2]));
 * mx.eval(y);
 * y.tolist(); // [2.7182817459106445, 2.7182817459106445]
 * ```
 */
export function evaluate(...trees: readonly unknown[]): void {
  realize(tensorsOf(trees).map(nodeOf));
}

/** Evaluates arrays; the promise resolves when their values are there. The event loop stays alive meanwhile. */
export function asyncEval(...trees: readonly unknown[]): Promise<void> {
  return realizeAsync(tensorsOf(trees).map(nodeOf));
}
