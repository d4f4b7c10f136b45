/**
 * Ministral 3 (Mistral AI): Llama whose queries grow with their position, beyond the context that the model was trained with.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { MAX_POSITION } from "../config/model.ts";
import { readLlama } from "./llama.ts";

/** The context of a config that does not say it, by transformers. */
const CONTEXT = 262144;

/** Reads and checks config.json. As in mlx-lm, positions are those of "rope_parameters", whatever stands beside it. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = given.without("rope_theta").without("rope_scaling");
  return checkDecoder(fields, {
    ...readLlama(fields, { context: CONTEXT }),
    queryGrowth: fields.nested("rope_parameters", (positions) => ({
      beta: positions.within("llama_4_scaling_beta", 0, 100),
      context: positions.count("original_max_position_embeddings", MAX_POSITION),
    })),
  });
}
