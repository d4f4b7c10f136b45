/**
 * config.json and generation_config.json: everything absent or wrong is named, with the file.
 */

import { assertEquals, assertThrows } from "@std/assert";
import { Fields } from "../../../src/llm/config/fields.ts";
import { readGenerationConfig } from "../../../src/llm/config/model.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { describeModel } from "../../../src/llm/models/mod.ts";
import * as gemma from "../../../src/llm/models/gemma.ts";
import * as gemma2 from "../../../src/llm/models/gemma2.ts";
import * as gemma3 from "../../../src/llm/models/gemma3_text.ts";
import * as gemma4 from "../../../src/llm/models/gemma4_text.ts";
import * as glm4 from "../../../src/llm/models/glm4_moe_lite.ts";
import * as gptOss from "../../../src/llm/models/gpt_oss.ts";
import * as granite from "../../../src/llm/models/granite.ts";
import * as llama from "../../../src/llm/models/llama.ts";
import * as ministral3 from "../../../src/llm/models/ministral3.ts";
import * as mixtral from "../../../src/llm/models/mixtral.ts";
import { olmo3 } from "../../../src/llm/models/olmo.ts";
import * as phi3 from "../../../src/llm/models/phi3.ts";
import * as qwen2 from "../../../src/llm/models/qwen2.ts";
import { readArgs } from "../../../src/llm/models/qwen3.ts";
import * as lfm2 from "../../../src/llm/models/lfm2.ts";
import * as lfm2Moe from "../../../src/llm/models/lfm2_moe.ts";
import * as qwen3_5 from "../../../src/llm/models/qwen3_5.ts";
import * as qwen3Next from "../../../src/llm/models/qwen3_next.ts";
import * as qwen3Moe from "../../../src/llm/models/qwen3_moe.ts";
import * as smollm3 from "../../../src/llm/models/smollm3.ts";
import { TINY_DIR } from "../../support/models/models.ts";

const TINY: Record<string, unknown> = JSON.parse(Deno.readTextFileSync(new URL("config.json", TINY_DIR)));

function read(change: Record<string, unknown>): ReturnType<typeof readArgs> {
  return readArgs(new Fields({ ...TINY, ...change }, "config.json"));
}

function wrong(change: Record<string, unknown>, ...messages: string[]): void {
  for (const message of messages) assertThrows(() => read(change), LlmError, message);
}

Deno.test("readArgs() reads the embedded model's config", () => {
  const args = read({});
  assertEquals([args.layers, args.hiddenSize, args.heads, args.kvHeads, args.headDim], [8, 256, 4, 2, 128]);
  assertEquals(args.quantization, { base: { groupSize: 128, bits: 4 }, overrides: new Map() });
  assertEquals(args.ropeScaling, { type: "default" });
  assertEquals([args.vocabSize, args.maxPositionEmbeddings, args.tieWordEmbeddings], [4096, 4096, true]);
});

Deno.test("readArgs() names every field that is absent or wrong", () => {
  for (
    const name of [
      ...[
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
      ],
      ...["vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta"],
    ]
  ) {
    wrong({ [name]: undefined }, `config.json: "${name}" is missing`);
    wrong({ [name]: "many" }, `config.json: "${name}" is "many", expected`);
  }
  wrong(
    { hidden_size: -1, head_dim: 2.5 },
    '"hidden_size" is -1, expected a whole number from 1 to 1048576, "head_dim" is 2.5',
  );
  wrong({ num_attention_heads: 3 }, '"num_attention_heads" 3 is not a multiple of "num_key_value_heads" 2');
  wrong({ head_dim: 127 }, '"head_dim" is 127, expected an even number');
  wrong({ hidden_act: "relu" }, '"hidden_act" is "relu": supported are "silu", "swish", "gelu", ');
  wrong({ hidden_act: "" }, '"hidden_act" is "": supported are');
  wrong({ attention_bias: true }, '"attention_bias" is true, which is not supported');
  wrong({ num_hidden_layers: 2 ** 31 }, '"num_hidden_layers" is 2147483648, expected a whole number from 1 to 1000');
  wrong({ rope_scaling: "x" }, '"rope_scaling" is "x", expected an object');
  wrong({ rope_parameters: [] }, '"rope_parameters" is [], expected an object');
  for (const id of ["x", -1, [5, 1.5]]) {
    wrong({ eos_token_id: id }, `"eos_token_id" is ${JSON.stringify(id)}, expected a token id or a list of token ids`);
  }
});

