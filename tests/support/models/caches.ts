/** Caches like those that a model makes, of another dtype or for several sequences. */

import * as mx from "../../../mod.ts";

/** A cache in the layout of the model's own for one sequence. */
export function cacheOf(
  model: mx.lm.LanguageModel,
  { dtype, batch = 1 }: { readonly dtype?: mx.Dtype; readonly batch?: number } = {},
): mx.lm.KvCache {
  using own = model.makeCache();
  own.reserve(1);
  const [[, heads, blocks, , keys]] = own.keys.map(({ shape }) => shape);
  const [[, , , , values]] = own.values.map(({ shape }) => shape);
  const { maxPositionEmbeddings: limit } = model.config;
  const options = { layers: own.keys.length, batch, heads, headDim: blocks * keys, blocks: { keys, values }, limit };
  return new mx.lm.KvCache({ ...options, dtype: dtype ?? own.dtype });
}

/** A cache of several sequences that each hold what a cache of one holds. */
export function repeated(model: mx.lm.LanguageModel, cache: mx.lm.KvCache, batch: number): mx.lm.KvCache {
  const { offset, dtype } = cache;
  const all = cacheOf(model, { dtype, batch });
  all.fill(offset, (layer) => {
    const of = (which: "keys" | "values"): mx.Tensor => mx.tidy(() => mx.repeat(cache.read(layer, which), batch, 0));
    return { keys: of("keys"), values: of("values") };
  });
  return all;
}
