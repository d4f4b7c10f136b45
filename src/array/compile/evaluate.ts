/**
 * When lazy arrays become values.
 *
 * @module
 */

import { untilInterrupted } from "../../../ffi/notebook.ts";
import { realize, realizeAsync, realizeNow } from "../../schedule/realize.ts";
import { ValueError } from "../../graph/error.ts";
import { tensorsOf } from "../tensor/scope.ts";
import { nodeOf } from "../tensor/tensor.ts";
import { recording } from "../tensor/tape.ts";

/**
 * Evaluates arrays, also those inside arrays and objects, as one piece of work; on return their values are there. MLX's `eval`.
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
  realizeNow(tensorsOf(trees).map(nodeOf));
}

/**
 * Evaluates arrays: the work is submitted on return, and the promise resolves when their values are there. The event loop stays
 * alive meanwhile. An interrupt of the notebook's cell rejects it.
 */
export function asyncEval(...trees: readonly unknown[]): Promise<void> {
  if (recording()) {
    throw new ValueError("asyncEval() cannot be called in a function that is being transformed: use eval()");
  }
  return untilInterrupted(realizeAsync(tensorsOf(trees).map(nodeOf)));
}

/** Submits the evaluation of arrays. Reading them waits for it, and later work on the device runs after it. */
export function enqueue(...trees: readonly unknown[]): void {
  realize(tensorsOf(trees).map(nodeOf));
}
