/**
 * The modules of a decoder that hold weights, in the order in which mlx-lm's classes have them: what its converter writes, and in which
 * order it fills its files, follows from that.
 *
 * @module
 */

import type { DecoderConfig } from "../config/decoder.ts";

/** A module with weights. */
export interface WeightModule {
  /** "model.layers.0.mlp.down_proj" */
  readonly path: string;
  /** Shape of its weight; with two axes it can be quantized. */
  readonly shape: readonly number[];
  /** Whether it has a bias. */
  readonly bias: boolean;
}

/** The modules of a decoder. */
export function decoderModules(config: DecoderConfig): WeightModule[] {
  const { vocabSize, hiddenSize, intermediateSize, layers, heads, kvHeads, headDim } = config;
  const module = (path: string, shape: readonly number[], bias = false): WeightModule => ({ path, shape, bias });
  const block = (path: string): WeightModule[] => [
    module(`${path}.self_attn.q_proj`, [heads * headDim, hiddenSize], config.qkvBias),
    module(`${path}.self_attn.k_proj`, [kvHeads * headDim, hiddenSize], config.qkvBias),
    module(`${path}.self_attn.v_proj`, [kvHeads * headDim, hiddenSize], config.qkvBias),
    module(`${path}.self_attn.o_proj`, [hiddenSize, heads * headDim], config.outputBias),
    ...(config.qkNorm ? ["q_norm", "k_norm"].map((name) => module(`${path}.self_attn.${name}`, [headDim])) : []),
    module(`${path}.mlp.gate_proj`, [intermediateSize, hiddenSize], config.mlpBias),
    module(`${path}.mlp.down_proj`, [hiddenSize, intermediateSize], config.mlpBias),
    module(`${path}.mlp.up_proj`, [intermediateSize, hiddenSize], config.mlpBias),
    module(`${path}.input_layernorm`, [hiddenSize]),
    module(`${path}.post_attention_layernorm`, [hiddenSize]),
  ];
  return [
    module("model.embed_tokens", [vocabSize, hiddenSize]),
    ...Array.from({ length: layers }, (_, i) => block(`model.layers.${i}`)).flat(),
    module("model.norm", [hiddenSize]),
    ...(config.tieWordEmbeddings ? [] : [module("lm_head", [vocabSize, hiddenSize])]),
  ];
}

/** Bytes of the float32 wavelengths that each layer of mlx-lm's model keeps where positions are stretched other than evenly. */
export function ropeTableBytes({ ropeScaling, layers, headDim }: DecoderConfig): number {
  return ["llama3", "yarn"].includes(ropeScaling.type) ? layers * headDim / 2 * 4 : 0;
}
