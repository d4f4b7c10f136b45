/**
 * Granite 3 and 4 (IBM): Llama with factors of the embedding, of scores, of what layers add to the residual, and of logits. GraniteMoE has
 * experts. Dense models of Granite 4 without recurrent layers are "granitemoehybrid".
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { splitGateUp } from "../checkpoint/gate_up.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { checkDecoder, type DecoderDefaults, readExperts } from "../config/read_decoder.ts";
import type { Fields } from "../config/fields.ts";
import { readLlama } from "./llama.ts";

const MAX_FACTOR = 1e4;

/** Modules whose weights are too small for the scales of narrow floats. */
export const WIDENED = ["self_attn.o_proj", "mlp.down_proj", "lm_head"] as const;

/** Reads and checks config.json. */
export function readArgs(fields: Fields): DecoderConfig {
  return checkDecoder(fields, readGranite(fields));
}

/** Reads config.json of any of them. */
function readGranite(fields: Fields, own: DecoderDefaults = {}): DecoderConfig {
  const factor = (name: string): number => fields.positive(name, MAX_FACTOR);
  return {
    ...readLlama(fields, own),
    embeddingScale: factor("embedding_multiplier"),
    scoreScale: factor("attention_multiplier"),
    residualScale: factor("residual_multiplier"),
    logitDivisor: factor("logits_scaling"),
  };
}

/** GraniteMoE: experts in all layers. The converter gives its routers 8 bits too. */
export const moe = {
  WIDENED: [...WIDENED, "block_sparse_moe.router.layer"],
  readArgs(fields: Fields): DecoderConfig {
    const common = readGranite(fields);
    return checkDecoder(fields, {
      ...common,
      mlpBias: false,
      experts: {
        ...readExperts(fields, "num_local_experts", "intermediate_size"),
        among: "chosen",
        names: { part: "block_sparse_moe", router: "router.layer", stack: "switch_mlp" },
      },
    });
  },
  arrange(weights: Weights, { layers }: DecoderConfig): void {
    for (let layer = 0; layer < layers; layer++) {
      const path = `model.layers.${layer}.block_sparse_moe`;
      const names = { gateUp: `${path}.input_linear.weight`, down: `${path}.output_linear.weight` };
      splitGateUp(weights, names, `${path}.switch_mlp`);
    }
  },
} as const;

/** Granite 4 without recurrent layers and experts. As in mlx-lm, positions are not stretched. */
export const hybrid = {
  ORDER: { layer: ["input_layernorm", "self_attn", "mlp", "post_attention_layernorm"] },
  readArgs(given: Fields): DecoderConfig {
    const rope_theta = given.record("rope_parameters").rope_theta ?? given.values.rope_theta; // the nested one counts, as in mlx-lm
    const fields = given.with({ ...given.values, rope_theta, layer_types: null }); // kinds are not those of other families
    const common = readGranite(fields, { plainPositions: true });
    const { layers, ropeTheta } = common;
    refuseOthers(fields, given.values.layer_types, layers);
    const rope = fields.string("position_embedding_type", "rope") === "nope"
      ? undefined
      : { ropeTheta, ropeScaling: { type: "default" } } as const;
    const plain = Array.from({ length: layers }, () => ({ window: undefined, rope }));
    return checkDecoder(fields, {
      ...common,
      ...(rope === undefined && { layerAttention: plain }),
    });
  },
  arrange(weights: Weights, { layers }: DecoderConfig): void {
    for (let layer = 0; layer < layers; layer++) {
      const path = `model.layers.${layer}.shared_mlp`;
      const names = { gateUp: `${path}.input_linear.weight`, down: `${path}.output_linear.weight` };
      splitGateUp(weights, names, `model.layers.${layer}.mlp`);
    }
  },
} as const;

/** Notes a problem where there are layers other than of attention, or experts. */
function refuseOthers(fields: Fields, types: unknown, layers: number): void {
  if (!Array.isArray(types) || types.length !== layers) {
    fields.problem(`"layer_types" is no list of ${layers} layers`);
  } else {
    const other = types.find((type) => type !== "attention");
    if (other !== undefined) fields.problem(`"layer_types" has ${quoted(other)}: supported is "attention"`);
  }
  if (fields.has("num_local_experts") && fields.whole("num_local_experts", 0, 2 ** 14) > 0) {
    fields.problem('"num_local_experts" is above 0: experts beside a shared part are not supported');
  }
}
