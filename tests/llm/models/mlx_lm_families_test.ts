/**
 * Checkpoints of mlx-lm's families, as mlx-lm saves them, give its logits in float32 and its tokens. Prompts are longer than every
 * window. They are read at once without a cache, in two parts with one, and tokens follow one by one, also in the generation loop. Dense
 * ones are converted to the bytes that mlx-lm writes, and their gradients are its too.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import {
  CHECKPOINTS,
  expectedLogits,
  keptLogits,
  PROMPTS,
  STEPS,
  writeCheckpoint,
} from "../../support/models/mlx_lm_families.ts";
import { sumsOf } from "../../support/models/conversions.ts";
import { loopSteps } from "../../support/models/steps.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const LIMIT = 1e-7;
/** Where the CPU rounds activations to integers and its cache to float16. */
const ROUNDED = 1e-5;
/** Where attention of a prompt multiplies in float16, on matrix units. */
const HALF_ATTENTION = 1e-6;
/** Relative, as far as bfloat16 is exact: gradients have it where parameters do. */
const GRADIENT_LIMIT = 2 ** -8;
/** Activations in 16 bits, and what that costs. */
const HALVES = [[mx.float16, 1e-5], [mx.bfloat16, 1e-3]] as const;
/** The same where rounding may choose another expert of nearly the same weight: a step that does has 7e-2, and four are compared. */
const OTHER_EXPERTS = 2e-2;
/** Tokens of the prompt that are read first; the others follow in a cache that is there. */
const PART = 17;
const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it
/** Software Vulkan drivers, which are too slow for everything. */
const SOFTWARE = new Set(mx.devices().filter(({ type }) => type === "cpu").map(({ name }) => name));

/** Distances from mlx-lm of each way to compute logits. */
async function errors(
  dir: string,
  device: string,
  golden: Float32Array,
  dtype: mx.Dtype,
): Promise<Record<string, number>> {
  mx.setDefaultDevice(device);
  const before = mx.getActiveMemory();
  const { model } = await mx.lm.load(dir, { device, dtype });
  const { vocabSize } = model.config;
  const [prompt] = PROMPTS;
  const keep = (logits: Float32Array, first: number): number[] => keptLogits(logits, first, vocabSize);
  const logits = (ids: readonly number[], first: number, cache?: mx.lm.KvCache, rows?: mx.Tensor): number[] => {
    using out = mx.tidy(() => model.forward(mx.array([[...ids]], mx.int32), cache, rows).astype(mx.float32));
    return keep(out.toTypedArray() as Float32Array, first);
  };
  const each = golden.length / (prompt.length + STEPS.length);
  const expected = (from: number, to?: number): Float32Array => golden.subarray(from * each, to && to * each);

  const whole = logits(prompt, 0);
  const cache = model.makeCache();
  const parts = [...logits(prompt.slice(0, PART), 0, cache), ...logits(prompt.slice(PART), PART, cache)];
  cache.checkpoint(); // for recurrent states, which go back nowhere else
  const steps = STEPS.flatMap((id, i) => logits([id], prompt.length + i, cache));
  cache.trim(STEPS.length);
  const again = STEPS.flatMap((id, i) => logits([id], prompt.length + i, cache));
  const looped = model.makeCache();
  const last = mx.array([prompt.length - 1], mx.int32);
  const row = logits(prompt, prompt.length - 1, looped, last);
  const [loop] = await loopSteps(model, looped, { ids: [...prompt, ...STEPS], keep });
  const found = {
    "without a cache": nmse(whole, expected(0, prompt.length)),
    "in two parts": nmse(parts, expected(0, prompt.length)),
    "last row": nmse(row, expected(prompt.length - 1, prompt.length)),
    "one by one": nmse(steps, expected(prompt.length)),
    "after a rollback": nmse(again, expected(prompt.length)),
    loop: nmse(loop, expected(prompt.length)),
  };
  mx.dispose([last]);
  for (const held of [cache, looped]) held.dispose();
  model[Symbol.dispose]();
  assertEquals(mx.getActiveMemory(), before);
  return found;
}

