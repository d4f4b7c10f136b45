/**
 * Models written as GGUF: the tensors are those that the package gguf wrote of the same models, byte for byte. A file that is read back
 * gives the same logits.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { readGguf } from "../../../src/array/files/gguf.ts";
import { GGUF_MODELS, ggufBytes, ggufLogits, type GgufModel } from "../../support/models/gguf_models.ts";
import { keptLogits, PROMPTS } from "../../support/models/mlx_lm_families.ts";
import { matrixTypes } from "../../../src/llm/convert/gguf_outputs.ts";
import { nmse } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

const DEVICE = "wasm";
/** The CPU rounds activations to integers. */
const ROUNDED = 1e-5;
/** A matrix of 8 bits has about this error, and one of 4 bits. */
const QUANTIZED = { Q8_0: 1e-3, Q4_0: 0.3 } as const;
/** Rounding may choose another expert of nearly the same weight. */
const OTHER_EXPERTS = 1e-2;

async function withFolder(model: GgufModel, run: (path: string, folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeFile(`${folder}/model.gguf`, ggufBytes(model));
    await run(`${folder}/model.gguf`, folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function logitsOf(path: string): Promise<number[]> {
  mx.setDefaultDevice(DEVICE);
  const { model } = await mx.lm.load(path, { device: DEVICE, dtype: mx.float32 });
  using _ = model;
  using out = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)).astype(mx.float32));
  return keptLogits(out.toTypedArray() as Float32Array, 0, model.config.vocabSize);
}

/** Type, shape and bytes of each tensor of a file, by name. */
function tensorsOf(path: string): Record<string, unknown> {
  const file = Deno.readFileSync(path);
  const { tensors } = readGguf(path);
  const entries = tensors.map(({ name, type, shape, byteOffset, bytes }) => [
    name,
    { type: type.name, shape, data: file.subarray(byteOffset, byteOffset + bytes).toBase64() },
  ]);
  return Object.fromEntries(entries.sort(([a], [b]) => a < b ? -1 : 1));
}

/** A model whose positions are stretched by factors of which the config keeps only a part. */
const FACTORS = "Phi-3 with factors of wavelengths, BF16";
/** Families that are only read. */
const READ = /^(lfm2|qwen3_5|qwen3_next|gemma4|glm4|granitemoehybrid)/;

for (const [index, model] of GGUF_MODELS.entries()) {
  const type = String(model.config.model_type);
  if (!model.name.endsWith("BF16") || model.name === FACTORS || READ.test(type)) continue;
  Deno.test(`the GGUF file of ${model.name}, written again, has the same tensors and logits`, async () => {
    await withFolder(model, async (path, folder) => {
      const golden = ggufLogits(index).subarray(0, PROMPTS[0].length * 512 / 16);
      await mx.lm.convert(path, `${folder}/dense`, { device: DEVICE, dtype: mx.float32 });
      for (const source of [path, `${folder}/dense`]) {
        const out = `${folder}/${source === path ? "again" : "written"}`;
        const { files } = await mx.lm.convert(source, out, { device: DEVICE, gguf: "BF16" });
        assertEquals(files, ["model-BF16.gguf"]);
        assertEquals(tensorsOf(`${out}/model-BF16.gguf`), tensorsOf(path));
        const error = nmse(await logitsOf(out), golden);
        assert(error <= ROUNDED, `NMSE ${error}`);
      }
      const [type, most] = Object.entries(QUANTIZED)[index % 2];
      await mx.lm.convert(path, `${folder}/quantized`, { device: DEVICE, gguf: type as keyof typeof QUANTIZED });
      const error = nmse(await logitsOf(`${folder}/quantized`), golden);
      const limit = "num_experts_per_tok" in model.config ? Math.max(most, OTHER_EXPERTS) : most;
      assert(error <= limit, `NMSE ${error} of ${type}`);
    });
  });
}

Deno.test("the tokenizer of a file that is written is that of the model", async () => {
  await withFolder(GGUF_MODELS[0], async (path, folder) => {
    await mx.lm.convert(path, `${folder}/out`, { device: DEVICE, gguf: "Q8_0" });
    const [before, after] = await Promise.all([path, `${folder}/out`].map(async (path) => {
      const { model, tokenizer } = await mx.lm.load(path, { device: DEVICE });
      model[Symbol.dispose]();
      const chat = [{ role: "user", content: "Hi" }] as const;
      return [
        tokenizer.encode("Hello <|eot_id|> 123 naïve"),
        tokenizer.encodeChat(chat),
        [...tokenizer.eosTokenIds].sort(),
        tokenizer.bosToken,
      ];
    }));
    assertEquals(after, before);
  });
});

