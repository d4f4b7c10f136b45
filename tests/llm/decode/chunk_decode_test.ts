/**
 * A chunk of few tokens of one sequence in one fused step: logits of all of them or of one, and the cache. They are compared with the same
 * tokens op by op in float32. They are equal bit for bit in one dispatch, if workgroups can wait for each other. Chunks start before, in
 * and after a round of the kernels, for shapes that fill no unit of them.
 */

import { assert, assertMatch } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import {
  assertAgrees,
  assertSame,
  type Batch,
  type Found,
  ofSequence,
  shapeOf,
  steps,
} from "../../support/models/decode_steps.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { withOptions } from "../../../scripts/support/options.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const { float16, bfloat16, float32 } = mx;

/** Chunks at each of some positions, one after another. */
const CHUNKS: Readonly<Record<string, Batch & { readonly tokens: number }>> = {
  "two, a head of their own": {
    shape: { ...shapeOf(256, 448, 4, 2, 64), layers: 2, tied: false },
    groupSize: 32,
    dtype: float16,
    capacity: 64,
    positions: [31, 60, 0],
    tokens: 2,
  },
  "five, three heads a key head, over one round and at its ends": {
    shape: shapeOf(128, 128, 6, 2, 32),
    groupSize: 32,
    dtype: float32,
    capacity: 800,
    positions: [126, 251, 767],
    tokens: 5,
  },
  "eight of wide heads": {
    shape: { ...shapeOf(1024, 256, 4, 1, 128), layers: 2 },
    groupSize: 128,
    dtype: bfloat16,
    capacity: 300,
    positions: [0, 260],
    tokens: 8,
  },
  "nine of a Qwen2.5 of three layers with tanh gelu": {
    shape: { ...shapeOf(128, 64, 4, 2, 16), layers: 3, family: "qwen2", config: { hidden_act: "gelu_pytorch_tanh" } },
    groupSize: 32,
    dtype: float32,
    capacity: 40,
    positions: [0, 22],
    tokens: 9,
  },
  "sixteen of a Llama with gelu, seven heads a key head": {
    shape: { ...shapeOf(128, 128, 7, 1, 64), layers: 2, family: "llama", config: { hidden_act: "gelu" } },
    groupSize: 32,
    dtype: bfloat16,
    capacity: 300,
    positions: [0, 17, 268],
    tokens: 16,
  },
  "sixteen, a head a key head": {
    shape: shapeOf(128, 192, 2, 2, 64),
    groupSize: 64,
    dtype: float16,
    capacity: 160,
    positions: [1, 120],
    tokens: 16,
  },
  "seven of 8 bits": {
    shape: { ...shapeOf(256, 448, 4, 2, 64), layers: 2 },
    groupSize: 64,
    bits: 8,
    dtype: float16,
    capacity: 300,
    positions: [31, 250],
    tokens: 7,
  },
  "six of dense weights, four heads a key head": {
    shape: { ...shapeOf(512, 512, 8, 2, 64), layers: 2 },
    groupSize: 32,
    bits: 16,
    dtype: float32,
    capacity: 300,
    positions: [31, 252],
    tokens: 6,
  },
  "three of a wide residual": {
    shape: { ...shapeOf(1152, 128, 2, 1, 64), layers: 2 },
    groupSize: 64,
    dtype: float16,
    capacity: 40,
    positions: [31, 7],
    tokens: 3,
  },
  "eight of a large model's sizes": {
    shape: { ...shapeOf(4096, 12288, 32, 8, 128), layers: 2 },
    groupSize: 128,
    dtype: float16,
    capacity: 600,
    positions: [0, 255, 580],
    tokens: 8,
    large: true,
  },
  "sixteen of a model's sizes": {
    shape: { ...shapeOf(1024, 3072, 16, 8, 128), layers: 3 },
    groupSize: 128,
    dtype: bfloat16,
    capacity: 1024,
    positions: [100, 500, 990],
    tokens: 16,
    large: true,
  },
};

for (const device of DEVICES) {
  const { concurrent } = mx.withDevice(device, getBackend).limits;
  for (const [name, batch] of Object.entries(CHUNKS)) {
    Deno.test({
      name: `a chunk agrees with its tokens op by op: ${name} on ${device}`,
      ignore: batch.large && !concurrent,
      fn: async () => {
        mx.setDefaultDevice(device);
        using _options = withOptions({ regions: "on", batched: "on", launchMode: "barriers" });
        const dir = await Deno.makeTempDir();
        try {
          await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize, bits: batch.bits });
          const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: batch.dtype });
          const plain = await mx.lm.load(`${dir}/model`, { device, dtype: float32 });
          for (const sequence of batch.positions.keys()) {
            for (const row of [undefined, batch.tokens - 2]) {
              const what = `chunk ${sequence}, ${row === undefined ? "all logits" : `those of token ${row}`}`;
              let found: Found | undefined;
              const kernels = await kernelsOf(device, async () => {
                found = await steps(model, batch, batch.dtype, [sequence], { row });
              });
              const layers = [...kernels].filter((kernel) =>
                /^(batch_layers|attention|quantized|coopmat_(?!repack))/.test(kernel)
              );
              assert(layers.length === 1, `${what}: ${[...kernels].join(" ")}`);
              assertMatch(layers[0], /^batch_layers/);
              for (let run = 0; run < (concurrent ? 10 : 1); run++) {
                using _mode = withOptions({ launchMode: concurrent ? "persistent" : "barriers" });
                assertSame(await steps(model, batch, batch.dtype, [sequence], { row }), found!, `${what}, run ${run}`);
              }
              const alone = await steps(plain.model, batch, float32, [sequence], { regions: "off", row });
              assertAgrees(found!, alone, batch, sequence, what);
            }
          }
          plain.model[Symbol.dispose]();
          model[Symbol.dispose]();
        } finally {
          await Deno.remove(dir, { recursive: true });
        }
      },
    });
  }

  // Shapes whose chunks at all positions have 16 rows together at most.
  for (const name of ["two, a head of their own", "five, three heads a key head, over one round and at its ends"]) {
    const batch = CHUNKS[name];
    Deno.test(`chunks of several sequences agree with each op by op: ${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      using _options = withOptions({ regions: "on", batched: "on", launchMode: "barriers" });
      const dir = await Deno.makeTempDir();
      try {
        await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize, bits: batch.bits });
        const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: batch.dtype });
        const plain = await mx.lm.load(`${dir}/model`, { device, dtype: float32 });
        const all = [...batch.positions.keys()];
        let found: Found | undefined;
        const kernels = await kernelsOf(device, async () => {
          found = await steps(model, batch, batch.dtype, all);
        });
        const layers = [...kernels].filter((kernel) => /^(batch_layers|attention|coopmat_(?!repack))/.test(kernel));
        assert(layers.length === 1 && layers[0].startsWith("batch_layers"), [...kernels].join(" "));
        for (const sequence of all) {
          const alone = await steps(plain.model, batch, float32, [sequence], { regions: "off" });
          assertAgrees(ofSequence(found!, sequence, all.length), alone, batch, sequence, `sequence ${sequence}`);
        }
        plain.model[Symbol.dispose]();
        model[Symbol.dispose]();
      } finally {
        await Deno.remove(dir, { recursive: true });
      }
    });
  }
}
