/**
 * Gemma 4 in GGUF. Sizes of heads differ by layer: keys of metadata without "swa" are those of layers that see the whole context.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import type { CommonFields, Facts } from "./config.ts";
import { type GgufFamily, withNumbers } from "./family.ts";

const FACTORS = "rope_freqs.weight";
/** Factors of wavelengths from this one on leave a pair as it is. */
const UNROTATED = 1e30;

/** Which layers have a window. Throws an {@link LlmError} if the file does not say it of each. */
function slidingLayers({ metadata, architecture, number, flags }: Facts): readonly boolean[] {
  const key = "attention.sliding_window_pattern";
  const slides = flags(key);
  if (slides !== undefined && slides.length === number("block_count")) return slides;
  return metadata.fail(`${quoted(`${architecture}.${key}`)} is not a list of true or false for each layer`);
}

/** The number of a layer, or that of all layers. */
function numberOf({ layers, number }: Facts, key: string, layer: number): number | undefined {
  return layers(key)?.[Math.max(layer, 0)] ?? number(key);
}

/** The facts with the sizes of layers that have a window, whose fields have the plain names. */
function slidingFacts(facts: Facts): Facts {
  const { number } = facts;
  const sliding = withNumbers(facts, {
    "attention.head_count_kv": numberOf(facts, "attention.head_count_kv", slidingLayers(facts).indexOf(true)),
    "attention.key_length": number("attention.key_length_swa"),
    "attention.value_length": number("attention.value_length_swa"),
    "rope.dimension_count": number("rope.dimension_count_swa"),
    feed_forward_length: numberOf(facts, "feed_forward_length", 0),
  });
  return { ...sliding, floats: (name) => name === FACTORS ? undefined : facts.floats(name) };
}

/** The share of pairs that layers without a window rotate: the factors of the others are beyond any wavelength. */
function rotatedShare({ metadata, floats }: Facts): number {
  const factors = floats(FACTORS) ?? [1];
  const rotated = factors.filter((factor) => factor === 1).length;
  const isShare = factors.every((factor, pair) => pair < rotated ? factor === 1 : factor >= UNROTATED);
  if (!isShare) metadata.fail(`${quoted(FACTORS)} has other factors than 1 and, after those, ${UNROTATED}`, "weights");
  return rotated / factors.length;
}

function fields(facts: Facts, { rope_theta, rope_scaling }: CommonFields): Record<string, unknown> {
  const { number, tensors } = facts;
  const slides = slidingLayers(facts);
  const shared = number("attention.shared_kv_layers") ?? 0;
  const whole = slides.indexOf(false);
  const widths = facts.layers("feed_forward_length") ?? [];
  const experts = number("expert_count") ?? 0;
  return {
    rope_theta: undefined,
    rope_scaling: undefined,
    layer_types: slides.map((slides) => slides ? "sliding_attention" : "full_attention"),
    global_head_dim: number("attention.key_length"),
    num_kv_shared_layers: shared,
    use_double_wide_mlp: widths.length > 0 && widths.at(-1) === 2 * widths[0],
    attention_k_eq_v: whole >= 0 && whole < slides.length - shared && !tensors.has(`blk.${whole}.attn_v.weight`),
    num_global_key_value_heads: numberOf(facts, "attention.head_count_kv", whole),
    hidden_size_per_layer_input: number("embedding_length_per_layer_input") ?? 0,
    vocab_size_per_layer_input: tensors.get("per_layer_token_embd.weight")?.shape[0],
    final_logit_softcapping: number("final_logit_softcapping") ?? null,
    rope_parameters: {
      full_attention: {
        ...rope_scaling,
        rope_type: "proportional",
        partial_rotary_factor: rotatedShare(facts),
        rope_theta,
      },
      sliding_attention: { rope_type: "default", rope_theta: number("rope.freq_base_swa") ?? rope_theta },
    },
    ...(experts > 0 && {
      enable_moe_block: true,
      num_experts: experts,
      top_k_experts: number("expert_used_count"),
      num_experts_per_tok: undefined,
      moe_intermediate_size: number("expert_feed_forward_length"),
    }),
  };
}

/** Gemma 4. */
export const GEMMA4: GgufFamily = {
  modelType: "gemma4_text",
  names: {
    per_layer_token_embd: "model.embed_tokens_per_layer",
    per_layer_model_proj: "model.per_layer_model_projection",
    per_layer_proj_norm: "model.per_layer_projection_norm",
    ffn_norm: "pre_feedforward_layernorm",
    pre_ffw_norm_2: "pre_feedforward_layernorm_2",
    post_ffw_norm_1: "post_feedforward_layernorm_1",
    post_ffw_norm_2: "post_feedforward_layernorm_2",
    ffn_gate_inp: "router.proj",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
    ffn_gate_up_exps: "experts.switch_glu.gate_up_proj",
    ffn_gate_exps: "experts.switch_glu.gate_proj",
    ffn_up_exps: "experts.switch_glu.up_proj",
    ffn_down_exps: "experts.switch_glu.down_proj",
    inp_gate: "per_layer_input_gate",
    proj: "per_layer_projection",
    post_norm: "post_per_layer_input_norm",
    layer_output_scale: "layer_scalar",
  },
  commonFacts: slidingFacts,
  fields,
};