Deno.test("readArgs() reads quantization of modules and refuses other modes by name", () => {
  const overrides = read({
    quantization: {
      group_size: 64,
      bits: 4,
      mode: "affine",
      "lm_head": { group_size: 32, bits: 8 },
      "model.embed_tokens": false,
    },
  }).quantization?.overrides;
  assertEquals([...overrides ?? []], [["lm_head", { groupSize: 32, bits: 8 }], ["model.embed_tokens", undefined]]);
  assertEquals(read({ quantization: null }).quantization?.base, { groupSize: 128, bits: 4 }); // the mirror
  assertEquals(read({ quantization: null, quantization_config: undefined }).quantization, undefined);
  const { base, overrides: others } = read({
    quantization: { group_size: 32, bits: 4, mode: "mxfp4", "lm_head": { mode: "nvfp4" }, "model.norm": { bits: 8 } },
  }).quantization!;
  assertEquals(base, { groupSize: 32, bits: 4, mode: "mxfp4" });
  assertEquals([...others], [
    ["lm_head", { groupSize: 16, bits: 4, mode: "nvfp4" }],
    ["model.norm", { groupSize: 64, bits: 8 }],
  ]);
  wrong(
    { quantization: { group_size: 32, bits: 4, mode: "fp4" } },
    '"quantization" has mode "fp4", expected affine, mxfp4, mxfp8, nvfp4',
  );
  wrong({ quantization: { group_size: 64, mode: "mxfp8" } }, '"quantization" has group_size 64, expected 32');
  wrong({ quantization: { group_size: 48, bits: 4 } }, '"quantization" has group_size 48, expected 32, 64, 128');
  wrong({ quantization: { group_size: 64, bits: 7 } }, '"quantization" has bits 7, expected 1, 2, 3, 4, 5, 6, 8');
  wrong({ quantization: { group_size: 64, bits: 4, "lm_head": { bits: 9 } } }, '"quantization.lm_head" has bits 9');
  wrong({ quantization: 4 }, '"quantization" is 4, expected an object');
  wrong(
    { quantization: null, quantization_config: { quant_method: "awq", bits: 4 } },
    'quant_method "awq": convert the model',
  );
  for (const [name, bits] of [["mxfp4", 4], ["mxfp8", 8]] as const) {
    const { quantization } = read({ quantization: null, quantization_config: { quant_method: name } });
    assertEquals(quantization, { base: { groupSize: 32, bits, mode: name }, overrides: new Map() });
  }
});

Deno.test("readArgs() reads rope scaling and refuses unknown kinds", () => {
  assertEquals(read({ rope_scaling: { type: "linear", factor: 2 } }).ropeScaling, { type: "linear", factor: 2 });
  const yarn =
    read({ rope_scaling: { rope_type: "yarn", factor: 4.0, original_max_position_embeddings: 32768 } }).ropeScaling;
  assertEquals(yarn, {
    type: "yarn",
    factor: 4,
    originalMaxPositionEmbeddings: 32768,
    betaFast: 32,
    betaSlow: 1,
    mscale: 1,
    mscaleAllDim: 0,
  });
  const own = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 32768, attention_factor: 0.75 };
  const withFactor: unknown = { ...yarn, attentionFactor: 0.75 };
  assertEquals(read({ rope_scaling: own }).ropeScaling, withFactor);
  assertEquals(read({ rope_scaling: { ...own, attention_factor: null } }).ropeScaling, yarn);
  wrong({ rope_scaling: { ...own, attention_factor: 0 } }, '"rope_scaling.attention_factor" is 0, expected a positive');
  assertEquals(
    read({ rope_theta: undefined, rope_parameters: { rope_theta: 5e5, rope_type: "default" } }).ropeTheta,
    5e5,
  );
  const both = { type: "default", rope_type: "linear", factor: 2 };
  assertEquals(read({ rope_scaling: both }).ropeScaling, { type: "default" }); // mlx-lm looks at "type" first
  assertEquals(read({ rope_scaling: { ...both, type: "" } }).ropeScaling, { type: "linear", factor: 2 });
  assertEquals(read({ rope_scaling: { ...both, type: "mrope" } }).ropeScaling, { type: "default" });
  wrong(
    { rope_scaling: { type: "dynamic", factor: 2 } },
    '"rope_scaling" has type "dynamic": supported are "default", "linear", "yarn", "llama3"',
  );
  wrong({ rope_scaling: { type: "linear" } }, '"rope_scaling.factor" is missing, expected a positive number');
  for (const factor of [0, -2, "4"]) {
    const message = `"rope_scaling.factor" is ${JSON.stringify(factor)}, expected a positive number`;
    for (const type of ["linear", "yarn"]) wrong({ rope_scaling: { type, factor } }, message);
  }
  for (const name of ["original_max_position_embeddings", "beta_fast", "beta_slow"]) {
    const nested = { rope_type: "yarn", factor: 4, [name]: 0 };
    wrong(
      { rope_parameters: nested, rope_scaling: null },
      `"rope_parameters.${name}" is 0, expected a positive number`,
    );
  }
  for (const name of ["mscale", "mscale_all_dim"]) {
    const message = `"rope_scaling.${name}" is -10, expected a number from 0 to 1000000`;
    wrong({ rope_scaling: { type: "yarn", factor: 4, [name]: -10 } }, message);
  }
  const parameters = { rope_theta: undefined, rope_parameters: { rope_theta: -1 } };
  wrong(parameters, '"rope_parameters.rope_theta" is -1, expected a positive number');
});

/** Scaling as the configs of Llama 3.1 have it. */
const LLAMA3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};

Deno.test("readArgs() reads the rope scaling of Llama 3 and refuses what does not fit", () => {
  const expected = {
    type: "llama3",
    factor: 8,
    lowFreqFactor: 1,
    highFreqFactor: 4,
    originalMaxPositionEmbeddings: 8192,
  } as const;
  assertEquals(read({ rope_scaling: LLAMA3 }).ropeScaling, expected);
  assertEquals(read({ rope_scaling: { rope_type: "llama3", factor: 8 } }).ropeScaling, expected);
  wrong({ rope_scaling: { rope_type: "llama3" } }, '"rope_scaling.factor" is missing, expected a positive number');
  for (const name of ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]) {
    for (const value of [0, -1, "8", 1e300, null]) {
      if (value === null && name !== "factor") continue; // absent
      const message = `"rope_scaling.${name}" is ${
        value === null ? "missing" : JSON.stringify(value)
      }, expected a positive`;
      wrong({ rope_scaling: { ...LLAMA3, [name]: value ?? undefined } }, message);
    }
  }
  wrong(
    { rope_scaling: { ...LLAMA3, low_freq_factor: 8 } },
    '"rope_scaling.high_freq_factor" is 4, below "low_freq_factor" 8',
  );
});

