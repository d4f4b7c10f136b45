/**
 * Several sequences in one fused step. Logits and caches must agree with each sequence alone, op by op in float32. They must equal those of
 * the same sequence in other company and at another place bit for bit. Each sequence has its own position, and the shapes fill no unit of
 * the kernels.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { KV_CODES } from "../../../src/graph/kv_codes.ts";
import { batchedUnsupportedReason } from "../../../src/schedule/decoder/emit_batched.ts";
import { type DecoderSpec, MAX_SEQUENCES } from "../../../src/schedule/decoder/spec.ts";
import { H200 } from "../../../src/schedule/tuning/h200.ts";
import {
  assertAgrees,
  assertSame,
  type Batch,
  type Found,
  LIMITS,
  ofSequence,
  shapeOf,
  steps,
} from "../../support/models/decode_steps.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { PLAIN_NORMS, uniformFormats } from "../../support/devices/kernel_choices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { withOptions } from "../../../scripts/support/options.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const { float16, bfloat16, float32 } = mx;

const BATCHES: Readonly<Record<string, Batch>> = {
  "three of two layers and a head of their own": {
    shape: { ...shapeOf(256, 448, 4, 2, 64), layers: 2, tied: false },
    groupSize: 32,
    dtype: float16,
    capacity: 64,
    positions: [31, 62, 0],
  },
  "nine, three heads a key head, positions of several rounds": {
    shape: shapeOf(128, 128, 6, 2, 32),
    groupSize: 32,
    dtype: float32,
    capacity: 800,
    positions: [0, 1, 255, 256, 257, 767, 31, 32, 798],
  },
  "two of wide heads": {
    shape: shapeOf(1024, 256, 2, 1, 128),
    groupSize: 128,
    dtype: bfloat16,
    capacity: 300,
    positions: [260, 17],
  },
  "sixteen, a head a key head": {
    shape: shapeOf(128, 192, 2, 2, 64),
    groupSize: 64,
    dtype: float16,
    capacity: 40,
    positions: Array.from({ length: 16 }, (_, i) => i * 7 % 39),
  },
  "eight, four heads a key head of 16": {
    shape: shapeOf(128, 64, 4, 1, 16),
    groupSize: 32,
    dtype: float16,
    capacity: 70,
    positions: [0, 1, 2, 3, 15, 16, 63, 64],
  },
  "four behind long contexts": {
    shape: shapeOf(128, 128, 4, 2, 64),
    groupSize: 64,
    dtype: float16,
    capacity: 4000,
    positions: [3998, 1536, 2047, 5],
  },
  "four of a Llama with gelu, seven heads a key head": {
    shape: { ...shapeOf(128, 128, 7, 1, 64), family: "llama", config: { hidden_act: "gelu" } },
    groupSize: 32,
    dtype: bfloat16,
    capacity: 300,
    positions: [260, 17, 0, 298],
  },
  "nine of a Qwen2.5 of two layers with tanh gelu": {
    shape: { ...shapeOf(128, 64, 4, 2, 16), layers: 2, family: "qwen2", config: { hidden_act: "gelu_pytorch_tanh" } },
    groupSize: 32,
    dtype: float32,
    capacity: 40,
    positions: Array.from({ length: 9 }, (_, i) => i * 5 % 39),
  },
  "three of a wide residual": {
    shape: { ...shapeOf(1152, 128, 2, 1, 64), layers: 2 },
    groupSize: 64,
    dtype: float16,
    capacity: 40,
    positions: [31, 7, 0],
  },
  "eight of a wide residual of float32": {
    shape: shapeOf(1664, 192, 4, 2, 32),
    groupSize: 32,
    dtype: float32,
    capacity: 40,
    positions: Array.from({ length: 8 }, (_, i) => i * 5 % 39),
  },
  "three of 8 bits with a head of their own": {
    shape: { ...shapeOf(256, 448, 4, 2, 64), layers: 2, tied: false },
    groupSize: 32,
    bits: 8,
    dtype: float16,
    capacity: 64,
    positions: [31, 62, 0],
  },
  "eight of 8 bits of a wide residual": {
    shape: shapeOf(1664, 192, 4, 2, 32),
    groupSize: 64,
    bits: 8,
    dtype: float32,
    capacity: 40,
    positions: Array.from({ length: 8 }, (_, i) => i * 5 % 39),
  },
  "two of 6 bits of a residual of three steps to a warp": {
    shape: shapeOf(1152, 640, 2, 1, 64),
    groupSize: 128,
    bits: 6,
    dtype: bfloat16,
    capacity: 40,
    positions: [31, 7],
  },
  "three of dense bfloat16 with a head of their own": {
    shape: { ...shapeOf(512, 512, 8, 4, 64), layers: 2, tied: false },
    groupSize: 32,
    bits: 16,
    dtype: bfloat16,
    capacity: 64,
    positions: [31, 62, 0],
  },
  "eight of dense weights of a wide residual with biases": {
    shape: { ...shapeOf(1536, 1024, 8, 2, 64), family: "qwen2" },
    groupSize: 32,
    bits: 16,
    dtype: float16,
    capacity: 40,
    positions: Array.from({ length: 8 }, (_, i) => i * 5 % 39),
  },
  "seven of a large model's sizes in 16 bits": {
    shape: { ...shapeOf(4096, 12288, 32, 8, 128), layers: 2 },
    groupSize: 32,
    bits: 16,
    dtype: float16,
    capacity: 600,
    positions: Array.from({ length: 7 }, (_, i) => i * 331 % 598),
    large: true,
  },
  "seven of a large model's sizes in 8 bits": {
    shape: { ...shapeOf(4096, 12288, 32, 8, 128), layers: 2 },
    groupSize: 64,
    bits: 8,
    dtype: float16,
    capacity: 600,
    positions: Array.from({ length: 7 }, (_, i) => i * 331 % 598),
    large: true,
  },
  "seven of a large model's sizes": {
    shape: { ...shapeOf(4096, 12288, 32, 8, 128), layers: 2 },
    groupSize: 128,
    dtype: float16,
    capacity: 600,
    positions: Array.from({ length: 7 }, (_, i) => i * 331 % 598),
    large: true,
  },
  "seven of the most features": {
    shape: { ...shapeOf(5120, 17408, 40, 8, 128), layers: 2 },
    groupSize: 64,
    dtype: float16,
    capacity: 600,
    positions: Array.from({ length: 7 }, (_, i) => i * 331 % 598),
    large: true,
  },
  "eight of many features": {
    shape: shapeOf(2048, 768, 16, 8, 128),
    groupSize: 128,
    dtype: float16,
    capacity: 600,
    positions: [511, 512, 513, 0, 1, 100, 597, 598],
    large: true,
  },
  "sixteen of a model's sizes": {
    shape: { ...shapeOf(1024, 3072, 16, 8, 128), layers: 3 },
    groupSize: 128,
    dtype: bfloat16,
    capacity: 1024,
    positions: Array.from({ length: 16 }, (_, i) => i * 331 % 1023),
    large: true,
  },
};

/** The same for prefill GEMMs, between which attention rounds to the dtype; op by op they are 1.2e-4 for bfloat16. */
const PRODUCT_LIMITS: typeof LIMITS = LIMITS.map((
  [dtype, logits, rows],
) => [dtype, logits, Math.max(rows, logits / 2)]);

