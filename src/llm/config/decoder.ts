/**
 * The part of config.json that describes a decoder: the record that the layers of `layers/` are built from.
 *
 * @module
 */

import type { MixerConfig } from "./layer_kinds.ts";
import type { ModelConfig } from "./model.ts";
import type { RopeConfig } from "./rope.ts";

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
  /** Whether rotated pairs are neighbours; absent where they are a feature of the first half and one of the second. */
  readonly ropeTraditional?: boolean;
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

/** Attention of a layer, with the heads that all layers have where it has none of its own. */
export function attentionOf(
  { layerAttention, ...config }: DecoderConfig,
  layer: number,
): LayerAttention & Pick<ModelSizes, "kvHeads" | "headDim"> {
  const { kvHeads, headDim } = config;
  return { window: undefined, rope: config, kvHeads, headDim, ...layerAttention?.[layer] };
}
