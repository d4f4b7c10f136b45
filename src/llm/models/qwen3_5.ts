/**
 * Qwen3.5 (Alibaba): layers of gated delta nets, with gated attention in every fourth one. Feed-forward parts are dense, or experts with one
 * that every token gets. A checkpoint may have a vision part, which is left out.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { type DecoderConfig, layerPaths } from "../config/decoder.ts";
import { checkDecoder } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readHybrid, readShared } from "./qwen3_next.ts";

export { changes, ORDER, stacks } from "./qwen3_next.ts";

/** Modules that the converter gives 8 bits: the routers. */
export const WIDENED = ["mlp.gate", "shared_expert_gate"] as const;

/** Fields of objects in config.json that mlx-lm writes by other names. */
export const MOVED = [["rope_parameters", "rope_type", "type"]] as const;

/** Modules whose floats keep their dtype when a model is converted. */
export const KEPT = ["A_log"] as const;

/** mlx-lm's values of fields that may be absent. */
const DEFAULTS = {
  hidden_size: 4096,
  intermediate_size: 14336,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  rms_norm_eps: 1e-6,
  vocab_size: 151936,
  num_key_value_heads: 8,
  max_position_embeddings: 131072,
  linear_num_value_heads: 64,
  linear_num_key_heads: 16,
  linear_key_head_dim: 192,
  linear_value_head_dim: 128,
  linear_conv_kernel_dim: 4,
} as const;
const THETA = 1e5;
const ROTATED = 0.25;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = withPositions(given.withDefaults(DEFAULTS));
  const common = readHybrid(fields, false);
  if (fields.whole("num_experts", 0, 2 ** 14, 0) === 0) return checkDecoder(fields, common);
  return checkDecoder(fields, { ...common, experts: readShared(fields, [], true) });
}

/** The fields with the rotary positions where other families have them: those of "rope_parameters" count, and mlx-lm's values. */
function withPositions(fields: Fields): Fields {
  const nested = fields.record("rope_parameters");
  const { hidden_size, num_attention_heads, head_dim } = fields.values;
  const { rope_theta = THETA, partial_rotary_factor = ROTATED } = nested;
  return fields.with({
    ...fields.values,
    rope_theta,
    partial_rotary_factor,
    rope_scaling: nested,
    head_dim: head_dim ?? Math.floor(Number(hidden_size) / Number(num_attention_heads)),
  });
}

/** Parts the stacks of the makers' layout: gate and up are one tensor there. */
export function arrange(weights: Weights, config: DecoderConfig): void {
  if (!config.experts) return;
  const rows = (x: Tensor, half: number): Tensor => mx.split(x, 2, -2)[half];
  for (const path of layerPaths(config).map((path) => `${path}.mlp`)) {
    const isStack = ({ ndim }: Tensor): boolean => ndim === 3;
    weights.replace(`${path}.experts.gate_up_proj`, isStack, (x) => ({
      [`${path}.switch_mlp.gate_proj.weight`]: rows(x, 0),
      [`${path}.switch_mlp.up_proj.weight`]: rows(x, 1),
    }));
    weights.replace(`${path}.experts.down_proj`, isStack, (x) => ({ [`${path}.switch_mlp.down_proj.weight`]: x }));
  }
}
