/**
 * Granite 3 (IBM): Llama with factors of the embedding, of scores, of what layers add to the residual, and of logits.
 *
 * @module
 */

import { checkDecoder, type DecoderConfig } from "../config/decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readLlama } from "./llama.ts";

const MAX_FACTOR = 1e4;

/** Modules whose weights are too small for the scales of narrow floats. */
export const WIDENED = ["self_attn.o_proj", "mlp.down_proj", "lm_head"] as const;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const factor = (name: string): number => fields.positive(name, MAX_FACTOR);
  return checkDecoder(fields, {
    ...readLlama(fields),
    embeddingScale: factor("embedding_multiplier"),
    scoreScale: factor("attention_multiplier"),
    residualScale: factor("residual_multiplier"),
    logitDivisor: factor("logits_scaling"),
  });
}
