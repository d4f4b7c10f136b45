/**
 * Llama (arXiv 2302.13971, 2307.09288, 2407.21783): pre-norm decoder blocks of grouped-query attention with rotary positions,
 * which Llama 3.1 and later stretch, and a SwiGLU feed-forward part. Mistral without a sliding window is the same.
 *
 * @module
 */

import {
  checkDecoder,
  type DecoderConfig,
  type DecoderDefaults,
  readDecoder,
  refuseWindow,
} from "../config/decoder.ts";
import type { Fields } from "../config/fields.ts";

const DEFAULTS: DecoderDefaults = { headDim: true, kvHeads: true, ropeTheta: 1e4 };

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readDecoder(fields, DEFAULTS);
  refuseWindow(fields, common.maxPositionEmbeddings);
  const attentionBias = fields.flag("attention_bias", false);
  return checkDecoder(fields, {
    ...common,
    qkNorm: false,
    qkvBias: attentionBias,
    outputBias: attentionBias,
    mlpBias: fields.flag("mlp_bias", false),
  });
}
