/**
 * Scores of attention in primitives, with which the definitions of attention and of its gradients begin.
 *
 * @module
 */

import { type Dtype, int32 } from "../../graph/dtype.ts";
import type { OpAttrs } from "../../graph/node.ts";
import { add, clip, divide, greater, less, lessEqual, logicalAnd, multiply, subtract, where } from "../ops/binary.ts";
import { arange } from "../ops/creation.ts";
import { tanh } from "../ops/unary.ts";
import { astype, expandDims, reshape, swapaxes } from "../ops/movement.ts";
import { matmul } from "../linalg/products.ts";
import type { Tensor } from "../tensor/tensor.ts";

/** The lowest float32. */
const LOWEST = -3.4028234663852886e38;

/** The last key that each query sees as far as the causal mask and the number of keys say: int32, to broadcast to (…, Tq, Tk). */
function lastKeys({ mask }: OpAttrs["attention"], qLen: number, lengths: Tensor | number): Tensor {
  if (mask !== "causal") return astype(subtract(lengths, 1), int32);
  return astype(add(reshape(arange(0, qLen, 1, int32), [qLen, 1]), subtract(lengths, qLen)), int32);
}

/** The bool mask (B or 1, 1, Tq or 1, Tk) of an attention with a window. `keys` are all rows, `lengths` those that hold keys. */
export function windowMask(attrs: OpAttrs["attention"], queries: number, keys: number, lengths?: Tensor): Tensor {
  const column = arange(0, keys, 1, int32);
  const last = lastKeys(attrs, queries, lengths ? clip(reshape(lengths, [-1, 1, 1, 1]), 0, keys) : keys);
  return logicalAnd(lessEqual(column, last), greater(column, subtract(last, attrs.window!)));
}

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
  const last = lastKeys(attrs, qLen, lengths);
  if (attrs.mask === "causal") scores = where(lessEqual(column, last), scores, -Infinity);
  if (attrs.window !== undefined) scores = where(greater(column, subtract(last, attrs.window)), scores, -Infinity);
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
