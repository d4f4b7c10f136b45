/**
 * The part of config.json that describes a decoder. This is the record that the layers of `layers/` are built from, and the checked
 * readers that the families of `models/` combine.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { Fields } from "./fields.ts";
import type { MixerConfig } from "./layer_kinds.ts";
import { MAX_POSITION, type ModelConfig, readModelConfig } from "./model.ts";
import { checkFactors, readRope, type RopeConfig } from "./rope.ts";

/** Sizes of a model. */
export interface ModelSizes {
  /** Features of a token between the layers. */
  readonly hiddenSize: number;
  /** Features inside of the feed-forward part. */
  readonly intermediateSize: number;
  /** Blocks. */
  readonly layers: number;
  /** Query heads, a multiple of `kvHeads`. */
  readonly heads: number;
  /** Key/value heads. */
  readonly kvHeads: number;
  /** Features of a head, even. */
  readonly headDim: number;
}

/** The function between the two products of a feed-forward part. */
export type GateActivation = "silu" | "gelu" | "geluTanh";

/** Attention of one layer where layers are not alike. */
export interface LayerAttention extends Partial<Pick<ModelSizes, "kvHeads" | "headDim">> {
  /** How many positions a query sees, its own the last of them; undefined for the whole context. */
  readonly window: number | undefined;
  /** Rotary positions; undefined for a layer without positions. */
  readonly rope: RopeConfig | undefined;
  /** Whether one projection gives keys and values. */
  readonly joinedKeysValues?: boolean;
  /** The layer whose keys and values this one reads; absent where it has its own. Layers that have none follow all others. */
  readonly sharesWith?: number;
}

/** Queries at a position p are multiplied by 1 + beta * log(1 + floor(p / context)). */
export interface QueryGrowth {
  /** The rate. */
  readonly beta: number;
  /** The positions that a model was trained with. */
  readonly context: number;
}

/** The names that checkpoints have for the modules of a decoder. */
export interface ModuleNames {
  /** The norm after the last layer. */
  readonly lastNorm: "norm" | "embedding_norm";
  /** The norm before attention, or before what takes its place. */
  readonly mixerNorm: "input_layernorm" | "operator_norm";
  /** The norm before the feed-forward part, where there is none after attention. */
  readonly mlpNorm: "post_attention_layernorm" | "ffn_norm";
  /** The feed-forward part that has no experts. */
  readonly mlp: "mlp" | "feed_forward";
  /** The matrices of the feed-forward part. */
  readonly gate: "gate_proj" | "w1";
  readonly up: "up_proj" | "w3";
  readonly down: "down_proj" | "w2";
  /** The norms of queries and of keys. */
  readonly queryNorm: "q_norm" | "q_layernorm";
  readonly keyNorm: "k_norm" | "k_layernorm";
  /** The projection of what attention gives. */
  readonly output: "o_proj" | "out_proj";
}

/** The names in most families. */
export const MODULE_NAMES: ModuleNames = {
  lastNorm: "norm",
  mixerNorm: "input_layernorm",
  mlpNorm: "post_attention_layernorm",
  mlp: "mlp",
  gate: "gate_proj",
  up: "up_proj",
  down: "down_proj",
  queryNorm: "q_norm",
  keyNorm: "k_norm",
  output: "o_proj",
};

/** Further vectors of tokens, one for each layer. */
export interface LayerInputsConfig {
  /** Features of one. */
  readonly size: number;
  /** Tokens that have some. */
  readonly vocabSize: number;
}

/** Latent attention: a cache holds a vector that all heads share, of which each makes its keys and values. */
export interface LatentConfig {
  /** Features of the vector. */
  readonly rank: number;
  /** Features of what queries are made of; absent where they are projected at once. */
  readonly queryRank?: number;
  /** Features of a head of queries and keys that are not rotated; those that are, are `ropeDims`. */
  readonly plainDim: number;
  /** Features of a head of values. */
  readonly valueDim: number;
}

/** The names that checkpoints have for the modules of experts. */
export interface ExpertNames {
  /** The feed-forward part of a layer. */
  readonly part: "mlp" | "block_sparse_moe" | "feed_forward";
  /** The router in it. */
  readonly router: "gate" | "router" | "router.layer";
  /** The experts in it. */
  readonly stack: "switch_mlp" | "experts";
  /** The expert that every token gets, where it counts as a whole; absent for "shared_expert", which has a gate. */
  readonly shared?: "shared_experts";
  /** The bias of experts that counts for the choice, where the router has it, which then stays dense; absent for "expert_bias". */
  readonly bias?: "e_score_correction_bias";
}

