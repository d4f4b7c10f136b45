/**
 * Losses: a model's output compared with its target, as one number or one for each example.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- unknown parts of a result

import * as mx from "../array/mod.ts";
import type { FloatOf, Larger, NameOf, NameWith, Promoted, RankOf, RealOf, SumOf } from "../array/mod.ts";
import type { AnyTensor, Down, DtypeName, Tensor, TensorLike } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { isComplex } from "../graph/dtype.ts";
import { isPlain, quoted } from "../graph/error.ts";
import { formatShape, sameShape } from "../graph/shape.ts";

const { ShapeError, ValueError } = mx;

/** The reduction of the losses of single examples. */
export type LossReduction = "none" | "mean" | "sum";

/** The type of reduced losses, from dtype N and R axes, one for each example. */
export type Loss<N extends DtypeName, R extends number, D> = [D] extends ["none"] ? Tensor<N, R>
  : [D] extends ["mean"] ? Tensor<FloatOf<N>, 0>
  : [D] extends ["sum"] ? Tensor<SumOf<N>, 0>
  : Tensor<any, any>;

/** The dtype of losses of logits, which class indices leave as it is and probabilities and weights may widen. */
export type LogitsName<L, T, W> = NameWith<
  NameWith<RealOf<FloatOf<NameOf<L>>>, RankOf<T> extends RankOf<L> ? T : null>,
  W
>;

const REDUCTIONS: Readonly<Record<LossReduction, (loss: Tensor) => Tensor>> = {
  none: (loss) => loss,
  mean: (loss) => mx.mean(loss),
  sum: (loss) => mx.sum(loss),
};

function tensor(value: TensorLike): Tensor {
  return value instanceof mx.Tensor ? value : mx.asarray(value);
}

/** A loss of the arguments of a call, reduced; intermediate arrays are freed. Losses take no object of options. */
function lossOf(
  op: string,
  args: Readonly<Record<string, unknown>> & { readonly reduction: LossReduction },
  compute: () => AnyTensor,
): Tensor {
  for (const [name, value] of Object.entries(args)) {
    if (typeof value !== "object" || value === null || !isPlain(value) || Array.isArray(value)) continue;
    if (isComplex(value)) continue;
    throw new ValueError(
      `${op}() takes no object of options: found ${quoted(value)} for ${name}, in ${op}(${
        Object.keys(args).join(", ")
      })`,
    );
  }
  const { reduction } = args;
  if (!Object.hasOwn(REDUCTIONS, reduction)) {
    throw new ValueError(
      `${op}() expected reduction to be one of ${Object.keys(REDUCTIONS).join(", ")}: found ${quoted(reduction)}`,
    );
  }
  return scoped(() => REDUCTIONS[reduction](compute()));
}

/** Throws unless arrays have one shape. */
function checkAlike(op: string, arrays: Readonly<Record<string, Tensor>>): void {
  const [[first, { shape }], ...rest] = Object.entries(arrays);
  for (const [name, array] of rest) {
    if (sameShape(array.shape, shape)) continue;
    throw new ShapeError(
      `${op}() expected ${name} in the shape of ${first}: found ${formatShape(array.shape)} for ${formatShape(shape)}`,
    );
  }
}

/** A loss times weights of its shape, if there are any. */
function weighted(op: string, loss: Tensor, weights: TensorLike | null): Tensor {
  if (weights === null) return loss;
  const factors = tensor(weights);
  checkAlike(op, { "the loss": loss, weights: factors });
  return mx.multiply(loss, factors);
}

/** The elements of x at class indices along an axis, which goes. Lists of numbers are whole ones. */
function chosen(x: Tensor, targets: Tensor, axis: number): Tensor {
  const indices = mx.isdtype(targets.dtype, "integral") ? targets : targets.astype(mx.int32);
  return mx.squeeze(mx.takeAlongAxis(x, mx.expandDims(indices, axis), axis), axis);
}

