/**
 * Models whose matrices have several formats. Some layers, matrices of a layer or heads have other bits; symmetric codes are beside affine
 * ones, as in Q4_K_M of GGUF. Steps, batches and prompts of the fused kernels agree with those op by op.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { CodeMode } from "../../../src/graph/quantization.ts";
import { runsOfFormats } from "../../../src/schedule/decoder/emission.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { assertAgrees, type Batch, ofSequence, steps } from "../../support/models/decode_steps.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { uniformFormats } from "../../support/devices/kernel_choices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { steps as randomSteps } from "../../support/models/random_cache_steps.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const { float16, float32 } = mx;
const SHAPE: ModelShape = {
  hidden: 512,
  intermediate: 512,
  layers: 3,
  heads: 4,
  kvHeads: 2,
  headDim: 128,
  tied: false,
  vocab: 4099,
};

const BATCH: Batch = { shape: SHAPE, groupSize: 32, dtype: float16, capacity: 64, positions: [31, 7, 12] };

/** Bits, group size and mode of a matrix. */
type Format = readonly [bits: number, groupSize: number, mode?: CodeMode];

/** A case: the formats of matrices by what their paths match, the first that does; the last one is of all others. */
type Recipe = readonly (readonly [RegExp, Format])[];

const RECIPES: Readonly<Record<string, Recipe>> = {
  "4 and 6 bits, as mixed_4_6 has them": [[/[02]\.(self_attn\.v|mlp\.down)_proj|lm_head/, [6, 64]], [/./, [4, 64]]],
  "2 and 8 bits, groups that differ": [
    [/self_attn\.o_proj/, [8, 32]],
    [/1\.mlp\.(gate|up)_proj/, [8, 64]],
    [/embed_tokens/, [8, 64]],
    [/./, [2, 128]],
  ],
  "affine and symmetric codes, as Q4_K_M has them": [
    [/[02]\.(self_attn\.v|mlp\.down)_proj|lm_head/, [6, 16, "symmetric"]],
    [/./, [4, 32]],
  ],
  "symmetric codes of 3 bits, as Q3_K_M has them": [
    [/self_attn\.v_proj/, [5, 32]],
    [/0\.mlp\.down_proj/, [5, 32]],
    [/lm_head|embed_tokens/, [6, 16, "symmetric"]],
    [/1\.mlp\.up_proj|2\.self_attn\.q_proj/, [4, 32]],
    [/./, [3, 16, "symmetric"]],
  ],
};

/** Formats of the matrices that writeModel() makes: affine ones. Symmetric ones replace those with other numbers. */
const affine = ([bits, groupSize, mode]: Format): { bits: number; groupSize: number } =>
  mode === "symmetric" ? { bits: 4, groupSize: 32 } : { bits, groupSize };

function formatOf(recipe: Recipe, path: string): Format {
  return recipe.find(([pattern]) => pattern.test(path))![1];
}

const LAYER_MATRICES = [
  ...["q", "k", "v", "o"].map((name) => `self_attn.${name}_proj`),
  ...["gate", "up", "down"].map((name) => `mlp.${name}_proj`),
];

/** A matrix of mode symmetric: random codes of the spread that writeModel() gives weights. */
function symmetricMatrix(
  path: string,
  { weight }: mx.nn.QuantizedMatrix,
  bits: number,
  seed: number,
): mx.nn.QuantizedMatrix {
  const [rows, columns] = [weight.shape[0], weight.shape[1] * 32 / 4];
  const spread = (/lm_head|embed/.test(path) ? 3 : 1) / Math.sqrt(columns);
  const scale = spread * Math.sqrt(12) / 2 ** bits;
  return mx.tidy(() => {
    const words = mx.random.randint(0, 2 ** 31 - 1, [2, rows, columns * bits / 32], mx.uint32, mx.random.key(seed));
    const arrays = {
      weight: mx.bitwiseXor(words.index(0), mx.leftShift(words.index(1), 1)),
      scales: mx.random.uniform(-2 * scale, 2 * scale, [rows, columns / 16], float32, mx.random.key(seed + 1))
        .astype(float16),
      groupSize: 16,
      bits,
      mode: "symmetric",
    } as const;
    mx.eval(arrays.weight, arrays.scales);
    return path.endsWith("embed_tokens") ? new mx.nn.QuantizedEmbedding(arrays) : new mx.nn.QuantizedLinear(arrays);
  });
}

