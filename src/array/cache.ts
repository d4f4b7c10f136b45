/**
 * Caches of keys and values: the layout that suits the device of a model, and memory for them.
 *
 * @module
 */

import { cacheBlocks as blocksOn, type DecoderSizes } from "../schedule/decoder.ts";
import { backendOf } from "../schedule/realize.ts";
import type { Dtype } from "../graph/dtype.ts";
import { makeNode } from "../graph/node.ts";
import type { Shape } from "../graph/shape.ts";
import { nodeOf, type Tensor, wrap } from "./tensor.ts";

/** An array of whatever its memory holds, NaN among it: for rows that are written before they are read. */
export function uninitialised(shape: Shape, dtype: Dtype): Tensor {
  return wrap(makeNode("data", [], shape, dtype, {}));
}

/** Features that should lie side by side in a cache for one sequence of a model with these sizes, on the device of its weights. */
export function cacheBlocks(
  weights: readonly Tensor[],
  sizes: DecoderSizes,
): { readonly keys: number; readonly values: number } {
  return blocksOn(backendOf(weights.slice(0, 1).map(nodeOf)), sizes); // one tells for all
}
