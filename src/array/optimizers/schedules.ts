/**
 * Schedules: functions from a step to a learning rate. They are made of arrays, so that a compiled step can hold them.
 *
 * @module
 */

import { float32 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import { add, floorDivide, less, minimum, multiply, power, subtract, where } from "../ops/binary.ts";
import { array } from "../ops/creation.ts";
import { astype } from "../ops/movement.ts";
import { scoped } from "../tensor/scope.ts";
import type { AnyTensor, TensorLike } from "../tensor/tensor.ts";
import { cos } from "../ops/unary.ts";

/** A value at a step, which counts from 0. */
// deno-lint-ignore no-explicit-any -- schedules of the program take the step as they like
export type Schedule = (step: any) => TensorLike;

/** A schedule of this library: takes a number or an array, gives a float32 array. */
export type ArraySchedule = (step: TensorLike) => AnyTensor;

/** A schedule whose function is given the step as an array. */
function scheduled(fn: (step: AnyTensor) => AnyTensor): ArraySchedule {
  return (step) => scoped(() => fn(array(step)));
}

function asFloat(x: AnyTensor): AnyTensor {
  return x.dtype.kind === "float" ? x : astype(x, float32);
}

function checkSteps(op: string, name: string, value: number): void {
  if (!(value >= 1)) throw new ValueError(`${op}() expected ${name} to be at least 1: found ${value}`);
}

/**
 * init · decayRate^step
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.optimizers.exponentialDecay(0.5, 0.5)(2).item(); // 0.125
 * ```
 */
export function exponentialDecay(init: number, decayRate: number): ArraySchedule {
  return scheduled((step) => multiply(power(decayRate, asFloat(step)), init));
}

/**
 * init · decayRate^⌊step / stepSize⌋. A stepSize below 1 is a ValueError.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.optimizers.stepDecay(0.5, 0.5, 10)(25).item(); // 0.125
 * ```
 */
export function stepDecay(init: number, decayRate: number, stepSize: number): ArraySchedule {
  checkSteps("stepDecay", "stepSize", stepSize);
  return scheduled((step) => multiply(power(decayRate, asFloat(floorDivide(step, stepSize))), init));
}

/**
 * From init to end along half a wave of the cosine, in decaySteps steps; end from then on. decaySteps below 1 are a ValueError.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const schedule = mx.optimizers.cosineDecay(1, 100, 0.5);
 * [0, 100, 200].map((step) => schedule(step).item()); // [1, 0.5, 0.5]
 * ```
 */
export function cosineDecay(init: number, decaySteps: number, end: number = 0): ArraySchedule {
  checkSteps("cosineDecay", "decaySteps", decaySteps);
  return scheduled((step) => {
    const angle = multiply(asFloat(minimum(step, decaySteps)), Math.PI / decaySteps);
    return add(multiply(multiply(add(cos(angle), 1), 0.5), init - end), end);
  });
}

/**
 * One schedule after another: that at i + 1 begins at step boundaries[i], and counts from there. Without a schedule, or with another number
 * of boundaries than one less, a ValueError.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { linearSchedule, cosineDecay, joinSchedules } = mx.optimizers;
 * const warmed = joinSchedules([linearSchedule(0, 1, 10), cosineDecay(1, 100)], [10]);
 * [5, 10, 110].map((step) => warmed(step).item()); // [0.5, 1, 0]
 * ```
 */
export function joinSchedules(schedules: readonly Schedule[], boundaries: readonly number[]): ArraySchedule {
  if (schedules.length === 0) throw new ValueError("joinSchedules() needs a schedule: found none");
  if (schedules.length !== boundaries.length + 1) {
    throw new ValueError(
      `joinSchedules() expected ${
        schedules.length - 1
      } boundaries for ${schedules.length} schedules: found ${boundaries.length}`,
    );
  }
  return scheduled((step) =>
    boundaries.reduce<AnyTensor>(
      (output, boundary, i) => where(less(step, boundary), output, array(schedules[i + 1](subtract(step, boundary)))),
      array(schedules[0](step)),
    )
  );
}

/**
 * From init to end in a straight line of `steps` steps; end from then on. Fewer steps than 1 are a ValueError.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.optimizers.linearSchedule(0, 1, 4)(3).item(); // 0.75
 * ```
 */
export function linearSchedule(init: number, end: number, steps: number): ArraySchedule {
  checkSteps("linearSchedule", "steps", steps);
  return scheduled((step) => add(multiply(asFloat(minimum(step, steps)), (end - init) / steps), init));
}
