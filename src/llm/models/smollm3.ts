/**
 * SmolLM3 (huggingface.co/blog/smollm3): Llama with layers that have no positions, by default every fourth one (arXiv 2501.18795).
 *
 * @module
 */

import { attentionOf, type DecoderConfig } from "../config/decoder.ts";
import { checkDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readLlama } from "./llama.ts";

/** The context of a config that does not say it, by transformers. */
const CONTEXT = 32768;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readLlama(fields, { context: CONTEXT });
  const rotates = readRotated(fields, common.layers);
  const layerAttention = rotates.map((rotated, layer) => {
    const { window, rope } = attentionOf(common, layer);
    return { window, rope: rotated ? rope : undefined };
  });
  return checkDecoder(fields, rotates.includes(false) ? { ...common, layerAttention } : common);
}

/** Which layers have positions: "no_rope_layers" has 0 for those without, and 1 for the others. */
function readRotated(fields: Fields, layers: number): boolean[] {
  const given = fields.values.no_rope_layers ?? undefined;
  if (given === undefined) {
    const interval = fields.count("no_rope_layer_interval", 1000, 4);
    return Array.from({ length: layers }, (_, i) => (i + 1) % interval !== 0);
  }
  if (Array.isArray(given) && given.length === layers && given.every((flag) => flag === 0 || flag === 1)) {
    return given.map((flag) => flag === 1);
  }
  fields.problem(`"no_rope_layers" is not a list of 0 or 1 for each of ${layers} layers`);
  return [];
}
