/**
 * Phi-3 and Phi-4 (arXiv 2404.14219, 2412.08905, 2503.01743): Llama with joined projections, a part of each head that is rotated, and
 * factors for each wavelength (LongRoPE). As in mlx-lm, attention sees the whole context: "sliding_window" is not read.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";

const DEFAULTS: DecoderDefaults = { headDim: true, kvHeads: true, ropeTheta: 1e4, context: 131072 };

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readDecoder(fields, DEFAULTS);
  const rotated = Math.floor(common.headDim * fields.positive("partial_rotary_factor", 1, 1));
  return checkDecoder(fields, {
    ...common,
    ...(rotated !== common.headDim && { ropeDims: rotated }),
    qkNorm: false,
    qkvBias: false,
    outputBias: false,
    mlpBias: false,
    joinedProjections: true,
  });
}
