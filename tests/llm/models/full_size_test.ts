/**
 * The logits of a whole Qwen3-0.6B with random weights against the float32 reference. They come from a prompt in one
 * pass, from single tokens in the generation loop, and from several sequences together. On a CPU it would take minutes;
 * tests/reference/logits.ts compares there.
 */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";
import { modelFolder } from "../../../scripts/bench/compare.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { cacheOf, repeated } from "../../support/models/caches.ts";
import { fullSizeGolden, IDS, keptLogits, PROMPT, STEPS } from "../../support/models/full_size.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { loopSteps } from "../../support/models/steps.ts";

/** Sequences that are decoded together. */
const SEQUENCES = 3;
/** Dtypes of activations and of the cache, and the limit. */
const LIMITS: readonly (readonly [activations: mx.Dtype, cache: mx.Dtype, nmse: number])[] = [
  [mx.float32, mx.float32, 1e-5],
  [mx.float32, mx.float16, 1e-4],
  [mx.float32, mx.bfloat16, 1e-4],
  [mx.float16, mx.float16, 1e-4],
  [mx.bfloat16, mx.bfloat16, 1e-4],
];

for (const device of testDevices()) {
  const slow = device === "wasm" || mx.devices().find(({ name }) => name === device)?.type === "cpu";
  if (!slow) mx.withDevice(device, getBackend); // opened outside the test, which counts resources
  for (const [dtype, cached, limit] of LIMITS) {
    Deno.test({
      name: `Qwen3-0.6B gives the reference logits with ${dtype.name} activations, ${cached.name} cache on ${device}`,
      ignore: slow,
      fn: async () => {
        mx.setDefaultDevice(device);
        const golden = fullSizeGolden();
        const split = golden.length * PROMPT / IDS.length;
        const { model } = await mx.lm.load(await modelFolder("qwen3-0.6b"), { device, dtype });
        using cache = cacheOf(model, { dtype: cached });
        using logits = mx.tidy(() => model.forward(mx.array([IDS.slice(0, PROMPT)], mx.int32), cache));
        const whole = nmse(keptLogits(floats(logits), 0), golden.subarray(0, split));
        const steps = { ids: IDS, keep: keptLogits };
        const [single] = await loopSteps(model, cache, steps);
        cache.trim(STEPS);
        const together = repeated(model, cache, SEQUENCES);
        const several = await loopSteps(model, together, { ...steps, sequences: SEQUENCES });
        together.dispose();
        model[Symbol.dispose]();
        const errors = [single, ...several].map((logits) => nmse(logits, golden.subarray(split)));
        const [alone, most] = [errors[0], Math.max(...errors.slice(1))].map((error) => error.toExponential(1));
        const found = `NMSE ${whole.toExponential(1)} in one pass, ${alone} one by one, ${most} together`;
        assert(whole <= limit && errors.every((error) => error <= limit), found);
        console.log(`${device}, ${dtype.name} and ${cached.name}: ${found}`);
      },
    });
  }
}

function floats(x: mx.Tensor): Float32Array {
  return mx.tidy(() => x.astype(mx.float32).toTypedArray()) as Float32Array;
}
