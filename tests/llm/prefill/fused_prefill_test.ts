/**
 * Prompts through fused layers against the same graphs op by op. They have every number of rows that tiles treat
 * differently, prefixes in the cache, and both cache layouts. The host or the device knows the positions, and models
 * have several sizes. A device without cooperative matrices emulates them, for few rows.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import type { KvCache } from "../../../src/llm/kv/cache.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { profile } from "../../../src/schedule/plan/profile.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
const HAVE = new Map(DEVICES.map((name) => [name, hasMatrices(name)]));

/** Runs with regions on or off; gives the result and how often each kernel ran. */
async function run<T>(
  device: string,
  regions: "on" | "off",
  body: () => T | Promise<T>,
): Promise<{ result: T; calls: Map<string, number> }> {
  using _options = withOptions({ regions, matrices: HAVE.get(device) ? "auto" : "emulated" });
  let result: T;
  const { kernels } = await profile(async () => {
    result = await body();
  }, { device, timed: false });
  const calls = new Map<string, number>();
  for (const { kernel, calls: n } of kernels) calls.set(kernel, (calls.get(kernel) ?? 0) + n);
  return { result: result!, calls };
}

const ids = (count: number, vocab: number, seed = 7): mx.Tensor =>
  mx.array([Array.from({ length: count }, (_, i) => (i * 1237 + seed * 11) % vocab)], mx.int32);

function floats(x: mx.Tensor): Float32Array {
  return mx.tidy(() => x.astype(mx.float32)).toTypedArray() as Float32Array;
}

/** Rows of all layers that a cache holds, in plain order. */
function rowsOf(cache: KvCache): number[] {
  const rows: number[] = [];
  for (const buffer of cache.state) {
    const [B, H, blocks, T, block] = buffer.shape;
    const plain = mx.tidy(() =>
      buffer.transpose(0, 1, 3, 2, 4).reshape([B, H, T, blocks * block])
        .index("...", mx.Slice(0, cache.offset), mx.Slice(null)).astype(mx.float32)
    );
    for (const x of plain.toTypedArray() as Float32Array) rows.push(x);
    plain[Symbol.dispose]();
  }
  return rows;
}

/** Regions before attention that ran. */
function openings(calls: ReadonlyMap<string, number>): number {
  return [...calls].reduce((sum, [kernel, count]) => kernel.startsWith("coopmat_qkv") ? sum + count : sum, 0);
}

interface Found {
  readonly logits: Float32Array;
  readonly cache: number[];
}

/** Logits of the last chunk, and the cache; `count` 0 leaves a chunk's logits alone, as reading a prompt does. */
function chunks(model: LanguageModel, sizes: readonly number[], withLogits: boolean): Found {
  const cache = model.makeCache();
  let logits: Float32Array = new Float32Array();
  sizes.forEach((size, i) => {
    mx.tidy(() => {
      const out = model.forward(ids(size, model.config.vocabSize, i + 1), cache);
      if (withLogits && i === sizes.length - 1) {
        mx.eval(out, ...cache.state);
        logits = floats(out);
      } else mx.eval(...cache.state);
    });
  });
  const found = { logits, cache: rowsOf(cache) };
  cache.dispose();
  return found;
}

