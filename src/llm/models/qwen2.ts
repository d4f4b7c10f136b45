/**
 * Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115). They have pre-norm decoder blocks, grouped-query attention with biases of
 * queries, keys and values, rotary positions, and a SwiGLU feed-forward part. As in mlx-lm, every layer sees the whole context, whatever
 * "use_sliding_window" says.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";

const DEFAULTS: DecoderDefaults = { headDim: true, ropeTheta: 1e6, context: 32768 };

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readDecoder(fields, DEFAULTS);
  return checkDecoder(fields, { ...common, qkNorm: false, qkvBias: true, outputBias: false, mlpBias: false });
}
