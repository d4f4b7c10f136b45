/**
 * Transforms of functions: gradients, batches, and functions with rules of their own.
 *
 * @module
 */

export {
  type AnyFunction,
  type Argnums,
  grad,
  type GradientOf,
  type GradientsOf,
  jvp,
  valueAndGrad,
  vjp,
} from "./grad.ts";
export { type Axes, type AxesOf, type Batched, type BatchedArguments, vmap } from "./vmap.ts";
export { checkpoint, type CustomFunction, customFunction, stopGradient } from "./custom.ts";
