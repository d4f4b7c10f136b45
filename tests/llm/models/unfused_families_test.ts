/**
 * The fused step of a decoder is found in models whose layers it computes, and refused with the reason in all others, without a device.
 * Each model has sizes that the kernels take, so that only its family's layers decide. Layers after others with experts, or without,
 * are a decoder of rows.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { bufferShape, FUSED_LAYOUT } from "../../../src/graph/kv_layout.ts";
import { Weights } from "../../../src/llm/checkpoint/weights.ts";
import type { DecoderConfig } from "../../../src/llm/config/decoder.ts";
import { countAttention, layerStates } from "../../../src/llm/config/layer_kinds.ts";
import { Fields } from "../../../src/llm/config/fields.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import { describeModel } from "../../../src/llm/models/mod.ts";
import { findDecoder } from "../../../src/schedule/decoder/match/decode_step.ts";
import { viewOf } from "../../support/models/graph_view.ts";

mx.devices(); // opens the Vulkan library outside of any test

const CAPACITY = 256;
const BASE = {
  hidden_size: 128,
  intermediate_size: 192,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  max_position_embeddings: 4096,
  vocab_size: 320,
  tie_word_embeddings: false,
};

/** A module as a test changes it: modules, arrays and methods by their names. */
// deno-lint-ignore no-explicit-any
type Changed = any;

/**
 * Why no fused step is found for a model in float16, whose layers may be changed. It is "fused" where one is found, or "a part" if that
 * has no head. With `asksNorm` what the head reads is asked for too.
 */
function foundFor(
  config: Record<string, unknown>,
  change: (layers: readonly Changed[]) => void = () => {},
  asksNorm: boolean = false,
): string {
  const file = "config.json";
  const architecture = describeModel(new Fields({ ...BASE, ...config }, file), file);
  const decoder = architecture.config as DecoderConfig;
  const { kvHeads: heads, headDim } = decoder;
  // Arrays that are missing stand in as zeros.
  using model = architecture.build(new Weights("", architecture.config, new Map(), mx.float16));
  change((model as Changed).model.layers);
  mx.eval(model.parameters()); // as those of a file are
  return mx.tidy(() => {
    const buffers = (block: number): mx.Tensor[] =>
      Array.from(
        { length: countAttention(decoder) },
        () => mx.zeros(bufferShape({ batch: 1, heads, positions: CAPACITY, headDim, block }), mx.float16),
      );
    const position = mx.zeros([1], mx.int32);
    const states = layerStates(decoder).map(({ shape, isFloat32 }) =>
      mx.zeros([1, ...shape], isFloat32 ? mx.float32 : mx.float16)
    );
    const cache = new StepCache(buffers(FUSED_LAYOUT.keys), buffers(FUSED_LAYOUT.values), position, { states });
    const hidden = (model as Changed).hidden(mx.zeros([1, 1], mx.int32), cache) as mx.Tensor;
    const logits = (model as Changed).logits(hidden) as mx.Tensor;
    const nodes = [logits, ...(asksNorm ? [hidden] : []), ...cache.keys, ...cache.values, ...cache.states].map(nodeOf);
    const updates = states.map((parameter, i) => ({ parameter: nodeOf(parameter), value: nodeOf(cache.states[i]) }));
    const found = findDecoder(viewOf(nodes), new Set(nodes), updates);
    if (typeof found !== "object") return found ?? "nothing alike";
    return "head" in found.decoder.out ? "fused" : "a part";
  });
}

const WINDOWS = { sliding_window: 64, layer_types: ["full_attention", "sliding_attention"] };
const GRANITE = { embedding_multiplier: 12, attention_multiplier: 0.1, residual_multiplier: 0.5, logits_scaling: 8 };
const EXPERTS = { num_experts_per_tok: 2, moe_intermediate_size: 64 };
const LFM2 = {
  norm_eps: 1e-5,
  conv_L_cache: 3,
  conv_bias: false,
  block_dim: 128,
  block_multiple_of: 64,
  block_auto_adjust_ff_dim: false,
};
const DELTA = {
  full_attention_interval: 2,
  linear_num_key_heads: 1,
  linear_num_value_heads: 2,
  linear_key_head_dim: 32,
  linear_value_head_dim: 32,
};
const YARN = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 64, rope_theta: 10000 };

