/**
 * The key/value cache of a decoder: as large as its config says, and as the device of its weights reads it best.
 *
 * @module
 */

import type { DeviceFacts } from "../../array/devices/device_of.ts";
import type { Dtype } from "../../array/mod.ts";
import { type KvLayout, plainLayout } from "../../graph/kv_layout.ts";
import type { CodeFormat } from "../../graph/quantization.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { KvCache } from "./cache.ts";
import type { KvPoolSizes } from "./paged.ts";

/** What a cache depends on besides the config. */
export interface CachedModel {
  readonly config: DecoderConfig;
  /** The device of the parameters, where the cache is. */
  readonly device: DeviceFacts;
  /** What activations are computed in. */
  readonly dtype: Dtype;
  /** Bits of a weight and how many share a scale; undefined where not all matrices are alike. */
  readonly format: CodeFormat | undefined;
}

/** An empty cache for `batch` sequences of a model. */
export function makeCache(model: CachedModel, batch: number): KvCache {
  const { config, device, dtype } = model;
  const { layers, kvHeads, headDim, maxPositionEmbeddings } = config;
  return new KvCache({
    layers,
    batch,
    heads: kvHeads,
    headDim,
    dtype: device.kvDtype(dtype),
    blocks: batch === 1 ? layoutOf(model) : undefined,
    limit: maxPositionEmbeddings,
    config,
  });
}

/** Sizes of a pool of pages for sequences of a model, but for how many there are. */
export function poolSizes(model: CachedModel): Omit<KvPoolSizes, "pages"> {
  const { config: { layers, kvHeads: heads, headDim }, device, dtype } = model;
  return { layers, heads, headDim, dtype: device.kvDtype(dtype), blocks: layoutOf(model) ?? plainLayout(headDim) };
}

/** The layout that fused steps read; undefined where none is: of other architectures, or of weights in several formats. */
function layoutOf({ config, device, format }: CachedModel): KvLayout | undefined {
  const { qkNorm, qkvBias, outputBias, mlpBias, activation, headDim } = config;
  if (format === undefined || outputBias || mlpBias) return undefined;
  const { groupSize, bits } = format;
  const { hiddenSize: hidden, intermediateSize: intermediate, heads, kvHeads } = config;
  return device.kvLayout({ hidden, intermediate, heads, kvHeads, headDim, groupSize, bits }, {
    headNorm: qkNorm,
    qkvBias,
    activation,
    ropeForm: "half",
    ropeDims: headDim,
  });
}
