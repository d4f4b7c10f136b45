/**
 * config.json and generation_config.json: everything absent or wrong is named, with the file.
 */

import { assertEquals, assertThrows } from "@std/assert";
import { Fields, readGenerationConfig } from "../../src/llm/config.ts";
import { LlmError } from "../../src/llm/error.ts";
import { describeModel } from "../../src/llm/models/mod.ts";
import { readArgs } from "../../src/llm/models/qwen3.ts";
import { TINY_DIR } from "../support/models.ts";

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
  wrong(
    { hidden_size: -1, head_dim: 2.5 },
    '"hidden_size" is -1, expected a whole number from 1 to 1048576, "head_dim" is 2.5',
  );
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
    const message = `"rope_scaling.${name}" is -10, expected a number from 0 to 1000000`;
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
