/**
 * Published shapes: they have as many parameters as the models, and small ones of each family are written, loaded and give logits.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { PUBLISHED } from "../../../scripts/synthetic/published.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { Fields } from "../../../src/llm/config/fields.ts";
import { countParameters } from "../../../src/llm/layers/modules.ts";
import { describeModel } from "../../../src/llm/models/mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { smallPublished } from "../../../scripts/synthetic/small_published.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

/** Parameters as the makers' safetensors have them, or in billions as their model cards say. */
const PARAMETERS: Readonly<Record<string, number | readonly [billions: number, digits: number]>> = {
  "qwen3-30b-a3b": 30_532_122_624,
  "phi-4-mini": 3_836_021_760,
  "gpt-oss-20b": [20.9, 1],
  "qwen3.5-35b-a3b": [35, 0], // with a vision part, which is left out here
  "lfm2-8b-a1b": [8.3, 1],
  "glm-4.7-flash": [30, 0],
  "qwen3.5-4b": [4.2, 1], // 4.5 with a vision part of 0.3
  "gemma-3-4b": [3.9, 1], // 0.67 of the embedding and 3.21 others, by its report
  "gemma-4-e2b": [4.6, 1], // 5.1 with parts for images and audio
  "gemma-4-e4b": [7.5, 1], // 8 with parts for images and audio
  "ministral-3-8b": [8, 0],
};

for (const [name, fields] of Object.entries(PUBLISHED)) {
  Deno.test(`${name} has the published number of parameters`, () => {
    const architecture = describeModel(new Fields(fields, name), name);
    const head = fields.tie_word_embeddings === false;
    const count = countParameters(architecture.modules({ head, draftHead: false }));
    const expected = PARAMETERS[name];
    if (typeof expected === "number") assertEquals(count, expected);
    else assertEquals((count / 1e9).toFixed(expected[1]), expected[0].toFixed(expected[1]));
  });

  Deno.test(`a small model of the family of ${name} is written, loads and gives logits`, async () => {
    const folder = await Deno.makeTempDir();
    await writePublished(`${folder}/model`, smallPublished(name), { groupSize: 32 });
    const { model } = await mx.lm.load(`${folder}/model`, { device: DEVICE });
    using _ = model;
    const logits = mx.withDevice(DEVICE, () =>
      mx.tidy(() => {
        const out = model.forward(mx.array([[1, 2, 3]], mx.int32)).astype(mx.float32);
        return (out.toTypedArray() as Float32Array).slice();
      }));
    const spread = Math.sqrt(logits.reduce((sum, x) => sum + x * x, 0) / logits.length);
    assert(logits.every(Number.isFinite) && spread > 0.3 && spread < 30, `logits spread by ${spread}`);
    await Deno.remove(folder, { recursive: true });
  });
}
