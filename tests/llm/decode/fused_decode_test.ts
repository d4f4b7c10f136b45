/**
 * Fused decoding against the same graph op by op. Tokens, logits and the cache must agree for every kind of accumulators and for other
 * sizes than the embedded model's. So must they for caches that threads walk in several rounds. A graph that does not fit must say so, and
 * its result must still be right. On software devices the regions are off by default, so they are switched on here.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { decodeStep } from "../../../src/llm/decode/state.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { MegakernelFailure } from "../../../src/graph/error.ts";
import { forgetLaunchModes } from "../../../src/schedule/decoder/megakernel.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { steps } from "../../support/models/random_cache_steps.ts";
import {
  choosingOf,
  type ChoosingSettings,
  numbersOf,
  SHAPE,
  stateOf,
  toldOf,
} from "../../support/models/sampling_states.ts";
import { type Architecture, modelOf, named } from "../../support/models/architectures.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { drawsCases, drawSome } from "../../support/draw_cases.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
/** How accumulators are made and waited for: with barriers, and in the kernels that wait by themselves, one phase to a dispatch. */
const VARIANTS = [
  { accumulators: "u64", launchMode: "barriers" },
  { accumulators: "i32", launchMode: "barriers" },
  { accumulators: "u64", launchMode: "per_phase" },
] as const;
/** Tokens of a golden continuation that a test compares: all, and those of cases that are drawn. */
const SOME = 12;
const DRAWN = 5;

/** Runs with other options of the scheduler. */
async function decoding<T>(change: Partial<typeof options>, body: () => T | Promise<T>): Promise<T> {
  using _options = withOptions({ regions: "on", ...change });
  return await body();
}

/**
 * Tokens of sampled steps after an empty cache, and the state at the end. `apart` has something else read the token, so that the end of the
 * step runs op by op on the same logits.
 */
async function sampledSteps(model: LanguageModel, settings: ChoosingSettings, apart: boolean): Promise<number[]> {
  const count = 6;
  const cache = model.makeCache();
  cache.reserve(count);
  const choosing = choosingOf(settings);
  const state = { ...stateOf(choosing, 11, cache), doubled: apart ? mx.zeros([1], mx.int32) : undefined };
  using loop = new DeviceLoop(state, (now) => {
    const next = decodeStep(model, choosing, now);
    return { ...next, doubled: apart ? mx.multiply(next.token.reshape([-1]), 2) : undefined };
  });
  loop.run(2);
  for (let i = 2; i < count; i++) loop.run();
  await loop.done();
  const found = [...numbersOf(state), ...toldOf(state)];
  const { keys: _, values: __, ...small } = state;
  mx.dispose(small);
  cache.dispose();
  return found;
}

const SETTINGS: readonly ChoosingSettings[] = [
  { temp: 1 },
  { temp: 0.6, topK: 20, topP: 0.95 },
  { temp: 0.9, topK: 1 },
  { temp: 1, topK: 1_000_000, topP: 1 },
  { temp: 1.5, topP: 0.7 },
  { temp: 1, minP: 0.3 },
  { temp: 1, topK: 700, topP: 0.9, minP: 0.05, repetitionPenalty: 1.3 },
  { temp: 0.7, repetitionPenalty: 0.5 },
  { repetitionPenalty: 1.8 },
  {},
  { logprobs: 20 },
  { temp: 1, logprobs: 0 },
  { temp: 0.6, topK: 20, topP: 0.95, repetitionPenalty: 1.3, logprobs: 3 },
];

