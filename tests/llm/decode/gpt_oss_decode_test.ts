/**
 * gpt-oss in gemv kernels (shaders/decode_gemv) against the same graph op by op. It has sinks, biases of all matrices, clipped units and
 * windows. Experts are in mxfp4, affine codes and dense numbers. Sizes are those that workgroups do not share evenly. Logits and the cache must
 * agree, and both launch modes must give the same bits.
 */

import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, PUBLISHED, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { changeTensors, gptOssAsMade, type Tensors } from "../../support/models/changed_checkpoints.ts";
import { assertGemvBatch, assertGemvSteps, assertGemvTokens } from "../../support/models/random_cache_steps.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const SIZES = { layers: 2, heads: 8, kvHeads: 2, headDim: 64 };

/** Experts of a small gpt-oss, and its hidden features. */
interface Sizes {
  readonly hidden: number;
  /** Features of an expert. */
  readonly size: number;
  readonly experts: number;
  readonly chosen: number;
}

const SMALL: Sizes = { hidden: 480, size: 96, experts: 8, chosen: 4 };

/** Sizes, a format, positions before the first token, and the dtype of activations, default float32. */
const CASES: readonly (readonly [string, Sizes, ModelFormat, number, "bfloat16"?])[] = [
  [
    "mxfp4 experts beyond the window",
    SMALL,
    { groupSize: 32, mxfp4Experts: true },
    300,
  ],
  [
    "mxfp4 experts, one lane in the last step",
    { hidden: 1056, size: 544, experts: 32, chosen: 4 },
    { groupSize: 32, mxfp4Experts: true },
    5,
  ],
  [
    "affine experts, 8 bits",
    { hidden: 576, size: 192, experts: 6, chosen: 2 },
    { bits: 8, groupSize: 64 },
    70,
  ],
  [
    "dense weights",
    { hidden: 544, size: 608, experts: 5, chosen: 4 },
    { bits: 16 },
    300,
  ],
  [
    "mxfp4 experts beside dense matrices, as its makers have them",
    SMALL,
    { bits: 16, mxfp4Experts: true },
    70,
  ],
  [
    "mxfp4 experts and bfloat16 activations",
    { hidden: 480, size: 160, experts: 16, chosen: 4 },
    { groupSize: 32, mxfp4Experts: true },
    300,
    "bfloat16",
  ],
];

/** Writes a small gpt-oss, whose first layer of two has a window of 64 positions. */
async function write(path: string, { hidden, size, experts, chosen }: Sizes, format: ModelFormat): Promise<void> {
  await writePublished(path, {
    ...PUBLISHED["gpt-oss-20b"],
    hidden_size: hidden,
    intermediate_size: size,
    num_hidden_layers: SIZES.layers,
    num_attention_heads: SIZES.heads,
    num_key_value_heads: SIZES.kvHeads,
    num_local_experts: experts,
    num_experts_per_tok: chosen,
    sliding_window: 64,
    vocab_size: 4099,
  }, format);
  if (format.mxfp4Experts) changeTensors(path, withOtherScales);
  if (format.mxfp4Experts && format.bits === 16) changeTensors(path, gptOssAsMade);
}

/** Powers of two of experts that differ from group to group; those of gates and linear parts are so large that units clip. */
function withOtherScales(tensors: Tensors): Tensors {
  const changed = Object.entries(tensors).map(([name, tensor], i) => {
    if (tensor.dtype !== mx.uint8) return [name, tensor] as const;
    const more = mx.random.randint(name.includes("down_proj") ? -3 : 0, 4, tensor.shape, mx.int32, mx.random.key(i));
    return [name, mx.add(tensor.astype(mx.int32), more).astype(mx.uint8)] as const;
  });
  return Object.fromEntries(changed);
}

for (const device of DEVICES) {
  for (const [name, sizes, format, context, dtype = "float32"] of CASES) {
    Deno.test(`decoding gpt-oss equals op by op with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await write(`${folder}/model`, sizes, format);
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
      mx.setDefaultDevice(device);
      const shape = { ...SIZES, hidden: sizes.hidden } as ModelShape;
      await assertGemvSteps(device, model, shape, { context, count: 2, dtype, absent: ["expert_units"] });
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`a generation of gpt-oss that leaves its window has the tokens of one op by op on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, SMALL, { groupSize: 32, mxfp4Experts: true, seed: 3 });
    const loaded = await mx.lm.load(`${folder}/model`, { device });
    using _model = loaded.model;
    await assertGemvTokens(device, loaded, Array.from({ length: 60 }, (_, i) => 3 + 7 * i));
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`several sequences of gpt-oss have the tokens of each by itself on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, SMALL, { groupSize: 32, mxfp4Experts: true, seed: 3 });
    const loaded = await mx.lm.load(`${folder}/model`, { device });
    using _model = loaded.model;
    await assertGemvBatch(device, loaded, [3, 5].map((first) => Array.from({ length: 62 }, (_, i) => first + 11 * i)));
    await Deno.remove(folder, { recursive: true });
  });
}
