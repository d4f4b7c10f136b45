/**
 * Several prompts continued together: every sequence gets what it would get alone, whatever its length and wherever the others
 * end, and nothing is left behind.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../mod.ts";
import { getBackend } from "../src/backend/devices.ts";
import { anyDevice, testDevices } from "./devices.ts";
import { kernelsOf } from "./harness.ts";
import { options } from "../src/schedule/options.ts";
import { GOLDEN, TINY_DIR } from "./models.ts";

const { batchGenerate, load, streamBatchGenerate, streamGenerate, LlmError } = mx.lm;
for (const name of testDevices()) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Tokens of one prompt alone. */
async function alone(
  model: mx.lm.LanguageModel,
  tokenizer: mx.lm.Tokenizer,
  prompt: mx.lm.Prompt,
  options: mx.lm.GenerateOptions,
): Promise<number[]> {
  const tokens: number[] = [];
  for await (const { token } of streamGenerate(model, tokenizer, prompt, options)) tokens.push(token);
  return tokens;
}

/** Kernels that ran while regions are on; so that software devices take them too. */
async function fused(device: string, body: () => Promise<void>): Promise<string[]> {
  const before = { ...options };
  options.regions = "on";
  try {
    return [...await kernelsOf(device, body)];
  } finally {
    Object.assign(options, before);
  }
}

