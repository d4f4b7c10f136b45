/**
 * The logits of a whole Qwen3-0.6B, with random weights, against the float32 reference: of a prompt in one pass, of tokens one by
 * one as the generation loop runs them, and of several sequences together. On a CPU it would take minutes;
 * tests/reference/logits.ts compares there.
 */

import { assert } from "@std/assert";
import * as mx from "../../mod.ts";
import { modelFolder } from "../../scripts/bench/compare.ts";
import { DeviceLoop } from "../../src/array/loop.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { StepCache } from "../../src/llm/kv_cache.ts";
import { testDevices } from "../support/devices.ts";
import { fullSizeGolden, IDS, keptLogits, PROMPT, STEPS } from "../support/full_size.ts";
import { nmse } from "../support/oracle.ts";

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
        const caches = Array.from({ length: SEQUENCES }, () => cacheOf(model, cached));
        const [prompt] = caches.map((cache) => {
          using logits = mx.tidy(() => model.forward(mx.array([IDS.slice(0, PROMPT)], mx.int32), cache));
          return keptLogits(floats(logits), 0);
        });
        const whole = nmse(prompt, golden.subarray(0, split));
        const [single] = await steps(model, caches[0], 1);
        caches[0].trim(STEPS);
        const together = mx.lm.KvCache.stack(caches);
        const several = await steps(model, together, SEQUENCES);
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

/** A cache like the model's own, of another dtype. */
function cacheOf(model: mx.lm.LanguageModel, dtype: mx.Dtype): mx.lm.KvCache {
  using own = model.makeCache();
  own.reserve(1);
  const [[batch, heads, blocks, , keys]] = own.keys.map(({ shape }) => shape);
  const [[, , , , values]] = own.values.map(({ shape }) => shape);
  const { maxPositionEmbeddings: limit } = model.config;
  const options = { layers: own.keys.length, batch, heads, headDim: blocks * keys, blocks: { keys, values }, limit };
  return new mx.lm.KvCache({ ...options, dtype });
}

/** Logits of the last tokens, one step of a loop each, of several sequences of the same tokens. */
async function steps(model: mx.lm.LanguageModel, cache: mx.lm.KvCache, count: number): Promise<Float32Array[]> {
  cache.reserve(STEPS);
  const state = {
    position: mx.full([count], PROMPT, mx.int32),
    logits: mx.zeros([count, model.config.vocabSize]),
    keys: cache.keys,
    values: cache.values,
  };
  const ids = mx.array([...IDS], mx.int32);
  mx.eval(ids);
  const found = Array.from({ length: count }, (): number[] => []);
  {
    using loop = new DeviceLoop(state, ({ position, keys, values }) => {
      const step = new StepCache(keys, values, position);
      const logits = model.forward(mx.take(ids, position).reshape([count, 1]), step).reshape([count, -1]).astype(
        mx.float32,
      );
      return { position: mx.add(position, 1), logits, keys: step.keys, values: step.values };
    });
    for (let i = 0; i < STEPS; i++) {
      loop.run();
      await loop.done();
      const logits = floats(state.logits);
      found.forEach((of, row) => {
        const width = logits.length / count;
        of.push(...keptLogits(logits.subarray(row * width, (row + 1) * width), PROMPT + i));
      });
    }
  }
  cache.advance(STEPS);
  mx.dispose([state.position, state.logits, ids]);
  return found.map((of) => Float32Array.from(of));
}

function floats(x: mx.Tensor): Float32Array {
  return mx.tidy(() => x.astype(mx.float32).toTypedArray()) as Float32Array;
}