/**
 * Cross entropy of logits and targets: class indices without the axis of classes, or probabilities of the shape of the logits.
 * `labelSmoothing` is the part of the target that is spread over all classes.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const logits = mx.array([[2, -1], [-1, 2]]);
 * mx.nn.losses.crossEntropy(logits, mx.array([0, 1], mx.int32)).tolist(); // [0.048587, 0.048587]
 * ```
 */
export function crossEntropy<
  L extends TensorLike,
  T extends TensorLike,
  W extends TensorLike | null = null,
  D extends LossReduction = "none",
>(
  logits: L,
  targets: T,
  weights: W = null as W,
  axis: number = -1,
  labelSmoothing: number = 0,
  reduction: D = "none" as D,
): Loss<LogitsName<L, T, W>, Down<RankOf<L>>, D> {
  const op = "crossEntropy";
  return lossOf(op, { logits, targets, weights, axis, labelSmoothing, reduction }, () => {
    if (!(labelSmoothing >= 0 && labelSmoothing < 1)) {
      throw new ValueError(`${op}() expected labelSmoothing to be in [0, 1): found ${quoted(labelSmoothing)}`);
    }
    const [x, y] = [tensor(logits), tensor(targets)];
    const at = axis < 0 ? axis + x.ndim : axis;
    const classes = x.shape.filter((_, i) => i !== at);
    if (!sameShape(y.shape, x.shape) && !sameShape(y.shape, classes)) {
      throw new ShapeError(
        `${op}() expected targets of shape ${formatShape(classes)}, or ${
          formatShape(x.shape)
        } for probabilities: found ${formatShape(y.shape)}`,
      );
    }
    const shifted = mx.subtract(x, mx.stopGradient(mx.max(x, axis, true)));
    const score = y.ndim === x.ndim ? mx.sum(mx.multiply(shifted, y), axis) : chosen(shifted, y, axis);
    const total = mx.logsumexp(shifted, axis);
    if (labelSmoothing === 0) return weighted(op, mx.subtract(total, score), weights);
    const spread = mx.multiply(mx.mean(shifted, axis), labelSmoothing);
    const loss = mx.subtract(mx.subtract(total, mx.multiply(score, 1 - labelSmoothing)), spread);
    return weighted(op, loss, weights);
  });
}

/** Cross entropy of yes and no: inputs are logits, or probabilities where `withLogits` is false. */
export function binaryCrossEntropy<
  A extends TensorLike,
  B extends TensorLike,
  W extends TensorLike | null = null,
  D extends LossReduction = "mean",
>(
  inputs: A,
  targets: B,
  weights: W = null as W,
  withLogits: boolean = true,
  reduction: D = "mean" as D,
): Loss<NameWith<FloatOf<Promoted<A, B>>, W>, RankOf<A>, D> {
  const op = "binaryCrossEntropy";
  return lossOf(op, { inputs, targets, weights, withLogits, reduction }, () => {
    const [x, y] = [tensor(inputs), tensor(targets)];
    checkAlike(op, { inputs: x, targets: y });
    if (withLogits) return weighted(op, mx.subtract(mx.logaddexp(0, x), mx.multiply(x, y)), weights);
    const yes = mx.multiply(y, mx.clip(mx.log(x), -100, null));
    const no = mx.multiply(mx.subtract(1, y), mx.clip(mx.log(mx.subtract(1, x)), -100, null));
    return weighted(op, mx.negative(mx.add(yes, no)), weights);
  });
}

/** |predictions - targets| */
export function l1Loss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "mean">(
  predictions: A,
  targets: B,
  reduction: D = "mean" as D,
): Loss<Promoted<A, B>, RankOf<A>, D> {
  return lossOf("l1Loss", { predictions, targets, reduction }, () => {
    const [x, y] = [tensor(predictions), tensor(targets)];
    checkAlike("l1Loss", { predictions: x, targets: y });
    return mx.abs(mx.subtract(x, y));
  });
}

