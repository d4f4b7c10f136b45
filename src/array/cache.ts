/**
 * Caches of keys and values: the layout and the element type that suit the device of a model, and memory for them.
 *
 * @module
 */

import { type Dtype, float16, float32 } from "../graph/dtype.ts";
import { cacheBlocks as blocksOn, type DecoderSizes } from "../schedule/decoder.ts";
import { backendOf } from "../schedule/realize.ts";
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

/**
 * Element type of a cache for a model whose activations are `dtype`, on the device of its weights. The CPU reads the whole cache
 * for every token, so float32 rows are kept in float16 there, unless VKMX_EXACT=1 asks for all digits.
 */
export function cacheDtype(weights: readonly Tensor[], dtype: Dtype): Dtype {
  const rounds = dtype === float32 && backendOf(weights.map(nodeOf)).has("packed_matvec");
  return rounds ? float16 : dtype;
}