/** Like Qwen2.5. */
const BIASED: Architecture = { qkNorm: false, qkvBias: true, activation: "silu" };
const SMALL = { hidden: 128, intermediate: 192, layers: 2, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab: 4099 };
/** Architectures of small models: what sets them apart, sizes, a format, positions before the first token, and how many variants. */
const ARCHITECTURES: readonly (readonly [Architecture, ModelShape, ModelFormat, number, number])[] = [
  [BIASED, SMALL, { groupSize: 64 }, 5, 3],
  [
    { qkNorm: false, qkvBias: false, activation: "gelu" },
    { ...SMALL, kvHeads: 2, headDim: 32 },
    { groupSize: 32, dtype: "F16" },
    5,
    2,
  ],
  [
    { qkNorm: false, qkvBias: true, activation: "geluTanh" },
    { ...SMALL, heads: 5, headDim: 32 },
    { bits: 8, groupSize: 32 },
    3,
    1,
  ],
  [
    { qkNorm: true, qkvBias: true, activation: "gelu" },
    { ...SMALL, intermediate: 128 },
    { bits: 8, groupSize: 128, dtype: "F16" },
    300,
    1,
  ],
  [{ qkNorm: true, qkvBias: false, activation: "geluTanh" }, { ...SMALL, kvHeads: 2 }, { groupSize: 64 }, 2, 1],
  [
    { qkNorm: false, qkvBias: false, activation: "silu" },
    { ...SMALL, intermediate: 128, layers: 1 },
    { groupSize: 128 },
    1600,
    2,
  ],
];