/** (predictions - targets)² */
export function mseLoss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "mean">(
  predictions: A,
  targets: B,
  reduction: D = "mean" as D,
): Loss<Promoted<A, B>, RankOf<A>, D> {
  return lossOf("mseLoss", { predictions, targets, reduction }, () => {
    const [x, y] = [tensor(predictions), tensor(targets)];
    checkAlike("mseLoss", { predictions: x, targets: y });
    return mx.square(mx.subtract(x, y));
  });
}

/** The negative log probability, of `inputs`, of the target class along an axis. */
export function nllLoss<A extends TensorLike, D extends LossReduction = "none">(
  inputs: A,
  targets: TensorLike,
  axis: number = -1,
  reduction: D = "none" as D,
): Loss<NameOf<A>, Down<RankOf<A>>, D> {
  return lossOf(
    "nllLoss",
    { inputs, targets, axis, reduction },
    () => mx.negative(chosen(tensor(inputs), tensor(targets), axis)),
  );
}

/** The negative log likelihood of targets by normal distributions of means `inputs` and variances `vars`, which are at least eps. */
export function gaussianNllLoss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "mean">(
  inputs: A,
  targets: B,
  vars: TensorLike,
  full: boolean = false,
  eps: number = 1e-6,
  reduction: D = "mean" as D,
): Loss<any, RankOf<A>, D> {
  const op = "gaussianNllLoss";
  return lossOf(op, { inputs, targets, vars, full, eps, reduction }, () => {
    const [x, y, given] = [tensor(inputs), tensor(targets), tensor(vars)];
    checkAlike(op, { inputs: x, targets: y, vars: given });
    const variances = mx.maximum(given, eps);
    const parts = mx.add(mx.log(variances), mx.divide(mx.square(mx.subtract(y, x)), variances));
    const loss = mx.multiply(parts, 0.5);
    return full ? mx.add(loss, 0.5 * Math.log(2 * Math.PI)) : loss;
  });
}

/** The Kullback-Leibler divergence of log probabilities `inputs` from log probabilities `targets`, along an axis. */
export function klDivLoss<A extends TensorLike, D extends LossReduction = "none">(
  inputs: A,
  targets: TensorLike,
  axis: number = -1,
  reduction: D = "none" as D,
): Loss<any, Down<RankOf<A>>, D> {
  return lossOf("klDivLoss", { inputs, targets, axis, reduction }, () => {
    const [x, y] = [tensor(inputs), tensor(targets)];
    return mx.sum(mx.multiply(mx.exp(y), mx.subtract(y, x)), axis);
  });
}

/** Squares below `beta`, absolute values above it, smoothly joined. */
export function smoothL1Loss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "mean">(
  predictions: A,
  targets: B,
  beta: number = 1,
  reduction: D = "mean" as D,
): Loss<FloatOf<Promoted<A, B>>, RankOf<A>, D> {
  return lossOf("smoothL1Loss", { predictions, targets, beta, reduction }, () => {
    const [x, y] = [tensor(predictions), tensor(targets)];
    checkAlike("smoothL1Loss", { predictions: x, targets: y });
    const far = mx.abs(mx.subtract(x, y));
    const near = mx.divide(mx.multiply(mx.square(far), 0.5), beta);
    return mx.where(mx.less(far, beta), near, mx.subtract(far, 0.5 * beta));
  });
}

