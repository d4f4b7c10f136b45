/**
 * The heads that the layers of a model have in caches. Most models have the same ones in all layers. Where layers differ, each has its own
 * record, and heads of values may have other sizes than those of keys.
 *
 * @module
 */

import type { LayerBufferSizes, LayerHeads } from "./buffers.ts";

/** The heads of one layer: as many of values as of keys. */
export interface KvHeads extends LayerHeads {
  /** Features of a head of values; absent for as many as of keys. */
  readonly valueDim?: number;
}

/** Sizes of caches whose layers may differ. */
interface CacheSizes extends Pick<LayerBufferSizes, "layers" | "heads" | "headDim"> {
  readonly layerHeads?: readonly KvHeads[];
}

/** The heads of keys of each layer, and those of values; undefined where layers are alike. */
export function sidesOf(
  { layerHeads }: CacheSizes,
): Readonly<Record<"keys" | "values", readonly LayerHeads[] | undefined>> {
  return {
    keys: layerHeads,
    values: layerHeads?.map(({ heads, headDim, valueDim = headDim }) => ({ heads, headDim: valueDim })),
  };
}

/** Numbers that one position takes in all layers, or in one, keys and values together. */
export function valuesOfPosition(sizes: CacheSizes, layer?: number): number {
  const { layers, heads, headDim, layerHeads = Array<KvHeads>(layers).fill({ heads, headDim }) } = sizes;
  return (layer === undefined ? layerHeads : layerHeads.slice(layer, layer + 1)).reduce(
    (sum, { heads, headDim, valueDim = headDim }) => sum + heads * (headDim + valueDim),
    0,
  );
}
