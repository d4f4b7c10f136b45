/**
 * Cross entropy of class indices.
 *
 * @module
 */

import { float32, float64 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import { formatShape, sameShape } from "../../graph/shape.ts";
import { subtract } from "../ops/binary.ts";
import { castNode, type TensorLike, toIndexNode, toNode } from "../tensor/convert.ts";
import { takeAlongAxis } from "../ops/gather.ts";
import { astype, expandDims, squeeze } from "../ops/movement.ts";
import { logsumexp } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import type { RankOf } from "../tensor/types.ts";

/**
 * logsumexp(logits, -1) - logits[…, target] for the class index of each row, float32: `targets` have the shape of `logits` without the
 * last axis. Computed in float32 whatever the dtype of logits. Throws a DtypeError for logits that are no floats and targets that are no
 * integers, a ShapeError for shapes that do not fit.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.fast.crossEntropy([[0, 0], [100, 0]], mx.array([1, 0], mx.int32)).tolist(); // [0.6931471824645996, 0]
 * ```
 */
export function crossEntropy<T extends TensorLike>(logits: TensorLike, targets: T): Tensor<"float32", RankOf<T>> {
  const node = toNode("crossEntropy", logits);
  if (node.dtype.kind !== "float") {
    throw new DtypeError(`crossEntropy() expected logits of a float dtype: found ${node.dtype.name}`);
  }
  if (node.shape.length === 0) throw new ShapeError("crossEntropy() expected logits of at least 1 axis");
  const classes = toIndexNode("crossEntropy", targets);
  if (!sameShape(classes.shape, node.shape.slice(0, -1))) {
    throw new ShapeError(
      `crossEntropy() expected targets of the shape of logits ${formatShape(node.shape)} without the last axis: found ${
        formatShape(classes.shape)
      }`,
    );
  }
  return scoped((): AnyTensor => {
    const x = wrap(node.dtype === float64 ? node : castNode(node, float32));
    const chosen = squeeze(takeAlongAxis(x, expandDims(wrap(classes), -1), -1), -1);
    return astype(subtract(logsumexp(x, -1), chosen), float32);
  });
}
