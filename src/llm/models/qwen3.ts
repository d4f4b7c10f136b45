/**
 * Qwen3 (arXiv 2505.09388): pre-norm decoder blocks of grouped-query attention with normalised queries and keys, rotary
 * positions, and a SwiGLU feed-forward part. Dense models of every size, with a tied or an own head. As in mlx-lm, every layer sees the
 * whole context, whatever "use_sliding_window" says.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, readDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readDecoder(fields);
  fields.refuse("attention_bias");
  return checkDecoder(fields, { ...common, qkNorm: true, qkvBias: false, outputBias: false, mlpBias: false });
}
