/**
 * Reshaping as programs ask for it. The requested sizes are kept for functions that are compiled for any shapes.
 *
 * @module
 */

import { type TensorLike, toNode } from "../tensor/convert.ts";
import { reshape as reshaped } from "./movement.ts";
import { nodeOf, type Tensor } from "../tensor/tensor.ts";
import type { NameOf } from "../tensor/types.ts";

/**
 * The same elements in row-major order in another shape. One size may be -1: it is worked out.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.reshape(mx.arange(6), [2, -1]).shape; // [2, 3]
 * ```
 */
export function reshape<A extends TensorLike, const S extends readonly number[]>(
  a: A,
  shape: S,
): Tensor<NameOf<A>, S["length"]> {
  const node = toNode("reshape", a);
  const result = reshaped(a, shape);
  const made = nodeOf(result);
  if (made !== node && made.op === "reshape") made.attrs = { asked: [...shape] };
  return result;
}