/** Groups in which sequences go with others, at other places, twice, or with fewer: pipelines of a few more take their time. */
function companies(count: number): readonly (readonly number[])[] {
  const all = Array.from({ length: count }, (_, i) => i);
  const fewer = count === 3 ? [[0, 2]] : [];
  return [all.toReversed(), [count - 1, ...all.slice(1, -1), count - 1], ...fewer];
}

/** Batches that no kernels of several sequences serve: they go through the products of prompts as rows. */
const PRODUCTS: Readonly<Record<string, Batch>> = {
  "two of two layers": {
    shape: { ...shapeOf(256, 448, 4, 2, 64), layers: 2, tied: false },
    groupSize: 32,
    dtype: bfloat16,
    capacity: 64,
    positions: [62, 0],
  },
  "seventeen of a Qwen2.5 with tanh gelu": {
    shape: { ...shapeOf(128, 64, 4, 2, 16), layers: 2, family: "qwen2", config: { hidden_act: "gelu_pytorch_tanh" } },
    groupSize: 64,
    dtype: float32,
    capacity: 40,
    positions: Array.from({ length: 17 }, (_, i) => i * 5 % 39),
  },
  "thirty-three of heads of 128, behind contexts of all lengths": {
    shape: shapeOf(256, 128, 4, 2, 128),
    groupSize: 128,
    dtype: float16,
    capacity: 700,
    positions: Array.from({ length: 33 }, (_, i) => i * 331 % 698),
  },
  "sixty-four of a model's sizes": {
    shape: { ...shapeOf(4096, 12288, 32, 8, 128), layers: 2 },
    groupSize: 128,
    dtype: float16,
    capacity: 1024,
    positions: Array.from({ length: 64 }, (_, i) => i * 331 % 1022),
    large: true,
  },
};

