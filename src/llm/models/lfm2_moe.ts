/**
 * LFM2-MoE (Liquid AI): LFM2 whose feed-forward parts are experts in all layers but the first ones. Scores are sigmoids, and a bias of each
 * expert counts for the choice.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { expertStacks, PROJECTIONS, type Stack } from "../checkpoint/expert_stacks.ts";
import { ORDER as LFM2_ORDER, readLfm2 } from "./lfm2.ts";

export { changes } from "./lfm2.ts";

/** The order of modules in mlx-lm. */
export const ORDER = { ...LFM2_ORDER, part: ["gate_proj", "up_proj", "down_proj"] } as const;

/** Modules that the converter gives 8 bits: the routers. */
export const WIDENED = ["feed_forward.gate"] as const;

/** Modules whose floats keep their dtype when a model is converted. */
export const KEPT = ["expert_bias"] as const;

const MAX_LAYERS = 1000;
const MAX_FACTOR = 1e4;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readLfm2(fields);
  const dense = fields.whole("num_dense_layers", 0, MAX_LAYERS);
  return checkDecoder(fields, {
    ...common,
    experts: {
      ...readExperts(fields, "num_experts", "moe_intermediate_size"),
      among: "all",
      sigmoid: {
        bias: fields.flag("use_expert_bias"),
        normalized: fields.flag("norm_topk_prob"),
        factor: fields.positive("routed_scaling_factor", MAX_FACTOR, 1),
      },
      layers: Array.from({ length: common.layers }, (_, layer) => layer >= dense),
      names: { part: "feed_forward", router: "gate", stack: "switch_mlp" },
    },
  });
}

/** Hugging Face's names of matrices, and mlx-lm's. */
const NAMES = { w1: "gate_proj", w2: "down_proj", w3: "up_proj" } as const;

/** mlx-lm's name of a stored tensor. */
export function nameOf(stored: string): string {
  return stored.replace(/\b(w[123])\.weight$/, (_, name: keyof typeof NAMES) => `${NAMES[name]}.weight`);
}

/** The stacks of experts, which Hugging Face stores one by one. */
export function stacks(config: DecoderConfig): Stack[] {
  return expertStacks(config, PROJECTIONS);
}
