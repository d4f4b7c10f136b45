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

const DEFAULTS: DecoderDefaults = { headDim: true, ropeTheta: 1e6, context: 32768 };

/** Hugging Face's names of the matrices of an expert, and mlx-lm's. */
const NAMES = [["w1", "gate_proj"], ["w2", "down_proj"], ["w3", "up_proj"]] as const;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
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
