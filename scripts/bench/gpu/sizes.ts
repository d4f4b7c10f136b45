/**
 * The sizes of a model that is measured, from its folder.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { readTensors } from "../../../src/llm/checkpoint/directory.ts";
import { modelFiles } from "../../../src/llm/checkpoint/model_files.ts";
import { weightFiles } from "../../../src/llm/checkpoint/shards.ts";
import type { ModelShape } from "../../synthetic/synthetic.ts";
import { bytesOfToken, bytesOfWeight, type Stored } from "./floors.ts";

/** What rows need of config.json; the text part of a model with others. */
type Config = Readonly<Record<string, number & boolean>> & {
  readonly layer_types?: readonly string[];
  readonly quantization?: { readonly bits: number; readonly group_size: number };
  readonly torch_dtype?: string;
};

/** Layers without keys and values. */
const WITHOUT_CACHE = ["linear_attention", "conv"];

/** Sizes of a model, by its config.json. */
function shapeOf(config: Config): ModelShape {
  const { num_hidden_layers: layers, layer_types: kinds, full_attention_interval: every } = config;
  const cached = kinds ? kinds.filter((kind) => !WITHOUT_CACHE.includes(kind)).length : every ? layers / every : layers;
  return {
    hidden: config.hidden_size,
    intermediate: config.intermediate_size,
    layers: cached,
    heads: config.num_attention_heads,
    kvHeads: config.num_key_value_heads,
    headDim: config.head_dim ?? config.hidden_size / config.num_attention_heads,
    tied: config.tie_word_embeddings,
    vocab: config.vocab_size,
  };
}

/** Bytes of the weights that a token reads, of a model with experts or with other layers than attention; undefined of others. */
function tokenBytes(dir: string, config: Config, { layers, tied }: ModelShape): number | undefined {
  const count = config.num_experts ?? config.num_local_experts;
  if (!count && layers === config.num_hidden_layers) return undefined;
  const tensors = readTensors(dir, weightFiles(dir, modelFiles(dir)));
  const stored = [...tensors].map(([name, { shape, nbytes: bytes }]) => ({ name, shape, bytes }));
  mx.dispose([...tensors.values()]);
  return bytesOfToken(stored, tied, count ? { count, chosen: config.num_experts_per_tok } : undefined);
}

/** The sizes of the model in a folder, and how it is stored; `dtype` is the cache's in the place of the checkpoint's. */
export async function sizesOf(
  dir: string,
  dtype: string | undefined,
): Promise<{ readonly shape: ModelShape; readonly stored: Stored }> {
  const config: Config & { readonly text_config?: Config } = JSON.parse(await Deno.readTextFile(`${dir}/config.json`));
  const text = { ...config, ...config.text_config };
  const shape = shapeOf(text);
  const { bits, group_size: size } = config.quantization ?? { bits: 16, group_size: 1 };
  const bytes = tokenBytes(dir, text, shape);
  const stored = {
    weightBytes: bytesOfWeight(bits, size),
    cacheBytes: (dtype ?? config.torch_dtype) === "float32" ? 4 : 2,
    ...(bytes !== undefined && { tokenBytes: bytes }),
  };
  return { shape, stored };
}
