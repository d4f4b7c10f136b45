/**
 * Recurrent states of layers beside keys and values. A cache goes back where a copy was kept and nowhere else. Conversations read only what is
 * new, an abort leaves a sound cache, and an engine's requests go on from states that it kept. What a prompt gives alone is the oracle.
 */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import { testDevices } from "../../support/devices/devices.ts";
import {
  CHECKPOINTS,
  expectedLogits,
  type FamilyCheckpoint,
  keptLogits,
  PROMPTS,
  STEPS,
  writeCheckpoint,
} from "../../support/models/mlx_lm_families.ts";
import { onceMade } from "../../support/models/idle_after.ts";
import { replay } from "../../support/models/engine_requests.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const NAMES = ["LFM2, bfloat16", "Qwen3.5, bfloat16"];
/** How far rows of a part of a prompt may be from those of the whole: attention over a cache of float16. */
const LIMIT = 1e-6;
/** Where the CPU rounds activations to integers and its cache to float16. */
const ROUNDED = 1e-5;

/** A prompt and padding after it. */
interface PaddedState {
  readonly ids: mx.Tensor;
  readonly position: mx.Tensor;
  readonly last: mx.Tensor;
  readonly keys: readonly mx.Tensor[];
  readonly values: readonly mx.Tensor[];
  readonly states: readonly mx.Tensor[];
}

const idsOf = (count: number, seed: number): number[] =>
  Array.from({ length: count }, (_, i) => (i * 271 + seed * 97 + 13) % 500);

/** A checkpoint by its name. */
function checkpointOf(name: string): FamilyCheckpoint {
  return CHECKPOINTS.find((one) => one.name === name)!;
}

/** A model with recurrent layers. */
async function loadHybrid(checkpoint: string, device: string): Promise<mx.lm.Loaded & Disposable> {
  const dir = await Deno.makeTempDir();
  await writeCheckpoint(dir, checkpointOf(checkpoint));
  const loaded = await mx.lm.load(dir, { device, dtype: mx.float32 });
  return {
    ...loaded,
    [Symbol.dispose]() {
      loaded.model[Symbol.dispose]();
      Deno.removeSync(dir, { recursive: true });
    },
  };
}

/** Logits of the last of some tokens after a cache. */
function logitsAfter({ model }: mx.lm.Loaded, ids: readonly number[], cache?: mx.lm.KvCache): Float32Array {
  const last = mx.array([ids.length - 1], mx.int32);
  using logits = mx.tidy(() => model.forward(mx.array([[...ids]], mx.int32), cache, last).astype(mx.float32));
  last[Symbol.dispose]();
  return logits.toTypedArray() as Float32Array;
}

type Responses = AsyncIterable<{ readonly token: number; readonly cachedTokens: number }>;

async function tokensOf(responses: Responses): Promise<{ tokens: number[]; cached: number }> {
  const all = await Array.fromAsync(responses);
  return { tokens: all.map(({ token }) => token), cached: all[0].cachedTokens };
}

