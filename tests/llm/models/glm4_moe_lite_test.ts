/**
 * GLM-4.7-Flash as Hugging Face stores it gives the logits of mlx-lm's layout. It has one matrix for keys and values, experts one by one,
 * and a layer that predicts further tokens. The router stays as it is stored where a model is converted. A cache holds what heads share.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import {
  changeTensors,
  checkCacheFile,
  checkpointOf,
  logitsOf,
  take,
} from "../../support/models/changed_checkpoints.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources
const CHECKPOINT = checkpointOf("GLM-4.7-Flash, bfloat16");
const [RANK, EXPERTS] = [64, 8];

/** The dtypes of stored tensors. */
function dtypes(dir: string): Record<string, string> {
  return mx.tidy(() =>
    Object.fromEntries(
      Object.entries(mx.loadSafetensors(`${dir}/model.safetensors`)).map(([name, { dtype }]) => [name, dtype.name]),
    )
  );
}

Deno.test("GLM-4.7-Flash in Hugging Face's layout is that of mlx-lm's", async () => {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(dir, CHECKPOINT);
  const expected = await logitsOf(dir);
  changeTensors(dir, (tensors) => {
    for (const layer of [0, 1, 2]) {
      const path = `model.layers.${layer}`;
      const keys = take(tensors, `${path}.self_attn.embed_q.weight`).swapaxes(1, 2); // (heads, features, rank)
      const values = take(tensors, `${path}.self_attn.unembed_out.weight`);
      tensors[`${path}.self_attn.kv_b_proj.weight`] = mx.concatenate([keys, values], 1).reshape(-1, RANK);
      if (layer === 0) continue;
      for (const name of ["gate_proj", "up_proj", "down_proj"]) {
        const parts = mx.split(take(tensors, `${path}.mlp.switch_mlp.${name}.weight`), EXPERTS, 0);
        parts.forEach((part, i) => tensors[`${path}.mlp.experts.${i}.${name}.weight`] = part.squeeze(0));
      }
    }
    return { ...tensors, "model.layers.3.eh_proj.weight": mx.ones([64, 128], mx.bfloat16) };
  });
  assertEquals(await logitsOf(dir), expected);
  await Deno.remove(dir, { recursive: true });
});

Deno.test("the router of GLM-4.7-Flash stays dense, and its bias keeps its dtype", async () => {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(`${dir}/model`, CHECKPOINT);
  const bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  changeTensors(`${dir}/model`, (tensors) => ({ ...tensors, [bias]: tensors[bias].astype(mx.float32) }));
  await mx.lm.convert(`${dir}/model`, `${dir}/converted`, { quantize: true, dtype: mx.float16, device: DEVICE });
  const found = dtypes(`${dir}/converted`);
  assertEquals(found[bias], "float32");
  assertEquals(found["model.layers.1.mlp.gate.weight"], "float16");
  assertEquals(found["model.layers.1.mlp.gate.scales"], undefined);
  assertEquals(found["model.layers.1.self_attn.embed_q.weight"], "uint32");
  await Deno.remove(dir, { recursive: true });
});

Deno.test("a cache of GLM-4.7-Flash holds what its heads share, and goes on from a file", async () => {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(dir, CHECKPOINT);
  await checkCacheFile(dir, (cache) => {
    const { offset } = cache;
    assertEquals([cache.shapeOf(2, "keys"), cache.shapeOf(2, "values")], [[1, 1, offset, RANK], [1, 1, offset, 16]]);
    assertEquals(cache.byteLength(256), 3 * (RANK + 16) * 256 * cache.dtype.bytes);
  });
  await Deno.remove(dir, { recursive: true });
});
