/**
 * Models in GGUF files, as the package gguf writes them. Their logits are those of mlx-lm with the weights that the package reads from
 * them. The tokenizer and the chat template come from the file, and parts of a model are one.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { hasMatrices, withoutMatrices } from "../../support/devices/matrices.ts";
import { GGUF_MODELS, ggufBytes, ggufLogits, type GgufModel } from "../../support/models/gguf_models.ts";
import { HubBench, smallModel } from "../../support/models/hub_models.ts";
import { keptLogits, PROMPTS, STEPS } from "../../support/models/mlx_lm_families.ts";
import { text } from "../../support/processes/hub_server.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it
for (const name of DEVICES) mx.withDevice(withoutMatrices(name), getBackend); // and so with a device
/** With float32 activations all digits of the file count. */
const LIMIT = 1e-7;
/** Where the CPU rounds activations to integers. */
const ROUNDED = 1e-5;

/** Logits of the first prompt and the steps after it. */
async function logitsOf(path: string, options: mx.lm.LoadOptions): Promise<number[]> {
  mx.setDefaultDevice(options.device!);
  const { model } = await mx.lm.load(path, options);
  using _ = model;
  using cache = model.makeCache();
  const { vocabSize } = model.config;
  const logits = (ids: readonly number[], first: number): number[] => {
    using out = mx.tidy(() => model.forward(mx.array([[...ids]], mx.int32), cache).astype(mx.float32));
    return keptLogits(out.toTypedArray() as Float32Array, first, vocabSize);
  };
  const [prompt] = PROMPTS;
  return [...logits(prompt, 0), ...STEPS.flatMap((id, i) => logits([id], prompt.length + i))];
}

const hasExperts = ({ config }: GgufModel): boolean => Object.keys(config).some((field) => field.includes("expert"));