/** A router whose scores are sigmoids, each by itself. */
export interface SigmoidScores {
  /** Whether the checkpoint has a bias of each expert, which counts for the choice alone. */
  readonly bias: boolean;
  /** Whether the weights of the chosen experts are divided by their sum. */
  readonly normalized: boolean;
  /** Added to that sum; absent for 1e-6. */
  readonly sumEps?: number;
  /** The factor of the weights. */
  readonly factor: number;
  /** Groups of experts of which a token may choose from some only; absent where it may choose from all experts. */
  readonly groups?: ExpertGroups;
}

/** Groups of as many experts, which follow each other. */
export interface ExpertGroups {
  /** How many there are. */
  readonly count: number;
  /** The groups that a token may choose from: those whose two best experts have the highest sums. */
  readonly open: number;
}

/** How many experts there are, and how large they are. */
export interface ExpertSizes {
  /** How many there are. */
  readonly count: number;
  /** How many of them a token gets. */
  readonly chosen: number;
  /** Features inside of one. */
  readonly size: number;
}

/** Experts in the place of a feed-forward part. */
export interface ExpertsConfig extends ExpertSizes {
  /** Whether their weights are probabilities among all experts, or among those that were chosen. */
  readonly among: "all" | "chosen";
  /** Scores by sigmoids; absent where they are a softmax. */
  readonly sigmoid?: SigmoidScores;
  /** Features inside of an expert that every token gets, if there is one. */
  readonly sharedSize?: number;
  /** The layers that have them; absent for all. */
  readonly layers?: readonly boolean[];
  /** The function between their products; absent for SwiGLU. */
  readonly gate?: "clipped" | "geluTanh";
  /** Whether the router and the products have biases. */
  readonly biases?: boolean;
  /** The names of a layer's feed-forward part, and of the router and the experts in it. */
  readonly names: ExpertNames;
}

/**
 * Where a layer has norms: "pre" before attention and the feed-forward part, "post" after them, "both" before and after. After always
 * means before the residual is added.
 */
export type NormPlacement = "pre" | "post" | "both";

/**
 * A decoder with rotary positions and a gated feed-forward part. Fields that may be absent are so in the plain form: a pre-norm decoder
 * whose layers are alike and attend to the whole context.
 */
export interface DecoderConfig extends ModelConfig, ModelSizes, RopeConfig, MixerConfig {
  /** Added to the mean square of the input of a norm. */
  readonly rmsNormEps: number;
  /** The gate's function. */
  readonly activation: GateActivation;
  /** Whether queries and keys are normalised, each head by itself. */
  readonly qkNorm: boolean;
  /** Whether queries, keys and values have a bias. */
  readonly qkvBias: boolean;
  /** Whether attention's output projection has one. */
  readonly outputBias: boolean;
  /** Whether the three products of the feed-forward part have. */
  readonly mlpBias: boolean;
  /** Whether the norms of queries and keys are over all heads together; absent where each head has its own. */
  readonly qkNormWhole?: boolean;
  /** Attention of each layer; absent where all see the whole context and rotate by the positions of {@link RopeConfig}. */
  readonly layerAttention?: readonly LayerAttention[];
  /** Whether queries come with a gate of what attention gives. */
  readonly outputGate?: boolean;
  /** The names of modules; absent for {@link MODULE_NAMES}. */
  readonly names?: ModuleNames;
  /** Features of a head that are rotated, the first ones; absent for all. */
  readonly ropeDims?: number;
  /** The factor of scores; absent for 1 / sqrt(headDim). */
  readonly scoreScale?: number;
  /** How queries grow with their position; absent where they do not. */
  readonly queryGrowth?: QueryGrowth;
  /** Whether each query head has one more logit in the softmax, which gives no value. */
  readonly sinks?: boolean;
  /** The bound of scores: softcap * tanh(score / softcap). */
  readonly scoreCap?: number;
  /** The bound of logits, of the same form. */
  readonly logitCap?: number;
  /** Added to the weights of all norms. */
  readonly normOffset?: number;
  /** Whether residuals of float16 activations are added in float32 and kept in float16's range. */
  readonly clipsResidual?: boolean;
  /** Where a layer has norms; absent for "pre". */
  readonly norms?: NormPlacement;
  /** The factor of the vectors of tokens. */
  readonly embeddingScale?: number;
  /** The factor of what attention and the feed-forward part add to the residual. */
  readonly residualScale?: number;
  /** What logits are divided by. */
  readonly logitDivisor?: number;
  /** Whether heads of values are normalised, without weights. */
  readonly valueNorm?: boolean;
  /** Features inside of the feed-forward part of each layer; absent where all have `intermediateSize`. */
  readonly intermediateSizes?: readonly number[];
  /** Vectors of tokens that each layer adds; absent where layers see those of the embedding only. */
  readonly layerInputs?: LayerInputsConfig;
  /** Whether the result of each layer is multiplied by a stored number. */
  readonly layerScalars?: boolean;
  /** Experts; absent where no layer has some. */
  readonly experts?: ExpertsConfig;
  /** Experts beside the feed-forward part of each layer, with norms and a router of their own; absent where there are none. */
  readonly expertsBeside?: ExpertSizes;
  /** Latent attention, whose positions rotate neighbours; absent where layers have keys and values by heads. */
  readonly latent?: LatentConfig;
  /** Whether one matrix projects to queries, keys and values, and one to gate and up. */
  readonly joinedProjections?: boolean;
  /** Whether checkpoints may have a head that drafts tokens, below {@link DRAFT_HEAD}. */
  readonly mayDraft?: boolean;
}

