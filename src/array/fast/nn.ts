/**
 * Activations of `mlx.nn`, composed of elementwise functions. The modules are in src/nn/.
 *
 * @module
 */

import { int32 } from "../../graph/dtype.ts";
import {
  add,
  divide,
  greater,
  greaterEqual,
  logaddexp,
  maximum,
  minimum,
  multiply,
  subtract,
  where,
} from "../ops/binary.ts";
import type { TensorLike } from "../tensor/convert.ts";
import { toFloat } from "../ops/elementwise.ts";
import { split } from "../ops/join.ts";
import { astype } from "../ops/movement.ts";
import { logsumexp, max, softmax } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import type { AnyTensor, Axis, Tensor } from "../tensor/tensor.ts";
import type { RankOf } from "../tensor/types.ts";
import { abs, erf, expm1, negative, sigmoid, sign, square, tanh } from "../ops/unary.ts";
import type { Arithmetic, Floating } from "../tensor/results.ts";

export { sigmoid, softmax, tanh };

/** max(a, 0) */
export function relu<A extends TensorLike>(a: A): Arithmetic<A, 0> {
  return scoped("relu", (): AnyTensor => maximum(a, 0));
}

/** max(a, 0)² */
export function relu2<A extends TensorLike>(a: A): Arithmetic<A, 0> {
  return scoped("relu2", (): AnyTensor => square(maximum(a, 0)));
}

/** a between 0 and 6. */
export function relu6<A extends TensorLike>(a: A): Arithmetic<A, 0> {
  return scoped("relu6", (): AnyTensor => minimum(maximum(a, 0), 6));
}

/** a if it is positive, `negativeSlope` * a elsewhere. */
export function leakyRelu<A extends TensorLike>(a: A, negativeSlope: number = 0.01): Floating<A> {
  return scoped("leakyRelu", (): AnyTensor => maximum(multiply(toFloat("leakyRelu", a), negativeSlope), a));
}

/** a if it is positive, alpha * (exp(a) - 1) elsewhere. */
export function elu<A extends TensorLike>(a: A, alpha: number = 1): Floating<A> {
  return scoped("elu", (): AnyTensor => {
    const x: Tensor = toFloat("elu", a);
    // Without minimum() the gradient where x is large would be 0 times infinity.
    return where(greater(x, 0), x, multiply(expm1(minimum(x, 0)), alpha));
  });
}

/** a * sigmoid(a) */
export function silu<A extends TensorLike>(a: A): Floating<A> {
  return scoped("silu", (): AnyTensor => {
    const x: Tensor = toFloat("silu", a);
    return multiply(x, sigmoid(x));
  });
}

/** a times the normal distribution's cumulative probability of a, through `erf`. */
export function gelu<A extends TensorLike>(a: A): Floating<A> {
  return scoped("gelu", (): AnyTensor => {
    const x: Tensor = toFloat("gelu", a);
    return divide(multiply(x, add(erf(divide(x, Math.SQRT2)), 1)), 2);
  });
}

/** The tanh approximation of {@link gelu}. */
export function geluApprox<A extends TensorLike>(a: A): Floating<A> {
  return scoped("geluApprox", (): AnyTensor => {
    const x: Tensor = toFloat("geluApprox", a);
    const cubic = multiply(add(multiply(square(x), 0.044715), 1), x);
    return multiply(multiply(x, 0.5), add(tanh(multiply(cubic, Math.sqrt(2 / Math.PI))), 1));
  });
}

/** log(1 + exp(a)) without overflow. */
export function softplus<A extends TensorLike>(a: A): Floating<A> {
  return scoped("softplus", (): AnyTensor => logaddexp(a, 0));
}

/** log(sigmoid(a)) without overflow. */
export function logSigmoid<A extends TensorLike>(a: A): Floating<A> {
  return scoped("logSigmoid", (): AnyTensor => negative(softplus(negative(toFloat("logSigmoid", a)))));
}

/** Logarithm of `softmax`: a - logsumexp(a), from the largest element so that large ones keep their precision. */
export function logSoftmax<A extends TensorLike>(a: A, axis: Axis = -1): Floating<A> {
  return scoped("logSoftmax", (): AnyTensor => {
    const x: Tensor = toFloat("logSoftmax", a);
    const shifted = subtract(x, max(x, axis, true));
    return subtract(shifted, logsumexp(shifted, axis, true));
  });
}

