/**
 * The architectures of GGUF files and the families of models/ that they are, as a table.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import { checkRotated, type CommonFields, commonFields, type Facts, headsOf } from "./config.ts";
import { DEEPSEEK2 } from "./deepseek2.ts";
import type { GgufFamily } from "./family.ts";
import { GEMMA4 } from "./gemma4.ts";
import type { ModuleNames } from "./names.ts";
import { QWEN35, QWEN35_MOE, QWEN3_NEXT } from "./qwen_hybrid.ts";

/** Names of the layers' modules in families with a norm after attention, which has another name then. */
const SANDWICHED: ModuleNames = { ffn_norm: "pre_feedforward_layernorm" };
/** The layers of the largest Gemma 2 and 3, whose scores have a scale of their own, and the same of their files. */
const GEMMA_27B: Readonly<Record<string, number>> = { gemma2: 46, gemma3: 62 };

/** The square of the inverse scale of Gemma's scores, which files leave out. */
function queryScalar(facts: Facts): number {
  const { architecture, number } = facts;
  const { heads, headDim } = headsOf(facts);
  return number("block_count") === GEMMA_27B[architecture] ? (number("embedding_length") ?? 0) / heads : headDim;
}

const LLAMA: GgufFamily = {
  modelType: "llama",
  paired: true,
  fields: ({ tensors }) => ({
    attention_bias: tensors.has("blk.0.attn_output.bias"),
    mlp_bias: tensors.has("blk.0.ffn_down.bias"),
  }),
};

const MIXTRAL: GgufFamily = {
  modelType: "mixtral",
  paired: true,
  names: {
    ffn_gate_inp: "block_sparse_moe.gate",
    ffn_gate_exps: "block_sparse_moe.switch_mlp.gate_proj",
    ffn_up_exps: "block_sparse_moe.switch_mlp.up_proj",
    ffn_down_exps: "block_sparse_moe.switch_mlp.down_proj",
  },
  fields: ({ number }) => ({ num_local_experts: number("expert_count") }),
};

/** Names of LFM2's modules, beside those of its feed-forward parts. */
const LFM2_NAMES: ModuleNames = {
  token_embd_norm: "model.embedding_norm",
  attn_norm: "operator_norm",
  attn_q_norm: "self_attn.q_layernorm",
  attn_k_norm: "self_attn.k_layernorm",
  attn_output: "self_attn.out_proj",
  ffn_norm: "ffn_norm",
  "shortconv.conv": "conv.conv",
  "shortconv.in_proj": "conv.in_proj",
  "shortconv.out_proj": "conv.out_proj",
};

/** Fields of LFM2: layers without heads of keys are convolutions. */
function lfm2Fields({ metadata, architecture, number, layers, tensors }: Facts): Readonly<Record<string, unknown>> {
  const heads = layers("attention.head_count_kv");
  if ((number("attention.sliding_window") ?? 0) > 0) {
    metadata.fail(`${quoted(`${architecture}.attention.sliding_window`)} is set, which is not supported here`);
  }
  return {
    norm_eps: number("attention.layer_norm_rms_epsilon"),
    layer_types: Array.from(
      { length: number("block_count") ?? 0 },
      (_, layer) => heads?.[layer] === 0 ? "conv" : "full_attention",
    ),
    conv_L_cache: number("shortconv.l_cache"),
    conv_bias: tensors.keys().some((name) => name.endsWith(".shortconv.in_proj.bias")),
    block_dim: number("embedding_length"),
    block_auto_adjust_ff_dim: false,
    block_multiple_of: 1,
  };
}

/** Fields of Qwen's experts. */
function qwenExperts({ number }: Facts, normalised: boolean): Readonly<Record<string, unknown>> {
  return {
    num_experts: number("expert_count"),
    moe_intermediate_size: number("expert_feed_forward_length"),
    norm_topk_prob: normalised,
    decoder_sparse_step: 1,
    mlp_only_layers: [],
  };
}