/** The name of the head that drafts tokens. */
export const DRAFT_HEAD = "mtp";

/** Whether a tensor belongs to that head, by its name here. */
export function isOfDraftHead(name: string): boolean {
  return name.startsWith(`${DRAFT_HEAD}.`);
}

/** The paths of all layers, that of the draft head included if the family has one. */
export function layerPaths({ layers, mayDraft }: Pick<DecoderConfig, "layers" | "mayDraft">): string[] {
  const paths = Array.from({ length: layers }, (_, layer) => `model.layers.${layer}`);
  return mayDraft ? [...paths, `${DRAFT_HEAD}.layers.0`] : paths;
}

/** Defaults of a family for missing fields of config.json; a field without a default must be there. */
export interface DecoderDefaults {
  /** Whether head_dim may be absent: then it is hidden_size / num_attention_heads. */
  readonly headDim?: boolean;
  /** Whether num_key_value_heads may be absent: then there are as many as query heads. */
  readonly kvHeads?: boolean;
  /** rope_theta */
  readonly ropeTheta?: number;
  /** max_position_embeddings */
  readonly context?: number;
  /** Whether it is so that "layer_types" names layers with a window, of "sliding_window". Other families see the whole context. */
  readonly windows?: boolean;
  /** Whether the family reads "layer_types" itself. */
  readonly ownLayerTypes?: boolean;
  /** The name of "rms_norm_eps". */
  readonly epsName?: string;
}

// Far above any model; more would fill the memory before the first missing tensor is noticed.
const MAX_LAYERS = 1000;
const MAX_SIZE = 2 ** 20;
const MAX_HEADS = 2 ** 12;
const MAX_HEAD = 2 ** 12;
const MAX_EXPERTS = 2 ** 14;

/** Activations by the names that transformers has for them. */
const ACTIVATIONS: Readonly<Record<string, GateActivation>> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_new: "geluTanh",
  gelu_fast: "geluTanh",
  gelu_pytorch_tanh: "geluTanh",
};

/** Kinds of attention by the names that transformers has for them, and whether they have a window. */
const LAYER_TYPES = { full_attention: false, sliding_attention: true } as const;

/** The fields that a family does not set itself: all of {@link DecoderConfig} but its norms of queries and keys and its biases. */
export type CommonConfig = Omit<DecoderConfig, "qkNorm" | "qkvBias" | "outputBias" | "mlpBias">;

/** Reads the fields that decoders share. {@link checkDecoder} follows when the family has read its own. */
export function readDecoder(fields: Fields, defaults: DecoderDefaults = {}): CommonConfig {
  fields.refuse("rope_traditional"); // pairs of neighbours, in a few conversions by mlx-lm
  const common = {
    ...readModelConfig(fields, defaults.context),
    ...readSizes(fields, defaults),
    ...readRope(fields, defaults.ropeTheta),
    rmsNormEps: fields.positive(defaults.epsName ?? "rms_norm_eps", 1),
    activation: readActivation(fields),
  };
  if (defaults.ownLayerTypes) return common;
  const slides = readLayerTypes(fields, common.layers);
  return defaults.windows && slides ? { ...common, ...slidingLayers(fields, common, slides) } : common;
}

/**
 * Layers of which some have the window of "sliding_window" and rotary positions of their own, if `slidingRope` gives those. Nothing if
 * layers are alike then.
 */
export function slidingLayers(
  fields: Fields,
  common: CommonConfig,
  slides: readonly boolean[],
  slidingRope?: RopeConfig,
): Pick<DecoderConfig, "layerAttention"> {
  if (!slides.includes(true)) return {};
  const { ropeTheta, ropeScaling, maxPositionEmbeddings } = common;
  const given = fields.count("sliding_window", MAX_POSITION);
  const window = given < maxPositionEmbeddings ? given : undefined;
  if (window === undefined && slidingRope === undefined) return {};
  const whole: LayerAttention = { window: undefined, rope: { ropeTheta, ropeScaling } };
  const sliding: LayerAttention = { window, rope: slidingRope ?? whole.rope };
  return { layerAttention: slides.map((slides) => slides ? sliding : whole) };
}

