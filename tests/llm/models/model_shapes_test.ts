/** Models of other shapes and formats than the embedded one give the logits of the reference implementation. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { sampledLogits, SHAPE_CASES, SHAPE_IDS } from "../../support/models/model_shapes.ts";

const LIMIT = 1e-5;
const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it
const golden = new Float16Array(
  Deno.readFileSync(new URL("../../golden/models/model-shapes.f16", import.meta.url)).buffer,
);
const each = golden.length / SHAPE_CASES.length;

for (const device of DEVICES) {
  for (const [i, { name, shape, format }] of SHAPE_CASES.entries()) {
    Deno.test(`forward() of a model with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      const dir = `${folder}/model`;
      await writeModel(dir, shape, format);
      const expected = golden.subarray(i * each, (i + 1) * each);
      mx.setDefaultDevice(device);
      const before = mx.getActiveMemory();
      const { model } = await mx.lm.load(dir, { device });
      const logits = (ids: readonly number[], cache?: mx.lm.KvCache): number[] => {
        using out = mx.tidy(() => model.forward(mx.array([ids], mx.int32), cache));
        return [...out.toTypedArray() as Float32Array];
      };
      const whole = nmse(sampledLogits(Float32Array.from(logits(SHAPE_IDS))), expected);
      assert(whole <= LIMIT, `all at once: NMSE ${whole}`);
      const cache = model.makeCache();
      const parts = logits(SHAPE_IDS.slice(0, 9), cache);
      for (const id of SHAPE_IDS.slice(9)) parts.push(...logits([id], cache));
      const cached = nmse(sampledLogits(Float32Array.from(parts)), expected);
      assert(cached <= LIMIT, `with a cache: NMSE ${cached}`);
      cache.dispose();
      model[Symbol.dispose]();
      assertEquals(mx.getActiveMemory(), before);
      await Deno.remove(folder, { recursive: true });
    });
  }
}
