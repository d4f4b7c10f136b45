/**
 * The layout of a cache of keys and values that suits the device of a model.
 *
 * @module
 */

import { cacheBlocks as blocksOn, type DecoderSizes } from "../schedule/decoder.ts";
import { backendOf } from "../schedule/realize.ts";
import { nodeOf, type Tensor } from "./tensor.ts";

/** Features that should lie side by side in a cache for one sequence of a model with these sizes, on the device of its weights. */
export function cacheBlocks(
  weights: readonly Tensor[],
  sizes: DecoderSizes,
): { readonly keys: number; readonly values: number } {
  return blocksOn(backendOf(weights.map(nodeOf)), sizes);
}
