/**
 * Shapes of synthetic models: sizes and formats, the published ones among them, and the config.json of each family.
 *
 * @module
 */

/** A family of models: its "model_type". */
export type Family = "llama" | "qwen2" | "qwen3";

/** Sizes of a model. */
export interface ModelShape {
  /** Default qwen3. */
  readonly family?: Family;
  readonly hidden: number;
  readonly intermediate: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Whether the embedding is the head too. */
  readonly tied: boolean;
  readonly vocab: number;
  /** Fields of config.json that are not those of the family, such as "rope_scaling" and "attention_bias". */
  readonly config?: Readonly<Record<string, unknown>>;
}

/** Dtypes of floats by the names that safetensors has for them. */
export type FloatCode = "BF16" | "F16" | "F32";

/** Their names in config.json. */
export const DTYPES: Readonly<Record<FloatCode, string>> = { BF16: "bfloat16", F16: "float16", F32: "float32" };

/** How weights are stored. */
export interface ModelFormat {
  /** Bits of a weight: 2, 3, 4, 5, 6, 8, or 16 for dense ones. Default 4. */
  readonly bits?: number;
  /** Weights that share a scale. Default 128. */
  readonly groupSize?: number;
  /** Dtype of scales, biases, norms and dense weights. Default BF16. */
  readonly dtype?: FloatCode;
  /** Other bits and groups of single modules, by path; `false` leaves a module dense. */
  readonly overrides?: Readonly<Record<string, { readonly bits: number; readonly groupSize: number } | false>>;
  /** Whether stacks of experts have mxfp4 codes in the place of affine ones. Default false. */
  readonly mxfp4Experts?: boolean;
  /** Whether the model has the head that drafts tokens, in families with one. Default false. */
  readonly draftHead?: boolean;
  /** Most bytes of a file. Default 5e9. */
  readonly shardBytes?: number;
  /** Seed of the weights. Default 0. */
  readonly seed?: number;
}

/** The published sizes, and small ones for tests. */
export const SHAPES: Readonly<Record<string, ModelShape>> = {
  "tiny": shape(256, 768, 2, 4, 2, true, 4096),
  "small": shape(512, 1536, 8, 8, 4, true, 4096),
  "qwen3-0.6b": shape(1024, 3072, 28, 16, 8, true, 151936),
  "qwen3-1.7b": shape(2048, 6144, 28, 16, 8, true, 151936),
  "qwen3-4b": shape(2560, 9728, 36, 32, 8, true, 151936),
  "qwen3-8b": shape(4096, 12288, 36, 32, 8, false, 151936),
  "qwen3-14b": shape(5120, 17408, 40, 40, 8, false, 151936),
  "qwen3-32b": shape(5120, 25600, 64, 64, 8, false, 151936),
  "qwen2.5-0.5b": { ...shape(896, 4864, 24, 14, 2, true, 151936), family: "qwen2", headDim: 64 },
  "qwen2.5-1.5b": { ...shape(1536, 8960, 28, 12, 2, true, 151936), family: "qwen2" },
  "qwen2.5-3b": { ...shape(2048, 11008, 36, 16, 2, true, 151936), family: "qwen2" },
  "qwen2.5-7b": { ...shape(3584, 18944, 28, 28, 4, false, 152064), family: "qwen2" },
  "qwen2.5-14b": { ...shape(5120, 13824, 48, 40, 8, false, 152064), family: "qwen2" },
  "qwen2.5-32b": { ...shape(5120, 27648, 64, 40, 8, false, 152064), family: "qwen2" },
  "llama-2-7b": { ...shape(4096, 11008, 32, 32, 32, false, 32000), family: "llama" },
  "llama-3.2-1b": { ...shape(2048, 8192, 16, 32, 8, true, 128256), family: "llama", headDim: 64, config: llama3(32) },
  "llama-3.2-3b": { ...shape(3072, 8192, 28, 24, 8, true, 128256), family: "llama", config: llama3(32) },
  "llama-3.1-8b": { ...shape(4096, 14336, 32, 32, 8, false, 128256), family: "llama", config: llama3(8) },
};

function shape(
  hidden: number,
  intermediate: number,
  layers: number,
  heads: number,
  kvHeads: number,
  tied: boolean,
  vocab: number,
): ModelShape {
  return { hidden, intermediate, layers, heads, kvHeads, headDim: 128, tied, vocab };
}

/** How Llama 3.1 and 3.2 stretch positions. */
function llama3(factor: number): Readonly<Record<string, unknown>> {
  const frequencies = { low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 8192 };
  return { rope_scaling: { rope_type: "llama3", factor, ...frequencies } };
}

