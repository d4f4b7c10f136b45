/**
 * Gemma 4 (Google), its text part. Layers with a window and layers that see the whole context have heads of different sizes and rotary
 * positions of their own. The last layers read the keys and values of earlier ones. Small models add vectors of tokens in each layer,
 * large ones have experts beside the dense part.
 *
 * @module
 */

import { splitGateUp } from "../checkpoint/gate_up.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { DecoderConfig, ExpertSizes, LayerAttention, LayerInputsConfig } from "../config/decoder.ts";
import { checkDecoder, type CommonConfig, readDecoder, readExperts, readLayerTypes } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { MAX_POSITION } from "../config/model.ts";
import { readRopeOf } from "../config/rope.ts";

/** mlx-lm's values of fields that may be absent. */
const DEFAULTS = {
  hidden_size: 1536,
  num_hidden_layers: 35,
  intermediate_size: 6144,
  num_attention_heads: 8,
  num_key_value_heads: 1,
  head_dim: 256,
  global_head_dim: 512,
  rms_norm_eps: 1e-6,
  vocab_size: 262144,
  vocab_size_per_layer_input: 262144,
  num_kv_shared_layers: 20,
  hidden_size_per_layer_input: 256,
  sliding_window: 512,
  sliding_window_pattern: 5,
  max_position_embeddings: 131072,
  final_logit_softcapping: 30,
  use_double_wide_mlp: true,
  tie_word_embeddings: true,
  rope_parameters: {
    full_attention: { partial_rotary_factor: 0.25, rope_theta: 1e6, rope_type: "proportional" },
    sliding_attention: { rope_theta: 1e4 },
  },
} as const;

const ROPE_THETA = 1e4;
const MAX_LAYERS = 1000;
const MAX_HEADS = 2 ** 12;
const MAX_HEAD = 2 ** 12;
const MAX_SIZE = 2 ** 20;
const MAX_VOCABULARY = 2 ** 26;
const MAX_CAP = 1e6;

/** The order of modules in mlx-lm. */
export const ORDER = {
  model: [
    "embed_tokens",
    "layers",
    "norm",
    "embed_tokens_per_layer",
    "per_layer_model_projection",
    "per_layer_projection_norm",
  ],
  layer: [
    "self_attn",
    "mlp",
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "router",
    "experts",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
    "per_layer_input_gate",
    "per_layer_projection",
    "post_per_layer_input_norm",
    "layer_scalar",
  ],
} as const;

/** Modules that the converter gives 8 bits: the routers. */
export const WIDENED = ["router.proj"] as const;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = given.withDefaults(DEFAULTS);
  const common = readDecoder(fields, { ropeTheta: ROPE_THETA, plainPositions: true });
  const { layers, intermediateSize } = common;
  const shared = fields.whole("num_kv_shared_layers", 0, MAX_LAYERS);
  const isDouble = fields.flag("use_double_wide_mlp") && shared > 0;
  const layerInputs = readLayerInputs(fields);
  const expertsBeside = readExpertsBeside(fields);
  return checkDecoder(fields, {
    ...common,
    layerAttention: readLayers(fields, common, layers - shared),
    activation: "geluTanh",
    embeddingScale: Math.sqrt(common.hiddenSize),
    norms: "both",
    qkNorm: true,
    valueNorm: true,
    qkvBias: false,
    outputBias: false,
    mlpBias: false,
    scoreScale: 1,
    layerScalars: true,
    ...(isDouble && {
      intermediateSizes: Array.from({ length: layers }, (_, i) => intermediateSize * (i < layers - shared ? 1 : 2)),
    }),
    ...(layerInputs && { layerInputs }),
    ...(expertsBeside && { expertsBeside }),
    ...(fields.has("final_logit_softcapping") && { logitCap: fields.positive("final_logit_softcapping", MAX_CAP) }),
  });
}

/** Attention of each layer; those from number `own` on share the keys and values of the last layer before it that is of their kind. */
function readLayers(fields: Fields, { layers, kvHeads, headDim }: CommonConfig, own: number): LayerAttention[] {
  const pattern = fields.count("sliding_window_pattern", MAX_LAYERS);
  const slides = readLayerTypes(fields, layers) ?? Array.from({ length: layers }, (_, i) => (i + 1) % pattern !== 0);
  const joined = fields.flag("attention_k_eq_v", false);
  const sliding: LayerAttention = {
    window: fields.count("sliding_window", MAX_POSITION),
    rope: readRopeOf(fields, "sliding_attention", ROPE_THETA),
  };
  const whole: LayerAttention = {
    window: undefined,
    rope: readRopeOf(fields, "full_attention", ROPE_THETA),
    kvHeads: joined ? fields.count("num_global_key_value_heads", MAX_HEADS, kvHeads) : kvHeads,
    headDim: (fields.has("global_head_dim") && fields.whole("global_head_dim", 0, MAX_HEAD)) || headDim,
    ...(joined && { joinedKeysValues: true }),
  };
  const sources = [true, false].map((kind) => [kind, slides.slice(0, Math.max(own, 0)).lastIndexOf(kind)] as const);
  const sourceOf = new Map(sources);
  if (slides.some((kind, layer) => layer >= own && sourceOf.get(kind)! < 0)) {
    fields.problem(
      `"num_kv_shared_layers" is ${layers - own}: one of the ${layers} layers has none of its kind to share with`,
    );
  }
  return slides.map((kind, layer) => ({
    ...(kind ? sliding : whole),
    ...(layer >= own && { sharesWith: sourceOf.get(kind)! }),
  }));
}

/** The vectors of tokens that each layer adds; undefined where their size is 0 or absent. */
function readLayerInputs(fields: Fields): LayerInputsConfig | undefined {
  const name = "hidden_size_per_layer_input";
  const size = fields.has(name) ? fields.whole(name, 0, MAX_SIZE) : 0;
  return size === 0 ? undefined : { size, vocabSize: fields.count("vocab_size_per_layer_input", MAX_VOCABULARY) };
}

function readExpertsBeside(fields: Fields): ExpertSizes | undefined {
  if (!fields.flag("enable_moe_block", false)) return undefined;
  return readExperts(fields, "num_experts", "moe_intermediate_size", "top_k_experts");
}

/** Ranges of activations, which some checkpoints store for each product. */
const RANGES = ["input_max", "input_min", "output_max", "output_min"];

/** The name of a stored tensor here; undefined for ranges and for projections to keys and values that a layer shares. */
export function nameOf(stored: string, { layerAttention }: DecoderConfig): string | undefined {
  const [, layer] = /\blayers\.(\d+)\.self_attn\.(?:k_proj|v_proj|k_norm)\b/.exec(stored) ?? [];
  const isShared = layer !== undefined && layerAttention![Number(layer)]?.sharesWith !== undefined;
  return isShared || RANGES.some((range) => stored.includes(range)) ? undefined : stored;
}

/** Gives the experts of Hugging Face's layout mlx-lm's: gate and up are parted. */
export function arrange(weights: Weights, { layers }: DecoderConfig): void {
  for (let layer = 0; layer < layers; layer++) {
    const path = `model.layers.${layer}.experts`;
    splitGateUp(weights, { gateUp: `${path}.gate_up_proj`, down: `${path}.down_proj` }, `${path}.switch_glu`);
  }
}
