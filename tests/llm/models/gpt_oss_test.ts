/**
 * gpt-oss as its makers store it: blocks of codes in bytes, gate and up in turn. It gives the logits of mlx-lm's layout, and converting is
 * refused by name.
 */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { changeTensors, checkpointOf, logitsOf, take, type Tensors } from "../../support/models/changed_checkpoints.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources
const CHECKPOINT = checkpointOf("gpt-oss, mxfp4");

/** Rows of two arrays in turn, along the second axis. */
function inTurn(a: mx.Tensor, b: mx.Tensor): mx.Tensor {
  const [experts, rows, ...rest] = a.shape;
  return mx.stack([a, b], 2).reshape([experts, 2 * rows, ...rest]);
}

/** Codes as bytes in blocks of 32: (experts, rows, blocks, 16). */
function blocks(words: mx.Tensor): mx.Tensor {
  const [experts, rows] = words.shape;
  return words.view(mx.uint8).reshape(experts, rows, -1, 16);
}

/** Tensors with the experts in the makers' layout. */
function asMade(tensors: Tensors): Tensors {
  const made: Tensors = {};
  for (let layer = 0; tensors[`model.layers.${layer}.mlp.router.weight`] !== undefined; layer++) {
    const path = `model.layers.${layer}.mlp.experts`;
    const part = (name: string): mx.Tensor => take(tensors, `${path}.${name}`);
    made[`${path}.gate_up_proj_blocks`] = blocks(inTurn(part("gate_proj.weight"), part("up_proj.weight")));
    made[`${path}.gate_up_proj_scales`] = inTurn(part("gate_proj.scales"), part("up_proj.scales"));
    made[`${path}.gate_up_proj_bias`] = inTurn(part("gate_proj.bias"), part("up_proj.bias"));
    made[`${path}.down_proj_blocks`] = blocks(part("down_proj.weight"));
    made[`${path}.down_proj_scales`] = part("down_proj.scales");
    made[`${path}.down_proj_bias`] = part("down_proj.bias");
  }
  return { ...tensors, ...made };
}

Deno.test("experts of gpt-oss in the makers' layout are those of mlx-lm's", async () => {
  const folder = await Deno.makeTempDir();
  const dir = `${folder}/model`;
  await writeCheckpoint(dir, CHECKPOINT);
  const expected = await logitsOf(dir);
  changeTensors(dir, asMade);
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