Deno.test("families whose positions mlx-lm does not stretch do not read how", () => {
  const rope_scaling = { type: "telescope" };
  for (const family of [mixtral, gemma, gemma2, gemma4, lfm2]) {
    const more = { num_local_experts: 4, num_experts_per_tok: 2, conv_bias: false, conv_L_cache: 3, norm_eps: 1e-5 };
    const fields = {
      ...more,
      head_dim: 32,
      block_dim: 192,
      block_auto_adjust_ff_dim: false,
      full_attn_idxs: [0],
      num_kv_shared_layers: 0,
    };
    assertEquals(reads(family, { ...fields, rope_scaling }), reads(family, fields));
    assertEquals(reads(family, { ...fields, rope_scaling }).ropeScaling, { type: "default" });
  }
});

Deno.test("Mixtral has mlx-lm's values of absent fields", () => {
  const { model_type, vocab_size } = LEAST;
  const args = mixtral.readArgs(new Fields({ model_type, vocab_size }, "config.json"));
  const { hiddenSize, intermediateSize, layers, heads, kvHeads, rmsNormEps, ropeTheta, experts } = args;
  const sizes = [hiddenSize, intermediateSize, layers, heads, kvHeads, rmsNormEps, ropeTheta];
  assertEquals(sizes, [4096, 14336, 32, 32, 8, 1e-5, 1e6]);
  assertEquals([experts?.count, experts?.chosen], [8, 2]);
});

Deno.test("a config without a context has that of its family", () => {
  const rope_parameters = { rope_theta: 1e6, llama_4_scaling_beta: 0.1, original_max_position_embeddings: 16384 };
  const contexts = [[llama, 2048], [llama.mistral, 131072], [smollm3, 32768], [ministral3, 262144]] as const;
  for (const [family, context] of contexts) {
    const { maxPositionEmbeddings } = reads(family, { max_position_embeddings: undefined, rope_parameters });
    assertEquals(maxPositionEmbeddings, context);
  }
});

/** The least fields of configs of Llama and Qwen2. */
const LEAST = {
  model_type: "llama",
  hidden_size: 192,
  intermediate_size: 256,
  num_hidden_layers: 2,
  num_attention_heads: 6,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-5,
  max_position_embeddings: 4096,
  tie_word_embeddings: false,
  vocab_size: 300,
};

/** A family's reader on {@link LEAST} with changes. */
function reads(
  family: { readArgs: typeof readArgs },
  change: Record<string, unknown> = {},
): ReturnType<typeof readArgs> {
  return family.readArgs(new Fields({ ...LEAST, ...change }, "config.json"));
}

/** How a config is refused. */
function refused(family: { readArgs: typeof readArgs }, change: Record<string, unknown>, message: string): void {
  assertThrows(() => reads(family, change), LlmError, message);
}

Deno.test("readArgs() of Llama takes mlx-lm's defaults and says where biases are", () => {
  const args = reads(llama, { num_key_value_heads: undefined, head_dim: null });
  assertEquals([args.headDim, args.kvHeads, args.ropeTheta, args.ropeScaling], [32, 6, 1e4, { type: "default" }]);
  assertEquals([args.qkNorm, args.qkvBias, args.outputBias, args.mlpBias], [false, false, false, false]);
  const biased = reads(llama, { attention_bias: true, mlp_bias: true, head_dim: 64, hidden_act: "gelu_pytorch_tanh" });
  assertEquals([biased.qkvBias, biased.outputBias, biased.mlpBias], [true, true, true]);
  assertEquals([biased.headDim, biased.activation], [64, "geluTanh"]);
  const nested = { rope_theta: 500000, ...LLAMA3 };
  assertEquals(reads(llama, { rope_parameters: nested }).ropeTheta, 500000);
  assertEquals(reads(llama, { rope_parameters: nested }).ropeScaling.type, "llama3");
});

Deno.test("readArgs() of Llama gives windows to the layers that layer_types names", () => {
  const windows = (change: Record<string, unknown>) => reads(llama, change).layerAttention?.map(({ window }) => window);
  const layer_types = ["full_attention", "sliding_attention"];
  assertEquals(windows({ layer_types, sliding_window: 1024 }), [undefined, 1024]);
  assertEquals(windows({ layer_types: ["full_attention", "full_attention"], sliding_window: null }), undefined);
  assertEquals(windows({ layer_types, sliding_window: 4096 }), undefined); // as long as the context
  assertEquals(windows({ sliding_window: 1024 }), undefined); // as mlx-lm reads it
  refused(llama, { layer_types, sliding_window: "x" }, '"sliding_window" is "x", expected a whole number');
  refused(llama, { layer_types }, 'config.json: "sliding_window" is missing');
  refused(llama, { layer_types: ["full_attention"] }, '"layer_types" has 1 layers, "num_hidden_layers" says 2');
  const supported = 'supported are "full_attention" and "sliding_attention"';
  for (const type of ["linear_attention", "constructor", 5]) {
    const message = `"layer_types" has ${JSON.stringify(type)}: ${supported}`;
    refused(llama, { layer_types: ["full_attention", type] }, message);
    refused(qwen2, { layer_types: ["full_attention", type] }, message);
  }
  refused(llama, { layer_types: "x\n" }, '"layer_types" has "x\\n": supported are');
});

