/**
 * Qwen3-MoE (arXiv 2505.09388): Qwen3 whose feed-forward parts are experts, in all layers or in some. As in mlx-lm, positions are not
 * stretched.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, readDecoder, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { expertStacks, PROJECTIONS, type Stack } from "../checkpoint/expert_stacks.ts";

/** The order of modules in mlx-lm. */
export const ORDER = { layer: ["self_attn", "input_layernorm", "post_attention_layernorm", "mlp"] } as const;

/** Modules that the converter gives 8 bits: the routers. */
export const WIDENED = ["mlp.gate"] as const;

const MAX_STEP = 1000;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readDecoder(fields);
  const step = fields.count("decoder_sparse_step", MAX_STEP, 1);
  const dense = fields.layerNumbers("mlp_only_layers");
  const layers = Array.from({ length: common.layers }, (_, i) => (i + 1) % step === 0 && !dense.includes(i));
  fields.refuse("attention_bias");
  return checkDecoder(fields, {
    ...common,
    qkNorm: true,
    qkvBias: false,
    outputBias: false,
    mlpBias: false,
    experts: {
      ...readExperts(fields, "num_experts", "moe_intermediate_size"),
      among: fields.flag("norm_topk_prob", false) ? "chosen" : "all",
      ...(layers.includes(false) && { layers }),
      names: { part: "mlp", router: "gate", stack: "switch_mlp" },
    },
  });
}

/** The stacks of experts, which Hugging Face stores one by one. */
export function stacks(config: DecoderConfig): Stack[] {
  return expertStacks(config, PROJECTIONS);
}
