/**
 * Decoders whose layers take turns between two ropes, as those of Gemma 3 do. Steps of fused kernels of every kind are held to the same
 * graph op by op. On every device, text that is read token by token is held to the same text at once.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { StretchedRoPE } from "../../../src/llm/layers/rope.ts";
import type { DecoderModel } from "../../../src/llm/layers/decoder_model.ts";
import { layerPush } from "../../../src/schedule/decoder/emission.ts";
import type { DecoderSpec, Rope } from "../../../src/schedule/decoder/spec.ts";
import { assertAgrees, type Batch, type Found, ofSequence, shapeOf, steps } from "../../support/models/decode_steps.ts";
import { launchModesOn, STEP_KINDS, type StepKind } from "../../support/models/step_kinds.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const SHAPE: ModelShape = { ...shapeOf(256, 256, 4, 2, 64), layers: 4 };
const BATCH: Batch = { shape: SHAPE, groupSize: 64, dtype: mx.float32, capacity: 300, positions: [270, 31] };

/** The rope of every second layer; the others keep the model's, of base 10,000. */
const ROPES = {
  "another base and scale": (dims: number): mx.nn.RoPE => new mx.nn.RoPE(dims, false, 1e6, 1 / 8),
  "wavelengths": (dims: number): mx.nn.RoPE => new StretchedRoPE(dims, mx.array(wavelengths(dims)), 1, false),
} as const;

function wavelengths(dims: number): number[] {
  return Array.from({ length: dims / 2 }, (_, i) => 1.25 ** i);
}

/** The rope of the layers of each kind of step. */
const ROPE_OF: Readonly<Record<StepKind, keyof typeof ROPES>> = {
  "with split_k kernels": "another base and scale",
  "with split_k kernels in words of 32 bits": "wavelengths",
  "with gemv kernels": "wavelengths",
  "of several sequences": "another base and scale",
  "of a chunk": "wavelengths",
};

/** A model in which every second layer has the rope that `make` gives. */
async function withModel(
  device: string,
  make: ((dims: number) => mx.nn.RoPE) | undefined,
  body: (model: DecoderModel) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await writeModel(`${folder}/model`, SHAPE, { groupSize: BATCH.groupSize });
    mx.setDefaultDevice(device);
    const loaded = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
    using model = loaded.model as DecoderModel;
    const rope = make?.(SHAPE.headDim);
    model.model.layers.forEach((layer, i) => {
      if (rope && i % 2 === 1) layer.self_attn!.rope = rope;
    });
    await body(model);
    if (rope instanceof StretchedRoPE) rope._freqs[Symbol.dispose]();
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const device of DEVICES.filter((name) => name !== "wasm")) {
  for (const [kind, { options, barriers, persistent, batch: other }] of STEP_KINDS) {
    const rope = ROPE_OF[kind];
    Deno.test(`steps ${kind} agree with op by op where every second layer has ${rope} on ${device}`, async () => {
      using _regions = withOptions({ regions: "on" }); // caches lie as fused kernels have them
      const batch = { ...BATCH, ...other };
      const sequences = kind === "of several sequences" ? [...batch.positions.keys()] : [0];
      const run = (model: DecoderModel, regions: "on" | "off"): Promise<Found> =>
        steps(model, batch, mx.float32, sequences, { regions });
      let alike: Found | undefined;
      await withModel(device, undefined, async (model) => void (alike = await run(model, "off")));
      await withModel(device, ROPES[rope], async (model) => {
        const expected = await run(model, "off");
        assert(nmse(expected.logits[0], alike!.logits[0]) > 1e-3, "the other rope makes no difference");
        for (const launchMode of launchModesOn(device)) {
          using _options = withOptions({ ...options, launchMode });
          let found = expected;
          const kernels = await kernelsOf(device, async () => void (found = await run(model, "on")));
          const kernel = launchMode === "barriers" ? barriers : persistent;
          assert([...kernels].some((name) => kernel.test(name)), `${launchMode}: ${[...kernels].join()}`);
          sequences.forEach((sequence, at) => {
            const [one, alone] = [found, expected].map((all) => ofSequence(all, at, sequences.length));
            assertAgrees(one, alone, batch, sequence, `${launchMode}, sequence ${sequence}`);
          });
        }
      });
    });
  }
}

for (const device of DEVICES) {
  for (const [rope, make] of Object.entries(ROPES)) {
    Deno.test(`text token by token has the logits of the text at once where every second layer has ${rope} on ${device}`, async () => {
      await withModel(device, make, async (model) => {
        const ids = [3, 14, 159, 26, 5, 358, 979, 32, 384, 626, 43, 383];
        const floats = (logits: mx.Tensor): Float32Array => logits.astype(mx.float32).toTypedArray() as Float32Array;
        await mx.tidy(async () => {
          const expected = floats(model.forward(mx.array([ids], mx.int32)));
          const vocabulary = expected.length / ids.length;
          const cache = model.makeCache();
          const prompt = ids.slice(0, 5);
          floats(model.forward(mx.array([prompt], mx.int32), cache));
          for (let i = prompt.length; i < ids.length; i++) {
            const found = floats(model.forward(mx.array([[ids[i]]], mx.int32), cache));
            const error = nmse(found, expected.subarray(i * vocabulary, (i + 1) * vocabulary));
            assert(error <= 1e-5, `token ${i}: NMSE ${error}`);
          }
          cache.dispose();
          await Promise.resolve();
        });
      });
    });
  }
}

Deno.test("a dispatch is told the ropes of its layers, a bit each, from its first layer on", () => {
  const bases = (other: readonly number[], layers: number): DecoderSpec => {
    const ropes = Array.from(
      { length: layers },
      (_, i): Rope => ({ base: other.includes(i) ? 1e6 : 1e4, scale: 1, factor: 1, freqs: undefined }),
    );
    return { layers: ropes.map((rope) => ({ rope })) } as unknown as DecoderSpec;
  };
  const rows: readonly (readonly [readonly number[], number, number, readonly number[]])[] = [
    [[], 6, 0, [0, 0]],
    [[1, 4], 6, 0, [0b010010, 0]],
    [[1, 4], 6, 1, [0b1001, 0]],
    [[1, 4], 6, 5, [0, 0]],
    [[31, 33], 64, 0, [2 ** 31, 2]],
    [[33, 63], 64, 2, [2 ** 31, 2 ** 29]],
    [[70], 80, 0, [0, 0]],
    [[70], 80, 70, [1, 0]],
  ];
  for (const [other, layers, layer, words] of rows) {
    assertEquals(
      layerPush(bases(other, layers), layer),
      { layer, ropes: words },
      `${other} of ${layers} from ${layer}`,
    );
  }
});