for (const device of testDevices()) {
  const most = device === "wasm" ? 40 : 9;
  Deno.test(`batchGenerate() gives every prompt its reference continuation on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const before = mx.getActiveMemory();
    const { model, tokenizer } = await load(TINY_DIR, { device });
    const some = GOLDEN.slice(0, device === "wasm" ? 8 : 3);
    const limits = some.map((_, i) => most - i); // they end one after the other, and rows are dropped
    const { texts, tokens, finishReasons, ...rest } = await batchGenerate(model, tokenizer, some.map((g) => g.prompt), {
      maxTokens: limits,
    });
    assertEquals(tokens, some.map(({ greedy }, i) => greedy.slice(0, limits[i])));
    some.forEach(({ text, greedy }, i) => {
      assertEquals(finishReasons[i], greedy.length <= limits[i] ? "stop" : "length");
      assert(text.startsWith(texts[i]) && texts[i].length > 0, texts[i]);
    });
    assertEquals(rest.promptTokens, some.reduce((n, { ids }) => n + ids.length, 0));
    assertEquals(rest.generationTokens, tokens.flat().length);
    assert(rest.promptTps > 0 && rest.generationTps > 0);
    model[Symbol.dispose]();
    assertEquals(mx.getActiveMemory(), before);
  });

  const drawsAlike = async (): Promise<void> => {
    const { model, tokenizer } = await load(TINY_DIR, { device });
    const prompts = GOLDEN.slice(0, 3).map((g) => g.prompt);
    const settings = { temp: 0.9, topK: 30, topP: 0.95, minP: 0.01, repetitionPenalty: 1.2, maxTokens: most };
    for (const seed of [5, [9, 9, 2]]) {
      const { tokens } = await batchGenerate(model, tokenizer, prompts, { ...settings, seed });
      for (const [i, prompt] of prompts.entries()) {
        const own = typeof seed === "number" ? seed + i : seed[i];
        assertEquals(tokens[i], await alone(model, tokenizer, prompt, { ...settings, seed: own }), `prompt ${i}`);
      }
    }
    model[Symbol.dispose]();
  };

  Deno.test(`a sequence of a batch draws what it draws alone with its seed on ${device}`, drawsAlike);

  if (device !== "wasm") {
    Deno.test(`a sequence of a fused batch draws what it draws alone with its seed on ${device}`, async () => {
      const kernels = await fused(device, drawsAlike);
      for (const phase of ["begin", "qkv", "attend", "project", "gate_up", "head"]) {
        assert(kernels.some((kernel) => kernel.startsWith(`batch_${phase}`)), String(kernels));
      }
    });

    Deno.test(`a batch without 64-bit sums shares the kernels of one sequence on ${device}`, async () => {
      const kernels = await fused(device, async () => {
        options.sums = "i32";
        const { model, tokenizer } = await load(TINY_DIR, { device });
        const prompts = GOLDEN.slice(0, 3).map((g) => g.prompt);
        const { tokens } = await batchGenerate(model, tokenizer, prompts, { maxTokens: 3 });
        assertEquals(tokens, GOLDEN.slice(0, 3).map(({ greedy }) => greedy.slice(0, 3)));
        model[Symbol.dispose]();
      });
      assert(kernels.includes("decode_mlp_i32") && !kernels.includes("batch_qkv"), String(kernels));
    });

    Deno.test(`a fused batch gives every prompt its reference continuation on ${device}`, async () => {
      await fused(device, async () => {
        const { model, tokenizer } = await load(TINY_DIR, { device });
        for (const limits of [[6, 3, 5, 2], [2, 3, 4, 2, 3, 4], [4, 2, 3]]) {
          const prompts = GOLDEN.slice(0, limits.length).map((g) => g.prompt);
          const { tokens } = await batchGenerate(model, tokenizer, prompts, { maxTokens: limits });
          assertEquals(tokens, limits.map((limit, i) => GOLDEN[i].greedy.slice(0, limit)));
        }
        model[Symbol.dispose]();
      });
    });
  }
}

// The rest is about the loop and not the device.
const DEVICE = anyDevice();
const { model, tokenizer } = await load(TINY_DIR, { device: DEVICE });
const PROMPTS = GOLDEN.slice(0, 3).map((g) => g.prompt);

Deno.test("streamBatchGenerate() streams in steps, and a prompt of one token goes with others", async () => {
  const prompts = [[GOLDEN[0].ids[0]], GOLDEN[1].ids];
  const order: number[] = [];
  for await (const { sequence, generationTokens } of streamBatchGenerate(model, tokenizer, prompts, { maxTokens: 4 })) {
    order.push(10 * generationTokens + sequence);
  }
  assertEquals(order, [10, 11, 20, 21, 30, 31, 40, 41]);
});

Deno.test("batchGenerate() ends each sequence at its stop string", async () => {
  const whole = await batchGenerate(model, tokenizer, PROMPTS, { maxTokens: 30 });
  const stop = whole.texts[1].slice(12, 20);
  const { texts, finishReasons } = await batchGenerate(model, tokenizer, PROMPTS, { maxTokens: 30, stop });
  whole.texts.forEach((text, i) => {
    const at = text.indexOf(stop);
    assertEquals(texts[i], at < 0 ? text : text.slice(0, at));
    if (at >= 0) assertEquals(finishReasons[i], "stop");
  });
});

Deno.test("batchGenerate() goes on with others where the context ends for one", async () => {
  const { layers, kvHeads: heads, headDim } = model.config as mx.lm.ModelConfig & Record<string, number>;
  const limit = 40;
  const limited: mx.lm.LanguageModel = {
    config: { ...model.config, maxPositionEmbeddings: limit },
    traces: model.traces,
    forward: (tokens, cache, rows) => model.forward(tokens, cache, rows),
    makeCache: () => new mx.lm.KvCache({ layers, batch: 1, heads, headDim, dtype: mx.float32, limit }),
    [Symbol.dispose]: () => {},
  };
  const long = GOLDEN[0].ids;
  const prompt = Array.from({ length: limit - 3 }, (_, i) => long[i % long.length]);
  const options = { maxTokens: 12 };
  const { tokens, finishReasons } = await batchGenerate(limited, tokenizer, [prompt, PROMPTS[1], PROMPTS[2]], options);
  assertEquals([tokens[0].length, finishReasons[0]], [4, "length"]);
  assertEquals(tokens.slice(1), GOLDEN.slice(1, 3).map((g) => g.greedy.slice(0, 12)));
});

Deno.test("an abort ends all sequences within a token", async () => {
  const controller = new AbortController();
  const ended: mx.lm.BatchToken[] = [];
  for await (const r of streamBatchGenerate(model, tokenizer, PROMPTS, { signal: controller.signal })) {
    if (r.generationTokens === 3) controller.abort();
    if (r.finishReason !== null) ended.push(r);
  }
  assertEquals(ended.map((r) => r.finishReason), ["abort", "abort", "abort"]);
  assert(ended.every((r) => r.generationTokens <= 4));
  const aborted = AbortSignal.abort(new Error("no"));
  await assertRejects(() => batchGenerate(model, tokenizer, PROMPTS, { signal: aborted }), Error, "no");
});

Deno.test("batchGenerate() takes no prompts and refuses lists of another length", async () => {
  assertEquals((await batchGenerate(model, tokenizer, [])).texts, []);
  const wrong = batchGenerate(model, tokenizer, PROMPTS, { maxTokens: [1, 2] });
  await assertRejects(() => wrong, LlmError, "maxTokens has 2 values for 3 prompts");
  await assertRejects(() => batchGenerate(model, tokenizer, ["Hi", []]), LlmError, "The prompt is empty");
});