/** The loss of the first prompt and the lengths of its gradients, as far as mlx-lm's are known. */
async function gradients(dir: string, names: readonly string[]): Promise<Record<string, number>> {
  mx.setDefaultDevice("wasm");
  const { model } = await mx.lm.load(dir, { device: "wasm", dtype: mx.float32 });
  using _ = model;
  return mx.tidy(() => {
    const ids = mx.array([[...PROMPTS[0]]], mx.int32);
    const loss = (tokens: mx.Tensor): mx.Tensor =>
      mx.nn.losses.crossEntropy(
        model.forward(tokens.index(mx.Slice(null), mx.Slice(0, -1))),
        tokens.index(mx.Slice(null), mx.Slice(1)),
        null,
        -1,
        0,
        "mean",
      );
    const [value, grads] = mx.nn.valueAndGrad(model, loss)(ids);
    const all = mx.utils.treeFlatten(grads, "", null, {}) as Record<string, mx.Tensor>;
    const lengthOf = (name: string): number =>
      Number(mx.linalg.norm(all[name.replace(/^language_model\./, "")].astype(mx.float32)).item());
    return { loss: Number(value.item()), ...Object.fromEntries(names.map((name) => [name, lengthOf(name)])) };
  });
}

/** Tokens of greedy decoding: each prompt alone, both in a batch, and both in an engine. */
async function answers(dir: string, device: string, count: number): Promise<Record<string, number[][]>> {
  const { model, tokenizer } = await mx.lm.load(dir, { device, dtype: mx.float32 });
  using _ = model;
  const options = { temp: 0, maxTokens: count };
  const tokensOf = async (responses: AsyncIterable<{ readonly token: number }>): Promise<number[]> =>
    (await Array.fromAsync(responses)).map(({ token }) => token);
  const prompts = PROMPTS.map((prompt) => [...prompt]);
  const alone: number[][] = [];
  for (const prompt of prompts) alone.push(await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options)));
  const { texts } = await mx.lm.batchGenerate(model, tokenizer, prompts, options);
  assertEquals(texts, alone.map((tokens) => tokenizer.decode(tokens)));
  await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 2, contextSize: 256, prefillStepSize: 16 });
  const served = await Promise.all(prompts.map((prompt) => tokensOf(engine.add({ prompt, ...options }))));
  await model.traces.idle();
  return { alone, served };
}

for (const device of DEVICES) {
  const limit = device === "wasm" ? ROUNDED : hasMatrices(device) ? HALF_ATTENTION : LIMIT;
  for (const [i, checkpoint] of CHECKPOINTS.entries()) {
    Deno.test(`mlx-lm's checkpoint of ${checkpoint.name} gives its logits and tokens on ${device}`, async (t) => {
      const folder = await Deno.makeTempDir();
      const dir = `${folder}/model`;
      await writeCheckpoint(dir, checkpoint);
      const golden = expectedLogits(i);
      const compare = async (limit: number, dtype: mx.Dtype = mx.float32): Promise<void> => {
        for (const [way, error] of Object.entries(await errors(dir, device, golden, dtype))) {
          assert(error <= limit, `${way}: NMSE ${error}`);
        }
      };
      await t.step("logits", () => compare(limit));
      const hasExperts = /"(num_experts_per_tok|top_k_experts)": [1-9]/.test(checkpoint.config);
      for (const [dtype, rounded] of SOFTWARE.has(device) ? [] : HALVES) {
        const most = hasExperts ? OTHER_EXPERTS : rounded;
        await t.step(`logits with ${dtype.name} activations`, () => compare(most, dtype));
      }
      if (device !== "wasm") {
        await t.step("logits, fused where the kernels serve it", async () => {
          using _options = withOptions({ regions: "on" }); // also where subgroups are small
          await compare(hasMatrices(device) ? ROUNDED : limit);
        });
      }
      await t.step("tokens", async () => {
        const found = await answers(dir, device, checkpoint.greedy[0].length);
        for (const tokens of Object.values(found)) assertEquals(tokens, checkpoint.greedy);
      });
      if (device === "wasm") {
        await t.step("logits with VKMX_EXACT=1", () => withExactCpu(() => compare(LIMIT)));
      }
      if (device === "wasm" && checkpoint.gradients !== null) {
        const { loss, lengths } = checkpoint.gradients;
        await t.step("gradients with VKMX_EXACT=1", () =>
          withExactCpu(async () => {
            const found = await gradients(dir, Object.keys(lengths));
            for (const [name, expected] of Object.entries({ loss, ...lengths })) {
              const error = Math.abs(found[name] / expected - 1);
              assert(error <= GRADIENT_LIMIT, `${name} is ${found[name]}, expected ${expected}`);
            }
          }));
      }
      if (checkpoint.converted !== null) {
        await t.step("convert() writes the bytes that mlx-lm writes", async () => {
          await mx.lm.convert(dir, `${folder}/converted`, { quantize: true, device });
          const sums = sumsOf(`${folder}/converted`);
          for (const [name, sum] of Object.entries(checkpoint.converted!)) {
            assertEquals([name, sums[name]], [name, sum]);
          }
        });
      }
      await Deno.remove(folder, { recursive: true });
    });
  }
}
