/**
 * Layers with experts in gemv kernels (shaders/decode_gemv) against the same graph op by op. Logits and the cache must agree for few and
 * many experts, both kinds of weights, several formats and incomplete last steps. Both launch modes must give the same bits.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import type { Backend, BufferKind } from "../../../src/backend/backend.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { int32, uint32 } from "../../../src/graph/dtype.ts";
import { makeNode } from "../../../src/graph/node.ts";
import { gemvUnsupportedReason } from "../../../src/schedule/decoder/emit_gemv.ts";
import { knownLaunchMode } from "../../../src/schedule/decoder/megakernel.ts";
import type { DecoderSizes, DecoderSpec, ExpertFeatures } from "../../../src/schedule/decoder/spec.ts";
import { Lowering } from "../../../src/schedule/plan/context.ts";
import { Storage } from "../../../src/schedule/plan/storage.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { PLAIN_NORMS, uniformFormats } from "../../support/devices/kernel_choices.ts";
import { unrunBackend } from "../../support/devices/unrun_device.ts";
import { changeTensors } from "../../support/models/changed_checkpoints.ts";
import { assertGemvBatch, assertGemvSteps, assertGemvTokens, steps } from "../../support/models/random_cache_steps.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const SIZES = { hidden: 512, layers: 2, heads: 4, kvHeads: 2, headDim: 128 };

/** Experts of a small Qwen3-MoE: how many, how many of them a token gets, their features, and whether weights are shares of the chosen ones. */
type Experts = readonly [count: number, chosen: number, size: number, normalized: boolean];

/** Experts, a format, positions before the first token, and the dtype of activations, default float32. */
const CASES: readonly (readonly [string, Experts, ModelFormat, number, "bfloat16"?])[] = [
  ["8 experts of 256 features, 4 bits in groups of 64", [8, 2, 256, true], { groupSize: 64 }, 5],
  ["128 experts, 8 to a token, parts of 8 lanes", [128, 8, 768, true], { groupSize: 32 }, 300],
  ["256 experts, shares of all, 8 bits", [256, 4, 128, false], { bits: 8, groupSize: 64 }, 5],
  ["dense weights, shares of all", [16, 3, 640, false], { bits: 16 }, 5],
  ["bfloat16 activations", [128, 8, 384, true], { groupSize: 128 }, 300, "bfloat16"],
];

/** Writes a small Qwen3-MoE. */
async function write(path: string, [count, chosen, size, normalized]: Experts, format: ModelFormat): Promise<void> {
  await writePublished(path, {
    model_type: "qwen3_moe",
    hidden_size: SIZES.hidden,
    intermediate_size: 4 * SIZES.hidden,
    moe_intermediate_size: size,
    num_hidden_layers: SIZES.layers,
    num_attention_heads: SIZES.heads,
    num_key_value_heads: SIZES.kvHeads,
    head_dim: SIZES.headDim,
    num_experts: count,
    num_experts_per_tok: chosen,
    decoder_sparse_step: 1,
    mlp_only_layers: [],
    norm_topk_prob: normalized,
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-6,
    rope_theta: 1000000,
    tie_word_embeddings: false,
    vocab_size: 4099,
  }, format);
}

/** Published models: sizes, with the gated values of a token, experts, how many layers there are, and why no gemv kernels serve them. */
const PUBLISHED: Readonly<
  Record<string, readonly [DecoderSizes, ExpertFeatures, layers: number, reason: string | undefined]>
> = {
  "Qwen3-30B-A3B": [
    { hidden: 2048, intermediate: 8 * 768, heads: 32, kvHeads: 4, headDim: 128 },
    { count: 128, chosen: 8, among: "chosen" },
    48,
    undefined,
  ],
  "Qwen3-235B-A22B": [
    { hidden: 4096, intermediate: 8 * 1536, heads: 64, kvHeads: 4, headDim: 128 },
    { count: 128, chosen: 8, among: "chosen" },
    94,
    "16 heads to a key head are more than 8",
  ],
  "gpt-oss-20b": [
    { hidden: 2880, intermediate: 4 * 2880, heads: 64, kvHeads: 8, headDim: 64 },
    { count: 32, chosen: 4, among: "chosen", biases: true },
    24,
    undefined,
  ],
  "Mixtral 8x7B": [
    { hidden: 4096, intermediate: 2 * 14336, heads: 32, kvHeads: 8, headDim: 128 },
    { count: 8, chosen: 2, among: "chosen" },
    32,
    "too few bytes of a workgroup",
  ],
};

