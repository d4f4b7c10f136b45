/**
 * Dense weights beside activations of 16 bits: they get the dtype of those, with no second copy left, and the model's answers stay.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
import { SHAPES, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { testDevices } from "../../support/devices/devices.ts";

const IDS = [3, 14, 159, 26, 535, 8, 97];
/** Mean squared error of logits, of their own mean square: what the rounding of activations costs. */
const BOUNDS = [["float16", 1e-5], ["bfloat16", 1e-3]] as const;

for (const device of testDevices()) {
  Deno.test(`dense weights get the dtype of activations of 16 bits on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    try {
      const dir = `${folder}/model`;
      await writeModel(dir, SHAPES.tiny, { bits: 16 });
      const load = async (dtype: mx.Dtype): Promise<{ dtypes: Set<string>; logits: Float32Array; extra: number }> => {
        const before = mx.withDevice(device, mx.getActiveMemory);
        const { model } = await mx.lm.load(dir, { device, dtype });
        using _model = model;
        const leaves = namedLeaves(model.parameters()) as [string, mx.Tensor][];
        const names = leaves.map(([, x]) => x.dtype.name);
        mx.withDevice(device, mx.synchronize);
        const extra = mx.withDevice(device, mx.getActiveMemory) - before - leaves.reduce((n, [, x]) => n + x.nbytes, 0);
        const logits = mx.tidy(() => model.forward(mx.array([IDS], mx.int32)).astype(mx.float32).reshape(-1));
        const values = Float32Array.from(logits.tolist() as number[]);
        logits.dispose();
        return { dtypes: new Set(names), logits: values, extra };
      };
      const expected = await load(mx.float32);
      assertEquals(expected.dtypes, new Set(["bfloat16"]));
      for (const [name, bound] of BOUNDS) {
        const { dtypes, logits, extra } = await load(mx[name]);
        assertEquals(dtypes, new Set([name]));
        assert(extra < 1 << 20, `${extra} bytes beside the weights`);
        const error = logits.reduce((sum, x, i) => sum + (x - expected.logits[i]) ** 2, 0);
        const power = expected.logits.reduce((sum, x) => sum + x * x, 0);
        assert(error / power < bound, `${name}: ${error / power}`);
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}
