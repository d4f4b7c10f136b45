/**
 * Qwen3-Next (Alibaba): layers of gated delta nets, with gated attention in every fourth one. Feed-forward parts are experts, with one that
 * every token gets.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { type DecoderConfig, DRAFT_HEAD, layerPaths } from "../config/decoder.ts";
import { checkDecoder, readDecoder, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import type { DeltaNetConfig, LayerKind } from "../config/layer_kinds.ts";
import { expertStacks, PROJECTIONS, type Stack } from "../checkpoint/expert_stacks.ts";
import type { Change, ShapeOf } from "../checkpoint/weights.ts";

/** The order of modules in mlx-lm. */
export const ORDER = {
  layer: ["self_attn", "linear_attn", "input_layernorm", "post_attention_layernorm", "mlp"],
} as const;

/** Modules that the converter gives 8 bits: the routers. */
export const WIDENED = ["mlp.gate", "shared_expert_gate"] as const;

const MAX_LAYERS = 1000;
const MAX_HEADS = 2 ** 12;
const MAX_HEAD = 2 ** 12;
const MAX_SIZE = 2 ** 20;
const MAX_WINDOW = 1024;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  const common = readHybrid(fields, true);
  const step = fields.count("decoder_sparse_step", MAX_LAYERS);
  const dense = fields.layerNumbers("mlp_only_layers");
  const layers = Array.from({ length: common.layers }, (_, i) => (i + 1) % step === 0 && !dense.includes(i));
  return checkDecoder(fields, { ...common, experts: readShared(fields, layers, false) });
}

/** Reads what hybrids of gated delta nets and gated attention share. `joined`: nets have one matrix for queries, keys, values and gates. */
export function readHybrid(fields: Fields, joined: boolean): DecoderConfig {
  const common = readDecoder(fields, { ownLayerTypes: true });
  const interval = fields.count("full_attention_interval", MAX_LAYERS, 4);
  if (interval > common.layers) {
    fields.problem(`"full_attention_interval" is ${interval}: no layer of ${common.layers} has attention`);
  }
  const share = fields.positive("partial_rotary_factor", 1);
  const attentionBias = fields.flag("attention_bias", false);
  return {
    ...common,
    layerKinds: Array.from(
      { length: common.layers },
      (_, i): LayerKind => (i + 1) % interval === 0 ? "attention" : "deltaNet",
    ),
    deltaNet: readNet(fields, joined),
    tieWordEmbeddings: fields.flag("tie_word_embeddings", false),
    outputGate: true,
    ropeDims: Math.floor(common.headDim * share),
    qkNorm: true,
    qkvBias: attentionBias,
    outputBias: attentionBias,
    mlpBias: false,
    mayDraft: true,
  };
}

function readNet(fields: Fields, joined: boolean): DeltaNetConfig {
  const net = {
    keyHeads: fields.count("linear_num_key_heads", MAX_HEADS),
    valueHeads: fields.count("linear_num_value_heads", MAX_HEADS),
    keyDim: fields.count("linear_key_head_dim", MAX_HEAD),
    valueDim: fields.count("linear_value_head_dim", MAX_HEAD),
    window: fields.whole("linear_conv_kernel_dim", 2, MAX_WINDOW),
    joined,
  };
  if (net.valueHeads % net.keyHeads !== 0) {
    fields.problem(
      `"linear_num_value_heads" ${net.valueHeads} is not a multiple of "linear_num_key_heads" ${net.keyHeads}`,
    );
  }
  return net;
}

/** The experts of some layers, with one that every token gets. `normalized` is the default of "norm_topk_prob". */
export function readShared(
  fields: Fields,
  layers: readonly boolean[],
  normalized: boolean,
): NonNullable<DecoderConfig["experts"]> {
  return {
    ...readExperts(fields, "num_experts", "moe_intermediate_size"),
    among: fields.flag("norm_topk_prob", normalized) ? "chosen" : "all",
    sharedSize: fields.count("shared_expert_intermediate_size", MAX_SIZE),
    ...(layers.includes(false) && { layers }),
    names: { part: "mlp", router: "gate", stack: "switch_mlp" },
  };
}

/** The stacks of experts, which Hugging Face stores one by one. */
export function stacks(config: DecoderConfig): Stack[] {
  return config.experts ? expertStacks(config, PROJECTIONS) : [];
}

/** The norms of a layer whose weights the makers store without 1. */
const NORMS = ["input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"];
/** Those outside of layers. */
const OTHER_NORMS = [
  "model.norm",
  ...["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"].map((norm) => `${DRAFT_HEAD}.${norm}`),
];

/**
 * Changes of the makers' tensors to mlx-lm's: norms get 1, and the last two axes of convolutions change places. The shape of convolutions
 * tells whose they are.
 */
export function changes(config: DecoderConfig, shapeOf: ShapeOf): Change[] {
  const paths = layerPaths(config);
  const convolutions = paths.map((path) => `${path}.linear_attn.conv1d.weight`)
    .filter((name) => (shapeOf(name)?.at(-1) ?? 1) !== 1);
  if (convolutions.length === 0) return [];
  const norms = [...OTHER_NORMS, ...paths.flatMap((path) => NORMS.map((norm) => `${path}.${norm}`))];
  return [
    ...convolutions.map((name): Change => ({ name, make: (x) => x.swapaxes(1, 2) })),
    ...norms.map((norm): Change => ({ name: `${norm}.weight`, make: (x) => mx.add(x, 1) })),
  ];
}
