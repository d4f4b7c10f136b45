/**
 * Qwen1.5-MoE and Qwen2-MoE (arXiv 2407.10671): Qwen2 whose feed-forward parts are experts, with one that every token gets.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readDecoder, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { expertStacks, PROJECTIONS, type Stack } from "../checkpoint/expert_stacks.ts";

const DEFAULTS: DecoderDefaults = { headDim: true, kvHeads: true, ropeTheta: 1e6, context: 32768 };
const MAX_SIZE = 2 ** 20;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, {
    ...readDecoder(fields, DEFAULTS),
    tieWordEmbeddings: false,
    qkNorm: false,
    qkvBias: true,
    outputBias: false,
    mlpBias: false,
    experts: {
      ...readExperts(fields, "num_experts", "moe_intermediate_size"),
      among: fields.flag("norm_topk_prob", false) ? "chosen" : "all",
      sharedSize: fields.count("shared_expert_intermediate_size", MAX_SIZE),
      names: { part: "mlp", router: "gate", stack: "switch_mlp" },
    },
  });
}

/** The stacks of experts, which Hugging Face stores one by one. */
export function stacks(config: DecoderConfig): Stack[] {
  return expertStacks(config, PROJECTIONS);
}
