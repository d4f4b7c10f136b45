/**
 * The part of config.json that describes a decoder. This is the record that the layers of `layers/` are built from, and the checked
 * readers that the families of `models/` combine.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { Fields } from "./fields.ts";
import { MAX_POSITION, type ModelConfig, readModelConfig } from "./model.ts";
import { readRope, type RopeConfig } from "./rope.ts";

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

/** A pre-norm decoder with rotary positions and a gated feed-forward part. */
export interface DecoderConfig extends ModelConfig, ModelSizes, RopeConfig {
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
}

// Far above any model; more would fill the memory before the first missing tensor is noticed.
const MAX_LAYERS = 1000;
const MAX_SIZE = 2 ** 20;
const MAX_HEADS = 2 ** 12;
const MAX_HEAD = 2 ** 12;

/** Activations by the names that transformers has for them. */
const ACTIVATIONS: Readonly<Record<string, GateActivation>> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_new: "geluTanh",
  gelu_fast: "geluTanh",
  gelu_pytorch_tanh: "geluTanh",
};

/** The fields that a family does not set itself: all of {@link DecoderConfig} but its norms of queries and keys and its biases. */
export type CommonConfig = Omit<DecoderConfig, "qkNorm" | "qkvBias" | "outputBias" | "mlpBias">;

/** Reads the fields that decoders share. {@link checkDecoder} follows when the family has read its own. */
export function readDecoder(fields: Fields, defaults: DecoderDefaults = {}): CommonConfig {
  fields.refuse("rope_traditional"); // pairs of neighbours, in a few conversions by mlx-lm
  readLayerTypes(fields);
  return {
    ...readModelConfig(fields, defaults.context),
    ...readSizes(fields, defaults),
    ...readRope(fields, defaults.ropeTheta),
    rmsNormEps: fields.positive("rms_norm_eps", 1),
    activation: readActivation(fields),
  };
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
  fields.finish();
  return config;
}

/** Refuses "sliding_window" if it is shorter than the context: attention sees all of it. */
export function refuseWindow(fields: Fields, context: number): void {
  if (!fields.has("sliding_window")) return;
  const window = fields.count("sliding_window", MAX_POSITION);
  if (window < context) fields.problem(`"sliding_window" is ${window}, which is not supported`);
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

/** "layer_types" may say of every layer that it attends to the whole context. */
function readLayerTypes(fields: Fields): void {
  const types = fields.values.layer_types ?? [];
  const other = Array.isArray(types) ? types.find((type) => type !== "full_attention") : types;
  if (other !== undefined) fields.problem(`"layer_types" has ${quoted(other)}: supported is "full_attention"`);
}