for (const [name, [sizes, experts, count, reason]] of Object.entries(PUBLISHED)) {
  Deno.test(`${name} takes ${reason === undefined ? "gemv kernels" : "no fused kernels"} on a GPU`, () => {
    const { formats } = uniformFormats(4, 64);
    const layers = Array.from({ length: count }, () => ({ formats }));
    const decoder = { sizes, features: { ...PLAIN_NORMS, experts }, layers };
    for (const mode of ["persistent", "barriers"] as const) {
      const found = gemvUnsupportedReason(unrunBackend(), decoder, mode);
      assertEquals(found?.replace(/^workgroups have \d+ bytes.*/, "too few bytes of a workgroup"), reason);
    }
  });
}

Deno.test("layers with experts in host memory are not tried in one dispatch, where a device has memory of its own", () => {
  const [sizes, experts] = PUBLISHED["Qwen3-30B-A3B"];
  const modeOf = (kind: BufferKind, hostTotal: number): string | undefined => {
    const unrun = unrunBackend();
    const backend: Backend = { ...unrun, memory: () => ({ ...unrun.memory(), hostTotal }) };
    const codes = makeNode("stored", [], [1], uint32, {});
    codes.stored = { storage: new Storage(backend, 4, kind), offset: 0, strides: [1] };
    const layer = { formats: uniformFormats(4, 64).formats, gate: { codes }, keys: codes };
    const layers = [layer, layer] as unknown as DecoderSpec["layers"];
    const position = makeNode("stored", [], [1], int32, {});
    const features = { ...PLAIN_NORMS, experts };
    const cache = { kind: "contiguous", capacity: 256 };
    const decoder = { sizes, features, layers, position, cache } as unknown as DecoderSpec;
    return knownLaunchMode(new Lowering(backend, () => true, true), decoder, "gemv");
  };
  assertEquals([modeOf("device", 1e12), modeOf("host", 0)], [undefined, undefined]); // a probe is to tell
  assertEquals(modeOf("host", 1e12), "barriers");
});

for (const device of DEVICES) {
  for (const [name, experts, format, context, dtype = "float32"] of CASES) {
    Deno.test(`decoding with experts equals op by op with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await write(`${folder}/model`, experts, format);
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
      mx.setDefaultDevice(device);
      const shape = SIZES as ModelShape;
      await assertGemvSteps(device, model, shape, { context, count: 2, dtype, absent: ["expert_units"] });
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`a generation with experts has the tokens of one op by op on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, [8, 2, 256, true], { groupSize: 64, seed: 3 });
    const loaded = await mx.lm.load(`${folder}/model`, { device });
    using _model = loaded.model;
    await assertGemvTokens(device, loaded, [3, 14, 159, 26]);
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`several sequences with experts have the tokens of each by itself on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, [8, 2, 256, true], { groupSize: 64, seed: 3 });
    const loaded = await mx.lm.load(`${folder}/model`, { device });
    using _model = loaded.model;
    await assertGemvBatch(device, loaded, [[3, 14, 159, 26], [5, 35, 89, 79]]);
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`scores of experts that are no numbers give no number as a logit on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, [8, 2, 256, true], { groupSize: 64 });
    changeTensors(`${folder}/model`, (tensors) => {
      const name = "model.layers.0.mlp.gate.scales";
      const { shape, dtype } = tensors[name];
      return { ...tensors, [name]: mx.full(shape, NaN, dtype) };
    });
    const { model } = await mx.lm.load(`${folder}/model`, { device });
    mx.setDefaultDevice(device);
    using _options = withOptions({ regions: "on", launchMode: "barriers" });
    const { logits } = await steps(model, SIZES as ModelShape, 3, 1, false);
    assert(logits.every(Number.isNaN), logits.slice(0, 4).join());
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });
}