Deno.test("Q4_K_M has matrices of Q4_K and Q6_K, and what loads is near the model", async () => {
  const model = GGUF_MODELS.find(({ name }) => name === "Llama, Q4_K and Q6_K")!;
  const golden = ggufLogits(GGUF_MODELS.indexOf(model)).subarray(0, PROMPTS[0].length * 512 / 16);
  await withFolder(model, async (path, folder) => {
    await mx.lm.convert(path, `${folder}/out`, { device: DEVICE, gguf: "Q4_K_M" });
    const { tensors } = readGguf(`${folder}/out/model-Q4_K_M.gguf`);
    const types = new Map(tensors.map(({ name, type }) => [name, type.name]));
    assertEquals(types.get("blk.0.attn_norm.weight"), "F32");
    assertEquals(types.get("blk.1.attn_q.weight"), "Q4_K");
    for (const name of ["output.weight", "blk.1.attn_v.weight", "blk.1.ffn_down.weight"]) {
      assertEquals(types.get(name), "Q6_K", name);
    }
    // A step of 2 / 15 of a group's size gives an NMSE of 4e-3 a matrix; logits depend on a dozen.
    const error = nmse(await logitsOf(`${folder}/out`), golden);
    assert(error > 0 && error <= 0.1, `NMSE ${error}`);
  });
});

Deno.test("Q4_K_M gives the matrices more bits that llama.cpp gives more", () => {
  const layers = Array.from({ length: 16 }, (_, i) => i);
  const matrices = (names: readonly string[]) =>
    names.map((name) => ({ name, columns: name.includes("narrow") ? 96 : name.includes("odd") ? 40 : 512 }));
  const names = layers.flatMap((i) =>
    ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"].map((part) => `blk.${i}.${part}.weight`)
  );
  const table = matrixTypes("Q4_K_M", matrices(["token_embd.weight", ...names]), 16, 0);
  const found = [...table].filter(([, type]) => type === "Q6_K").map(([name]) => name);
  // The first and the last eighth, and every third layer between them: use_more_bits() of llama-quant.cpp.
  const more = [0, 1, 4, 7, 10, 13, 14, 15].flatMap((i) => [`blk.${i}.attn_v.weight`, `blk.${i}.ffn_down.weight`]);
  assertEquals(found, ["token_embd.weight", ...more]);
  assertEquals([...new Set(table.values())], ["Q6_K", "Q4_K"]);
  const head = matrixTypes("Q4_K_M", matrices(["token_embd.weight", "output.weight", "narrow", "odd"]), 1, 0);
  assertEquals([...head.values()], ["Q4_K", "Q6_K", "Q8_0", "F16"]);
  const experts = matrixTypes("Q4_K_M", matrices(names.slice(-6)), 16, 8);
  assertEquals([...experts.values()], ["Q4_K", "Q8_0", "Q8_0", "Q6_K", "Q4_K", "Q6_K"]);
});

Deno.test("a quantized directory becomes a GGUF file with its values and its tokenizer", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await mx.lm.convert(mx.lm.EMBEDDED_MODEL, `${folder}/out`, { device: DEVICE, gguf: "F16" });
    const answers = await Promise.all([mx.lm.EMBEDDED_MODEL, `${folder}/out`].map(async (source) => {
      const { model, tokenizer } = await mx.lm.load(source, { device: DEVICE, dtype: mx.float32 });
      using _ = model;
      const ids = tokenizer.encode("Once upon a time, naïve 日本 1234 <|im_end|>\n\n");
      using out = mx.tidy(() => model.forward(mx.array([ids], mx.int32)));
      return { ids, ends: [...tokenizer.eosTokenIds].sort(), logits: out.toTypedArray() as Float32Array };
    }));
    const [{ logits: expected, ...before }, { logits, ...after }] = answers;
    assertEquals(after, before);
    const error = nmse(logits, expected);
    assert(error <= 1e-4, `NMSE ${error}`); // the CPU rounds activations to integers, in each of the two
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("models that a GGUF file cannot hold are refused, and nothing is written", async () => {
  const refused = async (name: string, options: mx.lm.ConvertOptions, message: string): Promise<void> => {
    await withFolder(GGUF_MODELS.find((model) => model.name === name)!, async (path, folder) => {
      await assertRejects(() => mx.lm.convert(path, `${folder}/out`, options), mx.lm.LlmError, message);
      assertEquals(Array.from(Deno.readDirSync(folder), ({ name }) => name), ["model.gguf"]);
    });
  };
  await refused("Qwen3-Next, BF16", { gguf: "Q8_0" }, 'is a "qwen3_5_moe", which is not written as GGUF: gemma,');
  await refused(FACTORS, { gguf: "Q8_0" }, 'has "ropeScaling" that a GGUF file of "phi3" cannot hold');
  await refused(
    "SmolLM3, BF16",
    { gguf: "Q3_X" as "Q8_0" },
    "expected gguf F32, F16, BF16, Q8_0, Q6_K, Q4_K_M, Q4_K, Q4_0: found",
  );
  await refused("SmolLM3, BF16", { gguf: "Q8_0", dequantize: true }, "got dequantize beside gguf");
});
