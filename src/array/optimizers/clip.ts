/**
 * Clipping of gradients.
 *
 * @module
 */

import { float16, float32 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import { add, divide, minimum, multiply } from "../ops/binary.ts";
import { astype } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { arraysOf, checkArrays } from "../tensor/tree.ts";
import { sqrt, square } from "../ops/unary.ts";
import { treeMap, type TreeOf } from "../tensor/utils.ts";

/**
 * Gradients scaled down so that their norm, of all of them as one vector, is at most `maxNorm`, and the norm that they had. A negative
 * maxNorm is a ValueError. MLX's `clip_grad_norm`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [clipped, norm] = mx.optimizers.clipGradNorm({ w: mx.array([3, 4]) }, 2.5);
 * norm.item(); // 5
 * mx.allclose(clipped.w, [1.5, 2]).item(); // true
 * ```
 */
export function clipGradNorm<G>(gradients: G, maxNorm: number): [clipped: TreeOf<G, AnyTensor>, totalNorm: AnyTensor] {
  if (!(maxNorm >= 0)) throw new ValueError(`clipGradNorm() expected maxNorm to be at least 0: found ${maxNorm}`);
  checkArrays("clipGradNorm", "gradients", gradients);
  return scoped(() => {
    // Squares of float16 would overflow.
    const squared = (g: AnyTensor): AnyTensor => sum(square(g.dtype === float16 ? astype(g, float32) : g));
    const norm: AnyTensor = sqrt(arraysOf(gradients).map(squared).reduce<AnyTensor | number>((a, b) => add(a, b), 0));
    const factor = minimum(divide(maxNorm, add(norm, 1e-6)), 1);
    const scaled = (g: AnyTensor): AnyTensor => {
      const product: AnyTensor = multiply(g, factor);
      return g.dtype.kind === "float" ? astype(product, g.dtype) : product;
    };
    return [treeMap(scaled, gradients), norm];
  });
}
