/**
 * Dense models in mxfp4 and nvfp4, as `convert` writes them, in gemv kernels (shaders/decode_gemv) against the same graph op by op. Layers,
 * head and embedding have small floats. mxfp8 runs op by op, and the reason says so.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { formatRequirements } from "../../../src/schedule/decoder/formats.ts";
import { firstReason } from "../../../src/schedule/plan/requirements.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { assertGemvSteps } from "../../support/models/random_cache_steps.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const vocab = 4099; // the last rows of the head are no whole four
const SMALL = { hidden: 512, intermediate: 512, layers: 2, heads: 4, kvHeads: 2, headDim: 128, tied: true, vocab };

/** A mode, sizes, positions before the first token, and the dtype of activations, default float32. */
const CASES: readonly (readonly ["mxfp4" | "nvfp4", ModelShape, number, "bfloat16"?])[] = [
  ["mxfp4", { ...SMALL, hidden: 640, intermediate: 896 }, 5],
  ["nvfp4", { ...SMALL, hidden: 640, intermediate: 896 }, 5],
  ["mxfp4", { ...SMALL, hidden: 1536, tied: false }, 300, "bfloat16"],
  ["nvfp4", { ...SMALL, hidden: 1152, family: "qwen2", heads: 12, headDim: 64, tied: false }, 300, "bfloat16"],
];

Deno.test("mxfp8 is a reason for no fused kernel", () => {
  const reason = firstReason(formatRequirements([{ bits: 8, groupSize: 32, mode: "mxfp8" }]));
  assertEquals(reason, "no fused kernel reads mxfp8 weights");
});

for (const device of DEVICES) {
  for (const [qMode, shape, context, dtype = "float32"] of CASES) {
    Deno.test(`decoding in ${qMode} equals op by op with ${shape.hidden} features, ${dtype} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/dense`, shape, { bits: 16 });
      await mx.lm.convert(`${folder}/dense`, `${folder}/model`, { quantize: true, qMode, device: "wasm" });
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
      mx.setDefaultDevice(device);
      const absent = ["gather", "quantized_matvec"];
      await assertGemvSteps(device, model, shape, { context, count: 2, dtype, absent });
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }
}
