/**
 * Prompts as steps of the decode loop: padded or not, in chunks, after a prefix. They must fill the cache and continue
 * as the plain forward pass does, whatever rows beyond the tokens hold. Their traces are few and are freed with the
 * model.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { paddedLength } from "../../../src/llm/decode/padding.ts";
import type { KvCache } from "../../../src/llm/kv/cache.ts";
import { decodingModel, type LanguageModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { wrapped } from "../../support/models/wrapped_model.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Tokens of a text that the model knows, as many as asked for. */
function tokens(count: number): number[] {
  const text = GOLDEN.flatMap(({ ids, greedy }) => [...ids, ...greedy]);
  return Array.from({ length: count }, (_, i) => text[i % text.length]);
}

/** A model whose prompts are padded to tiles of at least `tile` rows, whatever its device is. */
function padding(model: LanguageModel, tile: number): LanguageModel {
  const device = new Proxy(decodingModel(model).device, {
    get: (target, name) => name === "tile" ? tile : name === "tiled" ? tile > 1 : Reflect.get(target, name, target),
  });
  return wrapped(model, { device });
}

/** Fills the rows of a cache that hold no tokens with NaN. */
async function poison(cache: KvCache): Promise<void> {
  const state = { keys: cache.keys, values: cache.values };
  const nan = (buffers: readonly mx.Tensor[]): mx.Tensor[] =>
    buffers.map((buffer) => {
      const held = mx.less(mx.arange(0, buffer.shape[3], 1, mx.int32).reshape([-1, 1]), cache.offset);
      return mx.where(held, buffer, NaN).astype(buffer.dtype);
    });
  using loop = new DeviceLoop(state, ({ keys, values }) => ({ keys: nan(keys), values: nan(values) }));
  loop.run();
  await loop.done();
}

/** Rows of all tokens that a cache holds. */
function rowsOf(cache: KvCache): Float32Array {
  return mx.tidy(() => {
    const held = cache.state.map((buffer) => {
      const [B, H, blocks, T, block] = buffer.shape;
      const plain = buffer.transpose(0, 1, 3, 2, 4).reshape([B, H, T, blocks * block]);
      return plain.index("...", mx.Slice(0, cache.offset), mx.Slice(null)).astype(mx.float32).reshape([-1]);
    });
    return mx.concatenate(held).toTypedArray() as Float32Array;
  });
}

/** Greedy continuation of a prompt after the tokens of the cache. */
async function continuation(
  model: LanguageModel,
  prompt: readonly number[],
  maxTokens: number,
  cache: KvCache,
  prefillStepSize = 2048,
): Promise<number[]> {
  const found: number[] = [];
  const sampler = mx.lm.makeSampler();
  const options = { maxTokens, sampler, processors: [], contextSize: 1, cache, prefillStepSize };
  for await (const token of mx.lm.generateStep(prompt, model, options)) found.push(token);
  return found;
}

/** The same by forward passes over plain arrays. */
function plain(model: LanguageModel, prompt: readonly number[], count: number, cache: KvCache): number[] {
  const found: number[] = [];
  let ids = prompt;
  while (found.length < count) {
    found.push(mx.tidy(() => {
      const logits = model.forward(mx.array([[...ids]], mx.int32), cache);
      mx.eval(logits, ...cache.state);
      return mx.argmax(logits.index(0, -1), -1).item();
    }));
    ids = found.slice(-1);
  }
  return found;
}