/** Fields of Granite. */
function graniteFields(facts: Facts, common: CommonFields): Readonly<Record<string, unknown>> {
  return {
    ...LLAMA.fields!(facts, common),
    embedding_multiplier: facts.number("embedding_scale") ?? 1,
    attention_multiplier: facts.number("attention.scale") ?? headsOf(facts).headDim ** -0.5,
    residual_multiplier: facts.number("residual_scale") ?? 1,
    logits_scaling: facts.number("logit_scale"),
  };
}

const GRANITE: GgufFamily = { modelType: "granite", paired: true, fields: graniteFields };
/** Granite without positions, which only Granite 4 has. */
const GRANITE_NOPE: GgufFamily = {
  modelType: "granitemoehybrid",
  paired: true,
  fields: (facts, common) => ({
    ...graniteFields(facts, common),
    position_embedding_type: "nope",
    layer_types: Array.from({ length: facts.number("block_count") ?? 0 }, () => "attention"),
  }),
};

/** The families by "general.architecture". Some depend on what else the file says. */
const ARCHITECTURES: Readonly<Record<string, GgufFamily | ((facts: Facts) => GgufFamily)>> = {
  deepseek2: DEEPSEEK2,
  gemma: { modelType: "gemma", normOffset: 1 },
  gemma2: {
    modelType: "gemma2",
    normOffset: 1,
    names: SANDWICHED,
    fields: (facts) => ({
      query_pre_attn_scalar: queryScalar(facts),
      attn_logit_softcapping: facts.number("attn_logit_softcapping"),
      final_logit_softcapping: facts.number("final_logit_softcapping"),
    }),
  },
  gemma3: {
    modelType: "gemma3_text",
    normOffset: 1,
    names: SANDWICHED,
    fields: (facts) => ({
      query_pre_attn_scalar: queryScalar(facts),
      rope_theta: facts.number("rope.freq_base") ?? 1e6,
      rope_local_base_freq: facts.number("rope.freq_base_swa") ?? 1e4,
      sliding_window_pattern: facts.number("attention.sliding_window_pattern") ?? 6,
    }),
  },
  gemma4: GEMMA4,
  "gpt-oss": {
    modelType: "gpt_oss",
    names: {
      ...SANDWICHED,
      ffn_gate_inp: "mlp.router",
      ffn_gate_exps: "mlp.experts.gate_proj",
      ffn_up_exps: "mlp.experts.up_proj",
      ffn_down_exps: "mlp.experts.down_proj",
    },
    fields: ({ number }) => ({
      num_local_experts: number("expert_count"),
      intermediate_size: number("expert_feed_forward_length"),
    }),
  },
  granite: ({ metadata }) => metadata.flag("granite.rope.scaling.finetuned") === false ? GRANITE_NOPE : GRANITE,
  granitemoe: (facts) => {
    const { metadata, number } = facts;
    const shared = number("expert_shared_feed_forward_length") ?? 0;
    if (metadata.flag("granitemoe.rope.scaling.finetuned") === false) {
      metadata.fail('"granitemoe.rope.scaling.finetuned" is false: experts without positions are not supported here');
    }
    if (shared > 0) {
      metadata.fail(
        `"granitemoe.expert_shared_feed_forward_length" is ${shared}: shared experts are not supported here`,
      );
    }
    return {
      modelType: "granitemoe",
      paired: true,
      names: { ...MIXTRAL.names, ffn_gate_inp: "block_sparse_moe.router.layer" },
      fields: (facts, common) => ({ ...graniteFields(facts, common), ...MIXTRAL.fields!(facts, common) }),
    };
  },
  lfm2: {
    modelType: "lfm2",
    names: { ...LFM2_NAMES, ffn_gate: "feed_forward.w1", ffn_up: "feed_forward.w3", ffn_down: "feed_forward.w2" },
    fields: lfm2Fields,
  },
  lfm2moe: {
    modelType: "lfm2_moe",
    names: {
      ...LFM2_NAMES,
      ffn_gate: "feed_forward.gate_proj",
      ffn_up: "feed_forward.up_proj",
      ffn_down: "feed_forward.down_proj",
      ffn_gate_inp: "feed_forward.gate",
      exp_probs_b: "feed_forward.expert_bias",
      ffn_gate_exps: "feed_forward.switch_mlp.gate_proj",
      ffn_up_exps: "feed_forward.switch_mlp.up_proj",
      ffn_down_exps: "feed_forward.switch_mlp.down_proj",
    },
    fields: (facts) => ({
      ...lfm2Fields(facts),
      num_experts: facts.number("expert_count"),
      moe_intermediate_size: facts.number("expert_feed_forward_length"),
      num_dense_layers: facts.number("leading_dense_block_count"),
      use_expert_bias: facts.tensors.keys().some((name) => name.endsWith(".exp_probs_b.bias")),
      norm_topk_prob: true,
      routed_scaling_factor: facts.number("expert_weights_scale") ?? 1,
    }),
  },
  llama: ({ number }) => (number("expert_count") ?? 0) > 0 ? MIXTRAL : LLAMA,
  mistral3: {
    modelType: "ministral3",
    paired: true,
    fields: ({ number }, { rope_scaling, rope_theta }) => ({
      rope_scaling: undefined,
      rope_parameters: {
        // Its makers stretch positions without a factor of scores: both scales are the same.
        ...(rope_scaling && { ...rope_scaling, mscale: 1, mscale_all_dim: 1 }),
        rope_theta,
        llama_4_scaling_beta: number("attention.temperature_scale") ?? 0,
        original_max_position_embeddings: number("rope.scaling.original_context_length") ?? number("context_length"),
      },
    }),
  },
  olmo2: ({ number }) => ({
    modelType: (number("attention.sliding_window") ?? 0) > 0 ? "olmo3" : "olmo2",
    names: SANDWICHED,
  }),
  phi3: {
    modelType: "phi3",
    rotatesPart: true,
    names: { ffn_up: "mlp.gate_up_proj" },
    fields: (facts) => {
      const { headDim } = headsOf(facts);
      return {
        partial_rotary_factor: (facts.number("rope.dimension_count") ?? headDim) / headDim,
        original_max_position_embeddings: facts.number("rope.scaling.original_context_length"),
      };
    },
  },
  qwen2: { modelType: "qwen2" },
  qwen2moe: {
    modelType: "qwen2_moe",
    fields: (facts) => ({
      ...qwenExperts(facts, false),
      shared_expert_intermediate_size: facts.number("expert_shared_feed_forward_length") ??
        facts.tensors.get("blk.0.ffn_up_shexp.weight")?.shape[0],
    }),
  },
  qwen3: { modelType: "qwen3" },
  qwen3moe: { modelType: "qwen3_moe", fields: (facts) => qwenExperts(facts, true) },
  qwen35: QWEN35,
  qwen35moe: QWEN35_MOE,
  qwen3next: QWEN3_NEXT,
  smollm3: { modelType: "smollm3", paired: true },
};

