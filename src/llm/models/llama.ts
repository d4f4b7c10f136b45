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
/** The context of a config that does not say it, by transformers; mlx-lm reads none. */
const CONTEXT = 2048;
const MISTRAL_CONTEXT = 131072;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, readLlama(fields));
}

/** Mistral, whose contexts are longer. */
export const mistral = {
  readArgs(fields: Fields): DecoderConfig {
    return checkDecoder(fields, readLlama(fields, { context: MISTRAL_CONTEXT }));
  },
} as const;

/** Reads config.json, for families that add fields to it and check them together; `own` are their defaults. */
export function readLlama(fields: Fields, own: DecoderDefaults = {}): DecoderConfig {
  const attentionBias = fields.flag("attention_bias", false);
  return {
    ...readDecoder(fields, { ...DEFAULTS, context: CONTEXT, ...own }),
    qkNorm: false,
    qkvBias: attentionBias,
    outputBias: attentionBias,
    mlpBias: fields.flag("mlp_bias", false),
  };
}
