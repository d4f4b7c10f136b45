/**
 * Gradients with respect to a module's trained parameters, and modules that are recomputed instead of keeping their arrays.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import { Module, type ModuleTree } from "./module.ts";

/** Calls a function with arrays in the places of a module's trainable parameters, which are back in place afterwards. */
function withParameters<T>(module: Module, parameters: ModuleTree, fn: () => T): T {
  const own = module.trainableParameters();
  try {
    module.update(parameters);
    return fn();
  } finally {
    module.update(own);
  }
}

/**
 * A function that gives what `fn` gives and the gradients with respect to the trainable parameters of `model`, in their form. `fn`
 * returns a scalar array, or a list that begins with one. The model has its own arrays again afterwards, also if `fn` throws.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const model = new mx.nn.Linear(2, 1);
 * const loss = (x: mx.Tensor, y: mx.Tensor) => mx.nn.losses.mseLoss(model.forward(x), y);
 * const [value, grads] = mx.nn.valueAndGrad(model, loss)(mx.ones([4, 2]), mx.zeros([4, 1]));
 * mx.eval(value, grads);
 * grads.weight.shape; // [1, 2]
 * ```
 */
export function valueAndGrad<A extends unknown[], V>(
  model: Module,
  fn: (...args: A) => V,
): (...args: A) => [V, ModuleTree] {
  if (!(model instanceof Module)) {
    throw new mx.ValueError(`nn.valueAndGrad() expected a module: found ${typeof model}`);
  }
  const transformed = mx.valueAndGrad((parameters: ModuleTree, args: A): V =>
    withParameters(model, parameters, () => fn(...args))
  );
  return (...args) => transformed(model.trainableParameters(), args) as [V, ModuleTree];
}

/**
 * A function that computes what `module` does, or `fn` with it, whose intermediate results are not kept for derivatives but computed
 * again; see `mx.checkpoint`. Derivatives with respect to the module's trainable parameters pass through it.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.Linear(2, 2);
 * mx.nn.checkpoint(layer)(mx.ones([1, 2])).shape; // [1, 2]
 * ```
 */
export function checkpoint<
  M extends Module,
  A extends unknown[] = Parameters<M["forward"]>,
  R = ReturnType<M["forward"]>,
>(
  module: M,
  fn: (...args: A) => R = (...args) => module.forward(...args),
): (...args: A) => R {
  const checkpointed = mx.checkpoint((parameters: ModuleTree, ...args: A): R =>
    withParameters(module, parameters, () => fn(...args))
  );
  return (...args) => checkpointed(module.trainableParameters(), ...args);
}
