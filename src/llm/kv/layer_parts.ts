/**
 * What a cache has of each layer of a model, by its options.
 *
 * @module
 */

import type { KvCacheOptions } from "./cache_buffers.ts";
import { sameStates } from "./states.ts";

/**
 * How a cache holds a layer: by keys and values at a place among those of all layers, or by state arrays of some numbers. With a window the
 * layer sees so many positions.
 */
export type LayerPart = { readonly place: number; readonly window?: number } | { readonly states: readonly number[] };

/** How a cache holds each layer. */
export function layerParts(options: Pick<KvCacheOptions, "layers" | "states" | "windows">): LayerPart[] {
  const { layers, states = [], windows } = options;
  const count = layers + new Set(states.map(({ layer }) => layer)).size;
  let place = 0;
  return Array.from({ length: count }, (_, layer) => {
    const own = states.flatMap((state, index) => state.layer === layer ? [index] : []);
    if (own.length > 0) return { states: own };
    const window = windows?.[place];
    return { place: place++, ...(window !== undefined && { window }) };
  });
}

/** What two caches must share for one to take the place of the other. */
const SIZES = ["layers", "batch", "heads", "headDim", "layerHeads"] as const;

/** Whether two caches are for as many sequences of a model of the same sizes. */
export function areAlike(a: KvCacheOptions, b: KvCacheOptions): boolean {
  const alike = SIZES.every((name) => JSON.stringify(a[name]) === JSON.stringify(b[name]));
  return alike && sameStates(a.states ?? [], b.states ?? []);
}
