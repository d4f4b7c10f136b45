/**
 * Conversions of small models whose files `mlx_lm.convert` wrote too: golden/models/conversions.json has the SHA-256 of those (see
 * reference/convert.ts).
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { type ModelFormat, type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import type { lm } from "../../../mod.ts";

/** Options for both, by Python's names; the dtype is a name. */
export interface Asked extends
  Pick<
    lm.ConvertOptions,
    "quantize" | "qBits" | "qGroupSize" | "qMode" | "dequantize" | "maxShardBytes"
  > {
  readonly quantPredicate?: lm.QuantRecipe;
  readonly dtype?: "float16" | "bfloat16" | "float32";
}

/** One conversion. */
export interface ConversionCase {
  readonly name: string;
  readonly shape: ModelShape;
  readonly format: ModelFormat;
  /** An earlier conversion of the model. */
  readonly first?: Asked;
  readonly asked: Asked;
}

/** The written files, by name: SHA-256, and the bits per weight that mlx-lm prints. */
export interface GoldenConversion {
  readonly files: Readonly<Record<string, string>>;
  readonly bits?: string;
}

const SMALL: ModelShape = {
  hidden: 128,
  intermediate: 256,
  layers: 2,
  heads: 2,
  kvHeads: 1,
  headDim: 64,
  tied: true,
  vocab: 4096,
};
/** Enough layers that each rule of the recipes counts; groups of 64 do not divide the input of the down projections. */
const DEEP: ModelShape = { ...SMALL, hidden: 64, intermediate: 96, layers: 17, heads: 1, headDim: 64, tied: false };
const QWEN2: ModelShape = { ...SMALL, family: "qwen2" };
const LLAMA: ModelShape = { ...SMALL, family: "llama", tied: false };
const MISTRAL: ModelShape = { ...LLAMA, config: { model_type: "mistral", architectures: ["MistralForCausalLM"] } };
const rope_scaling = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};
const LLAMA3: ModelShape = {
  ...LLAMA,
  config: {
    rope_scaling,
    attention_bias: true,
    mlp_bias: true,
    _name_or_path: "me/Größe 🦙",
    custom: [{}, [], 1e22, 0.1],
  },
};

const DENSE: ModelFormat = { bits: 16 };
const HALF: ModelFormat = { bits: 16, dtype: "F16" };
const FULL: ModelFormat = { bits: 16, dtype: "F32" };
const MIXED: ModelFormat = {
  bits: 3,
  groupSize: 64,
  overrides: { "model.layers.0.mlp.down_proj": { bits: 6, groupSize: 32 }, "model.layers.1.self_attn.q_proj": false },
};

const WIDTHS = [1, 2, 3, 4, 5, 6, 8].flatMap((qBits) => [32, 64, 128].map((qGroupSize) => ({ qBits, qGroupSize })));

