/**
 * The end of a prompt: its last layer for the row that counts. The row must be the same as among all rows. With the
 * kernels of a decoder's step, token, position, random key and rings must equal those of the same graph op by op. Steps
 * that these kernels do not support must run op by op. On software devices regions are off by default, so they are
 * switched on here.
 */

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { promptStep } from "../../../src/llm/decode/state.ts";
import { decodingModel, type LanguageModel } from "../../../src/llm/models/mod.ts";
import type { SamplerOptions } from "../../../src/llm/sampling/options.ts";
import { makeLogitsProcessors, makeSampler } from "../../../src/llm/sampling/sampler.ts";
import { forgetLaunchModes } from "../../../src/schedule/decoder/megakernel.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import {
  choosingOf,
  type ChoosingSettings,
  numbersOf,
  SHAPE,
  stateOf,
  toldOf,
} from "../../support/models/sampling_states.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Rows of the cache before the prompt, tokens of the prompt, rows that these are padded to. */
const [PREFIX, TOKENS, ROWS] = [3, 5, 8];

/**
 * The head that chooses the token: after the last layer for its row, and after a chunk of all rows. The latter's rows
 * are float16, so the `error` of logits is larger. A draw from all tokens falls on another one now and then.
 */
const HEADS = [
  { batched: "off", head: "decode_head_u64", error: 2e-3, drawsAll: true },
  { batched: "on", head: "batch_head", error: 1e-2, drawsAll: false },
] as const;
/** Answers that are free, and those of a format, which choose tokens in another way. */
const ANSWERS = [
  { name: "a free answer" },
  { name: "an answer of a format", responseFormat: { type: "json_object" } },
] as const;

/** Settings that a seed draws for software Vulkan before the full tier: each compiles for 10 seconds. */
const DRAWN = 3;

const SETTINGS: readonly ChoosingSettings[] = [
  {},
  { repetitionPenalty: 1.8 },
  { temp: 1 },
  { temp: 0.6, topK: 20, topP: 0.95 },
  { temp: 1, minP: 0.3, repetitionPenalty: 1.3 },
  { logprobs: 0 },
  { temp: 0.6, topK: 20, repetitionPenalty: 1.3, logprobs: 7 },
];

/** Another use of a graph's end, so that the kernels cannot serve it. */
const OTHERS = {
  "logits that are asked for": (logits: mx.Tensor) => logits.index(0, mx.Slice(0, 1)).astype(mx.int32),
  "a token that is changed": (_: mx.Tensor, next: mx.Tensor) => mx.multiply(next, 2),
  "a position that is changed": (_: mx.Tensor, __: mx.Tensor, after: mx.Tensor) => mx.multiply(after, 2),
} as const;

/**
 * The state after a prompt and its first token, log probabilities apart. `other` is a state more that the graph
 * computes.
 */
async function promptState(
  model: LanguageModel,
  settings: ChoosingSettings,
  change: Partial<typeof options>,
  other?: (logits: mx.Tensor, next: mx.Tensor, after: mx.Tensor) => mx.Tensor,
): Promise<{ numbers: number[]; told: number[] }> {
  using _options = withOptions(change);
  const cache = model.makeCache();
  cache.reserve(PREFIX + TOKENS, PREFIX + ROWS);
  for (const buffer of cache.state) mx.eval(buffer);
  const choosing = choosingOf(settings);
  const state = {
    ...stateOf(choosing, 0, cache),
    other: other && mx.zeros([1], mx.int32),
    ids: mx.array(Array.from({ length: ROWS }, (_, i) => (i * 977 + 11) % SHAPE.vocab), mx.int32),
    last: mx.array([TOKENS - 1], mx.uint32),
  };
  try {
    using loop = new DeviceLoop(state, (now) => {
      let logits!: mx.Tensor;
      const { sampler } = choosing;
      const seen = Object.assign((row: mx.Tensor, key: mx.Tensor) => sampler(logits = row, key), {
        key: sampler.key,
        graph: sampler.graph,
      });
      const next = promptStep(model, { ...choosing, sampler: seen }, now);
      return { ...next, other: other && other(logits, next.token.reshape([-1]), next.position) };
    });
    loop.run(); // then once more, after the first
    loop.run();
    await loop.done();
    const more = state.other ? state.other.tolist() : [];
    return { numbers: [...numbersOf(state), ...more], told: toldOf(state) };
  } finally {
    mx.dispose(Object.values(state).flat().filter((x) => x !== undefined));
    cache.dispose();
  }
}

