/**
 * gpt-oss (arXiv 2508.10925): layers of experts with biases and clipped units. Heads have sinks, every other layer has a window, and
 * positions are stretched by YaRN. Its makers store experts in mxfp4, gate and up in turn.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, readDecoder, readExperts, readLayerTypes, slidingLayers } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";

/** The order of modules in mlx-lm. */
export const ORDER = { model: ["embed_tokens", "norm", "layers"] } as const;

/** Modules that the converter gives 8 bits: the routers. */
export const WIDENED = ["router"] as const;

/** mlx-lm's values of fields that may be absent, and the makers' context. */
const DEFAULTS = {
  num_hidden_layers: 36,
  num_local_experts: 128,
  num_experts_per_tok: 4,
  vocab_size: 201088,
  rms_norm_eps: 1e-5,
  hidden_size: 2880,
  intermediate_size: 2880,
  head_dim: 64,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  sliding_window: 128,
  rope_theta: 150000,
  max_position_embeddings: 131072,
} as const;

/** At what the units of experts are cut: see `ExpertUnit` "clipped", which has it as a constant. */
const SWIGLU_LIMIT = 7;

/** Reads and checks config.json. */
export function readArgs(given: Fields): DecoderConfig {
  const fields = given.withDefaults(DEFAULTS);
  const limit = fields.positive("swiglu_limit", 1000, SWIGLU_LIMIT);
  if (limit !== SWIGLU_LIMIT) fields.problem(`"swiglu_limit" is ${limit}: supported is ${SWIGLU_LIMIT}`);
  const common = readDecoder(fields);
  const { layers } = common;
  const slides = readLayerTypes(fields, layers) ?? Array.from({ length: layers }, (_, layer) => layer % 2 === 0);
  return checkDecoder(fields, {
    ...common,
    ...slidingLayers(fields, common, slides),
    tieWordEmbeddings: false,
    qkNorm: false,
    qkvBias: true,
    outputBias: true,
    mlpBias: true,
    sinks: true,
    experts: {
      ...readExperts(fields, "num_local_experts", "intermediate_size"),
      among: "chosen",
      gate: "clipped",
      biases: true,
      names: { part: "mlp", router: "router", stack: "experts" },
    },
  });
}

/** A kind of tensor that the makers store for the experts of a layer. */
interface StoredPart {
  /** The end of its name, and mlx-lm's name. */
  readonly end: string;
  readonly part: string;
  /** Whether a tensor is one. */
  fits(x: Tensor): boolean;
  /** mlx-lm's form of it. */
  form(x: Tensor): Tensor;
}

const same = (x: Tensor): Tensor => x;

const STORED_PARTS: readonly StoredPart[] = [
  {
    end: "_blocks",
    part: "weight",
    fits: ({ dtype, shape }) => dtype === mx.uint8 && shape.length === 4 && shape[3] % 4 === 0,
    form: (x) => x.reshape(x.shape[0], x.shape[1], x.shape[2] * x.shape[3]).view(mx.uint32),
  },
  { end: "_scales", part: "scales", fits: ({ ndim }) => ndim === 3, form: same },
  { end: "_bias", part: "bias", fits: ({ ndim }) => ndim === 2, form: same },
];

/**
 * Gives the experts of the makers' layout mlx-lm's: blocks of bytes become words, and gate and up are parted. Each has memory of its own, as
 * kernels read it: views would be copied for each token.
 */
export function arrange(weights: Weights, { layers }: DecoderConfig): void {
  const rows = (x: Tensor, first: number): Tensor => mx.contiguous(x.index(mx.Slice(null), mx.Slice(first, null, 2)));
  for (let layer = 0; layer < layers; layer++) {
    const path = `model.layers.${layer}.mlp.experts`;
    for (const { end, part, fits, form } of STORED_PARTS) {
      weights.replace(`${path}.gate_up_proj${end}`, fits, (x) => ({
        [`${path}.gate_proj.${part}`]: form(rows(x, 0)),
        [`${path}.up_proj.${part}`]: form(rows(x, 1)),
      }));
      weights.replace(`${path}.down_proj${end}`, fits, (x) => ({ [`${path}.down_proj.${part}`]: form(x) }));
    }
  }
}
