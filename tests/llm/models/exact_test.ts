/**
 * With VKMX_EXACT=1 no product rounds its activations to integers: however a prompt is read, the model sees the same.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { GOLDEN, goldenLogits, TINY_DIR } from "../../support/models/models.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const { generate, load, streamGenerate } = mx.lm;
const IDS = GOLDEN[0].ids;

/** Runs with the embedded model on the CPU under VKMX_EXACT=1. */
function exactly(run: (model: mx.lm.LanguageModel, tokenizer: mx.lm.Tokenizer) => Promise<void>): Promise<void> {
  return withExactCpu(async () => {
    mx.setDefaultDevice("wasm");
    const { model, tokenizer } = await load(TINY_DIR, { device: "wasm" });
    await run(model, tokenizer);
    model[Symbol.dispose]();
  });
}

Deno.test("VKMX_EXACT=1 gives the reference logits and continuations", () =>
  exactly(async (model, tokenizer) => {
    for (const [i, { ids, prompt, greedy }] of GOLDEN.entries()) {
      using logits = mx.tidy(() => model.forward(mx.array([ids], mx.int32)));
      const expected = goldenLogits(i);
      const error = nmse(logits.toTypedArray() as Float32Array, expected);
      assert(error <= 1e-6, `prompt ${i}: ${error}`);
      const tokens: number[] = [];
      for await (const { token } of streamGenerate(model, tokenizer, prompt, { maxTokens: 200 })) tokens.push(token);
      assertEquals(tokens, [...greedy]);
    }
  }));

Deno.test("VKMX_EXACT=1 multiplies few rows as exactly as many", () =>
  exactly(() => {
    mx.tidy(() => {
      for (const bits of [1, 2, 3, 4, 5, 6, 8]) {
        const w = mx.random.normal([64, 256], mx.float32, 0, 1, mx.random.key(1));
        const [codes, scales, biases] = mx.quantize(w, 64, bits);
        const dense = mx.dequantize(codes, scales, biases, 64, bits).tolist();
        for (const rows of [1, 2, 24, 40]) {
          const x = mx.random.normal([rows, 256], mx.float32, 0, 1, mx.random.key(2));
          const found = mx.quantizedMatmul(x, codes, scales, biases, true, 64, bits).toTypedArray() as Float32Array;
          const expected = (x.tolist() as number[][]).flatMap((row) =>
            dense.map((column) => column.reduce((sum, value, i) => sum + value * row[i], 0))
          );
          const error = nmse(found, expected);
          assert(error <= 1e-12, `${rows} rows, ${bits} bits: NMSE ${error}`);
        }
      }
    });
    return Promise.resolve();
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

Deno.test("KvCache.trim() forgets all there is at most", () =>
  exactly(async (model, tokenizer) => {
    using cache = model.makeCache();
    await generate(model, tokenizer, IDS, { maxTokens: 3, cache });
    const held = cache.offset;
    assertEquals([cache.trim(2), cache.offset], [2, held - 2]);
    assertEquals([cache.trim(1000), cache.offset, cache.tokens], [held - 2, 0, []]);
  }));
