/**
 * Files of Llama checkpoints. Their tokenizer gives the ids of Hugging Face's (golden/tokenizers/llama_tokenizer.py).
 * Several tokens may end a generation, and older or other tools may leave extra tensors.
 */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { encodePrompt } from "../../../src/llm/generation/prompt.ts";
import { anyDevice } from "../../support/devices/devices.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

/** Made by golden/tokenizers/llama_tokenizer.py. */
interface Golden {
  readonly tokenizer: { readonly added_tokens: readonly { readonly id: number; readonly content: string }[] };
  readonly config: unknown;
  readonly texts: readonly string[];
  /** Ids of each text with the special tokens around it. */
  readonly ids: readonly number[][];
  readonly conversations: readonly (readonly mx.lm.ChatMessage[])[];
  /** Ids of each conversation in the chat template, up to the answer. */
  readonly prompts: readonly number[][];
}

const GOLDEN: Golden = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/tokenizers/llama_tokenizer.json", import.meta.url)),
);
const vocab = 512;
const SHAPE: ModelShape = {
  ...{
    family: "llama",
    hidden: 128,
    intermediate: 192,
    layers: 2,
    heads: 2,
    kvHeads: 1,
    headDim: 64,
    tied: true,
    vocab,
  },
  config: { rope_scaling: { rope_type: "llama3", factor: 32 } },
};
const id = (content: string): number => GOLDEN.tokenizer.added_tokens.find((token) => token.content === content)!.id;
const ENDS = ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"].map(id);

