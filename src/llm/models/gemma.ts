/**
 * Gemma (arXiv 2403.08295): pre-norm decoder blocks whose norms add 1 to their weights, of grouped-query attention with rotary positions
 * and a GeGLU feed-forward part. Vectors of tokens are multiplied by the square root of their size; the embedding is the head.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";

const DEFAULTS: DecoderDefaults = { ropeTheta: 1e4, context: 8192, plainPositions: true };

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, readGemma(fields, DEFAULTS));
}

/** Reads config.json, for families that add fields to it and check them together. */
export function readGemma(fields: Fields, defaults: DecoderDefaults): DecoderConfig {
  const common = readDecoder(fields, defaults);
  return {
    ...common,
    activation: "gelu",
    tieWordEmbeddings: true,
    embeddingScale: Math.sqrt(common.hiddenSize),
    normOffset: 1,
    qkNorm: false,
    qkvBias: false,
    outputBias: false,
    mlpBias: false,
  };
}
