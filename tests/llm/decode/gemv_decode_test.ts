/**
 * Layers with gemv kernels (shaders/decode_gemv) against the same graph op by op. Logits and the cache must agree for every form, other
 * sizes, caches of many parts and tiles, and other architectures. Both launch modes must give the same bits. They serve large shapes, so
 * they are switched on for small ones here.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import {
  type ModelFormat,
  type ModelShape,
  SHAPES as PUBLISHED_SHAPES,
  writeModel,
} from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { gemvUnsupportedReason, gemvWalkOf } from "../../../src/schedule/decoder/emit_gemv.ts";
import type { DecoderSpec } from "../../../src/schedule/decoder/spec.ts";
import { H200 } from "../../../src/schedule/tuning/h200.ts";
import { type Architecture, modelOf, named } from "../../support/models/architectures.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { assertGemvSteps, gemvModes, steps } from "../../support/models/random_cache_steps.ts";
import { PLAIN_NORMS, uniformFormats } from "../../support/devices/kernel_choices.ts";
import { unrunBackend } from "../../support/devices/unrun_device.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const vocab = 4099; // the last rows of the head are no whole four
const SMALL = { hidden: 512, intermediate: 512, layers: 2, heads: 4, kvHeads: 2, headDim: 128, tied: true, vocab };

/** Sizes, a format, positions before the first token, and the dtype of activations and cache, default float32. */
const SHAPES: readonly (readonly [string, ModelShape, ModelFormat, number, ("float16" | "bfloat16")?])[] = [
  ["4 bits in groups of 128, two parts of the positions", SMALL, { groupSize: 128 }, 5],
  [
    "4 bits in groups of 32, 3 heads to a key head, parts of several tiles",
    { ...SMALL, intermediate: 1024, heads: 24, kvHeads: 8, headDim: 64, tied: false },
    { groupSize: 32, dtype: "F16" },
    1100,
  ],
  [
    "8 bits in groups of 64, units of a row by several teams",
    { ...SMALL, hidden: 1024, intermediate: 2560, heads: 8, kvHeads: 4, headDim: 64 },
    { bits: 8, groupSize: 64 },
    300,
  ],
  [
    "4 bits in groups of 64, parts of 4 and 12 lanes in the last steps",
    { ...SMALL, hidden: 640, intermediate: 896 },
    { groupSize: 64 },
    5,
  ],
  [
    "8 bits in groups of 32, 7 heads to a key head, parts of 12, 8 and 8 lanes",
    { ...SMALL, hidden: 896, intermediate: 1280, heads: 14, kvHeads: 2, headDim: 64 },
    { bits: 8, groupSize: 32 },
    300,
  ],
  [
    "4 bits in groups of 64, more gated values than shared memory has room for",
    { ...SMALL, hidden: 256, intermediate: 25600 },
    { groupSize: 64 },
    5,
  ],
  [
    "dense weights, 6 heads to a key head, three and two parts of four in the last steps",
    { ...SMALL, hidden: 896, intermediate: 1280, heads: 12, kvHeads: 2, headDim: 64 },
    { bits: 16 },
    5,
  ],
  [
    "dense weights, one part of four",
    { ...SMALL, hidden: 640, intermediate: 1664, tied: false },
    { bits: 16, dtype: "F16" },
    300,
  ],
  [
    "dense bfloat16 weights, units of a row by several teams",
    { ...SMALL, hidden: 1024, intermediate: 2560, heads: 8, kvHeads: 4, headDim: 64 },
    { bits: 16 },
    300,
  ],
  [
    "dense float16 weights, the second round of the head half",
    { ...SMALL, hidden: 1536, tied: false },
    { bits: 16, dtype: "F16" },
    5,
  ],
  ["dense bfloat16 weights beside activations of the same", SMALL, { bits: 16 }, 300, "bfloat16"],
  ["three rounds of gated values", { ...SMALL, intermediate: 8576 }, { groupSize: 64 }, 5],
  ["heads of 256 features, 3 to a key head", { ...SMALL, heads: 6, headDim: 256 }, { groupSize: 64 }, 300],
  ["long rows of the head, the second round half", { ...SMALL, hidden: 1536 }, { groupSize: 128 }, 5],
  [
    "a float16 cache, parts of two long tiles",
    { ...SMALL, heads: 32, kvHeads: 16 },
    { groupSize: 64 },
    1100,
    "float16",
  ],
  [
    "a bfloat16 cache, heads of 64 features, parts of a long tile",
    { ...SMALL, heads: 32, kvHeads: 16, headDim: 64 },
    { groupSize: 64 },
    700,
    "bfloat16",
  ],
];

