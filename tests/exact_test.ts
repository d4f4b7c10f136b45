/**
 * With VKMX_EXACT=1 no product rounds its activations to integers: however a prompt is read, the model sees the same.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { closeDevices } from "../src/backend/devices.ts";
import { GOLDEN, goldenLogits, TINY_DIR } from "./models.ts";

const { generate, KvCache, load, streamGenerate } = mx.lm;
const IDS = GOLDEN[0].ids;

/** Runs with a CPU device that was opened under VKMX_EXACT=1. */
async function exactly(run: (model: mx.lm.LanguageModel, tokenizer: mx.lm.Tokenizer) => Promise<void>): Promise<void> {
  closeDevices();
  const before = Deno.env.get("VKMX_EXACT");
  Deno.env.set("VKMX_EXACT", "1");
  try {
    mx.setDefaultDevice("wasm");
    const { model, tokenizer } = await load(TINY_DIR, { device: "wasm" });
    await run(model, tokenizer);
    model[Symbol.dispose]();
  } finally {
    closeDevices();
    if (before === undefined) Deno.env.delete("VKMX_EXACT");
    else Deno.env.set("VKMX_EXACT", before);
  }
}

Deno.test("VKMX_EXACT=1 gives the reference logits and continuations", () =>
  exactly(async (model, tokenizer) => {
    for (const [i, { ids, prompt, greedy }] of GOLDEN.entries()) {
      using logits = mx.tidy(() => model.forward(mx.array([ids], mx.int32)));
      const expected = goldenLogits(i);
      let [error, power] = [0, 0];
      (logits.toTypedArray() as Float32Array).forEach((v, j) => {
        error += (v - expected[j]) ** 2;
        power += expected[j] ** 2;
      });
      assert(error / power <= 1e-6, `prompt ${i}: ${error / power}`);
      const tokens: number[] = [];
      for await (const { token } of streamGenerate(model, tokenizer, prompt, { maxTokens: 200 })) tokens.push(token);
      assertEquals(tokens, [...greedy]);
    }
  }));

Deno.test("KvCache grows in steps of 256 and keeps what it holds", () =>
  exactly(async (model, tokenizer) => {
    using cache = model.makeCache();
    const long = Array.from({ length: 250 }, (_, i) => IDS[i % IDS.length]);
    const grown = await Array.fromAsync(streamGenerate(model, tokenizer, long, { maxTokens: 20, cache }));
    assertEquals([cache.capacity, cache.offset], [512, 269]);
    const whole = mx.tidy(() => {
      const all = [...long, ...grown.slice(0, -1).map((r) => r.token)];
      return mx.argmax(model.forward(mx.array([all], mx.int32)), -1).tolist() as number[][];
    });
    assertEquals(whole[0].slice(249), grown.map((r) => r.token));
  }));

Deno.test("KvCache.trim() forgets all there is at most, and stack() leaves the caches that it joins empty", () =>
  exactly(async (model, tokenizer) => {
    using cache = model.makeCache();
    using other = model.makeCache();
    for (const c of [cache, other]) await generate(model, tokenizer, IDS, { maxTokens: 3, cache: c });
    const held = cache.offset;
    assertEquals([cache.trim(2), cache.offset], [2, held - 2]);
    assertEquals([cache.trim(1000), cache.offset, cache.tokens], [held - 2, 0, []]);
    using both = KvCache.stack([cache, other]);
    assertEquals([both.offset, cache.capacity, other.capacity, other.offset], [held, 0, 0, 0]);
  }));
