/**
 * Gemma 4 as Hugging Face stores it gives the logits of mlx-lm's layout. It has projections that no layer reads and ranges of activations,
 * and gate and up of experts together. Caches have the layers and heads of the config, also in files.
 */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import {
  changeTensors,
  checkCacheFile,
  checkpointOf,
  logitsOf,
  take,
} from "../../support/models/changed_checkpoints.ts";
import { smallPublished } from "../../../scripts/synthetic/small_published.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources
const SHARED = checkpointOf("Gemma 4 with keys and values that layers share, bfloat16");
/** With a walk of all paths through the last ones, a step would take years. */
const LAYERS = 20;
const EXPERTS = checkpointOf("Gemma 4 with experts, bfloat16");

Deno.test("tensors that no layer of Gemma 4 reads are left out", async () => {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(dir, SHARED);
  const expected = await logitsOf(dir);
  changeTensors(dir, (tensors) => ({
    ...tensors,
    "model.layers.4.self_attn.k_proj.weight": mx.ones([64, 64], mx.bfloat16),
    "model.layers.4.self_attn.v_proj.weight": mx.ones([64, 64], mx.bfloat16),
    "model.layers.5.self_attn.k_norm.weight": mx.ones([64], mx.bfloat16),
    "model.layers.0.mlp.gate_proj.input_max": mx.ones([], mx.bfloat16),
  }));
  assertEquals(await logitsOf(dir), expected);
  changeTensors(
    dir,
    (tensors) => ({ ...tensors, "model.layers.3.self_attn.o_norm.weight": mx.ones([64], mx.bfloat16) }),
  );
  await assertRejects(() => logitsOf(dir), mx.lm.LlmError, "1 tensor is not part of the model");
  await Deno.remove(dir, { recursive: true });
});

Deno.test("a step of many layers that share keys and values is found in time linear in them", async () => {
  const dir = await Deno.makeTempDir();
  const kinds = Array.from({ length: LAYERS }, (_, layer) => layer % 2 ? "full_attention" : "sliding_attention");
  const sizes = { num_hidden_layers: LAYERS, num_kv_shared_layers: LAYERS - 2, layer_types: kinds };
  await writePublished(`${dir}/model`, { ...smallPublished("gemma-4-e2b"), ...sizes }, { groupSize: 32 });
  const { model, tokenizer } = await mx.lm.load(`${dir}/model`, { device: DEVICE });
  using _ = model;
  let tokens = 0;
  for await (const _token of mx.lm.streamGenerate(model, tokenizer, [1, 2, 3], { temp: 0, maxTokens: 3 })) tokens++;
  assertEquals(tokens, 3);
  await Deno.remove(dir, { recursive: true });
});

Deno.test("experts of Gemma 4 in Hugging Face's layout are those of mlx-lm's", async () => {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(dir, EXPERTS);
  const expected = await logitsOf(dir);
  changeTensors(dir, (tensors) => {
    for (let layer = 0; layer < 3; layer++) {
      const path = `model.layers.${layer}.experts`;
      const [gate, up, down] = ["gate", "up", "down"].map((name) => {
        return take(tensors, `${path}.switch_glu.${name}_proj.weight`);
      });
      tensors[`${path}.gate_up_proj`] = mx.concatenate([gate, up], 1);
      tensors[`${path}.down_proj`] = down;
    }
    return tensors;
  });
  assertEquals(await logitsOf(dir), expected);
  await Deno.remove(dir, { recursive: true });
});

Deno.test("a cache of Gemma 4 has the heads of each layer, and goes on from a file", async () => {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(dir, SHARED);
  await checkCacheFile(dir, (cache) => {
    // Two layers with a window, one without, one with: 2 heads of 32 or 64. The last two layers have none of their own.
    assertEquals(
      Array.from({ length: cache.layers }, (_, layer) => cache.shapeOf(layer, "values")),
      ([32, 32, 64, 32] as const).map((size) => [1, 2, cache.offset, size] as const),
    );
    assertEquals(cache.byteLength(256), 2 * 2 * (3 * 32 + 64) * 256 * cache.dtype.bytes);
  });
  await Deno.remove(dir, { recursive: true });
});