/** Factors of the wavelengths of 24 pairs. */
const LONG_ROPE = { type: "longrope", long_factor: Array.from({ length: 24 }, (_, pair) => 1 + pair) };

/** No more than all of its models have. */
const GEMMA4 = { global_head_dim: 0, num_kv_shared_layers: 0, hidden_size_per_layer_input: 0 };

const CASES: Readonly<Record<string, readonly [config: Record<string, unknown>, found: string]>> = {
  Llama: [{ model_type: "llama" }, "fused"],
  "Qwen3": [{ model_type: "qwen3" }, "fused"],
  "a window in the last layer": [{ model_type: "mistral", ...WINDOWS }, "fused"],
  "a window in the first layer": [
    { model_type: "mistral", ...WINDOWS, layer_types: WINDOWS.layer_types.toReversed() },
    "fused",
  ],
  "a window as long as the context": [{ model_type: "mistral", ...WINDOWS, sliding_window: 4096 }, "fused"],
  "a layer without positions": [{ model_type: "smollm3", no_rope_layers: [0, 1] }, "fused"],
  "a last layer without positions": [{ model_type: "smollm3", no_rope_layers: [1, 0] }, "fused"],
  "a window in one layer and no positions in another": [
    {
      ...WINDOWS,
      model_type: "smollm3",
      num_hidden_layers: 3,
      layer_types: ["full_attention", ...WINDOWS.layer_types],
      no_rope_layers: [0, 1, 1],
    },
    "the layers have 3 different ropes and windows, not up to 2",
  ],
  "factors of what is added": [{ model_type: "granite", ...GRANITE }, "fused"],
  "factors of the embedding, of scores and of logits": [
    { model_type: "granite", ...GRANITE, residual_multiplier: 1 },
    "fused",
  ],
  "joined projections": [{ model_type: "phi3" }, "fused"],
  "joined projections, of whose heads a part is rotated with a factor": [
    { model_type: "phi3", partial_rotary_factor: 0.75, original_max_position_embeddings: 64, rope_scaling: LONG_ROPE },
    "fused",
  ],
  "experts": [
    { ...EXPERTS, model_type: "qwen3_moe", num_experts: 4 },
    "fused",
  ],
  "experts in the first layer": [
    { ...EXPERTS, model_type: "qwen3_moe", num_experts: 4, mlp_only_layers: [1] },
    "fused",
  ],
  "experts in the last layer": [
    { ...EXPERTS, model_type: "qwen3_moe", num_experts: 4, mlp_only_layers: [0] },
    "fused",
  ],
  "experts by another name": [
    { ...EXPERTS, model_type: "mixtral", num_local_experts: 4 },
    "fused",
  ],
  "experts and one of all tokens": [
    { ...DELTA, ...EXPERTS, model_type: "qwen3_5_moe_text", num_experts: 4, shared_expert_intermediate_size: 64 },
    "fused",
  ],
  "experts and a larger one of all tokens": [
    { ...EXPERTS, model_type: "qwen2_moe", num_experts: 4, shared_expert_intermediate_size: 128 },
    "the expert of all rows is of another kind or size than the others",
  ],
  "short convolutions": [
    { ...LFM2, model_type: "lfm2", layer_types: ["conv", "full_attention"] },
    "there is no attention below a feed-forward part",
  ],
  "a last layer of a short convolution": [
    { ...LFM2, model_type: "lfm2", layer_types: ["full_attention", "conv"] },
    "there is no attention below a feed-forward part",
  ],
  "gated delta nets": [{ ...DELTA, model_type: "qwen3_5" }, "fused"],
  "gates of heads": [{ ...DELTA, model_type: "qwen3_5", full_attention_interval: 1 }, "fused"],
  "sinks, biases and clipped units of experts": [{ ...EXPERTS, model_type: "gpt_oss", num_local_experts: 4 }, "fused"],
  "norms with an offset": [{ model_type: "gemma" }, "fused"],
  "bounds of scores": [{ model_type: "gemma2" }, "nothing alike"],
  "norms before and after parts, and residuals that are clipped": [
    { model_type: "gemma3_text", sliding_window: 64 },
    "fused",
  ],
  "norms of values, and factors of layers": [
    { model_type: "gemma4_text", sliding_window: 64, ...GEMMA4 },
    "no layer was found below the head",
  ],
  "norms after attention": [
    { model_type: "olmo2" },
    "there is a norm after the feed-forward part, but none before it",
  ],
  "queries that grow": [
    { model_type: "ministral3", rope_parameters: { ...YARN, mscale_all_dim: 1, llama_4_scaling_beta: 0.1 } },
    "fused",
  ],
  "heads that are scaled": [
    { model_type: "ministral3", rope_parameters: { ...YARN, llama_4_scaling_beta: 0.1 } },
    "fused",
  ],
};