Deno.test("readArgs() of Llama refuses head sizes that do not come out even", () => {
  refused(llama, { attention_bias: 1 }, '"attention_bias" is 1, expected true or false');
  refused(llama, { hidden_size: 100 }, '"head_dim" is 16.666666666666668, expected an even number');
  refused(
    llama,
    { hidden_size: 2 ** 20, num_attention_heads: 2 },
    '"head_dim" is 524288, expected an even number up to 4096',
  );
  refused(llama, { hidden_size: "x" }, 'config.json: "hidden_size" is "x", expected a whole number from 1 to 1048576');
  refused(llama, { num_key_value_heads: 4 }, '"num_attention_heads" 6 is not a multiple of "num_key_value_heads" 4');
  assertEquals(reads(llama, { tie_word_embeddings: undefined }).tieWordEmbeddings, undefined);
  refused(llama, { tie_word_embeddings: "many" }, '"tie_word_embeddings" is "many", expected true or false');
});

Deno.test("readArgs() of Qwen2 has biases of queries, keys and values and, as mlx-lm, no window", () => {
  const args = reads(qwen2, { sliding_window: 1024, use_sliding_window: true, max_position_embeddings: undefined });
  assertEquals(args.layerAttention, undefined);
  assertEquals([args.headDim, args.ropeTheta, args.maxPositionEmbeddings], [32, 1e6, 32768]);
  assertEquals([args.qkNorm, args.qkvBias, args.outputBias, args.mlpBias], [false, true, false, false]);
  refused(qwen2, { num_key_value_heads: undefined }, '"num_key_value_heads" is missing');
});

Deno.test("readArgs() of SmolLM3 says which layers have no positions", () => {
  const rotated = (change: Record<string, unknown>) =>
    reads(smollm3, change).layerAttention?.map(({ rope }) => rope !== undefined);
  assertEquals(rotated({ num_hidden_layers: 5 }), [true, true, true, false, true]);
  assertEquals(rotated({ num_hidden_layers: 3 }), undefined);
  assertEquals(rotated({ no_rope_layer_interval: 2 }), [true, false]);
  assertEquals(rotated({ no_rope_layers: [0, 1] }), [false, true]);
  for (const no_rope_layers of [[1], [1, 2], "11"]) {
    refused(smollm3, { no_rope_layers }, '"no_rope_layers" is not a list of 0 or 1 for each of 2 layers');
  }
});

Deno.test("readArgs() of Granite wants its factors, and of Ministral 3 how queries grow", () => {
  const factors = { embedding_multiplier: 12, attention_multiplier: 0.1, residual_multiplier: 0.2, logits_scaling: 8 };
  const { embeddingScale, scoreScale, residualScale, logitDivisor } = reads(granite, factors);
  assertEquals([embeddingScale, scoreScale, residualScale, logitDivisor], [12, 0.1, 0.2, 8]);
  for (const name of Object.keys(factors)) refused(granite, { ...factors, [name]: undefined }, `"${name}" is missing`);
  refused(granite, { ...factors, logits_scaling: 0 }, '"logits_scaling" is 0, expected a positive number');
  const rope_parameters = { rope_theta: 1e6, llama_4_scaling_beta: 0.1, original_max_position_embeddings: 16384 };
  const args = reads(ministral3, { rope_parameters });
  assertEquals([args.queryGrowth, args.ropeTheta], [{ beta: 0.1, context: 16384 }, 1e6]);
  const beside = { rope_parameters, rope_theta: 5, rope_scaling: { type: "linear", factor: 2 } };
  assertEquals(reads(ministral3, beside), args); // what stands beside "rope_parameters" does not count
  const { rope_theta: _, ...without } = rope_parameters;
  for (const parameters of [without, { ...without, rope_theta: null }]) {
    assertEquals(reads(ministral3, { rope_parameters: parameters, rope_theta: 5e5 }).ropeTheta, 5e5);
    refused(ministral3, { rope_parameters: parameters }, '"rope_parameters.rope_theta" is missing');
  }
  refused(ministral3, {}, 'config.json: "rope_parameters.llama_4_scaling_beta" is missing');
  refused(ministral3, { rope_parameters: 5 }, '"rope_parameters" is 5, expected an object');
});

Deno.test("readArgs() of Phi-3 reads factors of wavelengths and the part of a head that is rotated", () => {
  const long_factor = Array(12).fill(1.5);
  const change = { partial_rotary_factor: 0.75, rope_scaling: { type: "longrope", long_factor } };
  const { ropeDims, ropeScaling, joinedProjections } = reads(phi3, change);
  assertEquals([ropeDims, ropeScaling, joinedProjections], [
    24,
    { type: "longrope", factors: long_factor, mscale: 1 },
    true,
  ]);
  const stretched = reads(phi3, { ...change, original_max_position_embeddings: 1024 }).ropeScaling;
  assertEquals(stretched.type === "longrope" && stretched.mscale, Math.sqrt(1 + Math.log(4) / Math.log(1024)));
  assertEquals(reads(phi3).ropeDims, undefined);
  refused(phi3, { partial_rotary_factor: 0.1 }, "3 features of a head are rotated, expected an even number up to 32");
  refused(phi3, { partial_rotary_factor: 2 }, '"partial_rotary_factor" is 2, expected a positive number up to 1');
  refused(phi3, { rope_scaling: change.rope_scaling }, "the scaling of positions has 12 factors, expected 16");
  refused(phi3, { rope_scaling: { type: "su" } }, '"rope_scaling.long_factor" is missing, expected a positive number');
  refused(phi3, { rope_scaling: { type: "su", long_factor: [0] } }, '"rope_scaling.long_factor" is [0], expected');
});

