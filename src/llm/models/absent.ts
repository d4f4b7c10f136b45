/**
 * Families that cannot be loaded yet, and what they need.
 *
 * @module
 */

const RECURRENT = "recurrent state beside keys and values";
const LATENT = "latent attention";
const VISION = "images; a checkpoint of its text part may be loaded";

/** What a family needs that is not there, by the beginning of its "model_type". The first row that fits counts. */
const NEEDS: readonly (readonly [type: string, needs: string])[] = [
  ["qwen2_vl", VISION],
  ["qwen2_5_vl", VISION],
  ["qwen3_vl", VISION],
  ["gemma3n", "keys and values that layers share, and embeddings of each layer"],
  ["mamba", RECURRENT],
  ["jamba", RECURRENT],
  ["falcon_h1", RECURRENT],
  ["nemotron_h", RECURRENT],
  ["rwkv", RECURRENT],
  ["deepseek", LATENT],
  ["kimi", LATENT],
  ["mistral4", LATENT],
  ["pixtral", VISION],
  ["llava", VISION],
];

/** Where to ask for a family. */
const ISSUES = "https://github.com/vkmx/vkmx/issues";

/** What a model of a type needs that is not there, and how to ask for it. */
export function adviceFor(type: string): string {
  const needs = NEEDS.find(([begin]) => type.startsWith(begin))?.[1];
  return `${needs === undefined ? "" : `It needs ${needs}. `}To ask for it, describe the model at ${ISSUES}`;
}
