/**
 * Initialisers: functions that draw an array of the shape of another.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Dtype, Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { formatShape } from "../graph/shape.ts";

const { ShapeError, ValueError } = mx;

/** Draws an array of the shape of another. */
export type Initializer = (a: Tensor) => Tensor;
/** Draws an array of the shape of another; `gain` multiplies it. */
export type GainInitializer = (a: Tensor, gain?: number) => Tensor;
/** The base of the scale: fan-in or fan-out. */
export type FanMode = "fanIn" | "fanOut";
/** Draws an array of the shape of another, scaled by one of its fans; `gain` multiplies it. */
export type FanInitializer = (a: Tensor, mode?: FanMode, gain?: number) => Tensor;

/** One value everywhere. */
export function constant(value: number, dtype: Dtype = mx.float32): Initializer {
  return (a) => mx.full(a.shape, value, dtype);
}

/**
 * Normally distributed numbers.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const model = new mx.nn.Linear(4, 4);
 * model.apply(mx.nn.init.normal(0, 0.02));
 * ```
 */
export function normal(mean: number = 0, std: number = 1, dtype: Dtype = mx.float32): Initializer {
  return (a) => mx.random.normal(a.shape, dtype, mean, std);
}

/** Numbers evenly distributed between two. */
export function uniform(low: number = 0, high: number = 1, dtype: Dtype = mx.float32): Initializer {
  return (a) => mx.random.uniform(low, high, a.shape, dtype);
}

/** The identity, of square matrices. */
export function identity(dtype: Dtype = mx.float32): Initializer {
  return (a) => {
    const { shape } = a;
    if (shape.length !== 2 || shape[0] !== shape[1]) {
      throw new ShapeError(`identity() expected a square matrix: found shape ${formatShape(shape)}`);
    }
    return mx.eye(shape[0], null, 0, dtype);
  };
}

/** Elements that go into an output of a weight (out, …kernel, in), and that come from an input. */
function fansOf(op: string, a: Tensor): Readonly<Record<FanMode, number>> {
  const { shape } = a;
  if (shape.length < 2) throw new ShapeError(`${op}() expected at least 2 axes: found shape ${formatShape(shape)}`);
  const field = shape.slice(1, -1).reduce((product, size) => product * size, 1);
  return { fanIn: shape[shape.length - 1] * field, fanOut: shape[0] * field };
}

/** Normally distributed with variance 2 / (fanIn + fanOut). */
export function glorotNormal(dtype: Dtype = mx.float32): GainInitializer {
  return (a, gain = 1) => {
    const { fanIn, fanOut } = fansOf("glorotNormal", a);
    return mx.random.normal(a.shape, dtype, null, gain * Math.sqrt(2 / (fanIn + fanOut)));
  };
}

/** Evenly distributed with variance 2 / (fanIn + fanOut). */
export function glorotUniform(dtype: Dtype = mx.float32): GainInitializer {
  return (a, gain = 1) => {
    const { fanIn, fanOut } = fansOf("glorotUniform", a);
    const limit = gain * Math.sqrt(6 / (fanIn + fanOut));
    return mx.random.uniform(-limit, limit, a.shape, dtype);
  };
}

function fanOf(op: string, a: Tensor, mode: FanMode): number {
  const fans = fansOf(op, a);
  if (Object.hasOwn(fans, mode)) return fans[mode];
  throw new ValueError(`${op}() expected mode to be fanIn or fanOut: found ${mode}`);
}

/** Normally distributed with variance 1 / fan. */
export function heNormal(dtype: Dtype = mx.float32): FanInitializer {
  return (a, mode = "fanIn", gain = 1) =>
    mx.random.normal(a.shape, dtype, null, gain / Math.sqrt(fanOf("heNormal", a, mode)));
}

/** Evenly distributed with variance 1 / fan. */
export function heUniform(dtype: Dtype = mx.float32): FanInitializer {
  return (a, mode = "fanIn", gain = 1) => {
    const limit = gain * Math.sqrt(3 / fanOf("heUniform", a, mode));
    return mx.random.uniform(-limit, limit, a.shape, dtype);
  };
}

/** Normally distributed with a part `sparsity` of each row 0, of matrices. */
export function sparse(sparsity: number, mean: number = 0, std: number = 1, dtype: Dtype = mx.float32): Initializer {
  return (a) => {
    const { shape } = a;
    if (shape.length !== 2) throw new ShapeError(`sparse() expected a matrix: found shape ${formatShape(shape)}`);
    return scoped((): Tensor => {
      const order = mx.argsort(mx.random.uniform(0, 1, shape), 1);
      const zeros = order.index(mx.Slice(), mx.Slice(0, Math.ceil(sparsity * shape[1])));
      const drawn = mx.random.normal(shape, dtype, mean, std);
      return mx.putAlongAxis(drawn, zeros, mx.zeros(zeros.shape, dtype), 1);
    });
  };
}

/** Orthogonal rows or columns, of matrices. */
export function orthogonal(gain: number = 1, dtype: Dtype = mx.float32): Initializer {
  return (a) => {
    const { shape } = a;
    if (shape.length !== 2) throw new ShapeError(`orthogonal() expected a matrix: found shape ${formatShape(shape)}`);
    return scoped((): Tensor => {
      const most = Math.max(...shape);
      const [q, r] = mx.linalg.qr(mx.random.normal([most, most]));
      const signed = mx.multiply(q, mx.sign(mx.diag(r)));
      return mx.multiply(signed.index(mx.Slice(0, shape[0]), mx.Slice(0, shape[1])), gain).astype(dtype);
    });
  };
}
