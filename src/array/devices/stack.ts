/**
 * Arrays of one shape as one, for the state of loops. Otherwise each layer's buffer is made, checked and bound by itself whenever a loop
 * begins.
 *
 * @module
 */

import { Tensor } from "../tensor/tensor.ts";

/** Arrays that lie in one along its first axis. In the state of a {@link DeviceLoop} they count as one; the step sees them one by one. */
export class StackedTensors {
  /** The array that holds them, or in the step of a loop they themselves. */
  readonly arrays: Tensor | readonly Tensor[];

  /** For an array (n, …) of n parts, or for the parts. */
  constructor(arrays: Tensor | readonly Tensor[]) {
    this.arrays = arrays;
  }
}

/** Arrays one by one, in the step of a loop also those of stacks. */
export function unstacked(arrays: readonly (Tensor | StackedTensors)[]): Tensor[] {
  return arrays.flatMap((array) => {
    if (array instanceof Tensor) return array;
    if (array.arrays instanceof Tensor) throw new Error("only the step of a loop sees the arrays of a stack");
    return array.arrays;
  });
}