Deno.test("readArgs() of OLMo 3 gives three of four layers a window and positions that are not stretched", () => {
  const rope_scaling = { rope_type: "linear", factor: 4 };
  const args = reads(olmo3, { num_hidden_layers: 4, sliding_window: 8, rope_theta: 5e5, rope_scaling });
  assertEquals(args.layerAttention?.map(({ window }) => window), [8, 8, 8, undefined]);
  assertEquals(args.layerAttention?.map(({ rope }) => rope?.ropeScaling.type), [
    ...Array(3).fill("default"),
    "linear",
  ]);
  assertEquals([args.norms, args.qkNorm, args.qkNormWhole], ["post", true, true]);
  refused(olmo3, {}, 'config.json: "rope_theta" is missing');
});

Deno.test("readArgs() of gpt-oss, Gemma 3 and the families of experts has mlx-lm's defaults", () => {
  const windows = ({ layerAttention }: ReturnType<typeof readArgs>) => layerAttention?.map(({ window }) => window);
  const gpt = reads(gptOss, { num_hidden_layers: 3 });
  assertEquals([gpt.experts?.count, gpt.experts?.chosen, windows(gpt)], [128, 4, [128, undefined, 128]]);
  assertEquals(windows(reads(gptOss, { layer_types: ["full_attention", "sliding_attention"] })), [undefined, 128]);
  assertEquals(reads(gptOss, { swiglu_limit: 7.0 }).experts?.gate, "clipped");
  refused(gptOss, { swiglu_limit: 10 }, '"swiglu_limit" is 10: supported is 7');
  refused(gptOss, { swiglu_limit: "7" }, '"swiglu_limit" is "7", expected a positive number');
  const gemma = reads(gemma3, { num_hidden_layers: 7, hidden_size: 1152 });
  assertEquals(windows(gemma), [512, 512, 512, 512, 512, undefined, 512]);
  assertEquals(gemma.layerAttention?.map(({ rope }) => rope?.ropeTheta), [...Array(5).fill(1e4), 1e6, 1e4]);
  assertEquals([gemma.headDim, gemma.scoreScale, gemma.embeddingScale], [256, 1 / 16, 34]); // sqrt(1152) in bfloat16
  assertEquals([reads(gemma2, { head_dim: 32 }).scoreCap, reads(gemma2, { head_dim: 32 }).logitCap], [50, 30]);
  refused(gemma2, { head_dim: 32, attn_logit_softcapping: 0 }, '"attn_logit_softcapping" is 0, expected a positive');
  const moe = { head_dim: 32, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, rope_theta: 1e6 };
  assertEquals(reads(qwen3Moe, { ...moe, norm_topk_prob: true }).experts?.among, "chosen");
  assertEquals(reads(qwen3Moe, { ...moe, norm_topk_prob: false }).experts?.among, "all");
  assertEquals(reads(qwen3Moe, { ...moe, decoder_sparse_step: 2 }).experts?.layers, [false, true]);
  refused(qwen3Moe, { ...moe, num_experts_per_tok: 9 }, '"num_experts_per_tok" is 9, but there are 8 experts');
  refused(qwen3Moe, { ...moe, num_experts: 0 }, '"num_experts" is 0, expected a whole number from 1 to 16384');
});

Deno.test("readArgs() of LFM2 reads which layers have attention, sizes and positions as mlx-lm does", () => {
  const lfm = {
    norm_eps: 1e-5,
    conv_L_cache: 3,
    conv_bias: false,
    block_dim: 192,
    block_multiple_of: 64,
    block_auto_adjust_ff_dim: false,
    layer_types: ["conv", "full_attention"],
  };
  const args = reads(lfm2, { ...lfm, rope_theta: 1e4, rope_parameters: { rope_theta: 2e4 }, head_dim: 5 });
  assertEquals(args.layerKinds, ["conv", "attention"]);
  assertEquals([args.ropeTheta, args.headDim], [2e4, args.hiddenSize / args.heads]);
  assertEquals(args.shortConv, { window: 3, bias: false });
  assertEquals(reads(lfm2, { ...lfm, layer_types: null, full_attn_idxs: [0] }).layerKinds, ["attention", "conv"]);
  // int(0.75 * int(2 * 1000 / 3)) = 499, and the next multiple of 64 is 512.
  const size = { block_ff_dim: 1000, block_auto_adjust_ff_dim: true, block_ffn_dim_multiplier: 0.75 };
  assertEquals(reads(lfm2, { ...lfm, ...size }).intermediateSize, 512);
  assertEquals(reads(lfm2, { ...lfm, block_ff_dim: 1000 }).intermediateSize, 1000);
  refused(lfm2, { ...lfm, layer_types: null, full_attn_idxs: [2] }, '"full_attn_idxs" names no layer of the model');
  refused(lfm2, { ...lfm, layer_types: null, full_attn_idxs: "1" }, "expected a list of layers, counted from 0");
  refused(lfm2, { ...lfm, layer_types: ["conv", "conv"] }, '"layer_types" names no layer "full_attention"');
  refused(
    lfm2,
    { ...lfm, layer_types: ["conv", "mamba"] },
    '"layer_types" has "mamba": supported are "full_attention"',
  );
  refused(lfm2, { ...lfm, block_dim: 32 }, '"block_dim" is 32, expected "hidden_size", which is 192');
  refused(lfm2, { ...lfm, conv_L_cache: 1 }, '"conv_L_cache" is 1, expected a whole number from 2 to 1024');
  refused(lfm2, { ...lfm, norm_eps: undefined }, '"norm_eps" is missing');
  const moe = { num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, num_dense_layers: 1 };
  const routed = { norm_topk_prob: false, use_expert_bias: true, routed_scaling_factor: 2 };
  const { experts } = reads(lfm2Moe, { ...lfm, ...moe, ...routed });
  assertEquals(experts?.layers, [false, true]);
  assertEquals(experts?.sigmoid, { bias: true, normalized: false, factor: 2 });
});

