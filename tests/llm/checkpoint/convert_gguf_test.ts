/** GGUF files become directories in mlx-lm's layout: they give the same logits and tokens, with codes and dense. */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { GGUF_MODELS, ggufBytes, ggufLogits } from "../../support/models/gguf_models.ts";
import { keptLogits, PROMPTS } from "../../support/models/mlx_lm_families.ts";
import { nmse } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

const DEVICE = "wasm";

interface Answer {
  readonly logits: number[];
  readonly ids: number[];
  readonly ends: number[];
}

async function answerOf(path: string, dtype?: mx.Dtype): Promise<Answer> {
  mx.setDefaultDevice(DEVICE);
  const { model, tokenizer } = await mx.lm.load(path, { device: DEVICE, ...(dtype && { dtype }) });
  using _ = model;
  using out = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)).astype(mx.float32));
  return {
    logits: keptLogits(out.toTypedArray() as Float32Array, 0, model.config.vocabSize),
    ids: tokenizer.encode("Hello <|eot_id|> 123"),
    ends: [...tokenizer.eosTokenIds].sort(),
  };
}

const NAMES = [
  "SmolLM3, BF16",
  "Gemma 2, BF16",
  "Mixtral, BF16",
  "gpt-oss, BF16",
  "Qwen3 of all types",
  "Llama, Q8_0",
  "Qwen3.5-MoE, BF16",
  "Qwen3.5, Q4_K and others",
  "Gemma 4 with experts, Q8_0",
  "GLM-4.7-Flash, Q8_0 and Q4_0",
];
/** Files with types that mlx-lm has no codes of. */
const VALUED = ["Qwen3 of all types", "Qwen3.5, Q4_K and others"];

for (const name of NAMES) {
  Deno.test(`the GGUF file of ${name} becomes a directory with the same logits`, async () => {
    const index = GGUF_MODELS.findIndex((model) => model.name === name);
    const golden = ggufLogits(index).subarray(0, PROMPTS[0].length * 512 / 16);
    const folder = await Deno.makeTempDir();
    try {
      const path = `${folder}/model.gguf`;
      await Deno.writeFile(path, ggufBytes(GGUF_MODELS[index]));
      const expected = await answerOf(path);
      const { files, bitsPerWeight, parameters } = await mx.lm.convert(path, `${folder}/codes`, { device: DEVICE });
      const found = await answerOf(`${folder}/codes`);
      // mlx-lm has no codes of Q3_K and Q6_K: those are written as values, with which the CPU sums in another order.
      const apart = VALUED.includes(name) ? nmse(found.logits, Float32Array.from(expected.logits)) : 0;
      assert(apart <= 1e-5, `NMSE ${apart}`);
      assertEquals(apart > 0 ? { ...found, logits: expected.logits } : found, expected);
      assert(!(await Deno.readTextFile(`${folder}/codes/config.json`)).includes("symmetric"));
      assert(files.includes("tokenizer.json") && bitsPerWeight > 4 && parameters > 1000, String(files));
      await mx.lm.convert(path, `${folder}/dense`, { device: DEVICE, dequantize: true, dtype: mx.float32 });
      const { logits, ids, ends } = await answerOf(`${folder}/dense`, mx.float32);
      const error = nmse(logits, golden);
      assert(error <= 1e-5, `NMSE ${error}`); // the CPU rounds activations to integers
      assertEquals([ids, ends], [expected.ids, expected.ends]);
      const config = JSON.parse(await Deno.readTextFile(`${folder}/dense/config.json`));
      assertEquals(config.quantization, undefined);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

Deno.test("options that a GGUF file has no place for are refused", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const path = `${folder}/model.gguf`;
    await Deno.writeFile(path, ggufBytes(GGUF_MODELS.find(({ name }) => name === "Llama, Q8_0")!));
    const refused = async (options: mx.lm.ConvertOptions, message: string): Promise<void> => {
      await assertRejects(() => mx.lm.convert(path, `${folder}/out`, options), mx.lm.LlmError, message);
    };
    await refused(
      { quantize: true },
      "is a GGUF file: convert it to a folder with dequantize first, and quantize that",
    );
    await refused({ dtype: mx.bfloat16 }, "is a GGUF file: its dtype may be float32 or float16, found bfloat16");
    assertEquals(Array.from(Deno.readDirSync(folder), ({ name }) => name), ["model.gguf"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
