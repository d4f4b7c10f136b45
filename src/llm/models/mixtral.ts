/**
 * Mixtral (arXiv 2401.04088): Llama whose feed-forward parts are experts. As in mlx-lm, positions are not stretched and every layer sees
 * the whole context.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readDecoder, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { expertStacks, type Stack } from "../checkpoint/expert_stacks.ts";

/** mlx-lm's values of fields that may be absent. */
const ABSENT = {
  vocab_size: 32000,
  hidden_size: 4096,
  intermediate_size: 14336,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  num_local_experts: 8,
  num_experts_per_tok: 2,
  rms_norm_eps: 1e-5,
} as const;
const DEFAULTS: DecoderDefaults = { headDim: true, ropeTheta: 1e6, context: 32768, plainPositions: true };

/** Hugging Face's names of the matrices of an expert, and mlx-lm's. */
const NAMES = [["w1", "gate_proj"], ["w2", "down_proj"], ["w3", "up_proj"]] as const;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = given.withDefaults(ABSENT);
  return checkDecoder(fields, {
    ...readDecoder(fields, DEFAULTS),
    qkNorm: false,
    qkvBias: false,
    outputBias: false,
    mlpBias: false,
    experts: {
      ...readExperts(fields, "num_local_experts", "intermediate_size"),
      among: "chosen",
      names: { part: "block_sparse_moe", router: "gate", stack: "switch_mlp" },
    },
  });
}

/** The stacks of experts, which Hugging Face stores one by one. */
export function stacks(config: DecoderConfig): Stack[] {
  return expertStacks(config, NAMES);
}
