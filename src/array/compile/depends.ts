/**
 * Order between arrays that do not use each other.
 *
 * @module
 */

import { makeNode, type Node } from "../../graph/node.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import type { Same } from "../tensor/results.ts";
import { type AnyTensor, Tensor, wrap } from "../tensor/tensor.ts";

/** Whether an argument is several arrays, and not the values of one. */
function isSeveral(arrays: TensorLike | readonly TensorLike[]): arrays is readonly Tensor[] {
  return Array.isArray(arrays) && arrays.every((part) => part instanceof Tensor);
}

function nodesOf(arrays: TensorLike | readonly TensorLike[]): Node[] {
  return (isSeveral(arrays) ? arrays : [arrays as TensorLike]).map((array) => toNode("depends", array));
}

/**
 * The same array, which is computed only when the `dependencies` are; or several, in a list. For what has an effect besides its result,
 * such as `distributed.send`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.depends(mx.array([1, 2]), [mx.ones([3])]);
 * x.tolist(); // [1, 2]
 * ```
 */
export function depends<A extends Tensor>(
  inputs: readonly A[],
  dependencies: TensorLike | readonly TensorLike[],
): Same<A>[];
/** Of one array. */
export function depends<A extends TensorLike>(inputs: A, dependencies: TensorLike | readonly TensorLike[]): Same<A>;
export function depends(
  inputs: TensorLike | readonly TensorLike[],
  dependencies: TensorLike | readonly TensorLike[],
): AnyTensor | AnyTensor[] {
  const others = nodesOf(dependencies);
  const results = nodesOf(inputs).map((node) =>
    wrap(makeNode("depends", [node, ...others], node.shape, node.dtype, {}))
  );
  return isSeveral(inputs) ? results : results[0];
}