/** Architectures that are not supported, and what they need. */
const ABSENT: Readonly<Record<string, string>> = {
  granitehybrid: "recurrent layers of Mamba-2",
};

/** The family of a file. Throws an {@link LlmError} that names those that are known. */
export function familyOf(facts: Facts): GgufFamily {
  const { architecture, metadata } = facts;
  if (!Object.hasOwn(ARCHITECTURES, architecture)) {
    const needs = Object.hasOwn(ABSENT, architecture) ? ABSENT[architecture] : undefined;
    if (needs) metadata.fail(`the architecture ${quoted(architecture)} is not supported: it needs ${needs}`);
    const known = Object.keys(ARCHITECTURES).join(", ");
    metadata.fail(`the architecture ${quoted(architecture)} is not known: known are ${known}`);
  }
  const found = ARCHITECTURES[architecture];
  return typeof found === "function" ? found(facts) : found;
}

/** The fields of config.json that a file stands for. */
export function fieldsOf(family: GgufFamily, facts: Facts): Record<string, unknown> {
  const read = family.commonFacts?.(facts) ?? facts;
  const common = commonFields(read);
  if (!family.rotatesPart) checkRotated(read, common.head_dim);
  const fields = { ...common, ...family.fields?.(facts, common), model_type: family.modelType };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
