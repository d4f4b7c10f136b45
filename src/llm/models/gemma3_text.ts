/**
 * Gemma 3 (arXiv 2503.19786), its text part: Gemma 2 without bounds, with norms of queries and keys. All layers but every sixth have a
 * window and rotary positions of a base of their own. A stored head decides whether there is one.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, slidingLayers } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { bfloat16Bits, bfloat16Value } from "../../graph/dtype.ts";
import { readGemma } from "./gemma.ts";

/** mlx-lm's values of fields that may be absent. */
const DEFAULTS = {
  hidden_size: 1152,
  num_hidden_layers: 26,
  intermediate_size: 6912,
  num_attention_heads: 4,
  num_key_value_heads: 1,
  head_dim: 256,
  rms_norm_eps: 1e-6,
  vocab_size: 262144,
  rope_theta: 1e6,
  rope_local_base_freq: 1e4,
  query_pre_attn_scalar: 256,
  sliding_window: 512,
  sliding_window_pattern: 6,
  max_position_embeddings: 32768,
} as const;

const MAX_FACTOR = 1e6;
const MAX_THETA = 1e12;
const MAX_LAYERS = 1000;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = given.withDefaults(DEFAULTS);
  const common = readGemma(fields, {});
  const pattern = fields.count("sliding_window_pattern", MAX_LAYERS);
  const slides = Array.from({ length: common.layers }, (_, layer) => (layer + 1) % pattern !== 0);
  const ropeTheta = fields.positive("rope_local_base_freq", MAX_THETA);
  return checkDecoder(fields, {
    ...common,
    ...slidingLayers(fields, common, slides, { ropeTheta, ropeScaling: { type: "default" } }),
    activation: "geluTanh",
    tieWordEmbeddings: undefined,
    embeddingScale: bfloat16Value(bfloat16Bits(Math.sqrt(common.hiddenSize))), // as the makers' code rounds it
    norms: "both",
    clipsResidual: true,
    qkNorm: true,
    scoreScale: fields.positive("query_pre_attn_scalar", MAX_FACTOR) ** -0.5,
  });
}
