/**
 * OLMo 3 (Allen Institute for AI): OLMo 2 with a window in three of four layers. Positions are stretched in the other layers only.
 *
 * @module
 */

import { checkDecoder, type DecoderConfig, readDecoder, readLayerTypes, slidingLayers } from "../config/decoder.ts";
import type { Fields } from "../config/fields.ts";

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
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
}
