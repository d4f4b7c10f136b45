/**
 * Reads the part of config.json that describes a decoder: checked readers that the families of `models/` combine.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { DecoderConfig, ExpertSizes, GateActivation, LayerAttention, ModelSizes } from "./decoder.ts";
import type { Fields } from "./fields.ts";
import { MAX_POSITION, readModelConfig } from "./model.ts";
import { checkFactors, readRope, type RopeConfig } from "./rope.ts";

/** Defaults of a family for missing fields of config.json; a field without a default must be there. */
export interface DecoderDefaults {
  /** Whether head_dim may be absent: then it is hidden_size / num_attention_heads. */
  readonly headDim?: boolean;
  /** Whether num_key_value_heads may be absent: then there are as many as query heads. */
  readonly kvHeads?: boolean;
  /** rope_theta */
  readonly ropeTheta?: number;
  /** Whether positions are never stretched, as in mlx-lm: then "rope_scaling" is not read. */
  readonly plainPositions?: boolean;
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
  const isTraditional = fields.flag("rope_traditional", false); // in a few conversions by mlx-lm
  const common = {
    ...(isTraditional && { ropeTraditional: true }),
    ...readModelConfig(fields, defaults.context),
    ...readSizes(fields, defaults),
    ...readRope(fields, defaults.ropeTheta, defaults.plainPositions),
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
