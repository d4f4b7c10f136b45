/**
 * Scores of attention in primitives, with which the definitions of attention and of its gradients begin.
 *
 * @module
 */

import { type Dtype, int32 } from "../../graph/dtype.ts";
import type { OpAttrs } from "../../graph/node.ts";
import { add, clip, divide, less, lessEqual, multiply, subtract, where } from "../ops/binary.ts";
import { arange } from "../ops/creation.ts";
import { tanh } from "../ops/unary.ts";
import { astype, expandDims, reshape, swapaxes } from "../ops/movement.ts";
import { matmul } from "../linalg/products.ts";
import type { Tensor } from "../tensor/tensor.ts";

/** The lowest float32. */
const LOWEST = -3.4028234663852886e38;

/** Scores, and views of other arrays in their shape. */
export interface AttentionScores {
  /** scale * q @ kᵀ + mask of shape (B, Hkv, group, Tq, Tk), -Infinity if a key is masked. */
  readonly scores: Tensor;
  /** An array by query heads (B, Hq, Tq, …) by groups: (B, Hkv, group, Tq, …). */
  grouped(x: Tensor): Tensor;
  /** Rows of keys (B, Hkv, Tk, D) for all heads of a group, 0 from `lengths` on, whatever they hold: (B, Hkv, 1, Tk, D). */
  shared(x: Tensor): Tensor;
}

/** a @ b in another dtype. The cast stands right before the product, whose kernels read halves as they lie and add up in float32. */
export function productIn(dtype: Dtype, a: Tensor, b: Tensor): Tensor {
  return matmul(astype(a, dtype), astype(b, dtype));
}

/**
 * Scores of q (B, Hq, Tq, D) and k (B, Hkv, Tk, D), in the dtype `accumulator`; `rest` are the mask and lengths of `attrs`. Before the
 * mask, `softcap` bounds them.
 */
export function attentionScores(
  q: Tensor,
  k: Tensor,
  rest: readonly Tensor[],
  attrs: OpAttrs["attention"],
  accumulator: Dtype,
  softcap?: number,
): AttentionScores {
  const [batch, heads, qLen] = q.shape;
  const [, kvHeads, kvLen] = k.shape;
  const grouped = (x: Tensor): Tensor => reshape(x, [batch, kvHeads, heads / kvHeads, ...x.shape.slice(2)]);
  const turned = swapaxes(expandDims(k, 2), -1, -2);
  let scores: Tensor = multiply(productIn(accumulator, grouped(q), turned), attrs.scale);
  if (softcap !== undefined) scores = multiply(tanh(divide(scores, softcap)), softcap);

  const column = arange(0, kvLen, 1, int32);
  let lengths: Tensor | number = kvLen;
  let inside: Tensor | undefined;
  if (attrs.hasLengths) {
    lengths = clip(reshape(rest[rest.length - 1], [-1, 1, 1, 1, 1]), 0, kvLen);
    inside = less(column, lengths);
    scores = where(inside, scores, -Infinity);
  }
  if (attrs.mask === "causal") {
    const last = add(reshape(arange(0, qLen, 1, int32), [qLen, 1]), subtract(lengths, qLen));
    scores = where(lessEqual(column, astype(last, int32)), scores, -Infinity);
  }
  if (attrs.mask === "bool") scores = where(grouped(rest[0]), scores, -Infinity);
  if (attrs.mask === "add") {
    const shifted = add(scores, astype(grouped(rest[0]), accumulator));
    scores = where(lessEqual(shifted, LOWEST), -Infinity, shifted); // the lowest float masks like -infinity
  }
  // 0 times NaN would be NaN.
  const shared = (x: Tensor): Tensor =>
    expandDims(inside ? where(reshape(inside, [inside.shape[0], 1, kvLen, 1]), x, 0) : x, 2);
  return { scores, grouped, shared };
}
