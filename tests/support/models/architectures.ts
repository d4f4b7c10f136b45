/**
 * Small random decoders of any architecture that the shared layers know, of published families or not. They have or
 * lack norms of queries and keys, biases and other activations.
 */

import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import type { DecoderConfig } from "../../../src/llm/config/decoder.ts";
import { DecoderModel } from "../../../src/llm/layers/decoder_model.ts";
import { Weights } from "../../../src/llm/checkpoint/weights.ts";

/** The special fields of an architecture. */
export interface Architecture extends
  Pick<DecoderConfig, "qkNorm" | "qkvBias" | "activation">,
  Partial<
    Pick<
      DecoderConfig,
      | "layerAttention"
      | "queryGrowth"
      | "residualScale"
      | "ropeDims"
      | "joinedProjections"
      | "norms"
      | "normOffset"
      | "clipsResidual"
      | "embeddingScale"
    >
  > {
  /** Biases of every fifth feature of queries, keys and values, if they are not to be of about 0.5. */
  readonly fifthBiases?: readonly [q?: number, k?: number, v?: number];
  /** A factor of the weights of norms after parts, if they are not to be of about 1. */
  readonly postNormScale?: number;
}

/** A name for a test. */
export function named({ qkNorm, qkvBias, activation }: Architecture): string {
  const biases = qkvBias ? "biases" : "no biases";
  return `${qkNorm ? "head norms" : "no head norms"}, ${biases}, ${activation}`;
}

/** A model on the default device with activations of `dtype`. */
export async function modelOf(
  architecture: Architecture,
  shape: ModelShape,
  format: ModelFormat,
  dtype: mx.Dtype,
): Promise<DecoderModel> {
  const { fifthBiases, postNormScale = 1, ...own } = architecture;
  const { qkNorm, qkvBias } = own;
  const folder = await Deno.makeTempDir();
  try {
    // This family has biases, which are left out where they should; norms are added.
    await writeModel(`${folder}/model`, { ...shape, family: "qwen2" }, format);
    const { model } = await mx.lm.load(`${folder}/model`);
    const config: DecoderConfig = { ...model.config as DecoderConfig, ...own };
    model[Symbol.dispose]();
    const stored = new Map(Object.entries(mx.load(`${folder}/model/model.safetensors`) as Record<string, mx.Tensor>));
    for (let layer = 0; layer < shape.layers; layer++) {
      const path = `model.layers.${layer}.self_attn`;
      ["q", "k", "v"].forEach((part, i) => {
        const bias = `${path}.${part}_proj.bias`;
        const own = stored.get(bias)!;
        const { dtype } = own;
        const fifth = fifthBiases?.[i];
        if (fifth !== undefined) stored.set(bias, everyFifth(own, fifth));
        else if (!qkvBias) stored.delete(bias);
        if (stored.get(bias) !== own) own[Symbol.dispose]();
        if (qkNorm && part !== "v") stored.set(`${path}.${part}_norm.weight`, normOf(shape, 2 * layer + i, dtype));
      });
    }
    if (own.joinedProjections) joinProjections(stored);
    if (own.norms === "both") addPostNorms(stored, shape, postNormScale);
    if (own.normOffset !== undefined) subtractOffset(stored, own.normOffset);
    mx.eval(...stored.values());
    const weights = new Weights(folder, config, stored, dtype);
    const made = new DecoderModel(config, weights);
    weights.finish();
    return made;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Every fifth element is `value`. */
function everyFifth(tensor: mx.Tensor, value: number): mx.Tensor {
  return mx.tidy(() => {
    const copy = mx.add(tensor, 0);
    copy.indexPut_(mx.Slice(null, null, 5), value);
    return copy;
  });
}

/** Gives all layers norms after their parts, whose weights have a factor. What was the second norm of a layer is the third one then. */
function addPostNorms(stored: Map<string, mx.Tensor>, { hidden, layers }: ModelShape, scale: number): void {
  for (let layer = 0; layer < layers; layer++) {
    const path = `model.layers.${layer}`;
    const before = stored.get(`${path}.post_attention_layernorm.weight`)!;
    stored.set(`${path}.pre_feedforward_layernorm.weight`, before);
    ["post_attention_layernorm", "post_feedforward_layernorm"].forEach((name, i) =>
      stored.set(`${path}.${name}.weight`, normOf({ headDim: hidden }, 1000 + 2 * layer + i, before.dtype, scale))
    );
  }
}

/** Makes the weights of norms what they are without a number that is added to them. */
function subtractOffset(stored: Map<string, mx.Tensor>, offset: number): void {
  for (const [name, weight] of stored) {
    if (!name.endsWith("norm.weight")) continue;
    stored.set(name, mx.subtract(weight, offset));
    weight[Symbol.dispose]();
  }
}

/** The matrices that one matrix has in families with joined projections. */
const JOINED = {
  qkv_proj: ["q_proj", "k_proj", "v_proj"],
  gate_up_proj: ["gate_proj", "up_proj"],
} as const;

/** Joins matrices of a checkpoint, row after row. */
function joinProjections(stored: Map<string, mx.Tensor>): void {
  for (const [joined, parts] of Object.entries(JOINED)) {
    for (const name of [...stored.keys()].filter((name) => name.includes(`.${parts[0]}.`))) {
      const arrays = parts.map((part) => {
        const one = name.replace(parts[0], part);
        const array = stored.get(one)!;
        stored.delete(one);
        return array;
      });
      stored.set(name.replace(parts[0], joined), mx.concatenate(arrays, 0));
      mx.dispose(arrays);
    }
  }
}

function normOf({ headDim }: Pick<ModelShape, "headDim">, seed: number, dtype: mx.Dtype, scale = 1): mx.Tensor {
  return mx.tidy(() =>
    mx.random.uniform(0.7 * scale, 1.4 * scale, [headDim], mx.float32, mx.random.key(seed)).astype(dtype)
  );
}
