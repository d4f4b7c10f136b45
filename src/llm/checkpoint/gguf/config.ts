/**
 * The fields of config.json that the metadata of a GGUF file stand for.
 *
 * Keys begin with the architecture ("qwen3.block_count"). Most have one field; those that differ by family are in families.ts.
 *
 * @module
 */

import type { GgufTensor } from "../../../array/files/gguf.ts";
import { quoted } from "../../../graph/error.ts";
import type { Metadata } from "./metadata.ts";

/** A file's metadata and tensors, as far as its config follows from them. */
export interface Facts {
  readonly metadata: Metadata;
  /** The value of "general.architecture". */
  readonly architecture: string;
  /** Tensors by the names of the file. */
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  /** A number of the architecture by its key, such as "block_count". */
  number(key: string): number | undefined;
  /** A number of each layer by its key; undefined if the file has none, or one for all. */
  layers(key: string): readonly number[] | undefined;
  /** Whether it is so, of each layer by its key; undefined if the file has no such list. */
  flags(key: string): readonly boolean[] | undefined;
  /** The elements of a small tensor of float32. */
  floats(name: string): readonly number[] | undefined;
}

/** The facts of a file. Layers that predict further tokens are none of the model's. */
export function factsOf(metadata: Metadata, tensors: Facts["tensors"], floats: Facts["floats"]): Facts {
  const architecture = metadata.string("general.architecture") ??
    metadata.fail('the metadata lack "general.architecture": take the GGUF file of a language model');
  const shared = (key: string): number | undefined => metadata.shared(`${architecture}.${key}`);
  const blocks = shared("block_count");
  return {
    metadata,
    architecture,
    tensors,
    number: (key) => key === "block_count" && blocks ? blocks - (shared("nextn_predict_layers") ?? 0) : shared(key),
    layers: (key) => metadata.ofLayers(`${architecture}.${key}`),
    flags: (key) => metadata.flags(`${architecture}.${key}`),
    floats,
  };
}

/** Keys of an architecture and the fields that have their values. Fields without a value are left out. */
const FIELDS = [
  ["block_count", "num_hidden_layers"],
  ["context_length", "max_position_embeddings"],
  ["embedding_length", "hidden_size"],
  ["feed_forward_length", "intermediate_size"],
  ["attention.head_count", "num_attention_heads"],
  ["attention.head_count_kv", "num_key_value_heads"],
  ["attention.key_length", "head_dim"],
  ["attention.layer_norm_rms_epsilon", "rms_norm_eps"],
  ["attention.sliding_window", "sliding_window"],
  ["rope.freq_base", "rope_theta"],
  ["expert_used_count", "num_experts_per_tok"],
] as const;

/** Keys that every model has. */
const REQUIRED = [
  "block_count",
  "context_length",
  "embedding_length",
  "attention.head_count",
  "attention.layer_norm_rms_epsilon",
];
/** The features inside of feed-forward parts; models whose layers all have experts may have the second one only. */
const [WIDTH, EXPERT_WIDTH] = ["feed_forward_length", "expert_feed_forward_length"];

/** llama.cpp's base of rotary positions where a file has none. */
const ROPE_THETA = 1e4;
/** The tensor of a head of logits. */
export const HEAD = "output.weight";
const EMBEDDING = "token_embd.weight";

/** The sizes of heads. */
export interface HeadSizes {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** The heads of a model; the metadata may leave out what follows from others. */
export function headsOf({ metadata, architecture, number }: Facts): HeadSizes {
  const heads = number("attention.head_count") ?? 0;
  const headDim = number("attention.key_length") ?? (number("embedding_length") ?? 0) / heads;
  const values = number("attention.value_length") ?? headDim;
  if (values !== headDim) {
    const key = quoted(`${architecture}.attention.value_length`);
    metadata.fail(`${key} is ${values}: heads of values have to be as large as those of keys, ${headDim}`);
  }
  return { heads, kvHeads: number("attention.head_count_kv") ?? heads, headDim };
}

/** Fields that the file of any architecture gives. */
export interface CommonFields {
  readonly head_dim: number;
  readonly rope_theta: number;
  readonly rope_scaling?: Readonly<Record<string, unknown>>;
  readonly [field: string]: unknown;
}

/** The fields that all architectures have. Throws an {@link LlmError} that names the keys that are missing. */
export function commonFields(facts: Facts): CommonFields {
  const { metadata, architecture, tensors, number } = facts;
  const required = number(EXPERT_WIDTH) === undefined ? [...REQUIRED, WIDTH] : REQUIRED;
  const missing = required.filter((key) => number(key) === undefined).map((key) => quoted(`${architecture}.${key}`));
  if (missing.length > 0) metadata.fail(`the metadata lack ${missing.join(", ")}`);
  const embedding = tensors.get(EMBEDDING) ?? metadata.fail(`there is no tensor ${quoted(EMBEDDING)}`, "weights");
  const { kvHeads, headDim } = headsOf(facts);
  const scaling = ropeScaling(facts);
  return {
    rope_theta: ROPE_THETA,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    intermediate_size: number(EXPERT_WIDTH),
    ...Object.fromEntries(
      FIELDS.map(([key, field]) => [field, number(key)]).filter(([, value]) => value !== undefined),
    ),
    vocab_size: embedding.shape[0],
    tie_word_embeddings: !tensors.has(HEAD),
    ...(scaling && { rope_scaling: scaling }),
  };
}

/** Throws unless all features of a head are rotated. */
export function checkRotated({ metadata, architecture, number }: Facts, headDim: number): void {
  const rotated = number("rope.dimension_count") ?? headDim;
  if (rotated === headDim) return;
  const key = quoted(`${architecture}.rope.dimension_count`);
  metadata.fail(`${key} is ${rotated}, which is not supported here: heads have ${headDim} features`);
}

/** How positions are stretched: by a factor for each pair in a tensor, or as the metadata say. */
function ropeScaling({ metadata, architecture, number, floats }: Facts): Record<string, unknown> | undefined {
  const context = number("rope.scaling.original_context_length");
  const factors = floats("rope_freqs.weight");
  if (factors) {
    const original = number("context_length");
    return {
      type: "longrope",
      long_factor: factors,
      short_factor: factors,
      original_max_position_embeddings: original,
    };
  }
  const long = floats("rope_factors_long.weight");
  if (long) {
    const short = floats("rope_factors_short.weight") ?? long;
    return { type: "longrope", long_factor: long, short_factor: short, original_max_position_embeddings: context };
  }
  const key = `${architecture}.rope.scaling.type`;
  const type = metadata.string(key) ?? "none";
  if (type === "none") return undefined;
  const factor = number("rope.scaling.factor");
  if (type === "linear") return { rope_type: type, factor };
  if (type !== "yarn") {
    return metadata.fail(`${quoted(key)} is ${quoted(type)}: supported are "none", "linear", "yarn"`);
  }
  const stretched = {
    rope_type: type,
    factor,
    original_max_position_embeddings: context,
    beta_fast: number("rope.scaling.yarn_beta_fast"),
    beta_slow: number("rope.scaling.yarn_beta_slow"),
    attention_factor: number("rope.scaling.yarn_attn_factor"),
  };
  return Object.fromEntries(Object.entries(stretched).filter(([, value]) => value !== undefined));
}
