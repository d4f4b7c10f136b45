/**
 * Gemma 2 (arXiv 2408.00118): Gemma with norms after its parts too, and bounds of scores and logits. As in mlx-lm, every layer sees the
 * whole context: "sliding_window" is not read.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readGemma } from "./gemma.ts";

const DEFAULTS: DecoderDefaults = { ropeTheta: 1e4, context: 8192, plainPositions: true };
const MAX_FACTOR = 1e6;

/** The order of modules in mlx-lm. */
export const ORDER = {
  layer: [
    "self_attn",
    "mlp",
    "input_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_attention_layernorm",
  ],
} as const;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, {
    ...readGemma(fields, DEFAULTS),
    activation: "geluTanh",
    norms: "both",
    scoreScale: fields.positive("query_pre_attn_scalar", MAX_FACTOR, 144) ** -0.5,
    scoreCap: fields.positive("attn_logit_softcapping", MAX_FACTOR, 50),
    logitCap: fields.positive("final_logit_softcapping", MAX_FACTOR, 30),
  });
}
