/**
 * OLMo 2 (arXiv 2501.00656): Llama with norms after attention and the feed-forward part, and norms of all queries and of all keys.
 *
 * @module
 */

import { checkDecoder, type DecoderConfig } from "../config/decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readLlama } from "./llama.ts";

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, { ...readLlama(fields), norms: "post", qkNorm: true, qkNormWhole: true });
}