Deno.test("readArgs() of Qwen3.5 and Qwen3-Next reads layers, nets and positions as mlx-lm does", () => {
  const net = {
    linear_num_key_heads: 2,
    linear_num_value_heads: 4,
    linear_key_head_dim: 16,
    linear_value_head_dim: 8,
    linear_conv_kernel_dim: 4,
    full_attention_interval: 2,
  };
  const args = reads(qwen3_5, { ...net, head_dim: null, rope_theta: 5, rope_parameters: { rope_theta: 2e4 } });
  assertEquals(args.layerKinds, ["deltaNet", "attention"]);
  const sizes = { keyHeads: 2, valueHeads: 4, keyDim: 16, valueDim: 8, window: 4 };
  assertEquals(args.deltaNet, { ...sizes, joined: false });
  assertEquals([args.headDim, args.ropeDims, args.ropeTheta], [32, 8, 2e4]); // a quarter of a head, and what is nested
  assertEquals([reads(qwen3_5, { ...net, rope_theta: 5 }).ropeTheta, args.experts], [1e5, undefined]);
  assertEquals([args.outputGate, args.qkNorm, args.normOffset], [true, true, undefined]);
  const experts = { num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64 };
  const shared = { ...net, ...experts, shared_expert_intermediate_size: 32 };
  assertEquals(reads(qwen3_5, shared).experts?.among, "chosen");
  const next = { ...shared, head_dim: 32, rope_theta: 1e4, partial_rotary_factor: 0.5, decoder_sparse_step: 1 };
  const found = reads(qwen3Next, { ...next, mlp_only_layers: [1] });
  assertEquals([found.experts?.among, found.experts?.layers, found.ropeDims], ["all", [true, false], 16]);
  assertEquals(found.deltaNet, { ...sizes, joined: true });
  refused(qwen3Next, { ...next, rope_theta: undefined }, '"rope_theta" is missing');
  refused(
    qwen3_5,
    { ...net, full_attention_interval: 3 },
    '"full_attention_interval" is 3: no layer of 2 has attention',
  );
  refused(
    qwen3_5,
    { ...net, linear_num_value_heads: 3 },
    '"linear_num_value_heads" 3 is not a multiple of "linear_num_key_heads" 2',
  );
  refused(
    qwen3_5,
    { ...net, linear_conv_kernel_dim: 0 },
    '"linear_conv_kernel_dim" is 0, expected a whole number from 2',
  );
});

Deno.test("readArgs() of Gemma 4 gives each kind of layer its heads and positions, and the last layers those of others", () => {
  const args = reads(gemma4, {
    num_hidden_layers: 7,
    num_kv_shared_layers: 3,
    sliding_window_pattern: 2,
    head_dim: 64,
  });
  const of = <K extends keyof NonNullable<typeof args.layerAttention>[number]>(name: K) =>
    args.layerAttention?.map((attention) => attention[name]);
  assertEquals(of("window"), [512, undefined, 512, undefined, 512, undefined, 512]);
  assertEquals(of("headDim"), [undefined, 512, undefined, 512, undefined, 512, undefined]);
  assertEquals(of("sharesWith"), [undefined, undefined, undefined, undefined, 2, 3, 2]);
  assertEquals(of("rope")?.[0], { ropeTheta: 1e4, ropeScaling: { type: "default" } });
  const proportional = { ropeTheta: 1e6, ropeScaling: { type: "proportional", factor: 1, share: 0.25 } } as const;
  assertEquals(of("rope")?.[1], proportional);
  assertEquals(args.intermediateSizes, [256, 256, 256, 256, 512, 512, 512]);
  assertEquals([args.logitCap, args.scoreScale, args.layerInputs], [30, 1, { size: 256, vocabSize: 262144 }]);
  const large = reads(gemma4, {
    num_kv_shared_layers: 0,
    hidden_size_per_layer_input: 0,
    final_logit_softcapping: null,
    attention_k_eq_v: true,
    num_global_key_value_heads: 2,
    layer_types: ["full_attention", "sliding_attention"],
    enable_moe_block: true,
    num_experts: 8,
    top_k_experts: 2,
    moe_intermediate_size: 64,
  });
  assertEquals([large.logitCap, large.layerInputs, large.intermediateSizes], [undefined, undefined, undefined]);
  assertEquals(large.expertsBeside, { count: 8, chosen: 2, size: 64 });
  assertEquals(large.layerAttention?.map(({ kvHeads, joinedKeysValues }) => [kvHeads, joinedKeysValues]), [
    [2, true],
    [undefined, undefined],
  ]);
  const shares = '"num_kv_shared_layers" is 20: one of the 2 layers has none of its kind to share with';
  refused(gemma4, {}, shares);
  refused(gemma4, { num_kv_shared_layers: 0, enable_moe_block: true }, '"top_k_experts" is missing');
  const partial = { full_attention: { rope_type: "proportional", partial_rotary_factor: 2 } };
  const range = '"rope_parameters.full_attention.partial_rotary_factor" is 2, expected a number from 0 to 1';
  refused(gemma4, { num_kv_shared_layers: 0, rope_parameters: partial }, range);
  refused(
    gemma4,
    { rope_parameters: { full_attention: 5 } },
    '"rope_parameters.full_attention" is 5, expected an object',
  );
});

