/**
 * gpt-oss as its makers store it: blocks of codes in bytes, gate and up in turn. It gives the logits of mlx-lm's layout, and converting is
 * refused by name.
 */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { changeTensors, checkpointOf, gptOssAsMade, logitsOf } from "../../support/models/changed_checkpoints.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources
const CHECKPOINT = checkpointOf("gpt-oss, mxfp4");

Deno.test("experts of gpt-oss in the makers' layout are those of mlx-lm's", async () => {
  const folder = await Deno.makeTempDir();
  const dir = `${folder}/model`;
  await writeCheckpoint(dir, CHECKPOINT);
  const expected = await logitsOf(dir);
  changeTensors(dir, gptOssAsMade);
  assertEquals(await logitsOf(dir), expected);
  await assertRejects(
    () => mx.lm.convert(dir, `${dir}-dense`, { dequantize: true, device: DEVICE }),
    mx.lm.LlmError,
    'stores "model.layers.0.mlp.experts.gate_proj.weight" in its makers\' layout, which is loaded but not converted',
  );
  // Blocks of another size are left as they are, and named.
  changeTensors(dir, (tensors) => ({
    ...tensors,
    "model.layers.0.mlp.experts.down_proj_blocks": mx.zeros([6, 64, 4, 15], mx.uint8),
  }));
  const message = '1 tensor is not part of the model: "model.layers.0.mlp.experts.down_proj_blocks"';
  await assertRejects(() => mx.lm.load(dir, { device: DEVICE }), mx.lm.LlmError, message);
  await Deno.remove(folder, { recursive: true });
});