/** a if it is positive, alpha * (exp(a / alpha) - 1) elsewhere; smooth for every alpha, unlike {@link elu}. */
export function celu<A extends TensorLike>(a: A, alpha: number = 1): Floating<A> {
  return scoped("celu", (): AnyTensor => {
    const x: Tensor = toFloat("celu", a);
    return add(maximum(x, 0), multiply(expm1(divide(minimum(x, 0), alpha)), alpha));
  });
}

/** {@link elu} with the scales that keep mean and variance from layer to layer. */
export function selu<A extends TensorLike>(a: A): Floating<A> {
  return scoped("selu", (): AnyTensor => multiply(elu(a, 1.67326), 1.0507));
}

/** a / (1 + |a|) */
export function softsign<A extends TensorLike>(a: A): Floating<A> {
  return scoped("softsign", (): AnyTensor => {
    const x: Tensor = toFloat("softsign", a);
    return divide(x, add(abs(x), 1));
  });
}

/** a moved towards 0 by `lambd`, and 0 if it is no further than that. */
export function softshrink<A extends TensorLike>(a: A, lambd: number = 0.5): Floating<A> {
  return scoped("softshrink", (): AnyTensor => {
    const x: Tensor = toFloat("softshrink", a);
    return where(greater(abs(x), lambd), subtract(x, multiply(sign(x), lambd)), 0);
  });
}

/** a if it is further than `lambd` from 0, else 0. */
export function hardShrink<A extends TensorLike>(a: A, lambd: number = 0.5): Floating<A> {
  return scoped("hardShrink", (): AnyTensor => {
    const x: Tensor = toFloat("hardShrink", a);
    return where(greater(abs(x), lambd), x, 0);
  });
}

/** a between `minVal` and `maxVal`. */
export function hardTanh<A extends TensorLike>(a: A, minVal: number = -1, maxVal: number = 1): Floating<A> {
  return scoped("hardTanh", (): AnyTensor => minimum(maximum(toFloat("hardTanh", a), minVal), maxVal));
}

/** a * (min(max(a + 3, 0), 6) / 6) */
export function hardswish<A extends TensorLike>(a: A): Floating<A> {
  return scoped("hardswish", (): AnyTensor => {
    const x: Tensor = toFloat("hardswish", a);
    return multiply(x, divide(minimum(maximum(add(x, 3), 0), 6), 6)); // x * 6 would overflow
  });
}

/** a * tanh(softplus(a)) */
export function mish<A extends TensorLike>(a: A): Floating<A> {
  return scoped("mish", (): AnyTensor => {
    const x: Tensor = toFloat("mish", a);
    return multiply(x, tanh(softplus(x)));
  });
}

/** a * sigmoid(1.702 * a), near to {@link gelu}. */
export function geluFastApprox<A extends TensorLike>(a: A): Floating<A> {
  return scoped("geluFastApprox", (): AnyTensor => {
    const x: Tensor = toFloat("geluFastApprox", a);
    return multiply(x, sigmoid(multiply(x, 1.702)));
  });
}

/** 1 from `threshold` on, 0 below it, in int32. */
export function step<A extends TensorLike>(a: A, threshold: number = 0): Tensor<"int32", RankOf<A>> {
  return scoped("step", (): AnyTensor => astype(greaterEqual(a, threshold), int32));
}

/** a if it is positive, `alpha` * a elsewhere; alpha is an array that is learned. */
export function prelu<A extends TensorLike>(a: A, alpha: TensorLike): Floating<A> {
  return scoped("prelu", (): AnyTensor => {
    const x: Tensor = toFloat("prelu", a);
    return add(maximum(x, 0), multiply(minimum(x, 0), alpha));
  });
}

/** The first half along an axis times the sigmoid of the second. */
export function glu<A extends TensorLike>(a: A, axis: number = -1): Floating<A> {
  return scoped("glu", (): AnyTensor => {
    const [x, gate] = split(toFloat("glu", a), 2, axis);
    return multiply(x, sigmoid(gate));
  });
}

/** `softmax` of -a. */
export function softmin<A extends TensorLike>(a: A, axis: Axis = -1): Floating<A> {
  return scoped("softmin", (): AnyTensor => softmax(negative(toFloat("softmin", a)), axis));
}
