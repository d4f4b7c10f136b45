/** Published models with few layers and small sizes, for tests that write and load them. */

import { PUBLISHED, type PublishedConfig } from "./published.ts";

/** Sizes of a small model, as far as a family has these fields. */
const SMALL: Readonly<Record<string, number>> = {
  hidden_size: 128,
  hidden_size_per_layer_input: 64,
  vocab_size_per_layer_input: 4096,
  global_head_dim: 128,
  num_kv_shared_layers: 2,
  intermediate_size: 128,
  moe_intermediate_size: 64,
  shared_expert_intermediate_size: 64,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  linear_num_key_heads: 2,
  linear_num_value_heads: 4,
  linear_key_head_dim: 32,
  linear_value_head_dim: 32,
  head_dim: 64,
  num_experts: 8,
  num_local_experts: 8,
  n_routed_experts: 8,
  num_experts_per_tok: 3,
  q_lora_rank: 64,
  kv_lora_rank: 64,
  qk_nope_head_dim: 32,
  qk_rope_head_dim: 32,
  v_head_dim: 64,
  vocab_size: 4096,
};
/** Others of families whose sizes depend on each other. */
const OTHERS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  "phi-4-mini": { rope_scaling: null, num_attention_heads: 2 },
  "glm-4.7-flash": { num_key_value_heads: 4 },
  "gemma-4-e2b": {
    layer_types: ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
  },
  "gemma-4-e4b": {
    layer_types: ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
  },
  "lfm2-8b-a1b": { layer_types: ["conv", "full_attention", "conv", "full_attention"] },
};

/** The config of a small model of the family of a published one. */
export function smallPublished(name: string): PublishedConfig {
  const fields = PUBLISHED[name];
  const own = Object.entries(SMALL).filter(([field]) => field in fields);
  return { ...fields, ...Object.fromEntries(own), ...OTHERS[name] } as PublishedConfig;
}
