/**
 * Llama (arXiv 2302.13971, 2307.09288, 2407.21783): pre-norm decoder blocks of grouped-query attention with rotary positions,
 * which Llama 3.1 and later stretch, and a SwiGLU feed-forward part. Mistral is the same. Layers that "layer_types" names have a window.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";

const DEFAULTS: DecoderDefaults = { headDim: true, kvHeads: true, ropeTheta: 1e4, windows: true };

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, readLlama(fields));
}

/** Reads config.json, for families that add fields to it and check them together. */
export function readLlama(fields: Fields): DecoderConfig {
  const attentionBias = fields.flag("attention_bias", false);
  return {
    ...readDecoder(fields, DEFAULTS),
    qkNorm: false,
    qkvBias: attentionBias,
    outputBias: attentionBias,
    mlpBias: fields.flag("mlp_bias", false),
  };
}
