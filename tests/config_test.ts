/**
 * config.json and generation_config.json: everything absent or wrong is named, with the file.
 */

import { assertEquals, assertThrows } from "@std/assert";
import { Fields, readGenerationConfig } from "../src/llm/config.ts";
import { LlmError } from "../src/llm/error.ts";
import { describeModel } from "../src/llm/models/mod.ts";
import { readArgs } from "../src/llm/models/qwen3.ts";
import { TINY_DIR } from "./models.ts";

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
      ...["vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings"],
    ]
  ) {
    wrong({ [name]: undefined }, `config.json: "${name}" is missing`);
    wrong({ [name]: "many" }, `config.json: "${name}" is "many", expected`);
  }
  wrong({ hidden_size: -1, head_dim: 2.5 }, '"hidden_size" is -1, expected a positive integer, "head_dim" is 2.5');
  wrong({ num_attention_heads: 3 }, '"num_attention_heads" 3 is not a multiple of "num_key_value_heads" 2');
  wrong({ head_dim: 127 }, '"head_dim" is 127, expected an even number');
  wrong({ hidden_act: "gelu" }, '"hidden_act" is "gelu": only "silu" is supported');
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
  wrong(
    { quantization: { group_size: 32, bits: 4, mode: "mxfp4" } },
    '"quantization" has mode "mxfp4": only "affine" is supported',
  );
  wrong({ quantization: { group_size: 48, bits: 4 } }, '"quantization" has group_size 48, expected 32, 64, 128');
  wrong({ quantization: { group_size: 64, bits: 7 } }, '"quantization" has bits 7, expected 2, 3, 4, 5, 6, 8');
  wrong({ quantization: { group_size: 64, bits: 4, "lm_head": { bits: 9 } } }, '"quantization.lm_head" has bits 9');
  wrong({ quantization: 4 }, '"quantization" is 4, expected an object');
  wrong(
    { quantization: null, quantization_config: { quant_method: "awq", bits: 4 } },
    'quant_method "awq": convert the model',
  );
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
  assertEquals(
    read({ rope_theta: undefined, rope_parameters: { rope_theta: 5e5, rope_type: "default" } }).ropeTheta,
    5e5,
  );
  wrong(
    { rope_scaling: { type: "dynamic", factor: 2 } },
    '"rope_scaling" has type "dynamic": supported are "default", "linear" and "yarn"',
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
    const message = `"rope_scaling.${name}" is -10, expected a number of at least 0`;
    wrong({ rope_scaling: { type: "yarn", factor: 4, [name]: -10 } }, message);
  }
  const parameters = { rope_theta: undefined, rope_parameters: { rope_theta: -1 } };
  wrong(parameters, '"rope_parameters.rope_theta" is -1, expected a positive number');
});

Deno.test("describeModel() lists the known types when the type is not one", () => {
  const describe = (text: string) => describeModel(Fields.parse(text, "dir/config.json"), "dir/config.json");
  assertThrows(
    () => describe('{"model_type": "llama5"}'),
    LlmError,
    'dir/config.json: model_type "llama5" is not known: known are qwen3',
  );
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
    'config.json: "num_attention_heads" is "x", expected a positive integer, ' +
      '"head_dim" is 0, expected a positive integer, "hidden_act" is 5, expected a string',
  );
});