for (const device of DEVICES) {
  const software = device !== "wasm" && mx.withDevice(device, getBackend).limits.subgroup < 32;
  const borders = [1, 7, 8, 9, 16, 17, 33, 65];
  const lengths = software ? borders : Array.from({ length: 70 }, (_, i) => i + 1);

  for (const tile of device === "wasm" ? [1, 8] : [8]) {
    Deno.test(`prompts padded to ${tile} rows and more fill the cache and continue on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const { model } = await mx.lm.load(TINY_DIR, { device });
      const steps = padding(model, tile);
      for (const length of tile === 8 ? lengths : borders) {
        const prompt = tokens(length);
        using expected = model.makeCache();
        const ids = plain(model, prompt, 3, expected);
        using found = model.makeCache();
        found.reserve(length, paddedLength(length, tile));
        await poison(found);
        assertEquals(await continuation(steps, prompt, 3, found), ids, `${length} tokens`);
        assertEquals(found.offset, expected.offset);
        const error = nmse(rowsOf(found), rowsOf(expected));
        assert(error < 1e-4, `${length} tokens: NMSE ${error} of the cache`); // integers in the CPU's long prompts
      }
      model[Symbol.dispose]();
    });
  }

  Deno.test(`prompts behind a prefix, in chunks and near the end of the context continue as one on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const { model } = await mx.lm.load(TINY_DIR, { device });
    const steps = padding(model, 8);
    const all = tokens(50);
    using whole = model.makeCache();
    const expected = plain(model, all, 4, whole);
    const held = rowsOf(whole);
    const cuts = [[33, 9], [49, 2048], [0, 20], [0, 7], [1, 2048], [17, 2048]];
    for (const [prefix, chunk] of cuts.slice(0, software ? 3 : undefined)) {
      using cache = model.makeCache();
      cache.reserve(60, 80);
      await poison(cache);
      if (prefix > 0) await continuation(steps, all.slice(0, prefix), 1, cache);
      assertEquals(await continuation(steps, all.slice(prefix), 4, cache, chunk), expected, `${prefix} + ${chunk}`);
      const error = nmse(rowsOf(cache), held);
      assert(error < 1e-4, `${prefix} tokens, chunks of ${chunk}: NMSE ${error} of the cache`);
    }
    // 50 tokens in a context of 52: padding goes beyond it, tokens do not.
    using short = new mx.lm.KvCache({
      layers: whole.keys.length,
      batch: 1,
      heads: whole.keys[0].shape[1],
      headDim: whole.keys[0].shape[2] * whole.keys[0].shape[4],
      dtype: whole.keys[0].dtype,
      blocks: { keys: 4, values: 8 },
      limit: 52,
    });
    assertEquals(await continuation(steps, all, 3, short), expected.slice(0, 3));
    model[Symbol.dispose]();
  });

  Deno.test(`rows that lie in blocks are joined for whatever reads them on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const [H, blocks, T, block] = [2, 3, 5, 4];
      const buffer = mx.arange(H * blocks * T * block).astype(mx.float32).reshape([1, H, blocks, T, block]);
      mx.eval(buffer);
      const rows = (): mx.Tensor => buffer.transpose(0, 1, 3, 2, 4).reshape([1, H, T, blocks * block]);
      const expected = Array.from({ length: H * T * blocks * block }, (_, i) => {
        const [h, t, d] = [Math.floor(i / (T * 12)), Math.floor(i / 12) % T, i % 12];
        return ((h * blocks + Math.floor(d / block)) * T + t) * block + d % block;
      });
      assertEquals([...rows().toTypedArray()], expected);
      assertEquals([...mx.add(rows(), 1).toTypedArray()], expected.map((x) => x + 1));
      assertEquals([...rows().index(0, 1, 2, mx.Slice(2, 12, 5)).toTypedArray()], [70, 91]);
      assertEquals(mx.sum(rows().transpose(0, 3, 1, 2), [1, 3]).tolist(), [
        [0, 1].map((h) => expected.slice(h * 60, h * 60 + 60).reduce((a, b) => a + b)),
      ]);
      const twice = rows();
      assertEquals([...mx.multiply(twice, twice.index(0, 0, 0, 1)).toTypedArray()], expected);
      const weights = mx.fast.scaledDotProductAttention(mx.zeros([1, H, 1, 12]), rows(), rows(), {
        scale: 1,
        lengths: 2,
      });
      const mean = [0, 1].map((h) =>
        expected.slice(h * 60, h * 60 + 12).map((x, d) => (x + expected[h * 60 + 12 + d]) / 2)
      );
      assertEquals(weights.tolist(), [mean.map((row) => [row])]);
    });
  });

  Deno.test(`traces of prompts serve all of their length and go with the model on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const backend = mx.withDevice(device, getBackend);
    const before = backend.liveObjects();
    const { model } = await mx.lm.load(TINY_DIR, { device });
    const steps = padding(model, 8);
    const read = async (length: number): Promise<void> => {
      using cache = model.makeCache();
      await continuation(steps, tokens(length), 2, cache);
    };
    await read(9);
    const { size } = model.traces;
    assertEquals(size, 2); // the prompt and the step
    // A Plan keeps a few recordings, and one with tables of addresses takes memory for them.
    for (const length of [10, 11, 12, 14, 15]) await read(length);
    const used = backend.memory().active;
    for (const length of [10, 16, 13]) await read(length);
    assertEquals([model.traces.size, backend.memory().active], [size, used]);
    await read(17); // other rows
    assertEquals(model.traces.size, size + 1);
    model[Symbol.dispose]();
    assertEquals(model.traces.size, 0);
    assertEquals(backend.liveObjects(), before);
  });

  if (software) continue;
  Deno.test(`prompts of more than a pass are read in several on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const { model } = await mx.lm.load(TINY_DIR, { device });
    const prompt = tokens(2100);
    const seen: number[] = [];
    using expected = model.makeCache();
    const ids = plain(model, prompt, 2, expected);
    using cache = model.makeCache();
    const options = {
      maxTokens: 2,
      sampler: mx.lm.makeSampler(),
      processors: [],
      contextSize: 1,
      cache,
      prefillStepSize: 2048,
      onPrompt: (done: number) => void seen.push(done),
    };
    const found: number[] = [];
    for await (const token of mx.lm.generateStep(prompt, model, options)) found.push(token);
    assertEquals(found, ids);
    assert(seen.includes(2048) && seen.at(-1) === 2100, `${seen}`); // a slow device tells more often
    assert(nmse(rowsOf(cache), rowsOf(expected)) < 1e-3);
    model[Symbol.dispose]();
  });
}