/** A model of a recipe. */
async function modelOf(recipe: Recipe, device: string, dtype: mx.Dtype): Promise<mx.lm.LanguageModel> {
  const dir = await Deno.makeTempDir();
  try {
    const paths = [
      "model.embed_tokens",
      "lm_head",
      ...Array.from({ length: SHAPE.layers }, (_, i) => LAYER_MATRICES.map((name) => `model.layers.${i}.${name}`))
        .flat(),
    ];
    const overrides = Object.fromEntries(paths.map((path) => [path, affine(formatOf(recipe, path))]));
    await writeModel(`${dir}/model`, SHAPE, { ...affine(recipe.at(-1)![1]), overrides, dtype: "F16" });
    const { model } = await mx.lm.load(`${dir}/model`, { device, dtype });
    const modules = new Map((model as unknown as mx.nn.Module).namedModules());
    for (const [i, path] of paths.entries()) {
      const [bits, , mode] = formatOf(recipe, path);
      if (mode !== "symmetric") continue;
      const at = path.lastIndexOf(".");
      const old = modules.get(path) as mx.nn.QuantizedMatrix;
      Reflect.set(
        modules.get(path.slice(0, Math.max(at, 0)))!,
        path.slice(at + 1),
        symmetricMatrix(path, old, bits, 2 * i),
      );
    }
    return model;
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

/** The kernels of one sequence, and what asks for them. */
const ALONE: readonly (readonly [string, Partial<typeof options>])[] = [
  ["decode_qkv_u64", { gemv: "off", launchMode: "barriers" }],
  ["decode_qkv_i32", { gemv: "off", launchMode: "barriers", accumulators: "i32" }],
  ["decode_layers", { gemv: "off", launchMode: "per_phase" }],
  ["decode_gemv_phase", { gemv: "on", launchMode: "barriers" }],
  ["decode_gemv_layers", { gemv: "on", launchMode: "per_phase" }],
];

/** The kernels that wait need subgroups of 32 threads: lavapipe loses stores after loops of the gemv ones. */
function aloneOn(device: string): typeof ALONE {
  const isWide = mx.withDevice(device, getBackend).limits.subgroup >= 32;
  return isWide ? ALONE : ALONE.filter(([kernel]) => kernel !== "decode_gemv_layers");
}

/** Runs with other options, and the names of the kernels that ran. */
async function under<T>(
  device: string,
  settings: Partial<typeof options>,
  run: () => Promise<T>,
): Promise<[T, string]> {
  using _options = withOptions({ regions: "on", ...settings });
  let result: T | undefined;
  const kernels = await kernelsOf(device, async () => {
    result = await run();
  });
  return [result!, [...kernels].join(" ")];
}

for (const device of DEVICES) {
  for (const [name, recipe] of Object.entries(RECIPES)) {
    Deno.test(`steps of a model agree op by op: ${name}, on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const before = mx.getActiveMemory();
      const model = await modelOf(recipe, device, float32);
      const run = (): ReturnType<typeof randomSteps> => randomSteps(model, SHAPE, 5, 3);
      const [expected] = await under(device, { regions: "off" }, run);
      for (const [kernel, settings] of drawSome(device, name, aloneOn(device), 1)) {
        const [found, kernels] = await under(device, settings, run);
        assertMatch(kernels, new RegExp(`${kernel}(?!.*quantized_mat)`));
        for (const what of ["logits", "cache"] as const) {
          const error = nmse(found[what], expected[what]);
          assert(error <= 1e-5, `${kernel}, ${what}: NMSE ${error}`);
        }
      }
      model[Symbol.dispose]();
      assertEquals(mx.getActiveMemory(), before); // the copies go with the codes
    });
  }

  const drawn = drawSome(device, "mixed formats", Object.entries(RECIPES), 1);
  for (const [name, recipe] of drawn) {
    Deno.test(`sequences of a step and prompts agree op by op: ${name}, on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const model = await modelOf(recipe, device, float16);
      const all = BATCH.positions.keys().toArray();
      const [found, kernels] = await under(device, {}, () => steps(model, BATCH, float16, all));
      assertMatch(kernels, /decode_(qkv|layers)(?!.*quantized_mat)/); // a grid of the kernels of one
      const [expected] = await under(device, {}, () => steps(model, BATCH, float16, all, { regions: "off" }));
      for (const i of all) {
        const [of, alone] = [found, expected].map((steps) => ofSequence(steps, i, all.length));
        assertAgrees(of, alone, BATCH, i, `sequence ${i}`);
      }
      const matrices = hasMatrices(device) ? {} : { matrices: "emulated" as const };
      const [fused, products] = await under(device, matrices, () => prompt(model));
      assertMatch(products, /coopmat_gated/);
      const [plain] = await under(device, { ...matrices, regions: "off" }, () => prompt(model));
      const error = nmse(fused, plain);
      assert(error <= 2e-5, `prompt: NMSE ${error}`);
      model[Symbol.dispose]();
    });
  }
}

for (const device of DEVICES) {
  Deno.test(`a file of Q4_K_M decodes in fused kernels on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const dir = await Deno.makeTempDir();
    try {
      await writeModel(`${dir}/dense`, { ...SHAPE, layers: 2, tied: true }, { bits: 16, dtype: "F16" });
      mx.setDefaultDevice("wasm"); // in a second
      await mx.lm.convert(`${dir}/dense`, `${dir}/out`, { gguf: "Q4_K_M" });
      mx.setDefaultDevice(device);
      const { model } = await mx.lm.load(`${dir}/out/model-Q4_K_M.gguf`, { device, dtype: float16 });
      const run = (): ReturnType<typeof randomSteps> => randomSteps(model, { ...SHAPE, layers: 2 }, 5, 2);
      const [expected] = await under(device, { regions: "off" }, run);
      const [found, kernels] = await under(device, { launchMode: "barriers" }, run);
      assertMatch(kernels, /decode_qkv(?!.*(quantized_mat|dequantize))/); // the embedding too
      for (const what of ["logits", "cache"] as const) {
        const error = nmse(found[what], expected[what]);
        assert(error <= 1e-5, `${what}: NMSE ${error}`);
      }
      model[Symbol.dispose]();
    } finally {
      await Deno.remove(dir, { recursive: true });
    }
  });
}

/** Logits of a prompt of 40 tokens. */
function prompt(model: mx.lm.LanguageModel): Promise<Float32Array> {
  const ids = mx.array([Array.from({ length: 40 }, (_, i) => 7 * i + 3)], mx.int32);
  using cache = model.makeCache();
  const logits = mx.tidy(() => Float32Array.from(model.forward(ids, cache).astype(float32).toTypedArray()));
  ids.dispose();
  return Promise.resolve(logits);
}

Deno.test("neighbouring layers with the same formats are one dispatch of the megakernel", () => {
  const layers = [4, 4, 8, 4, 8, 8].map((bits) => uniformFormats(bits, 32));
  assertEquals(runsOfFormats(layers), [
    { first: 0, count: 2 },
    { first: 2, count: 1 },
    { first: 3, count: 1 },
    { first: 4, count: 2 },
  ]);
  assertEquals(runsOfFormats(layers.slice(0, 2)), [{ first: 0, count: 2 }]);
});