/** Every conversion, in the order of the golden file. */
export const CONVERSIONS: readonly ConversionCase[] = [
  ...WIDTHS.map(({ qBits, qGroupSize }): ConversionCase => ({
    name: `Qwen3, ${qBits} bits in groups of ${qGroupSize}`,
    shape: SMALL,
    format: DENSE,
    asked: { quantize: true, qBits, qGroupSize },
  })),
  ...[2, 3, 4, 5, 6, 8].map((qBits): ConversionCase => ({
    name: `Llama, float16, ${qBits} bits`,
    shape: LLAMA3,
    format: HALF,
    asked: { quantize: true, qBits },
  })),
  ...[2, 3, 4, 5, 6, 8].map((qBits): ConversionCase => ({
    name: `Qwen2, float32, ${qBits} bits in groups of 32`,
    shape: QWEN2,
    format: FULL,
    asked: { quantize: true, qBits, qGroupSize: 32 },
  })),
  ...(["mxfp4", "mxfp8", "nvfp4"] as const).flatMap((qMode): ConversionCase[] => [
    { name: `Qwen3, ${qMode}`, shape: SMALL, format: DENSE, asked: { quantize: true, qMode } },
    { name: `Llama, float16, ${qMode}`, shape: LLAMA3, format: HALF, asked: { quantize: true, qMode } },
    {
      name: `Qwen2, float32, ${qMode}, the rest in bfloat16`,
      shape: QWEN2,
      format: FULL,
      asked: { quantize: true, qMode, dtype: "bfloat16" },
    },
    { name: `Qwen2, float32, ${qMode}`, shape: QWEN2, format: FULL, asked: { quantize: true, qMode } },
    {
      name: `Qwen3, ${qMode} made dense, the rest in float16`,
      shape: SMALL,
      format: DENSE,
      first: { quantize: true, qMode },
      asked: { dequantize: true, dtype: "float16" },
    },
    {
      name: `Qwen2, ${qMode}, the rest in float16`,
      shape: QWEN2,
      format: FULL,
      first: { quantize: true, qMode },
      asked: { dtype: "float16" },
    },
  ]),
  ...(["mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"] as const).map((quantPredicate): ConversionCase => ({
    name: `Qwen3, ${quantPredicate}`,
    shape: DEEP,
    format: DENSE,
    asked: { quantize: true, quantPredicate },
  })),
  {
    name: "Mistral, mixed_3_6 in groups of 32, the rest in 8 bits, to float16",
    shape: MISTRAL,
    format: DENSE,
    asked: { quantize: true, quantPredicate: "mixed_3_6", qGroupSize: 32, qBits: 8, dtype: "float16" },
  },
  { name: "Mistral, as it is", shape: MISTRAL, format: DENSE, asked: {} },
  { name: "Qwen3, to float32", shape: SMALL, format: DENSE, asked: { dtype: "float32" } },
  { name: "Qwen2, float32 to bfloat16", shape: QWEN2, format: FULL, asked: { dtype: "bfloat16" } },
  { name: "Llama, float32 to float16", shape: LLAMA3, format: FULL, asked: { dtype: "float16" } },
  {
    name: "Qwen2, float32 to bfloat16 and 4 bits",
    shape: QWEN2,
    format: FULL,
    asked: { quantize: true, dtype: "bfloat16" },
  },
  {
    name: "Llama, float32, with an embedding that is read in two runs of rows, to bfloat16 and 4 bits",
    shape: { ...LLAMA, hidden: 2304, intermediate: 64, layers: 1, heads: 1, tied: true },
    format: FULL,
    asked: { quantize: true, dtype: "bfloat16" },
  },
  { name: "Qwen3, 4 bits made dense", shape: SMALL, format: { groupSize: 64 }, asked: { dequantize: true } },
  {
    name: "Qwen2, mixed bits made dense in float16",
    shape: QWEN2,
    format: { ...MIXED, dtype: "F16" },
    asked: { dequantize: true },
  },
  {
    name: "Llama, mixed bits made dense in float32",
    shape: LLAMA,
    format: MIXED,
    asked: { dequantize: true, dtype: "float32" },
  },
  { name: "Llama, mixed bits with other scales", shape: LLAMA, format: MIXED, asked: { dtype: "float16" } },
  {
    name: "Qwen2, from shards to shards",
    shape: QWEN2,
    format: { ...DENSE, shardBytes: 300_000 },
    asked: { quantize: true, qBits: 6, maxShardBytes: 150_000 },
  },
  {
    name: "Qwen3, dense, from shards to shards",
    shape: DEEP,
    format: { ...DENSE, shardBytes: 500_000 },
    asked: { dtype: "float16", maxShardBytes: 400_000 },
  },
];

/** Names of tensors, more than any model has. */
export const ORDERED_NAMES: readonly string[] = Array.from(
  { length: 7000 },
  (_, i) =>
    `model.layers.${Math.floor(i / 9)}.${["self_attn.q_proj", "mlp", "größe"][i % 3]}.${"weight".slice(i % 6)}${i}`,
);