/** Shapes of published models. */
const PUBLISHED = Object.fromEntries(
  Object.entries(PUBLISHED_SHAPES).filter(([name]) => !["tiny", "small"].includes(name)),
);

/** Architectures of small models: what sets them apart, bits of a weight, and positions before the first token. */
const ARCHITECTURES: readonly (readonly [Architecture, number, number])[] = [
  [{ qkNorm: false, qkvBias: true, activation: "silu" }, 4, 5],
  [{ qkNorm: true, qkvBias: true, activation: "geluTanh" }, 4, 300],
  [{ qkNorm: false, qkvBias: true, activation: "silu" }, 16, 5],
  [{ qkNorm: false, qkvBias: false, activation: "gelu" }, 16, 300],
];

/** Those whose split_k kernels, of 128 workgroups, were measured to be faster. */
const SPLIT_K = { persistent: ["qwen3-0.6b"], barriers: ["qwen3-0.6b", "qwen3-1.7b"] } as const;

for (const mode of ["persistent", "barriers"] as const) {
  Deno.test(`published shapes take gemv kernels on a GPU but for the smallest of many workgroups, ${mode}`, () => {
    const backend = unrunBackend();
    const reasons = Object.entries(PUBLISHED).flatMap(([name, shape]) =>
      [4, 8, 16].map((bits) => {
        const { formats } = uniformFormats(bits, 64);
        const layers = Array.from({ length: shape.layers }, () => ({ formats }));
        const decoder = { sizes: shape, features: PLAIN_NORMS, layers };
        return `${name}, ${bits}: ${gemvUnsupportedReason(backend, decoder, mode) ?? "gemv"}`;
      })
    );
    assertEquals(
      reasons.filter((reason) => !reason.endsWith(": gemv")),
      SPLIT_K[mode].flatMap((name) =>
        [4, 8].map((bits) =>
          `${name}, ${bits}: ${
            PUBLISHED[name].hidden
          } hidden features are faster with split_k kernels of 128 workgroups`
        )
      ),
    );
  });
}

