/**
 * GLM-4.7-Flash and others of its form (Z.ai): latent attention, and experts whose scores are sigmoids, with one that every token gets. The
 * first layers are dense. Heads that predict further tokens are left out.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { expertStacks, PROJECTIONS, type Stack } from "../checkpoint/expert_stacks.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { DecoderConfig, ExpertsConfig } from "../config/decoder.ts";
import { checkDecoder, readDecoder, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import type { RopeScaling } from "../config/rope.ts";

/** mlx-lm's values of fields that may be absent. */
const DEFAULTS = {
  vocab_size: 154880,
  hidden_size: 2048,
  intermediate_size: 10240,
  moe_intermediate_size: 1536,
  num_hidden_layers: 47,
  num_attention_heads: 20,
  n_shared_experts: 1,
  n_routed_experts: 64,
  routed_scaling_factor: 1.8,
  kv_lora_rank: 512,
  q_lora_rank: 768,
  qk_rope_head_dim: 64,
  qk_nope_head_dim: 192,
  v_head_dim: 256,
  topk_method: "noaux_tc",
  norm_topk_prob: true,
  n_group: 1,
  topk_group: 1,
  num_experts_per_tok: 4,
  moe_layer_freq: 1,
  first_k_dense_replace: 1,
  max_position_embeddings: 202752,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
  attention_bias: false,
} as const;

const MAX_SIZE = 2 ** 20;
const MAX_LAYERS = 1000;
const MAX_EXPERTS = 2 ** 14;
const MAX_FACTOR = 1e6;

/** The order of modules in mlx-lm. */
export const ORDER = {
  layer: [
    "self_attn",
    "mlp.switch_mlp",
    "mlp.gate",
    "mlp.shared_experts.gate_proj",
    "mlp.shared_experts.up_proj",
    "mlp.shared_experts.down_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "input_layernorm",
    "post_attention_layernorm",
  ],
} as const;

/** Modules that the converter leaves dense: the routers. */
export const DENSE = ["mlp.gate"] as const;

/** Arrays whose dtype the converter keeps. */
export const KEPT = ["e_score_correction_bias"] as const;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = given.withDefaults(DEFAULTS);
  const common = readDecoder(fields, { headDim: true, kvHeads: true });
  const bias = fields.flag("attention_bias");
  const [plainDim, ropeDims] = [fields.count("qk_nope_head_dim", MAX_SIZE), fields.count("qk_rope_head_dim", MAX_SIZE)];
  const headDim = plainDim + ropeDims;
  const experts = readRouted(fields, common.layers);
  return checkDecoder(fields, {
    ...common,
    headDim,
    ropeDims,
    ropeTraditional: true,
    kvHeads: common.heads,
    tieWordEmbeddings: false,
    qkNorm: false,
    qkvBias: bias,
    outputBias: bias,
    mlpBias: false,
    scoreScale: headDim ** -0.5 * stretch(common.ropeScaling) ** 2,
    latent: {
      rank: fields.count("kv_lora_rank", MAX_SIZE),
      plainDim,
      valueDim: fields.count("v_head_dim", MAX_SIZE),
      ...(fields.has("q_lora_rank") && { queryRank: fields.count("q_lora_rank", MAX_SIZE) }),
    },
    ...(experts && { experts }),
  });
}

/** What YaRN multiplies queries and keys by where it says so of all features. */
function stretch(scaling: RopeScaling): number {
  if (scaling.type !== "yarn" || scaling.factor <= 1) return 1;
  return 0.1 * scaling.mscaleAllDim * Math.log(scaling.factor) + 1;
}

/** The experts; undefined where "n_routed_experts" is null. */
function readRouted(fields: Fields, layers: number): ExpertsConfig | undefined {
  if (!fields.has("n_routed_experts")) return undefined;
  const method = fields.string("topk_method");
  if (method !== "noaux_tc") fields.problem(`"topk_method" is "${method}": supported is "noaux_tc"`);
  const sizes = readExperts(fields, "n_routed_experts", "moe_intermediate_size");
  const [groups, openGroups] = ["n_group", "topk_group"].map((name) => fields.count(name, MAX_EXPERTS));
  if (openGroups > groups) fields.problem(`"topk_group" is ${openGroups}, but there are ${groups} groups`);
  if (sizes.count % groups !== 0 || (groups > 1 && sizes.count < 2 * groups)) {
    fields.problem(`"n_group" is ${groups}: ${sizes.count} experts are not so many groups of two or more`);
  }
  const [first, every] = [
    fields.whole("first_k_dense_replace", 0, MAX_LAYERS),
    fields.count("moe_layer_freq", MAX_LAYERS),
  ];
  return {
    ...sizes,
    among: "all",
    sigmoid: {
      bias: true,
      normalized: fields.flag("norm_topk_prob") && sizes.chosen > 1,
      sumEps: 1e-20,
      factor: fields.positive("routed_scaling_factor", MAX_FACTOR),
      ...(groups > 1 && { groups: { count: groups, open: openGroups } }),
    },
    layers: Array.from({ length: layers }, (_, layer) => layer >= first && layer % every === 0),
    names: {
      part: "mlp",
      router: "gate",
      stack: "switch_mlp",
      shared: "shared_experts",
      bias: "e_score_correction_bias",
    },
    ...(fields.has("n_shared_experts") && { sharedSize: sizes.size * fields.count("n_shared_experts", MAX_EXPERTS) }),
  };
}

/** The name of a stored tensor here; undefined for those of layers that predict further tokens. */
export function nameOf(stored: string, { layers }: DecoderConfig): string | undefined {
  const [, layer = "0"] = /^\w+\.layers\.(\d+)\./.exec(stored) ?? [];
  return Number(layer) < layers ? stored : undefined;
}

/** The stacks of experts, which Hugging Face stores one by one. */
export function stacks(config: DecoderConfig): Stack[] {
  return config.experts ? expertStacks(config, PROJECTIONS) : [];
}

/** Parts the matrix that Hugging Face stores for keys and values of all heads. */
export function arrange(weights: Weights, { layers, heads, latent }: DecoderConfig): void {
  const { rank, plainDim, valueDim } = latent!;
  const rows = heads * (plainDim + valueDim);
  for (let layer = 0; layer < layers; layer++) {
    const path = `model.layers.${layer}.self_attn`;
    weights.replace(
      `${path}.kv_b_proj.weight`,
      ({ shape }) => shape.length === 2 && shape[0] === rows && shape[1] === rank,
      (x) => {
        const [keys, values] = mx.split(x.reshape(heads, plainDim + valueDim, rank), [plainDim], 1);
        return { [`${path}.embed_q.weight`]: keys.swapaxes(1, 2), [`${path}.unembed_out.weight`]: values };
      },
    );
  }
}
