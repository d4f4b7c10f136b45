/**
 * Fused decoding against the same graph op by op: tokens, logits and the cache must agree for every kind of sums, other sizes
 * than the embedded model's, and caches that threads walk in several rounds; and what does not fit must say so and still be
 * right. On software devices the regions are off by default, so they are switched on here.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { type ModelShape, writeModel } from "../scripts/synthetic.ts";
import { Loop } from "../src/array/loop.ts";
import { getBackend } from "../src/backend/devices.ts";
import { type KvCache, StepCache } from "../src/llm/kv_cache.ts";
import type { LanguageModel } from "../src/llm/models/mod.ts";
import { options } from "../src/schedule/options.ts";
import { testDevices } from "./devices.ts";
import { GOLDEN, TINY_DIR } from "./models.ts";
import { nmse } from "./oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const SUMS = ["u64", "i32", "f32"] as const;
/** Tokens of a golden continuation that a test compares. */
const SOME = 12;

/** Runs with regions on or off, and one kind of sums. */
async function decoding<T>(regions: "on" | "off", sums: typeof SUMS[number], body: () => T | Promise<T>): Promise<T> {
  const before = { ...options };
  Object.assign(options, { regions, sums });
  try {
    return await body();
  } finally {
    Object.assign(options, before);
  }
}

/** Kernels that `body` ran. */
async function kernelsOf(device: string, body: () => Promise<void>): Promise<string[]> {
  const { kernels } = await mx.profile(body, { device, timed: false });
  return kernels.map(({ kernel }) => kernel);
}

/** Logits of a few greedy steps behind a cache of random rows, and the rows of the cache afterwards. */
async function steps(
  model: LanguageModel,
  shape: ModelShape,
  context: number,
  count: number,
): Promise<{ logits: number[]; cache: number[] }> {
  const cache: KvCache = model.makeCache();
  mx.tidy(() => {
    cache.begin(context);
    for (let layer = 0; layer < shape.layers; layer++) {
      const rows = (seed: number): mx.Tensor =>
        mx.random.normal([1, shape.kvHeads, context, shape.headDim], mx.float32, 0, 1, mx.random.key(seed));
      cache.update(layer, rows(2 * layer), rows(2 * layer + 1));
    }
    mx.eval(...cache.state);
  });
  cache.reserve(count);
  const state = {
    token: mx.array([[11]], mx.int32),
    position: mx.array([cache.offset], mx.int32),
    logits: mx.zeros([1, model.config.vocabSize]),
    keys: cache.keys,
    values: cache.values,
  };
  const loop = new Loop(state, ({ token, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([1, -1]).astype(mx.float32);
    return {
      token: mx.argmax(logits, -1).astype(mx.int32).reshape([1, 1]),
      position: mx.add(position, 1),
      logits,
      keys: step.keys,
      values: step.values,
    };
  });
  const logits: number[] = [];
  for (let i = 0; i < count; i++) {
    loop.run();
    await loop.done();
    logits.push(...state.logits.toTypedArray() as Float32Array);
  }
  cache.advance(count);
  const rows: number[] = [];
  for (const buffer of cache.state) {
    const [B, H, blocks, T, block] = buffer.shape;
    const plain = mx.tidy(() =>
      buffer.transpose(0, 1, 3, 2, 4).reshape([B, H, T, blocks * block]).index(
        "...",
        mx.Slice(0, cache.offset),
        mx.Slice(null),
      ).astype(mx.float32)
    );
    for (const x of plain.toTypedArray() as Float32Array) rows.push(x);
    plain[Symbol.dispose]();
  }
  loop[Symbol.dispose]();
  mx.dispose([state.token, state.position, state.logits]);
  cache.dispose();
  return { logits, cache: rows };
}

for (const device of DEVICES) {
  for (const sums of SUMS) {
    Deno.test(`fused decoding with ${sums} sums gives the reference continuations on ${device}`, async () => {
      const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
      await decoding("on", sums, async () => {
        const kernels = await kernelsOf(device, async () => {
          for (const { prompt, greedy } of sums === "u64" ? GOLDEN : GOLDEN.slice(0, 1)) {
            const found: number[] = [];
            const most = Math.min(SOME, greedy.length);
            for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: most })) {
              found.push(r.token);
            }
            assertEquals(found, greedy.slice(0, most));
          }
        });
        for (const phase of ["qkv", "attend", "mlp", "head"]) {
          assert(kernels.includes(`decode_${phase}_${sums}`), String(kernels));
        }
      });
      model[Symbol.dispose]();
    });
  }

  const vocab = 4099; // the last four rows of the head are not whole
  const shapes: readonly (readonly [string, ModelShape, 32 | 64 | 128, "BF16" | "F16", mx.Dtype, number])[] = [
    [
      "3 heads to a key head, groups of 32",
      { hidden: 128, intermediate: 96, layers: 2, heads: 6, kvHeads: 2, headDim: 32, tied: true, vocab },
      32,
      "F16",
      mx.float16,
      5,
    ],
    [
      "one head to a key head, groups of 64",
      { hidden: 256, intermediate: 192, layers: 2, heads: 2, kvHeads: 2, headDim: 64, tied: false, vocab },
      64,
      "BF16",
      mx.bfloat16,
      3,
    ],
    [
      "4 heads to a key head, several rounds",
      { hidden: 1280, intermediate: 640, layers: 1, heads: 4, kvHeads: 1, headDim: 128, tied: true, vocab },
      128,
      "BF16",
      mx.float32,
      1100,
    ],
    [
      "a cache of two positions to a thread",
      { hidden: 128, intermediate: 128, layers: 1, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab },
      64,
      "F16",
      mx.float16,
      400,
    ],
  ];
  for (const [name, shape, groupSize, dtype, activations, context] of shapes) {
    Deno.test(`fused decoding equals op by op with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, shape, { groupSize, dtype });
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: activations });
      mx.setDefaultDevice(device);
      const expected = await decoding("off", "u64", () => steps(model, shape, context, 2));
      for (const sums of SUMS) {
        const found = await decoding("on", sums, () => steps(model, shape, context, 2));
        const limit = activations === mx.float32 ? 1e-6 : activations === mx.float16 ? 1e-5 : 5e-4;
        for (const what of ["logits", "cache"] as const) {
          const error = nmse(found[what], expected[what]);
          assert(error <= limit, `${sums} ${what}: NMSE ${error}`);
        }
      }
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`decoding what the kernels do not take is right all the same on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    const shape = { hidden: 128, intermediate: 128, layers: 1, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab };
    await writeModel(`${folder}/model`, shape, { bits: 8, groupSize: 64 });
    const { model } = await mx.lm.load(`${folder}/model`, { device });
    mx.setDefaultDevice(device);
    const expected = await decoding("off", "u64", () => steps(model, shape, 2, 2));
    const kernels = await kernelsOf(device, async () => {
      const found = await decoding("on", "u64", () => steps(model, shape, 2, 2));
      assertEquals(found, expected);
    });
    assert(!kernels.some((k) => k.startsWith("decode_")));
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });
}