for (const device of DEVICES) {
  const matrices = hasMatrices(device) ? "auto" : "emulated";
  for (const [name, batch] of Object.entries(PRODUCTS)) {
    // Devices with matrices give little work to a grid of the kernels of one, as far as that goes.
    const count = batch.positions.length;
    const few = count <= MAX_SEQUENCES && count * batch.shape.hidden < H200.decode.minProductFeatures;
    Deno.test({
      name: `sequences that use the prefill GEMMs agree with themselves alone: ${name} on ${device}`,
      ignore: matrices === "emulated" ? batch.large : few,
      fn: async () => {
        mx.setDefaultDevice(device);
        using _options = withOptions({ regions: "on", batched: "off", matrices });
        const dir = await Deno.makeTempDir();
        try {
          await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize, bits: batch.bits });
          const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: batch.dtype });
          const count = batch.positions.length;
          const all = batch.positions.map((_, i) => i);
          let together: Found | undefined;
          const kernels = await kernelsOf(device, async () => {
            together = await steps(model, batch, batch.dtype, all);
          });
          assert([...kernels].some((kernel) => kernel.startsWith("coopmat_qkv")), [...kernels].join(" "));
          const turned = await steps(model, batch, batch.dtype, all.toReversed());
          for (const i of all) {
            const [mine, other] = [ofSequence(together!, i, count), ofSequence(turned, count - 1 - i, count)];
            assertSame(other, mine, `sequence ${i} at another place`);
          }
          const plain = await mx.lm.load(`${dir}/model`, { device, dtype: float32 });
          for (const i of all) {
            const alone = await steps(plain.model, batch, float32, [i], { regions: "off" });
            assertAgrees(ofSequence(together!, i, count), alone, batch, i, `sequence ${i}`, PRODUCT_LIMITS);
          }
          plain.model[Symbol.dispose]();
          model[Symbol.dispose]();
        } finally {
          await Deno.remove(dir, { recursive: true });
        }
      },
    });
  }

  const { concurrent } = mx.withDevice(device, getBackend).limits;
  for (const [name, batch] of Object.entries(BATCHES)) {
    Deno.test({
      name: `sequences of a batch agree with themselves alone: ${name} on ${device}`,
      ignore: batch.large && !concurrent,
      fn: async () => {
        mx.setDefaultDevice(device);
        using _options = withOptions({ regions: "on", batched: "on", launchMode: "barriers" });
        const dir = await Deno.makeTempDir();
        try {
          await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize, bits: batch.bits });
          const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: batch.dtype });
          const count = batch.positions.length;
          const all = batch.positions.map((_, i) => i);
          let together: Found | undefined;
          const kernels = await kernelsOf(device, async () => {
            together = await steps(model, batch, batch.dtype, all);
          });
          assert([...kernels].some((kernel) => kernel.startsWith("batch_layers")), [...kernels].join(" "));
          using _mode = withOptions({ launchMode: concurrent ? "persistent" : "barriers" });
          if (concurrent) {
            for (let i = 0; i < 20; i++) {
              assertSame(await steps(model, batch, batch.dtype, all), together!, `in one dispatch, run ${i}`);
            }
          }
          if (count === 3) { // as when another sequence is long
            const found = await steps(model, batch, batch.dtype, all, { capacity: 600 });
            found.logits.forEach((logits, step) => assertEquals(logits, together!.logits[step], `step ${step}`));
          }
          for (const which of companies(count)) {
            const found = await steps(model, batch, batch.dtype, which);
            which.forEach((i, at) => {
              const mine = ofSequence(together!, i, count);
              assertSame(ofSequence(found, at, which.length), mine, `sequence ${i} among ${which}`);
            });
          }
          const plain = await mx.lm.load(`${dir}/model`, { device, dtype: float32 });
          for (const i of all) {
            const alone = await steps(plain.model, batch, float32, [i], { regions: "off" });
            assertAgrees(ofSequence(together!, i, count), alone, batch, i, `sequence ${i}`);
          }
          plain.model[Symbol.dispose]();
          model[Symbol.dispose]();
        } finally {
          await Deno.remove(dir, { recursive: true });
        }
      },
    });
  }
}