/** The special fields of a family. */
interface FamilyRow {
  readonly architecture: string;
  /** Whether queries and keys have norms. */
  readonly qkNorm: boolean;
  /** Modules of a layer that have a bias, whatever config.json says. */
  readonly biases: readonly string[];
  /** Its fields of config.json. */
  readonly config: Readonly<Record<string, unknown>>;
}

const FAMILIES: Readonly<Record<Family, FamilyRow>> = {
  qwen3: {
    architecture: "Qwen3ForCausalLM",
    qkNorm: true,
    biases: [],
    config: {
      attention_bias: false,
      max_position_embeddings: 40960,
      rms_norm_eps: 1e-6,
      rope_theta: 1000000,
      use_sliding_window: false,
    },
  },
  qwen2: {
    architecture: "Qwen2ForCausalLM",
    qkNorm: false,
    biases: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    config: {
      max_position_embeddings: 32768,
      rms_norm_eps: 1e-6,
      rope_theta: 1000000,
      sliding_window: 32768,
      use_sliding_window: false,
    },
  },
  llama: {
    architecture: "LlamaForCausalLM",
    qkNorm: false,
    biases: [],
    config: {
      attention_bias: false,
      max_position_embeddings: 131072,
      mlp_bias: false,
      rms_norm_eps: 1e-5,
      rope_theta: 500000,
    },
  },
};

/** Modules that a flag of config.json gives biases. */
const BIASED: Readonly<Record<string, readonly string[]>> = {
  attention_bias: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"],
  mlp_bias: ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
};

/** The special fields of a shape's family. */
export function familyOf({ family = "qwen3" }: ModelShape): FamilyRow {
  return FAMILIES[family];
}

/** Modules of a layer that have a bias. */
export function biasesOf(shape: ModelShape): ReadonlySet<string> {
  const flagged = Object.keys(BIASED).filter((flag) => shape.config?.[flag] === true).flatMap((flag) => BIASED[flag]);
  return new Set([...familyOf(shape).biases, ...flagged]);
}

/**
 * The modules that mlx-lm's recipe mixed_4_6 gives 6 bits. They are the projections of values, those down, and the head. Of the layers these
 * are the first and last eighth, and each third between them. llama.cpp's Q4_K_M chooses the same.
 */
export function mixedModules({ layers }: ModelShape, groupSize: number): NonNullable<ModelFormat["overrides"]> {
  const eighth = Math.floor(layers / 8);
  const last = Math.floor(7 * layers / 8);
  const isWide = (i: number): boolean => i < eighth || i >= last || (i - eighth) % 3 === 2;
  const wide = Array.from({ length: layers }, (_, i) => i).filter(isWide);
  const paths = wide.flatMap((i) => ["self_attn.v_proj", "mlp.down_proj"].map((path) => `model.layers.${i}.${path}`));
  return Object.fromEntries([...paths, "lm_head"].map((path) => [path, { bits: 6, groupSize }]));
}

/** Whether a model has the published vocabulary of Qwen2 and Qwen3. */
export function hasQwenVocabulary({ family, vocab }: ModelShape): boolean {
  return family !== "llama" && vocab > 100_000;
}

/** config.json of a model whose generation ends with `eos`. */
export function config(
  shape: ModelShape,
  format: ModelFormat,
  [eos, bos]: readonly number[],
): Record<string, unknown> {
  const { bits = 4, groupSize = 128, dtype = "BF16", overrides = {} } = format;
  const modules = Object.entries(overrides).map(([path, own]) =>
    [path, own && { group_size: own.groupSize, bits: own.bits }] as const
  );
  const quantization = { group_size: groupSize, bits, ...Object.fromEntries(modules) };
  const { architecture, config: own } = familyOf(shape);
  return {
    architectures: [architecture],
    attention_dropout: 0.0,
    bos_token_id: bos,
    eos_token_id: eos,
    head_dim: shape.headDim,
    hidden_act: "silu",
    hidden_size: shape.hidden,
    initializer_range: 0.02,
    intermediate_size: shape.intermediate,
    model_type: shape.family ?? "qwen3",
    num_attention_heads: shape.heads,
    num_hidden_layers: shape.layers,
    num_key_value_heads: shape.kvHeads,
    ...(bits === 16 ? {} : { quantization, quantization_config: quantization }),
    rope_scaling: null,
    tie_word_embeddings: shape.tied,
    torch_dtype: DTYPES[dtype],
    use_cache: true,
    vocab_size: shape.vocab,
    ...own,
    ...shape.config,
  };
}