/** Attention of a layer, with the heads that all layers have where it has none of its own. */
export function attentionOf(
  { layerAttention, ...config }: DecoderConfig,
  layer: number,
): LayerAttention & Pick<ModelSizes, "kvHeads" | "headDim"> {
  const { kvHeads, headDim } = config;
  return { window: undefined, rope: config, kvHeads, headDim, ...layerAttention?.[layer] };
}

/**
 * The sizes of experts. The fields `count`, `size` and `perToken` say how many there are, the features inside of one, and how many a token
 * gets.
 */
export function readExperts(
  fields: Fields,
  count: string,
  size: string,
  perToken: string = "num_experts_per_tok",
): ExpertSizes {
  const experts = fields.count(count, MAX_EXPERTS);
  const chosen = fields.count(perToken, MAX_EXPERTS);
  if (chosen > experts) fields.problem(`"${perToken}" is ${chosen}, but there are ${experts} experts`);
  return { count: experts, chosen, size: fields.count(size, MAX_SIZE) };
}

/** Throws an {@link LlmError} that names every problem of the fields, or else what does not fit together. */
export function checkDecoder<C extends DecoderConfig>(fields: Fields, config: C): C {
  fields.finish(); // later checks compare values that are valid by themselves
  const { heads, kvHeads, headDim } = config;
  if (heads % kvHeads !== 0) {
    fields.problem(`"num_attention_heads" ${heads} is not a multiple of "num_key_value_heads" ${kvHeads}`);
  }
  if (headDim % 2 !== 0 || headDim > MAX_HEAD) {
    fields.problem(`"head_dim" is ${headDim}, expected an even number up to ${MAX_HEAD}`);
  }
  const { ropeDims = headDim } = config;
  if (ropeDims % 2 !== 0 || ropeDims < 2 || ropeDims > headDim) {
    fields.problem(`${ropeDims} features of a head are rotated, expected an even number up to ${headDim}`);
  }
  checkFactors(fields, config, ropeDims / 2);
  fields.finish();
  return config;
}

function readSizes(fields: Fields, defaults: DecoderDefaults): ModelSizes {
  const hiddenSize = fields.count("hidden_size", MAX_SIZE);
  const intermediateSize = fields.count("intermediate_size", MAX_SIZE);
  const layers = fields.count("num_hidden_layers", MAX_LAYERS);
  const heads = fields.count("num_attention_heads", MAX_HEADS);
  const kvHeads = fields.count("num_key_value_heads", MAX_HEADS, defaults.kvHeads ? heads : undefined);
  const derived = defaults.headDim && !fields.has("head_dim");
  const headDim = derived ? hiddenSize / heads : fields.count("head_dim", MAX_HEAD);
  return { hiddenSize, intermediateSize, layers, heads, kvHeads, headDim };
}

function readActivation(fields: Fields): GateActivation {
  const name = fields.string("hidden_act", "silu");
  if (Object.hasOwn(ACTIVATIONS, name)) return ACTIVATIONS[name];
  if (typeof (fields.values.hidden_act ?? name) === "string") { // otherwise the problem is noted
    fields.problem(`"hidden_act" is ${quoted(name)}: supported are ${Object.keys(ACTIVATIONS).map(quoted).join(", ")}`);
  }
  return "silu";
}

/** Which layers "layer_types" gives a window; undefined where it is absent. */
export function readLayerTypes(fields: Fields, layers: number): boolean[] | undefined {
  return readTypes(fields, layers, LAYER_TYPES);
}

/** What each layer is by its name in "layer_types"; undefined where that is absent. */
export function readTypes<T>(fields: Fields, layers: number, table: Readonly<Record<string, T>>): T[] | undefined {
  const types = fields.values.layer_types ?? undefined;
  if (types === undefined) return undefined;
  const known = Object.keys(table).map(quoted).join(" and ");
  const isKnown = (type: unknown): type is string => typeof type === "string" && Object.hasOwn(table, type);
  const other = Array.isArray(types) ? types.find((type) => !isKnown(type)) : types;
  if (other !== undefined) fields.problem(`"layer_types" has ${quoted(other)}: supported are ${known}`);
  else if ((types as unknown[]).length !== layers) {
    fields.problem(`"layer_types" has ${(types as unknown[]).length} layers, "num_hidden_layers" says ${layers}`);
  } else return (types as string[]).map((type) => table[type]);
  return undefined;
}
