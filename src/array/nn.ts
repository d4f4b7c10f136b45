/**
 * Activations of `mlx.nn`, composed of elementwise functions.
 *
 * @module
 */

import { add, divide, greater, logaddexp, maximum, multiply, subtract, where } from "./binary.ts";
import type { TensorLike } from "./convert.ts";
import { toFloat } from "./elementwise.ts";
import { logsumexp, max } from "./reduce.ts";
import { scoped } from "./scope.ts";
import type { AnyTensor, Axis } from "./tensor.ts";
import { erf, expm1, negative, sigmoid, square, tanh } from "./unary.ts";
import type { Arithmetic, Floating } from "./results.ts";

/** max(a, 0) */
export function relu<A extends TensorLike>(a: A): Arithmetic<A, 0> {
  return maximum(a, 0);
}

/** a where it is positive, `negativeSlope` * a elsewhere. */
export function leakyRelu<A extends TensorLike>(a: A, negativeSlope: number = 0.01): Floating<A> {
  return scoped((): AnyTensor => maximum(multiply(toFloat("leakyRelu", a), negativeSlope), a));
}

/** a where it is positive, alpha * (exp(a) - 1) elsewhere. */
export function elu<A extends TensorLike>(a: A, alpha: number = 1): Floating<A> {
  return scoped((): AnyTensor => {
    const x = toFloat("elu", a);
    return where(greater(x, 0), x, multiply(expm1(x), alpha));
  });
}

/** a * sigmoid(a) */
export function silu<A extends TensorLike>(a: A): Floating<A> {
  return scoped((): AnyTensor => {
    const x = toFloat("silu", a);
    return multiply(x, sigmoid(x));
  });
}

/** a times the normal distribution's cumulative probability of a, through `erf`. */
export function gelu<A extends TensorLike>(a: A): Floating<A> {
  return scoped((): AnyTensor => {
    const x = toFloat("gelu", a);
    return divide(multiply(x, add(erf(divide(x, Math.SQRT2)), 1)), 2);
  });
}

/** The tanh approximation of {@link gelu}. */
export function geluApprox<A extends TensorLike>(a: A): Floating<A> {
  return scoped((): AnyTensor => {
    const x = toFloat("geluApprox", a);
    const cubic = multiply(add(multiply(square(x), 0.044715), 1), x);
    return multiply(multiply(x, 0.5), add(tanh(multiply(cubic, Math.sqrt(2 / Math.PI))), 1));
  });
}

/** log(1 + exp(a)) without overflow. */
export function softplus<A extends TensorLike>(a: A): Floating<A> {
  return logaddexp(a, 0) as AnyTensor;
}

/** log(sigmoid(a)) without overflow. */
export function logSigmoid<A extends TensorLike>(a: A): Floating<A> {
  return scoped((): AnyTensor => negative(softplus(negative(toFloat("logSigmoid", a)))));
}

/** Logarithm of `softmax`: a - logsumexp(a), from the largest element so that large ones keep their precision. */
export function logSoftmax<A extends TensorLike>(a: A, axis: Axis = -1): Floating<A> {
  return scoped((): AnyTensor => {
    const x = toFloat("logSoftmax", a);
    const shifted = subtract(x, max(x, axis, true));
    return subtract(shifted, logsumexp(shifted, axis, true));
  });
}
