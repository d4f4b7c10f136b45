/**
 * Log probabilities of tokens, a fused function beside its definition in primitives.
 *
 * The definition takes the `top` chunks of a row with the largest maxima: the most probable tokens are among them. So two short lists
 * are sorted and not the row.
 *
 * @module
 */

import { float32, int32 } from "../../graph/dtype.ts";
import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape } from "../../graph/shape.ts";
import * as op from "../ops/binary.ts";
import { castNode, type TensorLike, toIndexNode } from "../tensor/convert.ts";
import { arange } from "../ops/creation.ts";
import { defineFused, floatNode } from "./fused.ts";
import { take, takeAlongAxis } from "../ops/gather.ts";
import { concatenate, split } from "../ops/join.ts";
import { astype, reshape, reshapeNode } from "../ops/movement.ts";
import * as reduce from "../ops/reduce.ts";
import { pad } from "../ops/pad.ts";
import { scoped } from "../tensor/scope.ts";
import { argsort, sort } from "../ops/sort.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { maskLogits, tokenMaskNode } from "./token_mask.ts";
import { negative } from "../ops/unary.ts";

/** Logits of a chunk. */
const CHUNK = 256;

/**
 * Log probabilities (natural logarithms) of logits (B, V): float32 (B, 1 + 2 top). Each row has that of its token of (B,), those of the
 * `top` most probable tokens in falling order, and their indices. Indices are exact in float32, and order equal ones. Rows that are
 * shorter than `top` repeat their last one. `mask` is that of {@link SampleOptions}: tokens that it forbids count as logits of -Infinity.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const logits = mx.log(mx.array([[0.25, 0.75]]));
 * mx.exp(mx.fast.logprobs(logits, mx.array([0], mx.int32), 1)); // [[0.25, 0.75, e]]: token 1 is the likeliest
 * ```
 */
export function logprobs(logits: TensorLike, tokens: TensorLike, top: number, mask?: TensorLike): Tensor {
  const node = floatNode("logprobs", logits);
  const chosen = castNode(toIndexNode("logprobs", tokens), int32);
  const [rows, cols = 0] = node.shape;
  if (node.shape.length !== 2 || cols === 0 || chosen.shape.length !== 1 || chosen.shape[0] !== rows) {
    throw new ShapeError(
      `logprobs() expected logits (B, V) with V > 0 and tokens (B,): found shapes ${formatShape(node.shape)} and ${
        formatShape(chosen.shape)
      }`,
    );
  }
  if (!Number.isInteger(top) || top < 0) {
    throw new ValueError(`logprobs() expected top to be a whole number of 0 or more: found ${quoted(top)}`);
  }
  return scoped(() => {
    const inputs = [reshapeNode(node, node.shape), chosen];
    if (mask !== undefined) inputs.push(tokenMaskNode("logprobs", mask, rows, cols));
    return logprobsNode(inputs, [rows, 1 + 2 * top], float32, { top });
  });
}

const logprobsNode = defineFused(
  "logprobs",
  ({ attrs }, x, t, mask) => logprobsComposite(mask ? maskLogits(x, mask) : x, t, attrs.top),
);

/** Computes {@link logprobs} in primitives. */
export function logprobsComposite(logits: Tensor, tokens: Tensor, top: number): Tensor {
  const x = astype(logits, float32);
  const total = reduce.logsumexp(x, -1, true);
  const own = op.subtract(takeAlongAxis(x, reshape(tokens, [-1, 1]), -1), total);
  if (top === 0) return own;
  const { ids, values } = topK(x, top);
  return concatenate([own, op.subtract(values, total), astype(ids, float32)], 1);
}

/** The `top` largest of each row of x (B, V) and where they are: both (B, top). */
function topK(x: Tensor, top: number): { readonly ids: Tensor; readonly values: Tensor } {
  const [rows, size] = x.shape;
  const chunks = Math.ceil(size / CHUNK);
  const count = Math.min(top, chunks);
  const padded = pad(x, [[0, 0], [0, chunks * CHUNK - size]], "constant", -Infinity);
  const best = astype(argsort(negative(reduce.max(reshape(padded, [rows, chunks, CHUNK]), -1)), -1), int32);
  const chosen = sort(split(best, [count], -1)[0], -1); // in the order of indices
  const among = op.multiply(reshape(chosen, [rows, count, 1]), CHUNK);
  const ids = reshape(op.add(among, arange(0, CHUNK, 1, int32)), [rows, -1]);
  const values = takeAlongAxis(x, op.minimum(ids, size - 1), -1);
  const listed = op.where(op.less(ids, size), values, -Infinity);
  const order = astype(argsort(negative(listed), -1), int32);
  const places = op.minimum(arange(0, top, 1, int32), Math.min(size, count * CHUNK) - 1);
  const at = take(order, places, 1);
  return { ids: takeAlongAxis(ids, at, -1), values: takeAlongAxis(listed, at, -1) };
}
