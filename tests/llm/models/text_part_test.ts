/**
 * The text part of a checkpoint with images gives the logits of the same text alone. Its tensors have mlx-lm's names or Hugging Face's,
 * and those of other parts are left out.
 */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { CHECKPOINTS, type FamilyCheckpoint, PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

type Config = Record<string, unknown>;

/** Writes a checkpoint with other names of tensors and another config.json. */
async function write(
  dir: string,
  checkpoint: FamilyCheckpoint,
  rename: (name: string) => string,
  change: (config: Config) => Config,
): Promise<void> {
  await writeCheckpoint(dir, { ...checkpoint, config: JSON.stringify(change(JSON.parse(checkpoint.config))) });
  mx.withDevice(DEVICE, () =>
    mx.tidy(() => {
      const tensors = Object.entries(mx.loadSafetensors(`${dir}/model.safetensors`));
      mx.eval(...tensors.map(([, tensor]) => tensor));
      const others = {
        "vision_tower.patch.weight": mx.ones([4, 4]),
        "multi_modal_projector.linear.weight": mx.ones([4]),
      };
      const named = tensors.map(([name, tensor]) => [rename(name), tensor]);
      mx.saveSafetensors(`${dir}/model.safetensors`, { ...Object.fromEntries(named), ...others });
    }));
}

async function logitsOf(dir: string): Promise<number[]> {
  const { model } = await mx.lm.load(dir, { device: DEVICE, dtype: mx.float32 });
  using _ = model;
  mx.setDefaultDevice(DEVICE);
  using logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)));
  return [...logits.toTypedArray() as Float32Array];
}

/** A config whose text part is that of a checkpoint; codes are said to be so for the whole. */
function wrapped(type: string, { quantization, quantization_config: _, eos_token_id, ...text }: Config): Config {
  const { tie_word_embeddings } = text;
  return {
    model_type: type,
    vision_config: { hidden_size: 4 },
    text_config: { ...text, tie_word_embeddings },
    vocab_size: text.vocab_size,
    eos_token_id,
    ...(quantization !== undefined && { quantization }),
  };
}

const LAYOUTS: Readonly<Record<string, (name: string) => string>> = {
  "mlx-lm's": (name) => `language_model.${name}`,
  "Hugging Face's": (name) => name.replace(/^model\./, "model.language_model."),
};
const TYPES = {
  gemma3: "Gemma 3 text, bfloat16",
  gemma4: "Gemma 4 with keys and values that layers share, 4 bits",
  mistral3: "Ministral 3, 4 bits",
} as const;

for (const [type, name] of Object.entries(TYPES)) {
  for (const [layout, rename] of Object.entries(LAYOUTS)) {
    Deno.test(`the text of ${type} in ${layout} layout gives the logits of ${name}`, async () => {
      const folder = await Deno.makeTempDir();
      const checkpoint = CHECKPOINTS.find((one) => one.name === name)!;
      await write(`${folder}/text`, checkpoint, (name) => name, (config) => config);
      await assertRejects(() => logitsOf(`${folder}/text`), mx.lm.LlmError, "2 tensors are not part of the model");
      await writeCheckpoint(`${folder}/alone`, checkpoint);
      await write(`${folder}/whole`, checkpoint, rename, (config) => wrapped(type, config));
      assertEquals(await logitsOf(`${folder}/whole`), await logitsOf(`${folder}/alone`));
      const [alone, whole] = [await mx.lm.inspect(`${folder}/alone`), await mx.lm.inspect(`${folder}/whole`)];
      assertEquals([whole.parameters, whole.weightBytes], [alone.parameters, alone.weightBytes]);
      await Deno.remove(folder, { recursive: true });
    });
  }
}

Deno.test("modules that differ from the others are found by mlx-lm's names of them", async () => {
  const folder = await Deno.makeTempDir();
  const checkpoint = CHECKPOINTS.find((one) => one.name === "Ministral 3, 4 bits")!;
  const path = "language_model.model.layers.0.mlp.down_proj";
  await write(`${folder}/model`, checkpoint, LAYOUTS["mlx-lm's"], (config) => {
    const { quantization, ...rest } = wrapped("mistral3", config) as { quantization: Config };
    return { ...rest, quantization: { ...quantization, [path]: { group_size: 64, bits: 8 } } };
  });
  const message = '"model.layers.0.mlp.down_proj.weight" is uint32 (64, 16), expected uint32 (64, 32)';
  await assertRejects(() => logitsOf(`${folder}/model`), mx.lm.LlmError, message);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a text part of a family that is not there, or of wrong fields, is refused by name", async () => {
  const folder = await Deno.makeTempDir();
  const checkpoint = CHECKPOINTS.find((one) => one.name === "Ministral 3, 4 bits")!;
  const cases: readonly (readonly [text: unknown, message: string])[] = [
    [
      { model_type: "mistral4" },
      '"text_config.model_type" is "mistral4": supported are "ministral3", "mistral", "llama"',
    ],
    [{ model_type: "ministral3" }, '"hidden_size" is missing'],
    [5, '"text_config" is 5, expected an object'],
  ];
  for (const [i, [text, message]] of cases.entries()) {
    const config = JSON.stringify({ model_type: "mistral3", text_config: text });
    await writeCheckpoint(`${folder}/${i}`, { ...checkpoint, config });
    await assertRejects(() => mx.lm.load(`${folder}/${i}`, { device: DEVICE }), mx.lm.LlmError, message);
  }
  await Deno.remove(folder, { recursive: true });
});
