/**
 * Small synthetic models with what the published sizes have and the embedded model lacks. That is a separate head,
 * other head sizes and ratios of query to key/value heads, and other widths and groups. Single modules are stored
 * otherwise, weights are dense, or there are several files. Their logits by the reference are in
 * golden/models/model-shapes.f16 (see reference/logits.ts).
 */

import type { ModelFormat, ModelShape } from "../../../scripts/synthetic/synthetic.ts";

/** One model. */
export interface ShapeCase {
  readonly name: string;
  readonly shape: ModelShape;
  readonly format: ModelFormat;
}

const vocab = 4096;

/** All models, in the order of the golden file. */
export const SHAPE_CASES: readonly ShapeCase[] = [
  {
    name: "an untied head, 8 bits in groups of 32, float16",
    shape: { hidden: 128, intermediate: 192, layers: 2, heads: 4, kvHeads: 1, headDim: 32, tied: false, vocab },
    format: { bits: 8, groupSize: 32, dtype: "F16", seed: 1 },
  },
  {
    name: "modules of their own format in several files",
    shape: { hidden: 192, intermediate: 256, layers: 3, heads: 6, kvHeads: 2, headDim: 64, tied: false, vocab },
    format: {
      bits: 4,
      groupSize: 64,
      overrides: {
        "model.layers.0.mlp.down_proj": { bits: 8, groupSize: 32 },
        "model.layers.1.self_attn.v_proj": false,
        "lm_head": { bits: 6, groupSize: 64 },
      },
      shardBytes: 400_000,
      seed: 2,
    },
  },
  {
    name: "dense bfloat16 weights, as many key/value heads as query heads",
    shape: { hidden: 96, intermediate: 160, layers: 2, heads: 3, kvHeads: 3, headDim: 80, tied: true, vocab },
    format: { bits: 16, seed: 3 },
  },
  {
    name: "dense float16 weights, small heads",
    shape: { hidden: 64, intermediate: 96, layers: 2, heads: 8, kvHeads: 2, headDim: 16, tied: false, vocab },
    format: { bits: 16, dtype: "F16", seed: 4 },
  },
  {
    name: "2 to 6 bits, large heads",
    shape: { hidden: 128, intermediate: 256, layers: 2, heads: 2, kvHeads: 1, headDim: 256, tied: true, vocab },
    format: {
      overrides: {
        "model.embed_tokens": { bits: 6, groupSize: 128 },
        "model.layers.0.self_attn.q_proj": { bits: 2, groupSize: 32 },
        "model.layers.0.self_attn.k_proj": { bits: 3, groupSize: 64 },
        "model.layers.1.mlp.up_proj": { bits: 5, groupSize: 64 },
      },
      seed: 5,
    },
  },
];

/** The prompt of every model. */
export const SHAPE_IDS: readonly number[] = Array.from({ length: 20 }, (_, i) => (i * 1237 + 11) % vocab);

/** Of the logits at position t, the golden file holds every eighth, beginning with t % 8. */
export function sampledLogits(logits: Float32Array): Float32Array {
  const rows = SHAPE_IDS.map((_, t) => Array.from({ length: vocab / 8 }, (_, i) => logits[t * vocab + i * 8 + t % 8]));
  return Float32Array.from(rows.flat());
}
