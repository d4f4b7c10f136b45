/**
 * LFM2 (Liquid AI, arXiv 2511.23404): layers of short convolutions, with attention in some of them. It has norms of queries and keys and a
 * SwiGLU feed-forward part. The embedding is the head.
 *
 * @module
 */

import { type DecoderConfig, MODULE_NAMES } from "../config/decoder.ts";
import { checkDecoder, readDecoder, readTypes } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import type { LayerKind } from "../config/layer_kinds.ts";
import type { Change, ShapeOf } from "../checkpoint/weights.ts";

const DEFAULTS = {
  headDim: true,
  kvHeads: true,
  ropeTheta: 1e6,
  plainPositions: true,
  ownLayerTypes: true,
  epsName: "norm_eps",
} as const;
const LAYER_TYPES = { full_attention: "attention", conv: "conv" } as const satisfies Record<string, LayerKind>;
const MAX_WINDOW = 1024;
const MAX_SIZE = 2 ** 20;
const MAX_THETA = 1e12;

/** The order of modules in mlx-lm. */
export const ORDER = { model: ["embed_tokens", "layers", "embedding_norm"] } as const;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const { block_ff_dim: size } = given.values;
  const fields = size === undefined || size === null ? given : given.with({ ...given.values, intermediate_size: size });
  const common = readLfm2(fields);
  const { hiddenSize, intermediateSize } = common;
  const width = fields.count("block_dim", MAX_SIZE);
  if (width !== hiddenSize) fields.problem(`"block_dim" is ${width}, expected "hidden_size", which is ${hiddenSize}`);
  return checkDecoder(fields, {
    ...common,
    intermediateSize: fields.flag("block_auto_adjust_ff_dim") ? adjusted(fields, intermediateSize) : intermediateSize,
    names: { ...common.names!, gate: "w1", up: "w3", down: "w2" },
  });
}

/** Reads config.json, for families that add fields to it and check them together. */
export function readLfm2(given: Fields): DecoderConfig {
  const fields = given.without("head_dim"); // as mlx-lm, which derives it
  const common = readDecoder(fields, DEFAULTS);
  const { rope_theta: nested } = fields.record("rope_parameters");
  const config: DecoderConfig = {
    ...common,
    ...(typeof nested === "number" && {
      ropeTheta: fields.nested("rope_parameters", (positions) => positions.positive("rope_theta", MAX_THETA)),
    }),
    layerKinds: readKinds(fields, common.layers),
    shortConv: { window: fields.whole("conv_L_cache", 2, MAX_WINDOW), bias: fields.flag("conv_bias") },
    names: {
      ...MODULE_NAMES,
      lastNorm: "embedding_norm",
      mixerNorm: "operator_norm",
      mlpNorm: "ffn_norm",
      mlp: "feed_forward",
      queryNorm: "q_layernorm",
      keyNorm: "k_layernorm",
      output: "out_proj",
    },
    tieWordEmbeddings: true,
    qkNorm: true,
    qkvBias: false,
    outputBias: false,
    mlpBias: false,
  };
  return config;
}

/** The kinds of layers: "full_attn_idxs" has the numbers of those with attention, or "layer_types" the names of all. */
function readKinds(fields: Fields, layers: number): LayerKind[] {
  const numbers = fields.has("full_attn_idxs") ? fields.layerNumbers("full_attn_idxs") : undefined;
  const kinds = numbers
    ? Array.from({ length: layers }, (_, i): LayerKind => numbers.includes(i) ? "attention" : "conv")
    : readTypes<LayerKind>(fields, layers, LAYER_TYPES) ?? [];
  if (!kinds.includes("attention")) {
    fields.problem(
      numbers ? '"full_attn_idxs" names no layer of the model' : '"layer_types" names no layer "full_attention"',
    );
  }
  return kinds;
}

/** Two thirds of the features inside of the feed-forward part, times a factor, rounded up to a multiple. */
function adjusted(fields: Fields, size: number): number {
  const factor = fields.has("block_ffn_dim_multiplier") ? fields.positive("block_ffn_dim_multiplier", 100) : 1;
  const multiple = fields.count("block_multiple_of", MAX_SIZE);
  return multiple * Math.ceil(Math.floor(factor * Math.floor(2 * size / 3)) / multiple);
}

/** Changes of the makers' tensors to mlx-lm's: the last two axes of convolutions change places. */
export function changes({ layers }: DecoderConfig, shapeOf: ShapeOf): Change[] {
  const names = Array.from({ length: layers }, (_, layer) => `model.layers.${layer}.conv.conv.weight`);
  const isSwapped = ([, inputs, window]: readonly number[] = []): boolean => window > inputs;
  return names.filter((name) => isSwapped(shapeOf(name))).map((name) => ({ name, make: (x) => x.swapaxes(1, 2) }));
}