for (const [checkpoint, device] of NAMES.flatMap((name) => DEVICES.map((device) => [name, device]))) {
  const test = (name: string, work: (loaded: mx.lm.Loaded) => Promise<void> | void): void =>
    Deno.test(`${checkpoint}: ${name} on ${device}`, async () => {
      using loaded = await loadHybrid(checkpoint, device);
      await mx.withDevice(device, () => work(loaded));
      await loaded.model.traces.idle();
    });

  test("a cache with states goes back to its beginning and to checkpoints", (loaded) => {
    const before = mx.getActiveMemory();
    {
      using cache = loaded.model.makeCache();
      const [first, second, third] = [idsOf(9, 1), idsOf(5, 2), idsOf(4, 3)];
      assertEquals(cache.hasState, true);
      logitsAfter(loaded, first, cache);
      cache.checkpoint();
      logitsAfter(loaded, second, cache);
      assertEquals([cache.reachable(14), cache.reachable(13), cache.reachable(8)], [14, 9, 0]);
      const why = "A cache of 14 tokens cannot forget 2: the state of recurrent layers goes back to 9 and not to 12";
      assertThrows(() => cache.trim(2), mx.lm.LlmError, why);
      assertEquals(cache.offset, 14);
      assertEquals([cache.trim(5), cache.offset], [5, 9]);
      const whole = logitsAfter(loaded, [...first, ...third]);
      assert(nmse(logitsAfter(loaded, third, cache), whole) <= LIMIT);
      assertEquals([cache.trim(4), cache.offset], [4, 9], "the checkpoint stays");
      assert(nmse(logitsAfter(loaded, third, cache), whole) <= LIMIT);
      cache.reset();
      assert(nmse(logitsAfter(loaded, third, cache), logitsAfter(loaded, third)) <= LIMIT);
      assertEquals(cache.reachable(3), 0, "the checkpoint of what was forgotten is gone");
    }
    assertEquals(mx.getActiveMemory(), before);
  });

  test("tokens of padding leave no trace in states", async (loaded) => {
    const { model } = loaded;
    const [prompt, next] = [idsOf(5, 1), idsOf(3, 2)];
    const expected = logitsAfter(loaded, [...prompt, ...next]);
    using cache = model.makeCache();
    cache.reserve(16);
    const state: PaddedState = {
      ids: mx.array([[...prompt, ...idsOf(11, 3)]], mx.int32),
      position: mx.array([0], mx.int32),
      last: mx.array([prompt.length - 1], mx.uint32),
      keys: cache.keys,
      values: cache.values,
      states: cache.buffers.states!,
    };
    mx.eval(state.ids, state.position, state.last);
    {
      using loop = new DeviceLoop(state, (now) => {
        const step = new StepCache(now.keys, now.values, now.position, { states: now.states, last: now.last });
        model.forward(now.ids, step);
        return { ...now, keys: step.keys, values: step.values, states: step.states };
      });
      loop.run();
      await loop.done();
    }
    mx.dispose([state.ids, state.position, state.last]);
    cache.advance(prompt.length);
    assert(nmse(logitsAfter(loaded, next, cache), expected) <= LIMIT);
  });

  test("sequences of one cache have states of their own", (loaded) => {
    const { model } = loaded;
    using cache = model.makeCache(2);
    const both = [idsOf(9, 1), idsOf(9, 5)];
    const run = (from: number, to: number): mx.Tensor =>
      model.forward(mx.array(both.map((ids) => ids.slice(from, to)), mx.int32), cache).astype(mx.float32);
    mx.tidy(() => mx.eval(run(0, 6)));
    using logits = mx.tidy(() => run(6, 9).index(mx.Slice(null), 2));
    for (const [i, ids] of both.entries()) {
      using row = logits.index(i);
      assert(nmse(row.toTypedArray() as Float32Array, logitsAfter(loaded, ids)) <= LIMIT);
    }
  });

  test("the last four checkpoints stay", (loaded) => {
    using cache = loaded.model.makeCache();
    for (let i = 0; i < 6; i++) {
      logitsAfter(loaded, idsOf(2, i), cache);
      cache.checkpoint();
    }
    assertEquals([3, 5, 6, 7, 9, 11].map((at) => cache.reachable(at)), [0, 0, 6, 6, 8, 10]);
  });

  test("a conversation with states reads what is new, and what it cannot go back before", async ({ model, tokenizer }) => {
    using cache = model.makeCache();
    const options = { temp: 0, maxTokens: 6 };
    const ask = async (prompt: number[], expected: number): Promise<number[]> => {
      const alone = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options));
      const kept = { ...options, cache, cachePrompt: true };
      const found = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, kept));
      assertEquals(found, { tokens: alone.tokens, cached: expected });
      assertEquals(cache.tokens, [...prompt, ...found.tokens.slice(0, -1)]);
      return found.tokens;
    };
    const first = idsOf(20, 4);
    const answer = await ask(first, 0);
    const second = [...first, ...answer, ...idsOf(3, 5)];
    await ask(second, 25);
    await ask([...second.slice(0, 22), ...idsOf(9, 6)], 20); // the answer has changed: back to the end of the first prompt
    await ask([...first.slice(0, 11), ...idsOf(9, 7)], 0);
  });

  test("a cache goes on after an answer that was left, and after a constrained one", async ({ model, tokenizer }) => {
    using cache = model.makeCache();
    const prompt = idsOf(12, 8);
    const options = { temp: 0, maxTokens: 8 };
    const { tokens } = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options));
    let count = 0;
    for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, { ...options, cache })) {
      assertEquals(token, tokens[count]);
      if (++count === 4) break;
    }
    assertEquals(cache.offset, prompt.length + 3);
    const rest = await tokensOf(
      mx.lm.streamGenerate(model, tokenizer, [tokens[3]], { ...options, maxTokens: 4, cache }),
    );
    assertEquals(rest.tokens, tokens.slice(4));
    cache.reset();
    const constrained = { ...options, responseFormat: { type: "regex", regex: "[a-z]{6}" } } as const;
    const free = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, constrained));
    const held = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, { ...constrained, cache }));
    assertEquals(held.tokens, free.tokens);
    const next = await tokensOf(mx.lm.streamGenerate(model, tokenizer, [held.tokens.at(-1)!], { ...options, cache }));
    const whole = [...prompt, ...held.tokens];
    assertEquals(next.tokens, (await tokensOf(mx.lm.streamGenerate(model, tokenizer, whole, options))).tokens);
  });

  test("an abort in the middle of a prompt leaves a cache that is read on", async ({ model, tokenizer }) => {
    using cache = model.makeCache();
    const long = idsOf(320, 9);
    const controller = new AbortController();
    const { signal } = controller;
    const onPrompt = (): void => void setTimeout(() => controller.abort(), 0); // so it comes while a later chunk is read
    const aborted = mx.lm.generate(model, tokenizer, long, { cache, signal, prefillStepSize: 32, onPrompt });
    await assertRejects(() => aborted, DOMException, "aborted");
    const options = { temp: 0, maxTokens: 3 };
    const alone = await tokensOf(mx.lm.streamGenerate(model, tokenizer, long, options));
    const found = await tokensOf(
      mx.lm.streamGenerate(model, tokenizer, long, { ...options, cache, cachePrompt: true }),
    );
    assertEquals(found.tokens, alone.tokens);
  });

  test("an engine goes on from states after whole pages of prompts that begin alike", async ({ model, tokenizer }) => {
    const shared = idsOf(150, 10);
    const options = { temp: 0, maxTokens: 5 };
    const prompts = [
      shared,
      [...shared.slice(0, 140), ...idsOf(20, 11)],
      [...shared.slice(0, 100), ...idsOf(70, 12)],
      shared,
      idsOf(65, 13),
      [...shared.slice(0, 100), ...idsOf(70, 19)],
    ];
    const alone = [];
    for (const prompt of prompts) alone.push(await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options)));
    await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 2, contextSize: 256, prefillStepSize: 48 });
    const served = [];
    for (const prompt of prompts) served.push(await tokensOf(engine.add({ prompt, ...options })));
    assertEquals(served.map(({ tokens }) => tokens), alone.map(({ tokens }) => tokens));
    // Pages have 64 tokens. States were kept after the second page of the first prompt, which the third prompt has not. It leaves states where
    // it parts from the first one, which the last prompt begins with.
    assertEquals(served.map(({ cached }) => cached), [0, 128, 0, 128, 0, 64]);
    const together = await Promise.all(prompts.map((prompt) => tokensOf(engine.add({ prompt, ...options }))));
    assertEquals(together.map(({ tokens }) => tokens), alone.map(({ tokens }) => tokens));
  });

  test("drafts leave the states of the tokens that were right", async (loaded) => {
    const { model, tokenizer } = loaded;
    const prompt = idsOf(12, 8);
    const options = { temp: 0, maxTokens: 14 };
    const { tokens } = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options));
    const whole = logitsAfter(loaded, [...prompt, ...tokens]);
    for (const right of [0, 1, 3]) {
      const speculation = (): mx.lm.SpeculationOptions => ({
        drafter: replay(tokens, right),
        numDraftTokens: 3,
        adaptive: false,
      });
      const run = () => mx.lm.streamGenerate(model, tokenizer, prompt, { ...options, speculation: speculation() });
      await onceMade([model], () => tokensOf(run()));
      using cache = model.makeCache();
      const stream = mx.lm.streamGenerate(model, tokenizer, prompt, { ...options, cache, speculation: speculation() });
      const responses = await Array.fromAsync(stream);
      assertEquals(responses.map(({ token }) => token), tokens);
      const { acceptedTokens, draftedTokens } = responses.at(-1)!;
      assert(right === 0 ? acceptedTokens === 0 : acceptedTokens! > 3, `${acceptedTokens} of ${draftedTokens}`);
      assertEquals(cache.offset, prompt.length + tokens.length - 1);
      assert(nmse(logitsAfter(loaded, [tokens.at(-1)!], cache), whole) <= LIMIT);
    }
  });

  test("a model with states drafts for itself, and is always right", async (loaded) => {
    const { model, tokenizer } = loaded;
    for (const sampling of [{ temp: 0 }, { temp: 1, seed: 5 }]) {
      const options = { maxTokens: 16, ...sampling };
      const run = (speculation?: mx.lm.SpeculationOptions) =>
        Array.fromAsync(mx.lm.streamGenerate(model, tokenizer, idsOf(12, 9), { ...options, speculation }));
      const plain = await run();
      const speculation = { drafter: loaded, numDraftTokens: 3, adaptive: false };
      const drafted = await onceMade([model], () => run(speculation));
      assertEquals(drafted.map(({ token }) => token), plain.map(({ token }) => token));
      const { acceptedTokens, draftedTokens } = drafted.at(-1)!;
      assert(draftedTokens! > 6 && acceptedTokens === draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
    }
  });

  test("a cache goes back to the prompt if an answer is left within a draft", async ({ model, tokenizer }) => {
    const prompt = idsOf(12, 8);
    const options = { temp: 0, maxTokens: 14 };
    const { tokens } = await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options));
    using cache = model.makeCache();
    const speculation = { drafter: replay(tokens, 7), adaptive: false };
    let taken = 0;
    for await (const _ of mx.lm.streamGenerate(model, tokenizer, prompt, { ...options, cache, speculation })) {
      if (++taken === 5) break;
    }
    const { offset } = cache;
    assert(offset === prompt.length || offset === prompt.length + 4, `${offset}`); // the draft may still have been prepared
    const rest = [...prompt, ...tokens.slice(0, 5)].slice(offset);
    const more = mx.lm.streamGenerate(model, tokenizer, rest, { ...options, maxTokens: 4, cache });
    assertEquals((await tokensOf(more)).tokens, tokens.slice(5, 9));
  });

  test("a prompt cache with states comes back from its file, and from that of mlx-lm", async (loaded) => {
    const { model, tokenizer } = loaded;
    const dir = await Deno.makeTempDir();
    const file = `${dir}/cache.safetensors`;
    const { model_type: type } = JSON.parse(checkpointOf(checkpoint).config);
    const golden = new URL(`../../golden/models/prompt_caches/${type}.safetensors`, import.meta.url).pathname;
    const all = expectedLogits(CHECKPOINTS.indexOf(checkpointOf(checkpoint)));
    const expected = all.subarray(all.length / (PROMPTS[0].length + STEPS.length) * PROMPTS[0].length);
    const after = (cache: mx.lm.KvCache): number[] =>
      STEPS.flatMap((id, i) =>
        keptLogits(logitsAfter(loaded, [id], cache), PROMPTS[0].length + i, model.config.vocabSize)
      );

    const { cache: theirs, metadata } = await mx.lm.loadPromptCache(golden, model);
    using _theirs = theirs;
    assertEquals([theirs.offset, metadata], [PROMPTS[0].length, { model: "synthetic" }]);
    assert(nmse(after(theirs), expected) <= ROUNDED);

    using own = model.makeCache();
    logitsAfter(loaded, PROMPTS[0], own);
    await mx.lm.savePromptCache(file, own);
    // Keys and values (B, H, T, D) have rows to spare in mlx-lm's file.
    const shapesOf = (path: string): string[] =>
      Object.entries(mx.loadSafetensors(path)).map(([name, { shape, dtype }]) => {
        const rows = shape.length === 4 && !/^\d+\.0\.\d+$/.test(name);
        return `${name} ${rows ? shape.with(2, 0) : [...shape, dtype.name]}`;
      }).sort();
    assertEquals(shapesOf(file), shapesOf(golden));
    const { format: _format, "0.model": _model, ...marks } = mx.safetensorsMetadata(golden);
    const { format: _own, "0.vkmx": _vkmx, ...found } = mx.safetensorsMetadata(file);
    assertEquals(found, marks);
    const { cache: back } = await mx.lm.loadPromptCache(file, model);
    using _back = back;
    assertEquals(after(back), after(own));

    using held = model.makeCache();
    const options = { temp: 0, maxTokens: 5 };
    await mx.lm.generate(model, tokenizer, idsOf(30, 17), { ...options, cache: held });
    await mx.lm.savePromptCache(file, held);
    const { cache: again } = await mx.lm.loadPromptCache(file, model);
    using _again = again;
    assertEquals(again.tokens, held.tokens);
    const longer = [...held.tokens, ...idsOf(4, 18)];
    const answers = [];
    for (const cache of [held, again]) {
      answers.push(
        await tokensOf(mx.lm.streamGenerate(model, tokenizer, longer, { ...options, cache, cachePrompt: true })),
      );
    }
    assertEquals(answers[1], answers[0]);
    assertEquals(answers[0].cached, 34);

    const damaged = (change: (arrays: Record<string, mx.Tensor>, marks: Record<string, string>) => void): void =>
      mx.tidy(() => {
        const arrays = { ...mx.loadSafetensors(golden) } as Record<string, mx.Tensor>;
        const { format: _, ...marks } = { format: "", ...mx.safetensorsMetadata(golden) };
        change(arrays, marks);
        mx.saveSafetensors(file, arrays, marks);
      });
    const [B, ...rest] = mx.loadSafetensors(golden)["0.0.0"].shape;
    for (
      const [change, message] of [
        [(a: Record<string, mx.Tensor>) => delete a["0.0.0"], 'lacks the array "0.0.0"'],
        [
          (a: Record<string, mx.Tensor>) => a["0.0.0"] = mx.zeros([B, rest[0] + 1, rest[1]]),
          `the array "0.0.0" is (1,${rest[0] + 1},${rest[1]}), expected (1,${rest})`,
        ],
        [(a: Record<string, mx.Tensor>) => a["0.0.0"] = mx.zeros([B, ...rest], mx.int32), "int32, expected floats"],
        [(a: Record<string, mx.Tensor>) => delete a["0.1"], 'lacks the array "0.1"'],
        [(a: Record<string, mx.Tensor>) => a["0.2"] = mx.zeros([1], mx.int32), 'sequences with padding ("0.2")'],
        [
          (_: unknown, m: Record<string, string>) => m["1.0"] = "KVCache",
          "layer 0 is KVCache, that of this one is ArraysCache",
        ],
      ] as const
    ) {
      damaged(change as Parameters<typeof damaged>[0]);
      const error = await assertRejects(() => mx.lm.loadPromptCache(file, model), mx.lm.LlmError, message);
      assertEquals(error.code, "cache");
    }
    await Deno.remove(dir, { recursive: true });
  });

  test("requests with states that give up their memory are read again", async ({ model, tokenizer }) => {
    const options = { temp: 0, maxTokens: 40 };
    using like = model.makeCache();
    const states = like.byteLength(0);
    const page = (like.byteLength(256) - states) / 4;
    // A quarter of the memory has slots for two requests and two prefixes. Two prompts nearly fill the pages that are left but one.
    const pages = 2 * Math.ceil(Math.max(3, 16 * states / page) / 2) + 1;
    const kvBytes = pages * page + 5 * states;
    const contextSize = 64 * (pages + 1) / 2;
    const prompts = [14, 15].map((seed) => idsOf(64 * Math.floor(pages / 2) - 4, seed));
    const alone = [];
    for (const prompt of prompts) alone.push(await tokensOf(mx.lm.streamGenerate(model, tokenizer, prompt, options)));
    await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 2, kvBytes, contextSize });
    const served = await Promise.all(prompts.map((prompt) => tokensOf(engine.add({ prompt, ...options }))));
    assertEquals(served.map(({ tokens }) => tokens), alone.map(({ tokens }) => tokens));
    assert(engine.metrics.preemptions > 0, "no request gave up its memory");
  });
}

Deno.test("states are on the device of the model, not on the default one", async () => {
  using loaded = await loadHybrid(NAMES[1], "wasm");
  const { model } = loaded;
  mx.setDefaultDevice("wasm-threads=2");
  try {
    using cache = model.makeCache();
    const logits = mx.tidy(() => model.forward(mx.array([idsOf(3, 1)], mx.int32), cache).astype(mx.float32).tolist());
    mx.setDefaultDevice("wasm");
    using other = model.makeCache();
    const expected = mx.tidy(() => model.forward(mx.array([idsOf(3, 1)], mx.int32), other).astype(mx.float32).tolist());
    assertEquals(logits, expected);
  } finally {
    mx.setDefaultDevice(DEVICES[0]);
  }
});
