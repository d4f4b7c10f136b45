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

/**
 * Reads and checks config.json. As in mlx-lm, positions are those of "rope_parameters", whatever stands beside it. A "rope_theta" beside
 * it counts where that has none, and one must be there.
 */
export function readArgs(given: Fields): DecoderConfig {
  const nested = (given.record("rope_parameters").rope_theta ?? undefined) !== undefined;
  const fields = (nested ? given.without("rope_theta") : given).without("rope_scaling");
  const common = readLlama(fields, { context: CONTEXT });
  const queryGrowth = fields.nested("rope_parameters", (positions) => ({
    beta: positions.within("llama_4_scaling_beta", 0, 100),
    context: positions.count("original_max_position_embeddings", MAX_POSITION),
  }));
  if (!nested && !fields.has("rope_theta")) fields.problem('"rope_parameters.rope_theta" is missing');
  return checkDecoder(fields, { ...common, queryGrowth });
}