for (const device of testDevices()) {
  Deno.test(`forward() of one row gives that row of all on ${device}`, async () => {
    const { model } = await mx.lm.load(TINY_DIR, { device });
    mx.setDefaultDevice(device);
    const ids = Array.from({ length: 11 }, (_, i) => (i * 977 + 11) % model.config.vocabSize);
    const [prefix, rest] = [ids.slice(0, 4), ids.slice(4)].map((part) => mx.array([part], mx.int32));
    for (const cached of [false, true]) {
      const logits = (row?: number): Float32Array =>
        mx.tidy(() => {
          const cache = model.makeCache();
          if (cached) mx.eval(model.forward(prefix, cache));
          const rows = row === undefined ? undefined : mx.array([row], mx.int32);
          const values = model.forward(rest, cached ? cache : undefined, rows).astype(mx.float32).toTypedArray();
          cache.dispose();
          return values as Float32Array;
        });
      const all = logits();
      const { vocabSize } = model.config;
      for (const row of [0, 3, 6]) {
        const error = nmse(logits(row), all.subarray(row * vocabSize, (row + 1) * vocabSize));
        assert(error < 1e-6, `row ${row}, ${cached ? "behind a cache" : "alone"}: NMSE ${error}`);
      }
    }
    mx.dispose(prefix, rest);
    model[Symbol.dispose]();
  });
}