Deno.test("readArgs() of Granite 4 takes layers of attention, with positions or without", () => {
  const factors = { embedding_multiplier: 6, attention_multiplier: 0.1, residual_multiplier: 0.5, logits_scaling: 2 };
  const least = { ...factors, layer_types: ["attention", "attention"] };
  const args = reads(granite.hybrid, { ...least, rope_scaling: { type: "linear", factor: 4 } });
  assertEquals([args.ropeTheta, args.ropeScaling, args.layerAttention], [1e4, { type: "default" }, undefined]);
  const without = reads(granite.hybrid, { ...least, position_embedding_type: "nope" }).layerAttention;
  assertEquals(without?.map(({ rope, window }) => [rope, window]), [[undefined, undefined], [undefined, undefined]]);
  const nested = { ...least, rope_theta: 5, rope_parameters: { rope_theta: 2e4 } };
  assertEquals(reads(granite.hybrid, nested).ropeTheta, 2e4); // as in mlx-lm
  assertEquals(reads(granite.hybrid, { ...nested, rope_parameters: { rope_theta: null } }).ropeTheta, 5);
  const untied = {
    ...least,
    num_local_experts: 4,
    num_experts_per_tok: 2,
    layer_types: null,
    tie_word_embeddings: null,
  };
  for (
    const [family, fields] of [[granite.hybrid, { ...untied, ...least, num_local_experts: 0 }], [
      granite.moe,
      untied,
    ]] as const
  ) {
    assertEquals(reads(family, fields).tieWordEmbeddings, undefined); // a head that is stored decides
  }
  const types = ["attention", "mamba"];
  refused(granite.hybrid, { ...least, layer_types: types }, '"layer_types" has "mamba": supported is "attention"');
  refused(granite.hybrid, { ...least, layer_types: ["attention"] }, '"layer_types" is no list of 2 layers');
  refused(granite.hybrid, factors, '"layer_types" is no list of 2 layers');
  refused(granite.hybrid, { ...least, num_local_experts: 4 }, "experts beside a shared part are not supported");
  const moe = { ...factors, num_local_experts: 4, num_experts_per_tok: 2 };
  assertEquals(reads(granite.moe, moe).experts?.size, 256);
  refused(granite.moe, { ...moe, num_experts_per_tok: 5 }, '"num_experts_per_tok" is 5, but there are 4 experts');
});

Deno.test("readArgs() of GLM-4.7-Flash has mlx-lm's defaults, and checks groups of experts", () => {
  const args = reads(glm4, { num_key_value_heads: 6 });
  assertEquals(args.latent, { rank: 512, plainDim: 192, valueDim: 256, queryRank: 768 });
  assertEquals([args.headDim, args.ropeDims, args.scoreScale, args.tieWordEmbeddings], [256, 64, 1 / 16, false]);
  const { layers, sigmoid, sharedSize, count, chosen } = args.experts!;
  assertEquals([layers, sharedSize, count, chosen], [[false, true], 1536, 64, 4]);
  assertEquals(sigmoid, { bias: true, normalized: true, sumEps: 1e-20, factor: 1.8 });
  assertEquals(reads(glm4, { n_group: 4, topk_group: 2 }).experts?.sigmoid?.groups, { count: 4, open: 2 });
  assertEquals(reads(glm4, { num_experts_per_tok: 1 }).experts?.sigmoid?.normalized, false);
  assertEquals(reads(glm4, { q_lora_rank: null, n_routed_experts: null }).experts, undefined);
  assertEquals(reads(glm4, { q_lora_rank: null }).latent?.queryRank, undefined);
  // (0.1 * log(e^10) + 1)^2 = 4
  const rope_scaling = { type: "yarn", factor: Math.exp(10), mscale_all_dim: 1 };
  assertEquals(reads(glm4, { rope_scaling }).scoreScale, 4 / 16);
  refused(glm4, { topk_method: "greedy" }, '"topk_method" is "greedy": supported is "noaux_tc"');
  refused(glm4, { n_group: 2, topk_group: 3 }, '"topk_group" is 3, but there are 2 groups');
  refused(glm4, { n_group: 3 }, '"n_group" is 3: 64 experts are not so many groups of two or more');
  refused(glm4, { n_group: 64 }, '"n_group" is 64: 64 experts are not so many groups of two or more');
});

Deno.test("describeModel() lists the known types when the type is not one", () => {
  const describe = (text: string) => describeModel(Fields.parse(text, "dir/config.json"), "dir/config.json");
  assertThrows(
    () => describe('{"model_type": "llama5"}'),
    LlmError,
    'dir/config.json: model_type "llama5" is not known: known are gemma, gemma2, ',
  );
  assertThrows(() => describe('{"model_type": "llama5"}'), LlmError, ". To ask for it, describe the model at https://");
  for (
    const [type, needs] of Object.entries({
      deepseek_v3: "latent attention",
      qwen2_5_vl: "images; a checkpoint of its text part may be loaded",
    })
  ) {
    assertThrows(() => describe(JSON.stringify({ model_type: type })), LlmError, `. It needs ${needs}. To ask for it`);
  }
  assertThrows(() => describe('{"model_type": "constructor"}'), LlmError, "is not known");
  assertThrows(() => describe("{}"), LlmError, 'dir/config.json: "model_type" is missing');
  assertThrows(() => describe("{"), LlmError, "dir/config.json is not valid JSON");
  assertThrows(() => describe("[]"), LlmError, "dir/config.json does not hold a JSON object");
});

