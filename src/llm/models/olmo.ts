/**
 * OLMo 2 (arXiv 2501.00656): Llama with norms after attention and the feed-forward part, and norms of all queries and of all keys. OLMo 3
 * (Allen Institute for AI) has a window in three of four layers, and positions are stretched in the other layers only.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, readDecoder, readLayerTypes, slidingLayers } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readLlama } from "./llama.ts";

/** OLMo 2. */
export const olmo2 = {
  readArgs(fields: Fields): DecoderConfig {
    return checkDecoder(fields, { ...readLlama(fields), norms: "post", qkNorm: true, qkNormWhole: true });
  },
} as const;

/** OLMo 3. */
export const olmo3 = {
  readArgs(fields: Fields): DecoderConfig {
    const common = readDecoder(fields, { headDim: true, kvHeads: true });
    const { layers, ropeTheta } = common;
    const slides = readLayerTypes(fields, layers) ?? Array.from({ length: layers }, (_, i) => (i + 1) % 4 !== 0);
    const attentionBias = fields.flag("attention_bias", false);
    return checkDecoder(fields, {
      ...common,
      ...slidingLayers(fields, common, slides, { ropeTheta, ropeScaling: { type: "default" } }),
      qkvBias: attentionBias,
      outputBias: attentionBias,
      mlpBias: false,
      norms: "post",
      qkNorm: true,
      qkNormWhole: true,
    });
  },
} as const;