for (const device of DEVICES) {
  for (const dtype of [mx.float32, mx.bfloat16, mx.float16]) {
    Deno.test(`the fused end of a prompt gives the state of its ops from ${dtype.name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, SHAPE, { groupSize: 32, dtype: dtype === mx.float16 ? "F16" : "BF16" });
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype });
      mx.setDefaultDevice(device);
      // Draws depend on more digits than bfloat16 rows have after the norm.
      const possible = SETTINGS.filter(({ temp }) => temp === undefined || dtype !== mx.bfloat16);
      for (const settings of drawSome(device, dtype.name, possible, DRAWN)) {
        const expected = await promptState(model, settings, { regions: "off" });
        for (const { batched, head, error, drawsAll } of HEADS) {
          if (settings.temp === 1 && !drawsAll) continue;
          let found: typeof expected = { numbers: [], told: [] };
          const kernels = await kernelsOf(device, async () => {
            found = await promptState(model, settings, { regions: "on", batched });
          });
          assertEquals(found.numbers, expected.numbers, `${JSON.stringify(settings)}, ${head}`);
          assertEquals(found.told.length, expected.told.length);
          // The logits are sums in another order, rounded to their dtype.
          const most = dtype === mx.float32 ? error : dtype === mx.float16 ? 5e-2 : 1e-1;
          found.told.forEach((x, i) => assertAlmostEquals(x, expected.told[i], most));
          assert([...kernels].some((kernel) => kernel.startsWith(head)), [...kernels].join());
          for (const kernel of kernels) assert(!/^random|^scatter|^reduce|^sample_best/.test(kernel), kernel);
        }
      }
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`prompts of few tokens, fed as steps or as a chunk, continue alike on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
    const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
    mx.setDefaultDevice(device);
    const backend = mx.withDevice(device, getBackend);
    const ids = Array.from({ length: 9 }, (_, i) => (i * 977 + 11) % SHAPE.vocab);
    const tokens = async (change: Partial<typeof options>, prefix: number, settings: SamplerOptions) => {
      using _options = withOptions(change);
      using cache = model.makeCache();
      const found: number[] = [];
      for (const [prompt, maxTokens] of [[ids.slice(0, prefix), 1], [ids.slice(prefix), 4]] as const) {
        const sampler = makeSampler({ ...settings, seed: 4 });
        const how = { sampler, processors: makeLogitsProcessors(settings), contextSize: 6, prefillStepSize: 2048 };
        for await (const token of mx.lm.generateStep(prompt, model, { ...how, cache, maxTokens })) found.push(token);
      }
      return found;
    };
    for (const prefix of [5, 6, 7, 8]) {
      for (const settings of [{}, { repetitionPenalty: 1.8 }, { temp: 0.6, topK: 20, repetitionPenalty: 1.3 }]) {
        const expected = await tokens({ regions: "off" }, prefix, settings);
        const how = JSON.stringify([prefix, settings]);
        for (const { batched } of HEADS) {
          assertEquals(
            await tokens({ regions: "on", batched, launchMode: "barriers" }, prefix, settings),
            expected,
            how,
          );
        }
        if (prefix !== 7 || settings.temp === undefined) continue;
        // Steps and chunks that do not end well: one look at a sum is never enough.
        for (const { batched } of HEADS) {
          assertEquals(
            await tokens({ regions: "on", batched, launchMode: "persistent", spinLimit: 1 }, prefix, settings),
            expected,
            how,
          );
          forgetLaunchModes(backend);
        }
      }
    }
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`a chunk that does not end well is read again, without the steps that followed it, on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
    const { model, tokenizer } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
    const backend = mx.withDevice(device, getBackend);
    const ids = Array.from({ length: 10 }, (_, i) => (i * 977 + 11) % SHAPE.vocab);
    const tokens = async (prompt: readonly number[], launchMode: typeof options.launchMode): Promise<number[]> => {
      using _options = withOptions({ regions: "on", batched: "on", launchMode, spinLimit: 1 });
      const found: number[] = [];
      const how = { temp: 0.6, topK: 20, repetitionPenalty: 1.3, seed: 4, maxTokens: 6 };
      for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, how)) found.push(r.token);
      return found;
    };
    const batch = async (prompts: readonly number[][], launchMode: typeof options.launchMode) => {
      using _options = withOptions({ regions: "on", batched: "on", launchMode, spinLimit: 1 });
      return (await mx.lm.batchGenerate(model, tokenizer, prompts, { maxTokens: 3 })).tokens;
    };
    const [few, many] = [ids.slice(0, 5), ids];
    const expected = [await tokens(few, "barriers"), await tokens(many, "barriers")];
    const sideBySide = await batch([few, many], "barriers");
    const { now } = performance;
    performance.now = () => now.call(performance) / 100; // steps of a slow device would not be submitted ahead
    try {
      // The first time a chunk fails and its steps go on with barriers. Those are known when one of other rows fails: they follow it at once.
      assertEquals(await tokens(many, "persistent"), expected[1]);
      forgetLaunchModes(backend);
      assertEquals(await tokens(few, "persistent"), expected[0]);
      forgetLaunchModes(backend);
      assertEquals(await batch([few, many], "persistent"), sideBySide);
      forgetLaunchModes(backend);
    } finally {
      performance.now = now;
    }
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });

  for (const { name, ...format } of ANSWERS) {
    const title = `a prompt of ${name} is read where all traces go while its pipelines are made on ${device}`;
    Deno.test(title, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
      const { model, tokenizer } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
      const ids = Array.from({ length: 9 }, (_, i) => (i * 977 + 11) % SHAPE.vocab);
      const { traces } = decodingModel(model);
      const prepare = traces.prepare.bind(traces);
      const texts: string[] = [];
      let gone = 0;
      for (const go of [false, true]) {
        // As the failure of a sequence beside this one does.
        traces.prepare = async (trace) => {
          await prepare(trace);
          if (!go) return;
          traces[Symbol.dispose]();
          gone++;
        };
        traces[Symbol.dispose]();
        texts.push(await mx.lm.generate(model, tokenizer, ids, { maxTokens: 4, seed: 4, ...format }));
      }
      assert(gone > 0 && texts[0] !== "");
      assertEquals(texts[1], texts[0]);
      await traces.idle();
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`the end of a prompt runs op by op beside other uses of what is in it on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
    const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
    mx.setDefaultDevice(device);
    for (const [name, other] of Object.entries(OTHERS)) {
      const expected = await promptState(model, {}, { regions: "off" }, other);
      for (const { batched } of HEADS) {
        const kernels = await kernelsOf(device, async () => {
          const found = await promptState(model, {}, { regions: "on", batched }, other);
          assertEquals(found.numbers, expected.numbers, `${name}, batch ${batched}`);
        });
        assert(!kernels.has("decode_head_u64"), name);
      }
    }
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });
}