/** Which file is compared: all but the tokenizer's, which transformers writes anew for mlx-lm. */
const COMPARED = /^(README\.md|config\.json|generation_config\.json|model.*)$/;

/** SHA-256 of the files of a folder that are compared. */
export function sumsOf(folder: string): Record<string, string> {
  const names = Array.from(Deno.readDirSync(folder), ({ name }) => name).filter((name) => COMPARED.test(name)).sort();
  return Object.fromEntries(names.map((name) => {
    return [name, createHash("sha256").update(Deno.readFileSync(`${folder}/${name}`)).digest("hex")];
  }));
}

/** Calls `use` with a folder that is gone afterwards. */
export async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** A model that takes no time. */
export const SMALLEST: ModelShape = {
  hidden: 64,
  intermediate: 64,
  layers: 1,
  heads: 1,
  kvHeads: 1,
  headDim: 64,
  tied: true,
  vocab: 4096,
};

/** Calls `use` with a folder in which `model` is a small dense model of bfloat16. */
export function withModel(use: (folder: string, model: string) => Promise<void>): Promise<void> {
  return inFolder(async (folder) => {
    const model = join(folder, "model");
    await writeModel(model, SMALLEST, { bits: 16 });
    await use(folder, model);
  });
}

/** Names in a folder, in order. */
export function listed(folder: string): string[] {
  return Array.from(Deno.readDirSync(folder), ({ name }) => name).sort();
}

/** Changes fields of a model's config.json. */
export function editConfig(model: string, change: Readonly<Record<string, unknown>>): void {
  const path = join(model, "config.json");
  Deno.writeTextFileSync(path, JSON.stringify({ ...JSON.parse(Deno.readTextFileSync(path)), ...change }));
}

const WIDE = { hidden: 2 ** 15, intermediate: 2 ** 16 - 1 };
/** Bytes of a layer of that size in float32, but for small things. */
export const LAYER_BYTES = 3 * WIDE.hidden * WIDE.intermediate * 4;

/** Gives a model wide layers of zeros, which take no room on the disk. */
export function writeZeros(model: string, layers: number): void {
  const { hidden, intermediate } = WIDE;
  const layer: Readonly<Record<string, readonly number[]>> = {
    "self_attn.q_proj": [64, hidden],
    "self_attn.k_proj": [64, hidden],
    "self_attn.v_proj": [64, hidden],
    "self_attn.o_proj": [hidden, 64],
    "self_attn.q_norm": [64],
    "self_attn.k_norm": [64],
    "mlp.gate_proj": [intermediate, hidden],
    "mlp.up_proj": [intermediate, hidden],
    "mlp.down_proj": [hidden, intermediate],
    "input_layernorm": [hidden],
    "post_attention_layernorm": [hidden],
  };
  const modules = Array.from(
    { length: layers },
    (_, i) => Object.entries(layer).map(([path, shape]) => [`layers.${i}.${path}`, shape] as const),
  );
  const header: Record<string, unknown> = {};
  let end = 0;
  for (
    const [path, shape] of [["embed_tokens", [4096, hidden]] as const, ["norm", [hidden]] as const, ...modules.flat()]
  ) {
    const begin = end;
    end += shape.reduce((product, size) => product * size, 2);
    header[`model.${path}.weight`] = { dtype: "BF16", shape, data_offsets: [begin, end] };
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = new Uint8Array(8 + text.length);
  new DataView(start.buffer).setBigUint64(0, BigInt(text.length), true);
  start.set(text, 8);
  Deno.writeFileSync(join(model, "model.safetensors"), start);
  Deno.truncateSync(join(model, "model.safetensors"), start.length + end);
  editConfig(model, { hidden_size: hidden, intermediate_size: intermediate, num_hidden_layers: layers });
}