async function withFile(model: GgufModel, run: (path: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    const path = `${folder}/model.gguf`;
    await Deno.writeFile(path, ggufBytes(model));
    await run(path);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const device of DEVICES) {
  for (const [i, model] of GGUF_MODELS.entries()) {
    Deno.test(`the GGUF file of ${model.name} gives mlx-lm's logits of its weights on ${device}`, async (t) => {
      const golden = ggufLogits(i);
      await withFile(model, async (path) => {
        const compare = async (device: string, most: number): Promise<void> => {
          mx.setDefaultDevice(device);
          const before = mx.getActiveMemory();
          const error = nmse(await logitsOf(path, { device, dtype: mx.float32 }), golden);
          assertEquals(mx.getActiveMemory(), before);
          assert(error <= most, `NMSE ${error}`);
        };
        // Where products round, a token of which two experts have nearly the same score may get the other one.
        const rounds = device === "wasm" || (hasMatrices(device) && !hasExperts(model));
        if (rounds) await t.step("as devices round", () => compare(device, ROUNDED));
        if (device === "wasm") await t.step("with VKMX_EXACT=1", () => withExactCpu(() => compare(device, LIMIT)));
        else await t.step("without matrix units", () => compare(withoutMatrices(device), LIMIT));
      });
    });
  }
}

const byName = (name: string): GgufModel => GGUF_MODELS.find((model) => model.name.startsWith(name))!;
const golden = JSON.parse(
  await Deno.readTextFile(new URL("../../golden/tokenizers/llama_tokenizer.json", import.meta.url)),
);

Deno.test("types with codes keep their values in 16 bits, and a line says what became of each", async () => {
  using _options = withOptions({ env: { VKMX_DTYPE: undefined } }); // the CPU's own default
  await withFile(byName("Llama, Q8_0"), async (path) => {
    const notes: string[] = [];
    const error = nmse(
      await logitsOf(path, { device: "wasm", onNote: (line) => notes.push(line) }),
      ggufLogits(GGUF_MODELS.indexOf(byName("Llama, Q8_0"))),
    );
    assert(error <= ROUNDED, `NMSE ${error}`);
    assertEquals(notes, ["model.gguf: 15 of Q8_0 as 8-bit codes, exact"]);
  });
  for (const name of ["Qwen3.5, Q4_K", "Gemma 4 with experts, Q8_0", "GLM-4.7-Flash, Q8_0"]) {
    await withFile(byName(name), async (path) => {
      const error = nmse(await logitsOf(path, { device: "wasm" }), ggufLogits(GGUF_MODELS.indexOf(byName(name))));
      assert(error <= ROUNDED, `NMSE ${error} of ${name}`);
    });
  }
  await withFile(byName("Llama, Q4_K"), async (path) => {
    for (
      const [dtype, expected] of [
        [undefined, "12 of Q4_K as 4-bit codes, RND; 4 of Q6_K as 6-bit codes, RND"],
        [mx.float32, "12 of Q4_K as 4-bit codes, exact; 4 of Q6_K as 6-bit codes, exact"],
      ] as const
    ) {
      const notes: string[] = [];
      const options = { device: "wasm", onNote: (line: string) => notes.push(line), ...(dtype && { dtype }) };
      const { model } = await mx.lm.load(path, options);
      using _ = model;
      const { q_proj, v_proj } = model.parameters().model.layers[0].self_attn;
      assertEquals(nodeOf(q_proj.weight).stored?.packing?.bits, 4, "not in the layout of the CPU's products");
      const wide = dtype ?? mx.float16;
      assertEquals([q_proj.weight.dtype, q_proj.scales.dtype], [mx.uint32, wide]);
      assertEquals([v_proj.weight.dtype, v_proj.scales.dtype, v_proj.biases], [mx.uint32, wide, undefined]);
      if (!dtype) {
        const matrices = (await Deno.stat(path)).size - 2 ** 14; // at least: the header has the tokenizer
        const loaded = namedLeaves(model.parameters()).reduce((sum, [, x]) => sum + (x as mx.Tensor).nbytes, 0);
        assert(loaded < 1.15 * matrices, `${loaded} bytes of ${matrices}`);
      }
      assertEquals(model.parameters().model.norm.weight.dtype, wide);
      assertEquals(notes, [`model.gguf: ${expected.replaceAll("RND", "scales rounded by at most 2^-11")}`]);
    }
  });
});

Deno.test("a line says which types have no codes and become values", async () => {
  using _options = withOptions({ env: { VKMX_DTYPE: undefined } });
  await withFile(byName("Qwen3 of all types"), async (path) => {
    for (const [dtype, floats] of [[undefined, "float16"], [mx.float32, "float32"]] as const) {
      const notes: string[] = [];
      const options = { device: "wasm", onNote: (line: string) => notes.push(line), ...(dtype && { dtype }) };
      const { model } = await mx.lm.load(path, options);
      using _ = model;
      const [line] = notes;
      for (const type of ["Q2_K", "IQ4_NL"]) {
        assert(new RegExp(`[1-9] of ${type} dequantized to ${floats}(;|$)`).test(line), line);
      }
      assert(/[1-9] of MXFP4 as mxfp4, exact(;|$)/.test(line), line);
      assertEquals(line.match(/dequantized/g)?.length, 2, line);
    }
  });
});

Deno.test("the tokenizer, its template and the tokens that end an answer come from the file", async () => {
  await withFile(byName("SmolLM3"), async (path) => {
    const { model, tokenizer, config, generationConfig } = await mx.lm.load(path, { device: "wasm" });
    using _ = model;
    for (const [i, text] of golden.texts.entries()) assertEquals(tokenizer.encode(text), golden.ids[i], text);
    assertEquals([...tokenizer.eosTokenIds].sort(), [501, 504, 505]); // <|end_of_text|>, <|eom_id|>, <|eot_id|>
    assertEquals(tokenizer.bosToken, "<|begin_of_text|>");
    assertEquals(
      tokenizer.applyChatTemplate([{ role: "user", content: "Hi" }]),
      "<|begin_of_text|>Hi<|eot_id|>",
    );
    assertEquals([config.modelType, config.vocabSize, generationConfig.temperature], ["smollm3", 512, undefined]);
  });
});

/** The arrays and metadata of a model's file, to be written with changes. */
function partsOf(path: string): readonly [arrays: Record<string, mx.Tensor>, metadata: Record<string, unknown>] {
  return mx.load(path as "x.gguf", { returnMetadata: true });
}

function save(path: string, arrays: Record<string, mx.Tensor>, metadata: Record<string, unknown>): void {
  mx.saveGguf(path, arrays, metadata as Parameters<typeof mx.saveGguf>[2]);
}

Deno.test("a folder with one model and any part of a model in several files load it", async () => {
  const model = byName("Qwen3 with");
  await withFile(model, async (path) => {
    const folder = path.slice(0, -"/model.gguf".length);
    const options = { device: "wasm", dtype: mx.float32 };
    const expected = await logitsOf(path, options);
    await Deno.writeTextFile(`${folder}/config.json`, "{}"); // files of other formats beside it do not count
    await Deno.copyFile(path, `${folder}/mmproj-model.gguf`);
    assertEquals(await logitsOf(folder, options), expected);
    const [arrays, metadata] = partsOf(path);
    const names = Object.keys(arrays);
    const part = (index: number): string => `${folder}/parts-0000${index}-of-00002.gguf`;
    const counts = { "split.count": mx.array(2, mx.uint16), "split.tensors.count": mx.array(names.length, mx.int32) };
    const some = (from: number, to?: number): Record<string, mx.Tensor> =>
      Object.fromEntries(names.slice(from, to).map((name) => [name, arrays[name]]));
    save(part(1), some(0, 7), { ...metadata, ...counts });
    save(part(2), some(7), counts);
    for (const index of [1, 2]) assertEquals(await logitsOf(part(index), options), expected);
    await refused(folder, "several models: model.gguf, parts-00001-of-00002.gguf: name one of its files");
    save(part(2), some(8), counts);
    await refused(part(1), `the model has ${names.length} tensors and its files ${names.length - 1}`);
    save(part(2), some(6), counts);
    await refused(part(1), "is in two of its files");
    await Deno.remove(part(2));
    await refused(part(1), "parts-00002-of-00002.gguf: does not exist");
    await Deno.rename(part(1), `${folder}/one.gguf`);
    await refused(`${folder}/one.gguf`, "the model is in 2 files, and by the name there are 1");
  });
});

/** Asserts that loading fails with one line. */
async function refused(path: string, message: string): Promise<void> {
  const error = await assertRejects(() => mx.lm.load(path, { device: "wasm" }), mx.lm.LlmError, message);
  assert(!error.message.includes("\n"), error.message);
}

Deno.test("files that are no model of a known kind are refused with what is wrong", async () => {
  await withFile(byName("Qwen3 with"), async (path) => {
    const [arrays, metadata] = partsOf(path);
    const changed = `${path}.gguf`;
    const check = async (change: Record<string, unknown>, message: string, tensors = arrays): Promise<void> => {
      const kept = Object.entries({ ...metadata, ...change }).filter(([, value]) => value !== undefined);
      save(changed, tensors, Object.fromEntries(kept));
      await refused(changed, message);
    };
    const without = (name: string): Record<string, mx.Tensor> =>
      Object.fromEntries(Object.entries(arrays).filter(([other]) => other !== name));
    const many = new Int32Array(2).fill(2);
    many[1] = 4;
    await check({ "general.architecture": undefined }, 'lack "general.architecture"');
    await check(
      { "general.architecture": "mamba" },
      'the architecture "mamba" is not known: known are deepseek2, gemma,',
    );
    await check(
      { "general.architecture": "granitehybrid" },
      'the architecture "granitehybrid" is not supported: it needs recurrent layers of Mamba-2',
    );
    await check({ "general.architecture": "llama" }, 'the metadata lack "llama.block_count", "llama.context_length"');
    await check({ "qwen3.block_count": undefined }, 'the metadata lack "qwen3.block_count"');
    await check({ "qwen3.block_count": "2" }, 'the metadata "qwen3.block_count" are not a number');
    await check({ "qwen3.block_count": mx.array(-2) }, '"num_hidden_layers" is -2');
    await check({ "qwen3.attention.head_count": mx.array(many) }, "is 2 in some layers and 4 in others");
    await check({ "qwen3.attention.value_length": mx.array(8, mx.int32) }, "heads of values have to be as large");
    await check({ "qwen3.rope.dimension_count": mx.array(8, mx.int32) }, "heads have 16 features");
    await check({ "qwen3.rope.scaling.type": "longrope" }, 'supported are "none", "linear", "yarn"');
    await check({ "tokenizer.ggml.model": "bert" }, 'supported are "gpt2", "llama" and "gemma4"');
    await check({ "tokenizer.ggml.model": "llama" }, 'the metadata lack "tokenizer.ggml.scores"');
    await check({ "tokenizer.ggml.model": undefined }, 'the metadata lack "tokenizer.ggml.model"');
    await check({ "tokenizer.ggml.pre": "none" }, '"tokenizer.ggml.pre" is "none": known are');
    await check({ "tokenizer.ggml.merges": undefined }, 'the metadata lack "tokenizer.ggml.merges"');
    await check({ "tokenizer.ggml.merges": ["xx yy"] }, 'merge 0 gives "xxyy", which is no token');
    await check({ "tokenizer.ggml.tokens": ["a", "a"] }, "there are 2 tokens and kinds of 512");
    await check(
      { "tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": mx.array([1, 1], mx.int32) },
      '"tokenizer.ggml.eos_token_id" is 501, and there are 2 tokens',
    );
    await check({}, 'there is no tensor "token_embd.weight"', without("token_embd.weight"));
    await check(
      {},
      "1 tensor is missing: blk.1.attn_q_norm.weight",
      without("blk.1.attn_q_norm.weight"),
    );
    await check({}, '1 tensor is not part of the model: "blk.0.ssm.weight"', {
      ...arrays,
      "blk.0.ssm.weight": mx.ones(2),
    });
    await check({}, 'two tensors are "model.layers.0.post_attention_layernorm.weight"', {
      ...arrays,
      "blk.0.post_attention_norm.weight": arrays["blk.0.ffn_norm.weight"],
    });
  });
});

/** The file of a model with other metadata or tensors. */
async function withChanges(
  name: string,
  run: (
    changed: (metadata: Record<string, unknown>, tensors?: Record<string, mx.Tensor | undefined>) => string,
    path: string,
  ) => Promise<void>,
): Promise<void> {
  const kept = <T>(values: Record<string, T | undefined>): Record<string, T> =>
    Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Record<string, T>;
  await withFile(byName(name), async (path) => {
    const [arrays, metadata] = partsOf(path);
    const other = `${path}.gguf`;
    await run((change, tensors = {}) => {
      save(other, kept({ ...arrays, ...tensors }), kept({ ...metadata, ...change }));
      return other;
    }, path);
  });
}

Deno.test("hybrids that differ from what is supported are refused with what is wrong", async () => {
  await withChanges("Qwen3.5, BF16", async (changed) => {
    const check = (change: Record<string, unknown>, message: string) => refused(changed(change), message);
    await check({ "qwen35.ssm.inner_size": undefined }, 'the metadata lack "qwen35.ssm.inner_size"');
    await check({ "qwen35.ssm.group_count": mx.array(4) }, "4 heads of keys and 6 of values with 192 features");
    await check(
      { "qwen35.attention.recurrent_layers": mx.array([true, true, false]) },
      '"qwen35.attention.recurrent_layers" differs in layer 1 from attention in each layer 2',
    );
  });
  await withChanges("Gemma 4 with experts, BF16", async (changed) => {
    const check = (change: Record<string, unknown>, message: string) => refused(changed(change), message);
    const pattern = "gemma4.attention.sliding_window_pattern";
    for (const value of [undefined, mx.array([true, false]), mx.array(3)]) {
      await check({ [pattern]: value }, `"${pattern}" is not a list of true or false for each layer`);
    }
    const factors = mx.array([...Array(16).fill(1), ...Array(16).fill(2)], mx.float32);
    const path = changed({}, { "rope_freqs.weight": factors });
    await refused(path, '"rope_freqs.weight" has other factors than 1 and, after those, 1e+30');
  });
  await withChanges("GLM-4.7-Flash, BF16", async (changed) => {
    const check = (change: Record<string, unknown>, message: string) => refused(changed(change), message);
    await check({ "deepseek2.expert_gating_func": mx.array(1) }, "other scores of experts are not supported here");
    await check({ "deepseek2.attention.key_length_mla": undefined }, "files of that age have to be converted anew");
    await check(
      { "deepseek2.attention.temperature_scale": mx.array(0.1) },
      '"deepseek2.attention.temperature_scale" is set, which is not supported here',
    );
    await refused(
      changed({}, { "blk.1.exp_probs_b.bias": undefined, "blk.2.exp_probs_b.bias": undefined }),
      "sigmoids",
    );
  });
});

Deno.test("layers that predict further tokens are left out, and experts may have gate and up in one tensor", async () => {
  await withChanges("Qwen3.5-MoE, BF16", async (changed, path) => {
    const options = { device: "wasm", dtype: mx.float32 };
    const expected = await logitsOf(path, options);
    const [arrays] = partsOf(path);
    const joined = [0, 1, 2].flatMap((layer) => {
      const [gate, up, both] = ["gate", "up", "gate_up"].map((part) => `blk.${layer}.ffn_${part}_exps.weight`);
      return [[gate, undefined], [up, undefined], [both, mx.concatenate([arrays[gate], arrays[up]], 1)]];
    });
    const further = {
      "blk.3.nextn.eh_proj.weight": mx.ones([64, 128], mx.bfloat16),
      "blk.3.nextn.enorm.weight": mx.ones(64),
      "blk.3.attn_norm.weight": mx.ones(64),
    };
    const other = changed(
      {
        "qwen35moe.block_count": mx.array(4, mx.uint32),
        "qwen35moe.nextn_predict_layers": mx.array(1, mx.uint32),
        "qwen35moe.attention.recurrent_layers": undefined,
        "qwen35moe.feed_forward_length": undefined,
      },
      { ...Object.fromEntries(joined), ...further },
    );
    assertEquals(await logitsOf(other, options), expected);
  });
});

Deno.test("codes that heads of values share are refused, as their order is not that of mlx-lm", async () => {
  await withFile(byName("Qwen3.5, Q4_K"), async (path) => {
    const bytes = await Deno.readFile(path);
    for (const [key, value] of [["qwen35.ssm.time_step_rank", 64], ["qwen35.ssm.group_count", 2]] as const) {
      const at = new TextDecoder("latin1").decode(bytes).indexOf(key);
      bytes[at + key.length + 4] = value; // after its type
    }
    await Deno.writeFile(path, bytes);
    await refused(path, "groups of codes cross the 64 heads of values: take a file of another type");
  });
});

Deno.test("inspect() describes a file, and a folder of one, by its header", async () => {
  await withFile(byName("Llama, Q4_K"), async (path) => {
    const { config, parameters, weightBytes, dtypes, hasChatTemplate, files } = await mx.lm.inspect(path);
    assertEquals([config.modelType, dtypes, hasChatTemplate], ["llama", ["Q4_K", "Q6_K", "F32"], true]);
    const { model } = await mx.lm.load(path, { device: "wasm" });
    using _ = model;
    const leaves = new Map(namedLeaves(model.parameters()) as [string, mx.Tensor][]);
    const counts = leaves.entries().map(([name, { dtype, size }]) => {
      if (/\.(scales|biases)$/.test(name)) return 0;
      return dtype === mx.uint32 ? size * 32 / (leaves.has(name.replace(/weight$/, "biases")) ? 4 : 6) : size;
    });
    assertEquals(parameters, counts.reduce((sum, count) => sum + count, 0));
    const { size } = await Deno.stat(path);
    assertEquals(files, [{ name: "model.gguf", size }]);
    assert(weightBytes < size && weightBytes > 0.9 * size);
    assertEquals(await mx.lm.inspect(path.slice(0, -"/model.gguf".length)), {
      config,
      parameters,
      weightBytes,
      draftHeadBytes: 0,
      dtypes,
      hasChatTemplate,
      files,
    });
  });
});

/** Parameters by get_total_parameters() of mlx-lm, which counts no arrays of modules that have others, such as A_log. */
const COUNTED = {
  "Qwen3.5, BF16": 266_816,
  "Gemma 4 with keys and values that layers share, BF16": 674_208,
  "GLM-4.7-Flash, Q8_0 and Q4_0": 574_480,
  "Granite, BF16": 106_816,
} as const;

Deno.test("a model has as many parameters in a file as in a folder and in a file of other types", async () => {
  for (const [name, expected] of Object.entries(COUNTED)) {
    await withFile(byName(name), async (path) => {
      const folder = `${path}.folder`;
      const { parameters: converted } = await mx.lm.convert(path, folder, { device: "wasm" });
      const [inFile, inFolder] = [await mx.lm.inspect(path), await mx.lm.inspect(folder)];
      assertEquals([inFile.parameters, converted, inFolder.parameters], [expected, expected, expected], name);
      if (name !== "Granite, BF16") return;
      const { parameters: written } = await mx.lm.convert(path, `${path}.out`, { device: "wasm", gguf: "Q8_0" });
      assertEquals(written, expected);
    });
  }
});

Deno.test("codes whose groups do not divide the rows of a model are refused", async () => {
  await withFile(byName("Llama, Q8_0"), async (path) => {
    const bytes = await Deno.readFile(path);
    const [from, to] = ["llama.rope.dimension_count", "llama.attention.key_length"]; // as long as each other
    const at = new TextDecoder("latin1").decode(bytes).indexOf(from);
    bytes.set(new TextEncoder().encode(to), at);
    bytes[at + to.length + 4] = 20; // after its type: features of a head
    await Deno.writeFile(path, bytes);
    await refused(path, '22 tensors do not fit the metadata: "blk.0.attn_q.weight"');
  });
});

Deno.test("a file of a model of the hub is downloaded once, with its other parts", async () => {
  await using bench = new HubBench();
  const files = {
    "q/m-00001-of-00002.gguf": text("GG"),
    "q/m-00002-of-00002.gguf": text("UF"),
    "other.gguf": text(""),
  };
  bench.server.models.set("org/gguf", { ...smallModel(), files });
  for (const name of ["org/gguf/q/m-00001-of-00002.gguf", "org/gguf@main/q/m-00002-of-00002.gguf"]) {
    const path = await mx.lm.hub.locate(name);
    const folder = path.slice(0, path.lastIndexOf("/"));
    assertEquals([path.endsWith(name.slice(-21)), await Deno.readTextFile(path)], [
      true,
      name.includes("@") ? "UF" : "GG",
    ]);
    assertEquals(Array.from(Deno.readDirSync(folder), (entry) => entry.name).sort(), [
      "m-00001-of-00002.gguf",
      "m-00002-of-00002.gguf",
    ]);
  }
  await assertRejects(
    () => mx.lm.hub.locate("org/gguf/none.gguf"),
    mx.lm.LlmError,
    'org/gguf has no file that fits "none.gguf"',
  );
});
