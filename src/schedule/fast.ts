/**
 * Decoding beyond what Vulkan promises.
 *
 * @module
 */

import {
  type DecoderForm,
  MOST_LAYERS,
  MOST_WORKGROUPS,
  type ReadyDecoder,
  sequencesOf,
  workgroupsOf,
} from "./decoder.ts";
import type { Lowering } from "./lowering.ts";
import { options } from "./options.ts";

/** How a decoder waits. */
export function decoderForm(l: Lowering, { decoder, sums }: ReadyDecoder): DecoderForm {
  const { sizes, layers } = decoder;
  const fits = sums === "u64" && layers.length <= MOST_LAYERS && workgroupsOf(sizes) <= MOST_WORKGROUPS &&
    sequencesOf(decoder) === 1;
  if (!l.repeats || !fits || !l.backend.has("decode_layers")) return "barriers";
  return options.fast === "auto" ? "barriers" : options.fast;
}
