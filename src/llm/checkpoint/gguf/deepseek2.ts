/**
 * Models with latent attention in GGUF, "deepseek2", whose experts are chosen by sigmoids: GLM-4.7-Flash. As llama.cpp computes with the
 * vectors of the cache themselves, the keys of sizes without "mla" are those of one head for all queries.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import type { CommonFields, Facts } from "./config.ts";
import { type GgufFamily, withNumbers } from "./family.ts";

/** The code of sigmoids in "expert_gating_func". */
const SIGMOID = 2;
/** What the file's multiplier of YaRN's logarithm is multiplied by. */
const LOG_MULTIPLIER = 0.1;

/** The facts with the heads that queries have. */
function headFacts(facts: Facts): Facts {
  const headDim = facts.number("attention.key_length_mla");
  return withNumbers(facts, {
    "attention.key_length": headDim,
    "attention.value_length": headDim,
    "attention.head_count_kv": facts.number("attention.head_count"),
  });
}

/** Throws an {@link LlmError} that says what of the model is not supported. */
function check({ metadata, architecture, number, tensors }: Facts): void {
  const key = (name: string): string => quoted(`${architecture}.${name}`);
  if (number("attention.key_length_mla") === undefined) {
    metadata.fail(`the metadata lack ${key("attention.key_length_mla")}: files of that age have to be converted anew`);
  }
  // Files of models whose config.json does not name the function lack it.
  const hasBias = tensors.keys().some((name) => name.endsWith(".exp_probs_b.bias"));
  if (number("expert_gating_func") === SIGMOID || (number("expert_gating_func") === undefined && hasBias)) {
    if (number("attention.temperature_scale") === undefined) return;
    metadata.fail(`${key("attention.temperature_scale")} is set, which is not supported here`);
  }
  metadata.fail(`${key("expert_gating_func")} does not say sigmoids: other scores of experts are not supported here`);
}

function fields(facts: Facts, { rope_scaling }: CommonFields): Record<string, unknown> {
  check(facts);
  const { metadata, architecture, number } = facts;
  const rotated = number("rope.dimension_count") ?? 0;
  const multiplier = number("rope.scaling.yarn_log_multiplier");
  const scales = multiplier === undefined ? 0 : multiplier / LOG_MULTIPLIER;
  return {
    q_lora_rank: number("attention.q_lora_rank") ?? null,
    kv_lora_rank: number("attention.kv_lora_rank"),
    qk_rope_head_dim: rotated,
    qk_nope_head_dim: (number("attention.key_length_mla") ?? 0) - rotated,
    v_head_dim: number("attention.value_length_mla"),
    first_k_dense_replace: number("leading_dense_block_count") ?? 0,
    moe_intermediate_size: number("expert_feed_forward_length"),
    n_routed_experts: number("expert_count"),
    n_shared_experts: (number("expert_shared_count") ?? 0) || null,
    n_group: number("expert_group_count") ?? 1,
    topk_group: number("expert_group_used_count") ?? 1,
    norm_topk_prob: metadata.flag(`${architecture}.expert_weights_norm`) ?? false,
    routed_scaling_factor: number("expert_weights_scale") ?? 1,
    // Its makers' two scales are the same.
    ...(rope_scaling &&
      { rope_scaling: { ...rope_scaling, ...(scales > 0 && { mscale: scales, mscale_all_dim: scales }) } }),
  };
}

/** The models with latent attention. */
export const DEEPSEEK2: GgufFamily = {
  modelType: "glm4_moe_lite",
  rotatesPart: true,
  names: {
    attn_q_a: "self_attn.q_a_proj",
    attn_q_a_norm: "self_attn.q_a_layernorm",
    attn_q_b: "self_attn.q_b_proj",
    attn_kv_a_mqa: "self_attn.kv_a_proj_with_mqa",
    attn_kv_a_norm: "self_attn.kv_a_layernorm",
    attn_k_b: "self_attn.embed_q",
    attn_v_b: "self_attn.unembed_out",
    exp_probs_b: "mlp.gate.e_score_correction_bias",
    ffn_gate_shexp: "mlp.shared_experts.gate_proj",
    ffn_up_shexp: "mlp.shared_experts.up_proj",
    ffn_down_shexp: "mlp.shared_experts.down_proj",
  },
  commonFacts: headFacts,
  fields,
};