for (const device of DEVICES) {
  for (const dtype of [mx.float32, mx.bfloat16]) {
    Deno.test(`the fused end of a step chooses what sampling op by op does from ${dtype.name} logits on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      const shape = {
        hidden: 128,
        intermediate: 64,
        layers: 3, // accumulators of layers take turns with 2 or 4 places
        heads: 2,
        kvHeads: 1,
        headDim: 32,
        tied: true,
        vocab: 4099,
      };
      await writeModel(`${folder}/model`, shape, { groupSize: 32 });
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype });
      mx.setDefaultDevice(device);
      await decoding({ accumulators: "u64", launchMode: "barriers" }, async () => {
        for (const settings of SETTINGS) {
          let expected: number[] = [];
          const apart = await kernelsOf(device, async () => {
            expected = await sampledSteps(model, settings, true);
          });
          assert(apart.has("elementwise_single") || apart.has("elementwise"), [...apart].join());
          let found: number[] = [];
          const kernels = await kernelsOf(device, async () => {
            found = await sampledSteps(model, settings, false);
          });
          assertEquals(found, expected, JSON.stringify(settings));
          for (const kernel of kernels) {
            assert(!/^random|^element|^scatter|^gather|^reduce|^sample_best/.test(kernel), kernel);
          }
        }
      });
      await decoding({ accumulators: "u64", launchMode: "barriers" }, async () => {
        const { kernels } = await mx.profile(() => sampledSteps(model, {}, false), { timed: false });
        const calls = (name: string): number | undefined => kernels.find(({ kernel }) => kernel === name)?.calls;
        assertEquals([calls("decode_begin_u64"), calls("decode_greedy_u64")], [5, 6]); // submissions, steps
      });
      // A token opens the next one, whatever the accumulators are.
      for (const variant of VARIANTS) {
        for (const settings of dtype === mx.float32 ? [{}, SETTINGS[1]] : []) {
          const [expected, found] = await decoding(variant, async () => {
            return [await sampledSteps(model, settings, true), await sampledSteps(model, settings, false)];
          });
          assertEquals(found, expected, JSON.stringify({ ...variant, ...settings }));
        }
      }
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`a step of 8-bit weights leaves the embedding of its token to the next one on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPE, { bits: 8, groupSize: 64 });
    const { model } = await mx.lm.load(`${folder}/model`, { device });
    mx.setDefaultDevice(device);
    for (const accumulators of ["u64", "i32"] as const) {
      await decoding({ accumulators, launchMode: "barriers" }, async () => {
        for (const [end, settings] of [["greedy", {}], ["draw", SETTINGS[1]]] as const) {
          const expected = await sampledSteps(model, settings, true);
          const kernels = await kernelsOf(device, async () => {
            assertEquals(await sampledSteps(model, settings, false), expected);
          });
          assert(kernels.has(`decode_${end}_${accumulators}`), [...kernels].join());
        }
      });
    }
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });

  for (const { accumulators, launchMode } of VARIANTS) {
    Deno.test(`fused decoding with ${accumulators} accumulators and ${launchMode} gives the reference continuations on ${device}`, async () => {
      const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
      await decoding({ accumulators, launchMode }, async () => {
        const kernels = await kernelsOf(device, async () => {
          for (
            const { prompt, greedy } of accumulators === "u64" && launchMode === "barriers"
              ? drawSome(device, "prompts", GOLDEN, 2)
              : GOLDEN.slice(0, 1)
          ) {
            const found: number[] = [];
            const most = Math.min(drawsCases(device) ? DRAWN : SOME, greedy.length);
            for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: most })) {
              found.push(r.token);
            }
            assertEquals(found, greedy.slice(0, most));
          }
        });
        const phases = ["qkv", "attention", "mlp", "greedy"].map((phase) => `decode_${phase}_${accumulators}`);
        for (const kernel of launchMode === "barriers" ? phases : ["decode_layers", "decode_greedy_poll"]) {
          assert((kernels as Set<string>).has(kernel), [...kernels].join());
        }
      });
      model[Symbol.dispose]();
    });
  }

  const vocab = 4099; // the last four rows of the head are not whole
  const shapes: readonly (readonly [string, ModelShape, ModelFormat, mx.Dtype, number])[] = [
    [
      "3 heads to a key head, groups of 32",
      { hidden: 128, intermediate: 96, layers: 2, heads: 6, kvHeads: 2, headDim: 32, tied: true, vocab },
      { groupSize: 32, dtype: "F16" },
      mx.float16,
      5,
    ],
    [
      "one head to a key head, groups of 64",
      { hidden: 256, intermediate: 192, layers: 2, heads: 2, kvHeads: 2, headDim: 64, tied: false, vocab },
      { groupSize: 64 },
      mx.bfloat16,
      3,
    ],
    [
      "4 heads to a key head, several rounds",
      { hidden: 1280, intermediate: 640, layers: 1, heads: 4, kvHeads: 1, headDim: 128, tied: true, vocab },
      { groupSize: 128 },
      mx.float32,
      1600,
    ],
    [
      "a cache of two positions to a thread",
      { hidden: 128, intermediate: 128, layers: 1, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab },
      { groupSize: 64, dtype: "F16" },
      mx.float16,
      400,
    ],
    [
      "8 bits in groups of 32, 3 heads to a key head",
      { hidden: 128, intermediate: 96, layers: 2, heads: 3, kvHeads: 1, headDim: 32, tied: true, vocab },
      { bits: 8, groupSize: 32, dtype: "F16" },
      mx.float32,
      5,
    ],
    [
      "8 bits in groups of 64",
      { hidden: 256, intermediate: 192, layers: 2, heads: 2, kvHeads: 2, headDim: 64, tied: false, vocab },
      { bits: 8, groupSize: 64 },
      mx.bfloat16,
      3,
    ],
    [
      "8 bits in groups of 128, several rounds",
      { hidden: 1280, intermediate: 640, layers: 1, heads: 4, kvHeads: 1, headDim: 128, tied: true, vocab },
      { bits: 8, groupSize: 128 },
      mx.float32,
      1600,
    ],
  ];
  for (const [name, shape, format, activations, context] of shapes) {
    Deno.test(`fused decoding equals op by op with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, shape, format);
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: activations });
      mx.setDefaultDevice(device);
      const expected = await decoding({ regions: "off" }, () => steps(model, shape, context, 2));
      let exact: number[] | undefined;
      // Compiling the kernel of all layers takes a software device long: the shape with the most paths in it must do.
      const variants = VARIANTS.filter(({ launchMode }) => launchMode === "barriers" || context > 1000);
      for (const { accumulators, launchMode } of variants) {
        const found = await decoding({ accumulators, launchMode }, () => steps(model, shape, context, 2));
        const limit = activations === mx.float32 ? 1e-6 : activations === mx.float16 ? 1e-5 : 5e-4;
        for (const what of ["logits", "cache"] as const) {
          const error = nmse(found[what], expected[what]);
          assert(error <= limit, `${accumulators} ${launchMode} ${what}: NMSE ${error}`);
        }
        if (accumulators === "u64") assertEquals(found.logits, exact ??= found.logits);
      }
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  for (const [architecture, shape, format, context, count] of ARCHITECTURES) {
    const { bits = 4, groupSize } = format;
    const name = `${named(architecture)}, ${bits} bits in groups of ${groupSize}, ${context} positions`;
    Deno.test(`fused decoding equals op by op with ${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const model = await modelOf(architecture, shape, format, mx.float32);
      const expected = await decoding({ regions: "off" }, () => steps(model, shape, context, 3));
      let exact: number[] | undefined;
      for (const variant of VARIANTS.slice(0, count)) {
        let found = expected;
        const kernels = await kernelsOf(device, async () => {
          found = await decoding(variant, () => steps(model, shape, context, 3));
        });
        const fused = variant.launchMode === "barriers" ? `decode_qkv_${variant.accumulators}` : "decode_layers";
        assert((kernels as Set<string>).has(fused), [...kernels].join());
        for (const what of ["logits", "cache"] as const) {
          const error = nmse(found[what], expected[what]);
          assert(error <= 1e-6, `${variant.accumulators} ${variant.launchMode} ${what}: NMSE ${error}`);
        }
        if (variant.accumulators === "u64") assertEquals(found.logits, exact ??= found.logits);
      }
      model[Symbol.dispose]();
    });
  }

  Deno.test(`biases of keys and queries of hundreds cancel in fused decoding on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const large: Architecture = { ...BIASED, fifthBiases: [20, 300] };
    const model = await modelOf(large, SMALL, { groupSize: 64 }, mx.float32);
    const expected = await decoding({ regions: "off" }, () => steps(model, SMALL, 1, 6));
    for (const variant of VARIANTS) {
      const found = await decoding(variant, () => steps(model, SMALL, 1, 6));
      for (const what of ["logits", "cache"] as const) {
        const error = nmse(found[what], expected[what]);
        assert(error <= 1e-6, `${variant.accumulators} ${variant.launchMode} ${what}: NMSE ${error}`);
      }
    }
    model[Symbol.dispose]();
  });

  Deno.test(`scores beyond their bits are told, or as large as can be, on ${device}`, async () => {
    mx.setDefaultDevice(device);
    // Rows of the cache have no biases, so that the scores of the new key differ by more than 16,000 in a slice.
    const model = await modelOf({ ...BIASED, fifthBiases: [100, 300] }, SMALL, { groupSize: 64 }, mx.float32);
    const backend = mx.withDevice(device, getBackend);
    const expected = await decoding({ regions: "off" }, () => steps(model, SMALL, 3, 1));
    for (const variant of VARIANTS.slice(0, 2)) {
      const found = await decoding(variant, () => steps(model, SMALL, 3, 1));
      assert(nmse(found.logits, expected.logits) <= 1e-6);
    }
    try {
      const polled = decoding(VARIANTS[2], () => steps(model, SMALL, 3, 1));
      await assertRejects(() => polled, MegakernelFailure, "scores are too large for 29 bits");
    } finally {
      forgetLaunchModes(backend);
    }
    model[Symbol.dispose]();
  });

  Deno.test(`what is no number in a bias of q, k or v gives no number as a logit on ${device}`, async () => {
    mx.setDefaultDevice(device);
    for (const fifthBiases of [[NaN], [0, NaN], [0, 0, NaN], [0, Infinity], [0, 0, -Infinity]] as const) {
      const model = await modelOf({ ...BIASED, fifthBiases }, SMALL, { groupSize: 64 }, mx.float32);
      // Infinite scores are too large for the launch mode without barriers, which says so.
      const variants = fifthBiases.some(Number.isNaN) ? VARIANTS : VARIANTS.slice(0, 2);
      for (const variant of [{ regions: "off" } as const, ...variants]) {
        const { logits } = await decoding(variant, () => steps(model, SMALL, 1, 1, false));
        assert(logits.every(Number.isNaN), `${fifthBiases} ${JSON.stringify(variant)}`);
      }
      model[Symbol.dispose]();
    }
  });

  Deno.test(`decoding in one dispatch that fails goes on with the same tokens on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const backend = mx.withDevice(device, getBackend);
    const tokens = async (change: Partial<typeof options>): Promise<number[]> => {
      const found: number[] = [];
      // Everything that a restart must bring back: position, random numbers, recent tokens.
      const settings = { maxTokens: SOME, temp: 0.8, seed: 3, repetitionPenalty: 1.2 };
      await decoding(change, async () => {
        for await (const r of mx.lm.streamGenerate(model, tokenizer, GOLDEN[0].prompt, settings)) found.push(r.token);
      });
      return found;
    };
    const expected = await tokens({ launchMode: "barriers" });
    const lines: string[] = [];
    const log = console.error;
    console.error = (line: string) => lines.push(line);
    try {
      // Workgroups of a software device do not run together, and one look is never enough on any device.
      assertEquals(await tokens({ launchMode: "persistent", spinLimit: 1 }), expected);
      assertEquals(await tokens({ launchMode: "persistent", spinLimit: 1 }), expected);
    } finally {
      console.error = log;
      forgetLaunchModes(backend);
    }
    assertEquals(lines.filter((line) => line.includes("failed")), [
      `vkmx: ${device}: decoding in one dispatch failed (a workgroup waited for too long); it goes on with barriers`,
    ]);
    model[Symbol.dispose]();
  });

  Deno.test(`fused decoding repeats itself bit by bit on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    const { concurrent } = mx.withDevice(device, getBackend).limits;
    // The shape of Qwen3-0.6B where workgroups can run together; the embedded model, whose kernels are compiled, elsewhere.
    const shape = {
      hidden: 1024,
      intermediate: 3072,
      layers: 28,
      heads: 16,
      kvHeads: 8,
      headDim: 128,
      tied: true,
      vocab,
    };
    if (concurrent) await writeModel(`${folder}/model`, shape, { groupSize: 128 });
    const { model, tokenizer } = await mx.lm.load(concurrent ? `${folder}/model` : TINY_DIR, { device });
    mx.setDefaultDevice(device);
    const run = (launchMode: typeof options.launchMode, context: number = 300, count: number = 24): Promise<number[]> =>
      decoding({ accumulators: "u64", launchMode }, async () => {
        if (concurrent) return (await steps(model, shape, context, count, false)).logits;
        const found: number[] = [];
        for await (const r of mx.lm.streamGenerate(model, tokenizer, "Once", { maxTokens: 3 })) found.push(r.token);
        return found;
      });
    const expected = await run("barriers");
    for (let i = 0; i < (concurrent ? 20 : 4); i++) {
      const mode = i % 2 === 0 ? "barriers" : concurrent ? "persistent" : "per_phase";
      assertEquals(await run(mode), expected, mode);
    }
    // Walks in rounds, the last of which gives some threads a row and others none.
    for (const context of concurrent ? [1601, 2570, 3480] : []) {
      assertEquals(await run("persistent", context, 3), await run("barriers", context, 3), `${context} positions`);
    }
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`decoding what the kernels do not take is right all the same on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    const shape = { hidden: 192, intermediate: 128, layers: 1, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab };
    await writeModel(`${folder}/model`, shape, { groupSize: 64 });
    const { model } = await mx.lm.load(`${folder}/model`, { device });
    mx.setDefaultDevice(device);
    const expected = await decoding({ regions: "off" }, () => steps(model, shape, 2, 2));
    const kernels = await kernelsOf(device, async () => {
      const found = await decoding({ accumulators: "u64" }, () => steps(model, shape, 2, 2));
      assertEquals(found, expected);
    });
    assert(![...kernels].some((k) => k.startsWith("decode_")));
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });
}
