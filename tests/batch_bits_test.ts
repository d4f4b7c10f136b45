/**
 * Several sequences in one fused step against each of them alone: logits and caches must agree bit by bit, at positions of their
 * own, for shapes and numbers of sequences that fill no workgroup.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { type ModelShape, writeModel } from "../scripts/synthetic.ts";
import { Loop } from "../src/array/loop.ts";
import { getBackend } from "../src/backend/devices.ts";
import { StepCache } from "../src/llm/kv_cache.ts";
import type { LanguageModel } from "../src/llm/models/mod.ts";
import { options } from "../src/schedule/options.ts";
import { testDevices } from "./devices.ts";
import { kernelsOf } from "./harness.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** A model, and the positions of sequences in caches of `capacity` rows or more. */
interface Batch {
  readonly shape: ModelShape;
  readonly groupSize: number;
  readonly dtype: mx.Dtype;
  readonly capacity: number;
  readonly positions: readonly number[];
}

const VOCAB = 4099;
const BATCHES: Readonly<Record<string, Batch>> = {
  "three sequences, a ragged feed-forward part": {
    shape: { hidden: 256, intermediate: 416, layers: 2, heads: 4, kvHeads: 2, headDim: 64, tied: false, vocab: VOCAB },
    groupSize: 32,
    dtype: mx.float16,
    capacity: 64,
    positions: [31, 40, 0],
  },
  "nine sequences, three heads a key head, several positions a thread": {
    shape: { hidden: 128, intermediate: 128, layers: 1, heads: 3, kvHeads: 1, headDim: 32, tied: true, vocab: VOCAB },
    groupSize: 32,
    dtype: mx.float32,
    capacity: 800,
    positions: [0, 1, 255, 256, 257, 767, 31, 32, 777],
  },
  "two sequences of wide heads": {
    shape: { hidden: 1024, intermediate: 256, layers: 1, heads: 2, kvHeads: 1, headDim: 128, tied: true, vocab: VOCAB },
    groupSize: 128,
    dtype: mx.bfloat16,
    capacity: 300,
    positions: [260, 17],
  },
};

/** Logits of two greedy steps of some of the sequences behind caches of random rows, and the caches. */
async function steps(model: LanguageModel, batch: Batch, which: readonly number[]): Promise<Float32Array[]> {
  const { shape: { layers, vocab }, dtype, capacity } = batch;
  const cache = model.makeCache();
  cache.reserve(capacity);
  const random = (side: readonly mx.Tensor[], seed: number): mx.Tensor[] =>
    side.map(({ shape }, layer) =>
      mx.tidy(() => {
        const of = (i: number): mx.Tensor =>
          mx.random.normal(shape, mx.float32, 0, 1, mx.random.key(100 * i + 2 * layer + seed));
        return mx.concatenate(which.map(of), 0).astype(dtype);
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
  const loop = new Loop(state, ({ token, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([which.length, -1]).astype(mx.float32);
    return {
      token: mx.argmax(logits, -1).astype(mx.int32).reshape([which.length, 1]),
      position: mx.add(position, 1),
      logits,
      keys: step.keys,
      values: step.values,
    };
  });
  const found: Float32Array[] = [];
  const keep = (t: mx.Tensor): void => {
    found.push(mx.tidy(() => Float32Array.from(t.astype(mx.float32).toTypedArray() as Float32Array)));
  };
  for (let i = 0; i < 2; i++) {
    loop.run();
    await loop.done();
    keep(state.logits);
  }
  [...state.keys, ...state.values].forEach(keep);
  loop[Symbol.dispose]();
  mx.dispose([state.token, state.position, state.logits, ...state.keys, ...state.values]);
  return found;
}

for (const device of DEVICES) {
  for (const [name, batch] of Object.entries(BATCHES)) {
    Deno.test(`a sequence of a batch gets its own bits: ${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const before = { ...options };
      Object.assign(options, { regions: "on", fast: "barriers" });
      const dir = await Deno.makeTempDir();
      try {
        await writeModel(`${dir}/model`, batch.shape, { groupSize: batch.groupSize });
        const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: batch.dtype });
        let together: Float32Array[] = [];
        const kernels = await kernelsOf(device, async () => {
          together = await steps(model, batch, batch.positions.map((_, i) => i));
        });
        assert([...kernels].some((kernel) => kernel.startsWith("batch_qkv")), [...kernels].join(" "));
        for (const i of batch.positions.keys()) {
          const alone = await steps(model, batch, [i]);
          alone.forEach((values, n) => {
            const mine = together[n].subarray(i * values.length, (i + 1) * values.length);
            const first = values.findIndex((x, at) => x !== mine[at]);
            assert(first < 0, `sequence ${i}, result ${n}: ${mine[first]} at ${first}, alone ${values[first]}`);
          });
        }
        model[Symbol.dispose]();
      } finally {
        Object.assign(options, before);
        await Deno.remove(dir, { recursive: true });
      }
    });
  }
}