for (const device of DEVICES) {
  Deno.test(`sequences that the kernels of several do not serve have a reason on ${device}`, () => {
    const backend = mx.withDevice(device, getBackend);
    using _options = withOptions({ batched: "on" });
    const served = { hidden: 1024, intermediate: 3072, heads: 16, kvHeads: 8, headDim: 128, groupSize: 128, bits: 4 };
    const reason = (
      sizes: Partial<typeof served>,
      sequences = 8,
      dtype: mx.Dtype = float16,
      mode: "persistent" | "barriers" = "persistent",
      chunk?: { readonly count: number; readonly capacity: number },
      activations: mx.Dtype = dtype,
    ): string | undefined => {
      const { groupSize, bits, ...rest } = { ...served, ...sizes };
      const { formats, head } = uniformFormats(bits, groupSize);
      const layers = [{ keys: { dtype }, formats }];
      const position = { shape: [chunk ? 1 : sequences] };
      const decoder = {
        sizes: rest,
        features: PLAIN_NORMS,
        out: { head },
        position,
        layers,
        x: { dtype: activations },
        chunk,
        cache: { kind: "contiguous", capacity: chunk?.capacity },
      };
      return batchedUnsupportedReason(backend, decoder as unknown as DecoderSpec, mode);
    };
    assertEquals([reason({}), reason({ hidden: 512 }, 16, bfloat16)], [undefined, undefined]);
    assertMatch(reason({}, 17)!, /17 sequences/);
    assertEquals(reason({ bits: 8 }), undefined);
    assertMatch(reason({ bits: 8 }, 9)!, /9 sequences of 8 bits are more than 8/);
    assertEquals(reason({ bits: 16 }), undefined);
    assertMatch(reason({ bits: 16 }, 9)!, /9 sequences of 16 bits are more than 8/);
    assertMatch(reason({ hidden: 4096 }, 9)!, /4096 hidden features/);
    assertEquals(reason({ hidden: 5120 }), undefined);
    assertMatch(reason({ hidden: 5120, bits: 8 })!, /5120 hidden features of 8 bits are more than 4096/);
    assertMatch(reason({ intermediate: 3040 })!, /3040/);
    assertMatch(reason({ heads: 10, kvHeads: 1, headDim: 64 })!, /10 heads/);
    assertMatch(reason({ headDim: 256 })!, /256/);
    assertEquals(reason({}, 2, float16, "barriers"), undefined);
    const ofChunk = (count: number, capacity: number, sizes: Partial<typeof served> = {}): string | undefined =>
      reason(sizes, 1, float16, "barriers", { count, capacity });
    assertEquals([ofChunk(2, 256), ofChunk(16, 8192)], [undefined, undefined]);
    assertMatch(ofChunk(17, 256)!, /17 tokens of a sequence are more/);
    assertMatch(ofChunk(9, 256, { hidden: 4096 })!, /9 tokens of a sequence of 4096 hidden features/);
    using _off = withOptions({ batched: "off" });
    assertMatch(reason({})!, /off/);
    using _auto = withOptions({ batched: "auto" });
    assertMatch(reason({ bits: 16 }, 2, float32)!, /digits of float32/);
    assertEquals(reason({ bits: 16 }, 2, bfloat16, "barriers")?.match(/faster|digits/) ?? null, null);
    assertMatch(reason({ bits: 16 }, 2, KV_CODES, "barriers", undefined, float32)!, /digits of float32/);
    assertEquals(reason({ bits: 16 }, 2, KV_CODES, "barriers", undefined, bfloat16)?.match(/digits/) ?? null, null);
    assertMatch(ofChunk(2, 8192)!, /2 tokens of a sequence are faster that way after 8192 positions/);
    assertEquals(ofChunk(2, 4096)?.includes("faster") ?? false, false);
    for (const [mode, least] of [["persistent", 3], ["barriers", 6]] as const) {
      for (const count of [2, 3, 5, 6, 16]) {
        const faster = reason({ hidden: 512 }, count, float16, mode)?.includes(`${count} sequences are faster`);
        assertEquals(faster ?? false, count < least, `${count}, ${mode}`);
      }
    }
  });
}
