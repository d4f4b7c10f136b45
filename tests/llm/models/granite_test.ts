/** Gate and up of GraniteMoE and Granite 4, which Hugging Face stores as one matrix, give the logits of mlx-lm's layout. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { CHECKPOINTS, PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

async function logitsOf(dir: string): Promise<number[]> {
  const { model } = await mx.lm.load(dir, { device: DEVICE, dtype: mx.float32 });
  using _ = model;
  mx.setDefaultDevice(DEVICE);
  using logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)));
  return [...logits.toTypedArray() as Float32Array];
}

/** The feed-forward part of a layer by mlx-lm's name, and by Hugging Face's. */
const PARTS = {
  "GraniteMoE, bfloat16": ["block_sparse_moe.switch_mlp", "block_sparse_moe"],
  "Granite 4 without positions, bfloat16": ["mlp", "shared_mlp"],
} as const;

for (const [name, [part, stored]] of Object.entries(PARTS)) {
  Deno.test(`${name} in Hugging Face's layout is that of mlx-lm's`, async () => {
    const dir = await Deno.makeTempDir();
    await writeCheckpoint(dir, CHECKPOINTS.find((one) => one.name === name)!);
    const expected = await logitsOf(dir);
    mx.withDevice(DEVICE, () =>
      mx.tidy(() => {
        const tensors = { ...mx.loadSafetensors(`${dir}/model.safetensors`) } as Record<string, mx.Tensor>;
        mx.eval(...Object.values(tensors));
        for (const layer of [0, 1]) {
          const [gate, up, down] = ["gate", "up", "down"].map((name) => {
            const key = `model.layers.${layer}.${part}.${name}_proj.weight`;
            const tensor = tensors[key];
            delete tensors[key];
            return tensor;
          });
          tensors[`model.layers.${layer}.${stored}.input_linear.weight`] = mx.concatenate([gate, up], -2);
          tensors[`model.layers.${layer}.${stored}.output_linear.weight`] = down;
        }
        mx.saveSafetensors(`${dir}/model.safetensors`, tensors);
      }));
    assertEquals(await logitsOf(dir), expected);
    await Deno.remove(dir, { recursive: true });
  });
}