for (const device of DEVICES) {
  for (const [name, shape, format, context, dtype = "float32"] of SHAPES) {
    Deno.test(`decoding with gemv kernels equals op by op with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, shape, format);
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
      mx.setDefaultDevice(device);
      await assertGemvSteps(device, model, shape, { context, count: 3, dtype });
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  for (const [architecture, bits, context] of ARCHITECTURES) {
    Deno.test(`decoding with gemv kernels equals op by op with ${named(architecture)}, ${bits} bits, ${context} positions on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const model = await modelOf(architecture, SMALL, { groupSize: 128, bits }, mx.float32);
      let expected: Awaited<ReturnType<typeof steps>>;
      {
        using _options = withOptions({ regions: "off" });
        expected = await steps(model, SMALL, context, 2);
      }
      for (const launchMode of gemvModes(device)) {
        using _options = withOptions({ regions: "on", gemv: "on", launchMode });
        let found = expected;
        const kernels = await kernelsOf(device, async () => {
          found = await steps(model, SMALL, context, 2);
        });
        assert(
          kernels.has(launchMode === "barriers" ? "decode_gemv_phase" : "decode_gemv_layers"),
          [...kernels].join(),
        );
        for (const what of ["logits", "cache"] as const) {
          const error = nmse(found[what], expected[what]);
          assert(error <= 1e-6, `${launchMode} ${what}: NMSE ${error}`);
        }
      }
      model[Symbol.dispose]();
    });
  }

  Deno.test(`decoding with gemv kernels equals op by op with as many workgroups as the record of the device says on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const model = await modelOf(
      { qkNorm: true, qkvBias: false, activation: "silu" },
      SMALL,
      { groupSize: 128 },
      mx.float32,
    );
    for (const context of [5, 300]) { // two workgroups share the positions of a key head, then all do
      let expected: Awaited<ReturnType<typeof steps>>;
      {
        using _options = withOptions({ regions: "off" });
        expected = await steps(model, SMALL, context, 2);
      }
      for (const gemvWorkgroups of [64, 16]) {
        const tuning = { ...H200, decode: { ...H200.decode, gemvWorkgroups } };
        using _options = withOptions({ regions: "on", gemv: "on", launchMode: "barriers", tuning });
        const walk = gemvWalkOf(getBackend(device), { sizes: { kvHeads: 2, heads: 4 } } as unknown as DecoderSpec, 257);
        assertEquals(walk.parts, gemvWorkgroups / 2);
        let found = expected;
        const kernels = await kernelsOf(device, async () => {
          found = await steps(model, SMALL, context, 2);
        });
        assert(kernels.has("decode_gemv_phase"), [...kernels].join());
        for (const what of ["logits", "cache"] as const) {
          const error = nmse(found[what], expected[what]);
          assert(error <= 1e-6, `${gemvWorkgroups} workgroups, ${context} positions, ${what}: NMSE ${error}`);
        }
      }
    }
    model[Symbol.dispose]();
  });

  Deno.test(`a generation of dense weights has the tokens of one op by op on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    const shape = { ...SMALL, hidden: 1024, heads: 8, kvHeads: 4, headDim: 64 };
    for (const tied of [true, false]) {
      await writeModel(`${folder}/${tied}`, { ...shape, tied }, { bits: 16, seed: 3 });
      const { model, tokenizer } = await mx.lm.load(`${folder}/${tied}`, { device });
      using _model = model;
      // A draw from flat logits, as those of a head of its own are here, may go to a neighbour.
      for (const [end, temp] of tied ? [["greedy", 0], ["draw", 0.8]] as const : [["greedy", 0]] as const) {
        const tokens = async (regions: "on" | "off"): Promise<number[]> => {
          using _options = withOptions({ regions, launchMode: "barriers" });
          const found: number[] = [];
          const options = { maxTokens: 12, temp, seed: 5 };
          for await (const r of mx.lm.streamGenerate(model, tokenizer, [3, 14, 159, 26], options)) found.push(r.token);
          return found;
        };
        const expected = await tokens("off");
        const kernels = await kernelsOf(
          device,
          async () => assertEquals(await tokens("on"), expected, `${tied} ${end}`),
        );
        for (const kernel of ["decode_gemv_phase", `decode_${end}_gemv`]) {
          assert(kernels.has(kernel), [...kernels].join());
        }
      }
    }
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`what is no number gives no number as a logit of decoding with gemv kernels on ${device}`, async () => {
    mx.setDefaultDevice(device);
    for (const fifthBiases of [[NaN], [0, NaN], [0, 0, NaN], [0, 0, -Infinity]] as const) {
      const architecture = { qkNorm: false, qkvBias: true, activation: "silu", fifthBiases } as const;
      const model = await modelOf(architecture, SMALL, { groupSize: 128 }, mx.float32);
      using _options = withOptions({ regions: "on", gemv: "on", launchMode: "barriers" });
      const { logits } = await steps(model, SMALL, 3, 1, false);
      assert(logits.every(Number.isNaN), `${fifthBiases}: ${logits.slice(0, 4)}`);
      model[Symbol.dispose]();
    }
  });

  Deno.test(`small shapes are decoded with split_k kernels on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const model = await modelOf(
      { qkNorm: true, qkvBias: false, activation: "silu" },
      SMALL,
      { groupSize: 128 },
      mx.float32,
    );
    using _options = withOptions({ regions: "on", launchMode: "barriers" });
    const kernels = await kernelsOf(device, async () => void await steps(model, SMALL, 3, 1, false));
    assert(kernels.has("decode_mlp_u64") || kernels.has("decode_mlp_i32"), [...kernels].join());
    model[Symbol.dispose]();
  });
}