/** Runs with the folder of a model with the tokenizer of Llama. */
async function withLlama(shape: ModelShape, run: (dir: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  const dir = `${folder}/model`;
  try {
    await writeModel(dir, shape, { groupSize: 64 });
    await Deno.writeTextFile(`${dir}/tokenizer.json`, JSON.stringify(GOLDEN.tokenizer));
    await Deno.writeTextFile(`${dir}/tokenizer_config.json`, JSON.stringify(GOLDEN.config));
    await Deno.writeTextFile(`${dir}/generation_config.json`, JSON.stringify({ eos_token_id: ENDS }));
    await run(dir);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("the tokenizer of a Llama checkpoint gives the ids of Hugging Face's for prompts and conversations", () =>
  withLlama(SHAPE, async (dir) => {
    const { model, tokenizer } = await mx.lm.load(dir, { device: DEVICE });
    using _ = model;
    const [bos] = GOLDEN.ids[0];
    assertEquals(bos, id("<|begin_of_text|>"));
    assertEquals(GOLDEN.texts.map((text) => tokenizer.encode(text)), GOLDEN.ids);
    assertEquals(encodePrompt(model, tokenizer, GOLDEN.texts[0], {}), GOLDEN.ids[0]);
    assertEquals(encodePrompt(model, tokenizer, `<|begin_of_text|>${GOLDEN.texts[0]}`, {}), GOLDEN.ids[0]); // once
    assertEquals(GOLDEN.conversations.map((messages) => tokenizer.encodeChat(messages)), GOLDEN.prompts);
    const [ids] = GOLDEN.ids;
    assertEquals(tokenizer.decode(ids, { skipSpecial: true }), GOLDEN.texts[0]);
  }));

Deno.test("each of the tokens that generation_config.json of a Llama checkpoint names ends a generation", () =>
  withLlama(SHAPE, async (dir) => {
    const { model, tokenizer } = await mx.lm.load(dir, { device: DEVICE });
    using _ = model;
    assertEquals([...tokenizer.eosTokenIds].sort(), ENDS);
    const generated = async (logitBias?: Record<number, number>): Promise<mx.lm.GenerationResponse[]> =>
      await Array.fromAsync(
        mx.lm.streamGenerate(model, tokenizer, GOLDEN.conversations[0], {
          maxTokens: 3,
          ...(logitBias && { logitBias }),
        }),
      );
    for (const end of ENDS) {
      const [{ token, text, finishReason }, ...more] = await generated({ [end]: 1000 });
      assertEquals([token, text, finishReason, more.length], [end, "", "stop", 0]);
    }
    assertEquals((await generated()).at(-1)?.finishReason, "length");
  }));

Deno.test("several conversations with a Llama model go on together as each does alone", () =>
  withLlama({ ...SHAPE, config: { ...SHAPE.config, attention_bias: true, mlp_bias: true } }, async (dir) => {
    const { model, tokenizer } = await mx.lm.load(dir, { device: DEVICE });
    using _ = model;
    const prompts = [...GOLDEN.conversations, GOLDEN.ids[3]];
    const options = { maxTokens: 6 };
    const together = await mx.lm.batchGenerate(model, tokenizer, prompts, options);
    const alone: string[] = [];
    for (const prompt of prompts) alone.push(await mx.lm.generate(model, tokenizer, prompt, options));
    assertEquals(together.texts, alone);
  }));

/** Writes the tensors of a model anew, with changes. */
function rewrite(dir: string, change: (tensors: Record<string, mx.Tensor>) => void): void {
  mx.withDevice(DEVICE, () =>
    mx.tidy(() => {
      const tensors: Record<string, mx.Tensor> = { ...mx.loadSafetensors(`${dir}/model.safetensors`) };
      mx.eval(...Object.values(tensors));
      change(tensors);
      mx.saveSafetensors(`${dir}/model.safetensors`, tensors);
    }));
}

async function logitsOf(dir: string): Promise<number[]> {
  const { model } = await mx.lm.load(dir, { device: DEVICE });
  using _ = model;
  mx.setDefaultDevice(DEVICE);
  using logits = mx.tidy(() => model.forward(mx.array([[1, 2, 3]], mx.int32)));
  return [...logits.toTypedArray() as Float32Array];
}

Deno.test("a head that is tied but stored and frequencies of positions are left in the file", () =>
  withLlama(SHAPE, async (dir) => {
    const before = await logitsOf(dir);
    rewrite(dir, (tensors) => {
      for (const part of ["weight", "scales", "biases"]) {
        tensors[`lm_head.${part}`] = mx.zerosLike(tensors[`model.embed_tokens.${part}`]);
      }
      for (const layer of [0, 1]) tensors[`model.layers.${layer}.self_attn.rotary_emb.inv_freq`] = mx.ones([32]);
    });
    assertEquals(await logitsOf(dir), before);
  }));

Deno.test("biases that config.json does not tell of, or tells of in vain, are named", async () => {
  const load = (dir: string) => mx.lm.load(dir, { device: DEVICE });
  const biased = { ...SHAPE, config: { attention_bias: true, mlp_bias: true } };
  const edit = async (dir: string, change: Record<string, unknown>): Promise<void> => {
    const config = JSON.parse(await Deno.readTextFile(`${dir}/config.json`));
    await Deno.writeTextFile(`${dir}/config.json`, JSON.stringify({ ...config, ...change }));
  };
  await withLlama(biased, async (dir) => {
    await edit(dir, { mlp_bias: false });
    await assertRejects(() => load(dir), mx.lm.LlmError, '6 tensors are not part of the model: "model.layers.0.mlp.');
  });
  await withLlama({ ...biased, config: { attention_bias: true } }, async (dir) => {
    await edit(dir, { mlp_bias: true });
    await assertRejects(() => load(dir), mx.lm.LlmError, "6 tensors are missing: model.layers.0.mlp.gate_proj.bias");
    await edit(dir, { mlp_bias: false, model_type: "qwen2" }); // which has no bias after attention
    await assertRejects(
      () => load(dir),
      mx.lm.LlmError,
      '2 tensors are not part of the model: "model.layers.0.self_attn.o_',
    );
  });
});

Deno.test("a config that does not tell whether the head is tied leaves it to the stored tensors", async () => {
  for (const tied of [true, false]) {
    await withLlama({ ...SHAPE, tied }, async (dir) => {
      const logits = async (): Promise<number[]> => {
        const { model, config } = await mx.lm.load(dir, { device: DEVICE });
        using _ = model;
        assertEquals(config.tieWordEmbeddings, tied);
        return mx.tidy(() => model.forward(mx.array([[1, 2, 3]], mx.int32)).flatten()).tolist() as number[];
      };
      const expected = await logits();
      const file = `${dir}/config.json`;
      const { tie_word_embeddings: said, ...config } = JSON.parse(await Deno.readTextFile(file));
      assertEquals(said, tied);
      await Deno.writeTextFile(file, JSON.stringify(config));
      assertEquals(await logits(), expected);
      const converted = await mx.lm.convert(dir, `${dir}-dense`, { dequantize: true });
      const names = Object.keys(mx.loadSafetensors(`${converted.path}/model.safetensors`));
      assertEquals(names.includes("lm_head.weight"), !tied);
    });
  }
});
