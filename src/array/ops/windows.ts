/**
 * Window functions: `m` symmetric weights in float32, of which the first and the last are alike.
 *
 * @module
 */

import { add, multiply, subtract } from "./binary.ts";
import { arange, ones, zeros } from "./creation.ts";
import { toInteger } from "../tensor/convert.ts";
import { scoped } from "../tensor/scope.ts";
import type { AnyTensor, Tensor } from "../tensor/tensor.ts";
import { float32 } from "../../graph/dtype.ts";
import { abs, cos, sin, square } from "./unary.ts";

/** A window of m weights: those of `weigh` at 0 … `end`, evenly spaced. Of one weight it is 1, of fewer it has none. */
function window(op: string, m: number, end: number, weigh: (at: Tensor) => AnyTensor): Tensor<"float32", 1> {
  if (toInteger(op, "m", m) < 1) return zeros([0]);
  if (m === 1) return ones([1]);
  return scoped(op, (): AnyTensor => weigh(multiply(arange(0, m, 1, float32), end / (m - 1))));
}

/** Bartlett's window: a triangle that begins and ends at 0. */
export function bartlett(m: number): Tensor<"float32", 1> {
  return window("bartlett", m, 2, (x) => subtract(1, abs(subtract(x, 1))));
}

/**
 * The Hann window: a raised cosine that begins and ends at 0.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.round(mx.hanning(5), 3).tolist(); // [0, 0.5, 1, 0.5, 0]
 * ```
 */
export function hanning(m: number): Tensor<"float32", 1> {
  return window("hanning", m, Math.PI, (x) => square(sin(x)));
}

/** Hamming's window: 0.54 - 0.46 cos(2πi / (m - 1)). */
export function hamming(m: number): Tensor<"float32", 1> {
  return window("hamming", m, 2 * Math.PI, (x) => subtract(0.54, multiply(0.46, cos(x))));
}

/** Blackman's window: 0.42 - 0.5 cos(2πi / (m - 1)) + 0.08 cos(4πi / (m - 1)). */
export function blackman(m: number): Tensor<"float32", 1> {
  return window("blackman", m, 2 * Math.PI, (x) => {
    const slow = multiply(0.5, cos(x));
    return add(subtract(0.42, slow), multiply(0.08, cos(multiply(x, 2))));
  });
}