for (const [name, [config, expected]] of Object.entries(CASES)) {
  Deno.test(`a decode step with ${name} is ${expected === "fused" ? "found" : "no fused one"}`, () => {
    assertEquals(foundFor(config), expected);
  });
}

const GPT_OSS = { ...EXPERTS, model_type: "gpt_oss", num_local_experts: 4 };
const SHARED = { ...EXPERTS, model_type: "qwen2_moe", num_experts: 4, shared_expert_intermediate_size: 64 };

/** Layers that are nearly those of a family. */
const LOOKALIKES: Readonly<
  Record<
    string,
    readonly [config: Record<string, unknown>, change: (layers: readonly Changed[]) => void, found: string]
  >
> = {
  "another eps in the last layer": [
    { model_type: "qwen3" },
    ([, second]) => second.input_layernorm.eps = 1e-3,
    "the norms have different eps",
  ],
  "sinks in one layer": [
    GPT_OSS,
    ([first]) => delete first.self_attn.sinks,
    "layers 0 and 1 have different features",
  ],
  "sinks of another dtype": [GPT_OSS, (layers) => {
    for (const { self_attn } of layers) self_attn.sinks = self_attn.sinks.astype(mx.float32);
  }, "scales or dense weights, norm weights and biases are not all float16 or all bfloat16"],
  "an output bias in one layer": [
    GPT_OSS,
    ([, second]) => delete second.self_attn.o_proj.bias,
    "layers 0 and 1 have different features",
  ],
  "a bias of q alone": [GPT_OSS, (layers) => {
    for (const { self_attn } of layers) delete self_attn.k_proj.bias;
  }, "only some of q, k and v have a bias"],
  "a router without a bias": [GPT_OSS, (layers) => {
    for (const { mlp } of layers) delete mlp.router.bias;
  }, "only some of a router and the matrices of experts have biases"],
  "experts whose last matrix has no bias": [GPT_OSS, (layers) => {
    for (const { mlp } of layers) delete mlp.experts.down_proj.bias;
  }, "only some of a router and the matrices of experts have biases"],
  "an expert of all tokens without a gate": [SHARED, (layers) => {
    for (const { mlp: { shared_expert: part } } of layers) {
      part.forward = (x: mx.Tensor) => part.down_proj.forward(mx.nn.relu(part.up_proj.forward(x)));
    }
  }, "the feed-forward part has no gate with silu or gelu"],
  "an expert of all tokens that counts by another function": [SHARED, (layers) => {
    for (const { mlp: { shared_expert: part } } of layers) {
      const { forward } = part;
      part.forward = (x: mx.Tensor) => mx.tanh(forward.call(part, x));
    }
  }, "the down projection of the expert of all rows is elementwise, expected quantizedMatmul"],
  "a gate of a delta net with a bias": [{ ...DELTA, model_type: "qwen3_5" }, ([first]) => {
    first.linear_attn.in_proj_z.bias = mx.zeros([64], mx.float16);
  }, "the gate of a delta net has a bias"],
  "a norm of a delta net without a weight": [{ ...DELTA, model_type: "qwen3_5" }, ([first]) => {
    first.linear_attn.norm.forward = (x: mx.Tensor) => mx.fast.rmsNorm(x, null, 1e-6);
  }, "the norm of a delta net has no weight"],
};

for (const [name, [config, change, expected]] of Object.entries(LOOKALIKES)) {
  Deno.test(`a decode step with ${name} is no fused one`, () => {
    assertEquals(foundFor(config, change), expected);
  });
}

for (const config of [{ model_type: "qwen3" }, { ...DELTA, model_type: "qwen3_5" }]) {
  Deno.test(`layers of ${config.model_type} whose last norm is asked for too are a part without a head`, () => {
    assertEquals(foundFor(config, () => {}, true), "a part");
    const change = ([, second]: readonly Changed[]): void => void (second.input_layernorm.eps = 1e-3);
    assertEquals(foundFor(config, change, true), "the norms have different eps");
  });
}