/** How much nearer anchors are to positives than to negatives, by the p-norm along an axis, up to a margin. */
export function tripletLoss<A extends TensorLike, D extends LossReduction = "none">(
  anchors: A,
  positives: TensorLike,
  negatives: TensorLike,
  axis: number = -1,
  p: number = 2,
  margin: number = 1,
  eps: number = 1e-6,
  reduction: D = "none" as D,
): Loss<any, Down<RankOf<A>>, D> {
  return lossOf("tripletLoss", { anchors, positives, negatives, axis, p, margin, eps, reduction }, () => {
    const [anchor, positive, negative] = [anchors, positives, negatives].map(tensor);
    const distance = (other: Tensor): Tensor => {
      const powers = mx.power(mx.abs(mx.subtract(anchor, other)), p);
      return mx.power(mx.add(mx.sum(powers, axis), eps), 1 / p);
    };
    return mx.maximum(mx.add(mx.subtract(distance(positive), distance(negative)), margin), 0);
  });
}

/** max(1 - inputs * targets, 0); targets are -1 or 1. */
export function hingeLoss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "none">(
  inputs: A,
  targets: B,
  reduction: D = "none" as D,
): Loss<Promoted<A, B>, Larger<RankOf<A>, RankOf<B>>, D> {
  return lossOf(
    "hingeLoss",
    { inputs, targets, reduction },
    () => mx.maximum(mx.subtract(1, mx.multiply(tensor(inputs), tensor(targets))), 0),
  );
}

/** Half of squares up to `delta`, and in proportion beyond. */
export function huberLoss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "none">(
  inputs: A,
  targets: B,
  delta: number = 1,
  reduction: D = "none" as D,
): Loss<FloatOf<Promoted<A, B>>, Larger<RankOf<A>, RankOf<B>>, D> {
  return lossOf("huberLoss", { inputs, targets, delta, reduction }, () => {
    const far = mx.abs(mx.subtract(tensor(inputs), tensor(targets)));
    const near = mx.minimum(far, delta);
    return mx.add(mx.multiply(mx.square(near), 0.5), mx.multiply(mx.subtract(far, near), delta));
  });
}

/** log(cosh(inputs - targets)), without overflow. */
export function logCoshLoss<A extends TensorLike, B extends TensorLike, D extends LossReduction = "none">(
  inputs: A,
  targets: B,
  reduction: D = "none" as D,
): Loss<FloatOf<Promoted<A, B>>, Larger<RankOf<A>, RankOf<B>>, D> {
  return lossOf("logCoshLoss", { inputs, targets, reduction }, () => {
    const off = mx.subtract(tensor(inputs), tensor(targets));
    return mx.subtract(mx.logaddexp(off, mx.negative(off)), Math.LN2);
  });
}

/** The cosine of the angle between vectors along an axis. */
export function cosineSimilarityLoss<A extends TensorLike, D extends LossReduction = "none">(
  x1: A,
  x2: TensorLike,
  axis: number = 1,
  eps: number = 1e-8,
  reduction: D = "none" as D,
): Loss<any, Down<RankOf<A>>, D> {
  return lossOf("cosineSimilarityLoss", { x1, x2, axis, eps, reduction }, () => {
    const [x, y] = [tensor(x1), tensor(x2)];
    const norms = mx.multiply(mx.linalg.norm(x, null, axis), mx.linalg.norm(y, null, axis));
    return mx.divide(mx.sum(mx.multiply(x, y), axis), mx.maximum(norms, eps));
  });
}

/** max(-targets * (inputs1 - inputs2) + margin, 0); targets are 1 if the first should be larger, -1 if the second. */
export function marginRankingLoss<A extends TensorLike, D extends LossReduction = "none">(
  inputs1: A,
  inputs2: TensorLike,
  targets: TensorLike,
  margin: number = 0,
  reduction: D = "none" as D,
): Loss<any, RankOf<A>, D> {
  return lossOf("marginRankingLoss", { inputs1, inputs2, targets, margin, reduction }, () => {
    const [x, y, t] = [inputs1, inputs2, targets].map(tensor);
    checkAlike("marginRankingLoss", { inputs1: x, inputs2: y, targets: t });
    return mx.maximum(mx.add(mx.multiply(mx.negative(t), mx.subtract(x, y)), margin), 0);
  });
}