Deno.test("readGenerationConfig() reads what is there", () => {
  const config = readGenerationConfig('{"eos_token_id": 5, "temperature": 0.6, "top_k": 20, "top_p": 0.95}', "g.json");
  assertEquals(config, { eosTokenIds: [5], temperature: 0.6, topK: 20, topP: 0.95, minP: undefined });
  assertEquals(readGenerationConfig('{"do_sample": false, "temperature": 0.6}', "g.json").temperature, 0);
  assertEquals(readGenerationConfig(undefined, "g.json").eosTokenIds, []);
  assertThrows(
    () => readGenerationConfig('{"temperature": "hot"}', "g.json"),
    LlmError,
    'g.json: "temperature" is "hot", expected a number',
  );
  assertThrows(
    () => readGenerationConfig('{"top_p": 2}', "g.json"),
    LlmError,
    '"top_p" is 2, expected a number from 0 to 1',
  );
  assertThrows(
    () => readGenerationConfig('{"top_k": 1.5}', "g.json"),
    LlmError,
    '"top_k" is 1.5, expected a whole number from 0 to 2147483648',
  );
});

Deno.test("readArgs() does not compare a field that is wrong by itself", () => {
  const { message } = assertThrows(() => read({ num_attention_heads: "x", head_dim: 0, hidden_act: 5 }), LlmError);
  assertEquals(
    message,
    'config.json: "num_attention_heads" is "x", expected a whole number from 1 to 4096, ' +
      '"head_dim" is 0, expected a whole number from 1 to 4096, "hidden_act" is 5, expected a string',
  );
});

Deno.test("readArgs() takes null in the quantization of a module as mlx-lm means it", () => {
  const quantization = {
    group_size: 128,
    bits: 8,
    mode: "affine",
    "lm_head": { group_size: null, bits: 6, mode: "affine" },
    "model.embed_tokens": { group_size: null, bits: null, mode: null },
    "model.layers.0.mlp.up_proj": {},
    "model.layers.0.mlp.down_proj": true,
  };
  const read1 = read({ quantization }).quantization;
  assertEquals(read1?.base, { groupSize: 128, bits: 8 });
  assertEquals([...read1?.overrides ?? []], [
    ["lm_head", { groupSize: 64, bits: 6 }],
    ["model.embed_tokens", { groupSize: 64, bits: 4 }],
    ["model.layers.0.mlp.up_proj", { groupSize: 64, bits: 4 }],
  ]);
  wrong({ quantization: { group_size: 0, bits: 4 } }, '"quantization" has group_size 0, expected 32, 64, 128');
});

Deno.test("readArgs() refuses sizes beyond any model, whatever would be made of them", () => {
  const yarn = { rope_scaling: { rope_type: "yarn", factor: 4 } };
  for (const size of [4e8, 1e12, 1e15, 1e300]) {
    for (const name of ["head_dim", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"]) {
      wrong({ [name]: size, ...yarn }, `"${name}" is ${size}, expected a whole number from 1 to `);
    }
    wrong({ vocab_size: size }, `"vocab_size" is ${size}, expected a whole number from 1 to 67108864`);
  }
  wrong({ max_position_embeddings: 2 ** 31 }, "expected a whole number from 1 to 2147483647");
  wrong({ rms_norm_eps: 2 }, '"rms_norm_eps" is 2, expected a positive number up to 1');
  wrong({ rope_theta: 1e13 }, '"rope_theta" is 10000000000000, expected a positive number up to 1000000000000');
  wrong({ rope_theta: 1, ...yarn }, '"rope_theta" is 1: "yarn" needs more than 1');
  for (const factor of [1e7, 1e-7]) {
    wrong({ rope_scaling: { type: "linear", factor } }, `"rope_scaling.factor" is ${factor}`);
  }
  wrong({ eos_token_id: Array(1001).fill(1) }, "a list of token ids, at most 1000");
});

Deno.test("messages quote what config.json says on one short line", () => {
  const text = "\x1b[2J\n\u202e".repeat(10_000);
  const changes = [
    { hidden_act: text },
    { head_dim: text },
    { rope_scaling: { type: text } },
    { rope_scaling: { type: "yarn", factor: text } },
    { rope_scaling: text },
    { quantization: text },
    { quantization: { mode: text } },
    { quantization: { [text]: { bits: text } } },
    { quantization: null, quantization_config: { quant_method: text } },
    { eos_token_id: [text] },
  ];
  const lines = changes.map((change) => assertThrows(() => read(change), LlmError).message);
  const parse = (json: string): string =>
    assertThrows(() => describeModel(Fields.parse(json, "dir/config.json"), "dir/config.json"), LlmError).message;
  lines.push(parse(JSON.stringify({ model_type: text })), parse(text), parse(`{"a": ${text}`), parse(`{"${text}": 1}`));
  assertEquals(lines.filter((line) => /[\p{Cc}\u202e]/u.test(line) || line.length > 600), []);
  assertThrows(() => Fields.parse("[".repeat(500_000), "c.json"), LlmError, "c.json is not valid JSON");
  assertThrows(
    () => read({ head_dim: JSON.parse(`${"[".repeat(50_000)}${"]".repeat(50_000)}`) }),
    LlmError,
    '"head_dim"',
  );
});
