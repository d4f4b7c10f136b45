/**
 * Small synthetic models of every family, in the formats that they are published in, and sizes that the fused kernels
 * take among them. Their logits by the reference, for a prompt and the tokens after it one by one, are in
 * golden/models/families.f32 (see reference/logits.ts).
 */

import type { ModelFormat, ModelShape } from "../../../scripts/synthetic/synthetic.ts";

/** One model. */
export interface FamilyCase {
  readonly name: string;
  readonly shape: ModelShape;
  readonly format: ModelFormat;
}

const vocab = 4096;
const DENSE: ModelFormat = { bits: 16 };
/** Sizes that suit the fused kernels: Llama 3.2 and Qwen2.5 have such heads. */
const FUSED = { hidden: 256, intermediate: 384, layers: 2, heads: 4, kvHeads: 2, headDim: 64, tied: true, vocab };
const WIDE = { ...FUSED, hidden: 384, heads: 3, kvHeads: 1, headDim: 128, tied: false };
/** The tokens reach over all three of its ranges of wavelengths. */
const rope_scaling = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
};

/** All models, in the order of the golden file. */
export const FAMILY_CASES: readonly FamilyCase[] = [
  {
    name: "Llama, dense",
    shape: { ...FUSED, family: "llama", tied: false },
    format: { ...DENSE, seed: 11 },
  },
  {
    name: "Llama, dense, llama3 positions, tied",
    shape: { ...FUSED, family: "llama", config: { rope_scaling } },
    format: { ...DENSE, seed: 12 },
  },
  {
    name: "Llama, dense float16, biases, tanh GELU, as many heads of keys as of queries",
    shape: {
      ...FUSED,
      family: "llama",
      heads: 3,
      kvHeads: 3,
      headDim: 48,
      config: { attention_bias: true, mlp_bias: true, hidden_act: "gelu_pytorch_tanh" },
    },
    format: { ...DENSE, dtype: "F16", seed: 13 },
  },
  {
    name: "Llama, 4 bits in groups of 64, llama3 positions, tied",
    shape: { ...FUSED, family: "llama", config: { rope_scaling } },
    format: { groupSize: 64, seed: 14 },
  },
  {
    name: "Llama, 4 bits in groups of 32, heads of 128, GELU",
    shape: { ...WIDE, family: "llama", config: { hidden_act: "gelu", rope_theta: 10000 } },
    format: { groupSize: 32, seed: 15 },
  },
  {
    name: "Llama, modules of their own format, biases",
    shape: { ...FUSED, family: "llama", config: { attention_bias: true, mlp_bias: true } },
    format: {
      groupSize: 64,
      overrides: {
        "model.embed_tokens": { bits: 6, groupSize: 64 },
        "model.layers.0.self_attn.v_proj": { bits: 8, groupSize: 32 },
        "model.layers.1.mlp.down_proj": false,
      },
      seed: 16,
    },
  },
  {
    name: "Mistral, dense",
    shape: { ...WIDE, family: "llama", config: { model_type: "mistral", sliding_window: null, rope_theta: 1000000 } },
    format: { ...DENSE, seed: 17 },
  },
  { name: "Qwen2.5, dense, tied", shape: { ...FUSED, family: "qwen2" }, format: { ...DENSE, seed: 18 } },
  {
    name: "Qwen2.5, 4 bits in groups of 64, tied",
    shape: { ...FUSED, family: "qwen2" },
    format: { groupSize: 64, seed: 19 },
  },
  {
    name: "Qwen2.5, 4 bits in groups of 32, heads of 128, float16",
    shape: { ...WIDE, family: "qwen2" },
    format: { groupSize: 32, dtype: "F16", seed: 20 },
  },
  {
    name: "Qwen3, 4 bits in groups of 64, tied",
    shape: { ...FUSED, family: "qwen3" },
    format: { groupSize: 64, seed: 21 },
  },
];

/** Tokens that are read at once. */
export const PROMPT = 20;
/** The prompt of every model and the tokens that follow one by one. */
export const FAMILY_IDS: readonly number[] = Array.from({ length: PROMPT + 4 }, (_, i) => (i * 1237 + 11) % vocab);

/** Of a row of logits, one in this many is kept. */
const EVERY = 32;
/** The kept part of a row. */
export const KEPT: number = vocab / EVERY;

/** The part of logits in the golden file: (positions, vocabulary) that begin at position `first`. */
export function keptLogits(logits: Float32Array, first: number): Float32Array {
  return Float32Array.from({ length: logits.length / EVERY }, (_, at) => {
    const row = Math.floor(at / KEPT);
    return logits[row * vocab + (at % KEPT) * EVERY + (first + row) % EVERY];
  });
}

/** The reference of each case: mlx-lm with all parameters in float32. */
export function familyGolden(): Float32Array[] {
  const golden = new Float32Array(
    Deno.readFileSync(new URL("../../golden/models/families.f32", import.meta.url)).buffer,
  );
  const each = FAMILY_IDS.length * KEPT;
  return FAMILY_CASES.map((_, i) => golden.subarray(i * each, (i + 1) * each));
}
