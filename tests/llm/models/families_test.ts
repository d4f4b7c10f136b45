/**
 * Every model family gives the logits of mlx-lm in float32. They are those of a whole prompt, of its last row alone,
 * and of the tokens after it one by one. Tokens are fed both from outside and by the generation loop.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { FAMILY_CASES, FAMILY_IDS, familyGolden, KEPT, keptLogits, PROMPT } from "../../support/models/families.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { loopSteps } from "../../support/models/steps.ts";

const LIMIT = 1e-7;
/** Where the CPU rounds activations to integers and its cache to float16, or matrix units those of a fused prompt to float16. */
const ROUNDED = 1e-5;
/** Where attention of a prompt multiplies in float16, on matrix units. */
const HALF_ATTENTION = 1e-6;
/** Activations in 16 bits, and what that costs. */
const HALVES = [[mx.float16, 1e-5], [mx.bfloat16, 1e-3]] as const;
const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it
/** Software Vulkan drivers, which are too slow for everything. */
const SOFTWARE = new Set(mx.devices().filter(({ type }) => type === "cpu").map(({ name }) => name));
const GOLDEN = familyGolden();

/** Distances from the reference of each way to compute. */
async function errors(
  device: string,
  dtype: mx.Dtype,
  dir: string,
  golden: Float32Array,
): Promise<Record<string, number>> {
  mx.setDefaultDevice(device);
  const before = mx.getActiveMemory();
  const { model } = await mx.lm.load(dir, { device, dtype });
  const logits = (ids: readonly number[], cache: mx.lm.KvCache, first: number, rows?: mx.Tensor): number[] => {
    using out = mx.tidy(() => model.forward(mx.array([ids], mx.int32), cache, rows).astype(mx.float32));
    return [...keptLogits(out.toTypedArray() as Float32Array, first)];
  };
  const [prompt, rest] = [FAMILY_IDS.slice(0, PROMPT), FAMILY_IDS.slice(PROMPT)];
  const expected = (from: number, to: number): Float32Array => golden.subarray(from * KEPT, to * KEPT);

  const cache = model.makeCache();
  const whole = logits(prompt, cache, 0);
  const steps = rest.flatMap((id, i) => logits([id], cache, PROMPT + i));
  const looped = model.makeCache();
  const last = mx.array([PROMPT - 1], mx.int32);
  const row = logits(prompt, looped, PROMPT - 1, last);
  const [loop] = await loopSteps(model, looped, { ids: FAMILY_IDS, keep: keptLogits });
  const found = {
    prompt: nmse(whole, expected(0, PROMPT)),
    "last row": nmse(row, expected(PROMPT - 1, PROMPT)),
    steps: nmse(steps, expected(PROMPT, FAMILY_IDS.length)),
    loop: nmse(loop, expected(PROMPT, FAMILY_IDS.length)),
  };
  mx.dispose([last]);
  for (const held of [cache, looped]) held.dispose();
  model[Symbol.dispose]();
  assertEquals(mx.getActiveMemory(), before);
  return found;
}

for (const device of DEVICES) {
  const limit = device === "wasm" ? ROUNDED : hasMatrices(device) ? HALF_ATTENTION : LIMIT;
  for (const [i, { name, shape, format }] of FAMILY_CASES.entries()) {
    Deno.test(`forward() of ${name} on ${device}`, async (t) => {
      const folder = await Deno.makeTempDir();
      const dir = `${folder}/model`;
      await writeModel(dir, shape, format);
      const compare = async (limit: number, dtype: mx.Dtype = mx.float32): Promise<void> => {
        for (const [way, error] of Object.entries(await errors(device, dtype, dir, GOLDEN[i]))) {
          assert(error <= limit, `${way}: NMSE ${error}`);
        }
      };
      await t.step("with float32 activations", () => compare(limit));
      for (const [dtype, rounded] of SOFTWARE.has(device) ? [] : HALVES) {
        await t.step(`with ${dtype.name} activations`, () => compare(rounded, dtype));
      }
      if (device === "wasm") {
        await t.step("with VKMX_EXACT=1", () => withExactCpu(() => compare(LIMIT)));
      } else {
        await t.step("fused where the kernels serve it", async () => {
          using _options = withOptions({ regions: "on" }); // also where subgroups are small
          await compare(hasMatrices(device) ? ROUNDED : limit);
        });
      }
      await Deno.remove(folder, { recursive: true });
    });
  }
}
