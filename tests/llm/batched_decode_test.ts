/**
 * Several sequences in one fused step: logits and caches against each sequence alone, op by op in float32, and bit for bit against
 * the same sequence in other company and at another place; at positions of their own, for shapes that fill no unit of the kernels.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import * as mx from "../../mod.ts";
import { type ModelShape, writeModel } from "../../scripts/synthetic.ts";
import { DeviceLoop } from "../../src/array/loop.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { StepCache } from "../../src/llm/kv_cache.ts";
import type { LanguageModel } from "../../src/llm/models/mod.ts";
import { batchUnsupportedReason } from "../../src/schedule/decoder/emit_batched.ts";
import { LEAST_FEATURES } from "../../src/schedule/decoder/emit_prefill.ts";
import { type DecoderSpec, MOST_SEQUENCES } from "../../src/schedule/decoder/spec.ts";
import type { options } from "../../src/schedule/plan/options.ts";
import { testDevices } from "../support/devices.ts";
import { kernelsOf } from "../support/harness.ts";
import { hasMatrices } from "../support/matrices.ts";
import { withOptions } from "../support/options.ts";
import { nmse } from "../support/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** A model, the dtype of its activations and caches, and the positions of sequences in caches of `capacity` rows. */
interface Batch {
  readonly shape: ModelShape;
  readonly groupSize: number;
  readonly dtype: mx.Dtype;
  readonly capacity: number;
  readonly positions: readonly number[];
  /** Too large for software devices. */
  readonly large?: boolean;
}

