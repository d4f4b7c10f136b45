/**
 * Checkpoints with a vision part: their text is a model of another family, described by "text_config". The vision part is left out.
 *
 * @module
 */

import type { Fields } from "../config/fields.ts";

/** The name that mlx-lm gives to the text part. */
export const TEXT_PREFIX = "language_model.";

/** Names of the other parts. */
const OTHERS = [
  "vision_tower",
  "multi_modal_projector",
  "model.visual",
  "audio_tower",
  "embed_audio",
  "embed_vision",
  "vision_embedder",
];

/** Fields of config.json that count for the whole checkpoint. */
const SHARED = ["model_type", "quantization", "quantization_config", "eos_token_id"];

/** The name of a tensor within the text part, in mlx-lm's layout or Hugging Face's; undefined for one of another part. */
export function nameInText(name: string): string | undefined {
  if (OTHERS.some((part) => name.includes(part))) return undefined;
  const own = "model.language_model.";
  return name.startsWith(own) ? `model.${name.slice(own.length)}` : name.replace(TEXT_PREFIX, "");
}

/** The fields of the text part; `own` are further ones. Problems of them are named as those of config.json. */
export function textFields(fields: Fields, own: Readonly<Record<string, unknown>> = {}): Fields {
  fields.finish(); // what else is said of fields is said of those of the text part
  const shared = SHARED.filter((name) => fields.has(name)).map((name) => [name, fields.values[name]]);
  return fields.with({ ...fields.record("text_config"), ...own, ...Object.fromEntries(shared) });
}