/** Two prompts of `count` rows, one after the other, through one traced step that asks for the logits of two rows. */
async function traced(model: LanguageModel, count: number): Promise<Found> {
  const cache = model.makeCache();
  mx.tidy(() => {
    cache.reserve(2 * count);
    mx.eval(...cache.state);
  });
  const state = {
    tokens: ids(count, model.config.vocabSize),
    position: mx.array([0], mx.int32),
    rows: mx.array([count - 1, 3], mx.int32),
    logits: mx.zeros([2, model.config.vocabSize]),
    keys: cache.keys,
    values: cache.values,
  };
  const loop = new DeviceLoop(state, ({ tokens, position, rows, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(tokens, step, rows).reshape([2, -1]).astype(mx.float32);
    const next = mx.remainder(mx.add(tokens, 5), model.config.vocabSize).astype(mx.int32);
    return { tokens: next, position: mx.add(position, count), rows, logits, keys: step.keys, values: step.values };
  });
  loop.run(2);
  await loop.done();
  cache.advance(2 * count);
  const found = { logits: floats(state.logits), cache: rowsOf(cache) };
  loop[Symbol.dispose]();
  mx.dispose([state.tokens, state.position, state.rows, state.logits]);
  cache.dispose();
  return found;
}

/** Parts of what a pass gives. */
const PARTS: Readonly<Record<string, (cache: KvCache, logits: mx.Tensor) => readonly mx.Tensor[]>> = {
  "keys": ({ keys }) => keys,
  "values": ({ values }) => values,
  "keys of the first layer": ({ keys }) => [keys[0]],
  "keys of the first layers and values of the last": ({ keys, values }) => [keys[0], keys[1], values[2]],
  "logits and values": ({ values }, logits) => [logits, ...values],
  "logits": (_, logits) => [logits],
};

/**
 * A part of what passes over prompts give, evaluated first and in one graph, and then all that their caches hold. Passes with equal
 * numbers follow each other in one cache.
 */
function asked(model: LanguageModel, passes: readonly number[], part: (typeof PARTS)[string]): number[] {
  const caches = [...new Set(passes)].map(() => model.makeCache());
  const first = mx.tidy(() => {
    const parts = passes.map((number, i) => {
      const logits = model.forward(ids(40, model.config.vocabSize, i + 1), caches[number]);
      return { cache: caches[number], logits };
    }).flatMap(({ cache, logits }) => part(cache, logits));
    mx.eval(...parts);
    return parts.flatMap((array) => array.ndim === 3 ? [...floats(array)] : []); // unwritten rows of buffers hold any value
  });
  const found = [...first, ...caches.flatMap(rowsOf)];
  for (const cache of caches) cache.dispose();
  return found;
}

function assertAlike(found: Found, expected: Found, limit: number, what: string): void {
  for (const part of ["logits", "cache"] as const) {
    assertEquals(found[part].length, expected[part].length);
    const error = found[part].length > 0 ? nmse(found[part], expected[part]) : 0;
    assert(error <= limit, `${what}, ${part}: NMSE ${error}`);
  }
}

interface Case {
  readonly name: string;
  readonly shape: ModelShape;
  readonly format: ModelFormat;
  readonly dtype: mx.Dtype;
  /** Sizes of chunks. */
  readonly chunks: readonly (readonly number[])[];
  readonly limit: number;
}

const vocab = 4096;
const CASES: readonly Case[] = [
  {
    name: "heads of 128, groups of 128, bfloat16",
    shape: { hidden: 128, intermediate: 128, layers: 2, heads: 4, kvHeads: 2, headDim: 128, tied: true, vocab },
    format: { groupSize: 128 },
    dtype: mx.bfloat16,
    chunks: [[17], [64], [70, 33], [16, 40]],
    limit: 5e-4,
  },
  {
    name: "heads of 64, groups of 64, float16",
    shape: { hidden: 256, intermediate: 192, layers: 2, heads: 6, kvHeads: 2, headDim: 64, tied: false, vocab },
    format: { groupSize: 64, dtype: "F16" },
    dtype: mx.float16,
    chunks: [[16], [31], [65, 130]],
    limit: 1e-5,
  },
  {
    name: "8 bits in groups of 32, float32",
    shape: { hidden: 192, intermediate: 320, layers: 2, heads: 3, kvHeads: 1, headDim: 64, tied: true, vocab },
    format: { bits: 8, groupSize: 32, dtype: "F16" },
    dtype: mx.float32,
    chunks: [[33], [20, 100]],
    limit: 1e-5,
  },
  {
    name: "float16 activations over bfloat16 weights",
    shape: { hidden: 192, intermediate: 128, layers: 2, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab },
    format: { groupSize: 64 },
    dtype: mx.float16,
    chunks: [[17], [40, 33]],
    limit: 1e-5,
  },
  {
    name: "bfloat16 activations over float16 weights",
    shape: { hidden: 192, intermediate: 128, layers: 2, heads: 2, kvHeads: 1, headDim: 64, tied: true, vocab },
    format: { groupSize: 64, dtype: "F16" },
    dtype: mx.bfloat16,
    chunks: [[17], [40, 33]],
    limit: 5e-4,
  },
  {
    name: "a Llama's heads of 64, float16",
    shape: {
      hidden: 256,
      intermediate: 192,
      layers: 2,
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      tied: true,
      vocab,
      family: "llama",
    },
    format: { groupSize: 64, dtype: "F16" },
    dtype: mx.float16,
    chunks: [[17], [65, 130]],
    limit: 1e-5,
  },
  {
    name: "a Llama's heads of 128 with gelu, 8 bits, float32",
    shape: {
      hidden: 256,
      intermediate: 320,
      layers: 2,
      heads: 2,
      kvHeads: 1,
      headDim: 128,
      tied: false,
      vocab,
      family: "llama",
      config: { hidden_act: "gelu" },
    },
    format: { bits: 8, groupSize: 64, dtype: "F16" },
    dtype: mx.float32,
    chunks: [[33], [20, 100]],
    limit: 1e-5,
  },
  {
    name: "a Qwen2.5's biases and seven heads a key head, bfloat16",
    shape: {
      hidden: 896,
      intermediate: 192,
      layers: 2,
      heads: 14,
      kvHeads: 2,
      headDim: 64,
      tied: true,
      vocab,
      family: "qwen2",
    },
    format: { groupSize: 64 },
    dtype: mx.bfloat16,
    chunks: [[17], [40, 33]],
    limit: 5e-4,
  },
  {
    name: "a Qwen2.5's biases with tanh gelu, float16",
    shape: {
      hidden: 256,
      intermediate: 128,
      layers: 2,
      heads: 2,
      kvHeads: 2,
      headDim: 64,
      tied: true,
      vocab,
      family: "qwen2",
      config: { hidden_act: "gelu_pytorch_tanh" },
    },
    format: { groupSize: 32, dtype: "F16" },
    dtype: mx.float16,
    chunks: [[16], [31], [70, 33]],
    limit: 1e-5,
  },
];
/** Numbers of rows around the sizes of all tiles. */
const MORE = [255, 257, 1025, 2048];

for (const device of DEVICES) {
  for (const { name, shape, format, dtype, chunks: sizes, limit } of CASES) {
    Deno.test({
      name: `fused prompts equal op by op with ${name} on ${device}`,
      fn: async () => {
        const folder = await Deno.makeTempDir();
        await writeModel(`${folder}/model`, shape, format);
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype });
        mx.setDefaultDevice(device);
        const lists = HAVE.get(device) ? [...sizes, ...MORE.map((n) => [n])] : sizes.slice(-1);
        for (const list of lists) {
          for (const withLogits of list.length > 1 || list[0] === 17 ? [true, false] : [true]) {
            const expected = await run(device, "off", () => chunks(model, list, withLogits));
            const found = await run(device, "on", () => chunks(model, list, withLogits));
            assertEquals(openings(expected.calls), 0);
            assertEquals(openings(found.calls), shape.layers * list.length, `openings of ${list}`);
            // Of the last layer, only what the cache needs if no logits are asked for.
            const asked = list.length * shape.layers - list.length + (withLogits ? 1 : 0);
            assertEquals(found.calls.get("add_norm"), 2 * asked + list.length, `norms of ${list}`);
            assertAlike(found.result, expected.result, limit, `${list} rows`);
          }
        }
        const expected = await run(device, "off", () => traced(model, 48));
        const found = await run(device, "on", () => traced(model, 48));
        assertEquals(openings(found.calls), 2 * shape.layers, "openings of two traced prompts");
        assertAlike(found.result, expected.result, limit, "traced");
        model[Symbol.dispose]();
        await Deno.remove(folder, { recursive: true });
      },
    });
  }

  Deno.test({
    name: `prompts of which only parts can be fused are right all the same on ${device}`,
    fn: async () => {
      const shape = { hidden: 256, intermediate: 192, layers: 3, heads: 4, kvHeads: 2, headDim: 64, tied: true, vocab };
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, shape, {
        groupSize: 64,
        dtype: "F16",
        overrides: {
          "model.layers.0.mlp.down_proj": { bits: 8, groupSize: 32 },
          "model.layers.0.mlp.up_proj": { bits: 4, groupSize: 32 }, // gate and up differ
          "model.layers.1.self_attn.v_proj": false, // no joint product
          "model.layers.2.mlp.down_proj": false, // no codes
        },
      });
      const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float16 });
      mx.setDefaultDevice(device);
      const expected = await run(device, "off", () => chunks(model, [40, 23], true));
      const found = await run(device, "on", () => chunks(model, [40, 23], true));
      assertEquals(openings(found.calls), 2 * 2, "layers 0 and 2");
      assertAlike(found.result, expected.result, 1e-5, "parts");
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    },
  });

  for (const dtype of [mx.float32, mx.float16]) {
    Deno.test({
      name: `what is asked for alone of one pass or two is right, ${dtype.name}, on ${device}`,
      fn: async () => {
        const shape = {
          hidden: 256,
          intermediate: 192,
          layers: 3,
          heads: 4,
          kvHeads: 2,
          headDim: 64,
          tied: true,
          vocab,
        };
        const folder = await Deno.makeTempDir();
        await writeModel(`${folder}/model`, shape, { groupSize: 64, dtype: "F16" });
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype });
        mx.setDefaultDevice(device);
        for (const [what, part] of Object.entries(PARTS)) {
          for (const passes of [[0], [0, 1], [0, 0]]) {
            const read = (): number[] => asked(model, passes, part);
            const [expected, found] = [await run(device, "off", read), await run(device, "on", read)];
            assertEquals(found.result.length, expected.result.length);
            const error = nmse(found.result, expected.result);
            assert(error < 1e-5, `${what} of passes ${passes}: NMSE ${error}`);
          }
        }
        model[Symbol.dispose]();
        await Deno.remove(folder, { recursive: true });
      },
    });
  }

  Deno.test({
    name: `fused prompts give the reference continuations on ${device}`,
    fn: async () => {
      const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
      const { calls } = await run(device, "on", async () => {
        for (const { prompt, ids, greedy } of GOLDEN.filter((g) => g.ids.length > 16)) {
          const found: number[] = [];
          for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: 8 })) found.push(r.token);
          assertEquals(found, greedy.slice(0, 8), `${ids.length} tokens`);
        }
      });
      assert(openings(calls) > 0, [...calls.keys()].join());
      model[Symbol.dispose]();
    },
  });
}