const VOCAB = 4099;
/** Sizes of heads and of the feed-forward part; one layer and a vocabulary that is no multiple of anything. */
const shapeOf = (
  hidden: number,
  intermediate: number,
  heads: number,
  kvHeads: number,
  headDim: number,
): ModelShape => ({
  hidden,
  intermediate,
  layers: 1,
  heads,
  kvHeads,
  headDim,
  tied: true,
  vocab: VOCAB,
});
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
  "seven of a large model's sizes": {
    shape: { ...shapeOf(4096, 12288, 32, 8, 128), layers: 2 },
    groupSize: 128,
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

/** Positions that one step feeds behind another. */
const STEPS = 2;
/** NMSE of logits, and of keys and values of new tokens, which are rounded to the dtype of the cache. */
const LIMITS: readonly (readonly [mx.Dtype, number, number])[] = [
  [float32, 1e-5, 1e-5],
  [float16, 1e-5, 1e-5],
  [bfloat16, 2e-4, 2e-5],
];

/** The same where they are rows of products, between which attention rounds to the dtype; op by op they are 1.2e-4 for bfloat16. */
const PRODUCT_LIMITS: typeof LIMITS = LIMITS.map((
  [dtype, logits, rows],
) => [dtype, logits, Math.max(rows, logits / 2)]);

/** Logits of some sequences after each step, and their caches at the end. */
interface Found {
  readonly logits: readonly Float32Array[];
  readonly caches: readonly { readonly values: Float32Array; readonly block: number }[];
}

/**
 * Feeds tokens to some of the sequences behind caches of random rows. A sequence's numbers, rounded to the batch's dtype, do not
 * depend on which others there are. The caches are laid out for fused kernels, even where `regions` are off.
 */
async function steps(
  model: LanguageModel,
  batch: Batch,
  dtype: mx.Dtype,
  which: readonly number[],
  { regions = "on", capacity = batch.capacity }: { regions?: typeof options.regions; capacity?: number } = {},
): Promise<Found> {
  const { shape: { layers, vocab } } = batch;
  const cache = model.makeCache();
  cache.reserve(1);
  const random = (side: readonly mx.Tensor[], seed: number): mx.Tensor[] =>
    side.map(({ shape }, layer) =>
      mx.tidy(() => {
        const sizes = shape.map((size, axis) => axis === 3 ? batch.capacity : size);
        const of = (i: number): mx.Tensor =>
          mx.random.normal(sizes, mx.float32, 0, 1, mx.random.key(100 * i + 2 * layer + seed));
        const rows = mx.concatenate(which.map(of), 0).astype(batch.dtype).astype(dtype);
        const more = rows.shape.map((size, axis) => axis === 3 ? capacity - batch.capacity : size);
        return capacity === batch.capacity ? rows : mx.concatenate([rows, mx.zeros(more, dtype)], 3);
      })
    );
  const state = {
    token: mx.array(which.map((i) => [100 * i + 5]), mx.int32),
    position: mx.array(which.map((i) => batch.positions[i]), mx.int32),
    logits: mx.zeros([which.length, vocab]),
    keys: random(cache.keys, 0),
    values: random(cache.values, 1),
  };
  assertEquals(state.keys.length, layers);
  cache.dispose();
  mx.eval(...state.keys, ...state.values);
  using _options = withOptions({ regions });
  const loop = new DeviceLoop(state, ({ token, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([which.length, -1]).astype(mx.float32);
    return {
      token: mx.add(token, 7),
      position: mx.add(position, 1),
      logits,
      keys: step.keys,
      values: step.values,
    };
  });
  const floats = (t: mx.Tensor): Float32Array =>
    mx.tidy(() => Float32Array.from(t.astype(mx.float32).toTypedArray() as Float32Array));
  const logits: Float32Array[] = [];
  for (let i = 0; i < STEPS; i++) {
    loop.run();
    await loop.done();
    logits.push(floats(state.logits));
  }
  const caches = [...state.keys, ...state.values].map((t) => ({ values: floats(t), block: t.shape[4] }));
  loop[Symbol.dispose]();
  mx.dispose([state.token, state.position, state.logits, ...state.keys, ...state.values]);
  return { logits, caches };
}

/** What a sequence at place `at` of `count` has. */
function ofSequence({ logits, caches }: Found, at: number, count: number): Found {
  const part = (x: Float32Array): Float32Array => x.subarray(at * x.length / count, (at + 1) * x.length / count);
  return { logits: logits.map(part), caches: caches.map(({ values, block }) => ({ values: part(values), block })) };
}

/** Compares a sequence with itself alone: logits and new rows closely, all other rows of the caches bit by bit. */
function assertAgrees(
  found: Found,
  alone: Found,
  batch: Batch,
  sequence: number,
  what: string,
  limits = LIMITS,
): void {
  const [, most, mostOfRows] = limits.find(([dtype]) => dtype === batch.dtype)!;
  found.logits.forEach((logits, step) => {
    const error = nmse(logits, alone.logits[step]);
    assert(error <= most, `${what}: NMSE ${error} of the logits of step ${step}`);
  });
  const first = batch.positions[sequence];
  found.caches.forEach(({ values, block }, n) => {
    const isNew = (_: number, at: number): boolean => {
      const row = Math.floor(at / block) % batch.capacity;
      return row >= first && row < first + STEPS;
    };
    const expected = alone.caches[n].values;
    const error = nmse(values.filter(isNew), expected.filter(isNew));
    assert(error <= mostOfRows, `${what}: NMSE ${error} of the new rows of cache ${n}`);
    const changed = values.findIndex((x, at) => x !== expected[at] && !isNew(x, at));
    assert(changed < 0, `${what}: element ${changed} of cache ${n} was overwritten`);
  });
}

function assertSame(found: Found, expected: Found, what: string): void {
  const all = ({ logits, caches }: Found): Float32Array[] => [...logits, ...caches.map(({ values }) => values)];
  all(found).forEach((values, n) => {
    const other = all(expected)[n];
    const first = values.findIndex((x, at) => x !== other[at]);
    assert(first < 0, `${what}, result ${n}: ${values[first]} at ${first}, expected ${other[first]}`);
  });
}

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
    const few = count <= MOST_SEQUENCES && count * batch.shape.hidden < LEAST_FEATURES;
    Deno.test({
      name: `sequences that are rows of products agree with themselves alone: ${name} on ${device}`,
      ignore: matrices === "emulated" ? batch.large : few,
      fn: async () => {
        mx.setDefaultDevice(device);
        using _options = withOptions({ regions: "on", batch: "off", matrices });
        const dir = await Deno.makeTempDir();
        try {
          await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize });
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
        using _options = withOptions({ regions: "on", batch: "on", fast: "barriers" });
        const dir = await Deno.makeTempDir();
        try {
          await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize });
          const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: batch.dtype });
          const count = batch.positions.length;
          const all = batch.positions.map((_, i) => i);
          let together: Found | undefined;
          const kernels = await kernelsOf(device, async () => {
            together = await steps(model, batch, batch.dtype, all);
          });
          assert([...kernels].some((kernel) => kernel.startsWith("batch_layers")), [...kernels].join(" "));
          using _form = withOptions({ fast: concurrent ? "whole" : "barriers" });
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
    using _options = withOptions({ batch: "on" });
    const served = { hidden: 1024, intermediate: 3072, heads: 16, kvHeads: 8, headDim: 128, groupSize: 128, bits: 4 };
    const reason = (
      sizes: Partial<typeof served>,
      sequences = 8,
      dtype: mx.Dtype = float16,
      form: "whole" | "barriers" = "whole",
    ): string | undefined => {
      const layers = [{ keys: { dtype } }];
      const decoder = { sizes: { ...served, ...sizes }, position: { shape: [sequences] }, layers };
      return batchUnsupportedReason(backend, decoder as unknown as DecoderSpec, form);
    };
    assertEquals([reason({}), reason({ hidden: 512 }, 16, bfloat16)], [undefined, undefined]);
    assertMatch(reason({}, 17)!, /17 sequences/);
    assertMatch(reason({ bits: 8 })!, /8 bits/);
    assertMatch(reason({ hidden: 4096 }, 9)!, /4096 hidden features/);
    assertMatch(reason({ intermediate: 3040 })!, /3040/);
    assertMatch(reason({ heads: 10, kvHeads: 1, headDim: 64 })!, /10 heads/);
    assertMatch(reason({ headDim: 256 })!, /256/);
    assertEquals(reason({}, 2, float16, "barriers"), undefined);
    using _off = withOptions({ batch: "off" });
    assertMatch(reason({})!, /off/);
    using _auto = withOptions({ batch: "auto" });
    for (const [form, least] of [["whole", 3], ["barriers", 6]] as const) {
      for (const count of [2, 3, 5, 6, 16]) {
        const faster = reason({ hidden: 512 }, count, float16, form)?.includes(`${count} sequences are faster`);
        assertEquals(faster ?? false, count < least, `${count}, ${form}`);
      }
    }
  });
}
