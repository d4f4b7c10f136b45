/**
 * The key/value cache of a decoder: as large as its config says, and as the device of its weights reads it best.
 *
 * @module
 */

import { cacheDtype, layoutFor } from "../array/kv_memory.ts";
import type { KvLayout } from "../graph/kv_layout.ts";
import type { DecoderConfig } from "./config/decoder.ts";
import { KvCache } from "./kv_cache.ts";
import type { Weights } from "./weights.ts";

/** An empty cache for `batch` sequences of a model with this config, whose weights must not have been disposed. */
export function makeCache(config: DecoderConfig, weights: Weights, batch: number): KvCache {
  const { layers, kvHeads, headDim, maxPositionEmbeddings } = config;
  return new KvCache({
    layers,
    batch,
    heads: kvHeads,
    headDim,
    dtype: cacheDtype(weights.tensors, weights.dtype),
    blocks: batch === 1 ? layoutOf(config, weights) : undefined,
    limit: maxPositionEmbeddings,
    config,
  });
}

/** The layout for one sequence; plain where no step is fused: of other architectures, or of weights quantized in several ways. */
function layoutOf(config: DecoderConfig, weights: Weights): KvLayout | undefined {
  const { quantization, qkNorm, qkvBias, outputBias, mlpBias, activation, headDim } = config;
  if (quantization === undefined || quantization.overrides.size > 0 || outputBias || mlpBias) return undefined;
  const { hiddenSize: hidden, intermediateSize: intermediate, heads, kvHeads } = config;
  return layoutFor(weights.tensors, { hidden, intermediate, heads, kvHeads, headDim, ...quantization.base }, {
    headNorm: qkNorm,
    qkvBias,
    activation,
    ropeForm: "half",
    ropeDims: headDim,
  });
}
