/**
 * Several prompts continued together. Every sequence gets what it would get alone, whatever its length and wherever the
 * others end. No memory stays in use.
 */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { forgetLaunchModes } from "../../../src/schedule/decoder/megakernel.ts";
import { matrixMap } from "../../../src/schedule/ops/matmul/coopmat.ts";
import { collect } from "../../../src/schedule/plan/garbage.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { wrapped } from "../../support/models/wrapped_model.ts";

const { batchGenerate, generate, KvCache, load, streamBatchGenerate, streamGenerate, LlmError } = mx.lm;
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

/** Kernels that ran while regions are on, so that software devices take them too: those of several sequences unless `batch` is off. */
async function fused(
  device: string,
  body: () => Promise<void>,
  batched: typeof options.batched = "on",
): Promise<string[]> {
  using _options = withOptions({ regions: "on", batched });
  return [...await kernelsOf(device, body)];
}

for (const device of testDevices()) {
  const most = device === "wasm" ? 40 : 9;
  Deno.test(`batchGenerate() gives every prompt its reference continuation on ${device}`, async () => {
    mx.setDefaultDevice(device);
    collect(); // objects left by loading above
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

  const prompts = GOLDEN.slice(0, 4).map((g) => g.prompt);
  const draws = { temp: 0.9, topK: 30, topP: 0.95, minP: 0.01, repetitionPenalty: 1.2, maxTokens: most };

  const drawsAlone = async (): Promise<void> => {
    const { model, tokenizer } = await load(TINY_DIR, { device });
    for (const seed of [5, [9, 9, 2]]) {
      const { tokens } = await batchGenerate(model, tokenizer, prompts.slice(0, 3), { ...draws, seed });
      for (const [i, prompt] of prompts.slice(0, 3).entries()) {
        const own = typeof seed === "number" ? seed + i : seed[i];
        assertEquals(tokens[i], await alone(model, tokenizer, prompt, { ...draws, seed: own }), `prompt ${i}`);
      }
    }
    model[Symbol.dispose]();
  };

  Deno.test(`a sequence of a batch draws what it draws alone with its seed on ${device}`, async () => {
    if (device === "wasm") await drawsAlone();
    else await fused(device, drawsAlone, "off");
  });

  if (device !== "wasm") {
    Deno.test(`a sequence of a fused batch draws the same in any company on ${device}`, async () => {
      const kernels = await fused(device, async () => {
        const { model, tokenizer } = await load(TINY_DIR, { device });
        const drawn = async (which: readonly number[]): Promise<readonly (readonly number[])[]> => {
          const settings = { ...draws, maxTokens: 5, seed: which.map((i) => 10 + i) };
          return (await batchGenerate(model, tokenizer, which.map((i) => prompts[i]), settings)).tokens;
        };
        const all = await drawn([0, 1, 2]);
        for (const which of [[1, 2, 0], [2, 2, 1]]) {
          assertEquals(await drawn(which), which.map((i) => all[i]), String(which));
        }
        await model.traces.idle();
        model[Symbol.dispose]();
      });
      for (const part of ["begin", "layers", "head"]) {
        assert(kernels.some((kernel) => kernel.startsWith(`batch_${part}`)), String(kernels));
      }
      // A small vocabulary gives the head too few parts to find the 30 most probable tokens by them.
      assert(kernels.includes("sample_histogram"), String(kernels));
    });

    Deno.test(`sequences share the kernels of one where there are none for several on ${device}`, async () => {
      const kernels = await fused(device, async () => {
        using _options = withOptions({ accumulators: "i32" });
        const { model, tokenizer } = await load(TINY_DIR, { device });
        const { tokens } = await batchGenerate(model, tokenizer, prompts.slice(0, 3), { maxTokens: 3 });
        assertEquals(tokens, GOLDEN.slice(0, 3).map(({ greedy }) => greedy.slice(0, 3)));
        model[Symbol.dispose]();
      }, "off");
      assert(kernels.includes("decode_mlp_i32") && !kernels.includes("batch_begin"), String(kernels));
    });

    Deno.test(`prompts and batches of any size share their weights on ${device}`, async () => {
      const backend = mx.withDevice(device, getBackend);
      // Without a test of one dispatch, which would hold memory beside.
      using _options = withOptions({ regions: "on", batched: "on", launchMode: "barriers" });
      const { model, tokenizer } = await load(TINY_DIR, { device });
      const after = async (count: number): Promise<number> => {
        await batchGenerate(model, tokenizer, prompts.slice(0, count), { maxTokens: 2 });
        await model.traces.idle();
        model.traces[Symbol.dispose]();
        return backend.memory().active;
      };
      const first = await after(4); // among the prompts is one that is fed as steps, by the kernels of one sequence
      assertEquals(await after(2), first);
      if (backend.has("coopmat_map") && matrixMap(backend).pairs) {
        // Layers of another model read a prompt first; a batch then adds its head and what the last layer lacks.
        const other = await load(TINY_DIR, { device });
        const loaded = backend.memory().active;
        const long = Array.from({ length: 128 }, (_, i) => i);
        for await (const _ of streamGenerate(other.model, tokenizer, long, { maxTokens: 1 }));
        const read = backend.memory().active;
        await batchGenerate(other.model, tokenizer, prompts.slice(0, 2), { maxTokens: 2 });
        await other.model.traces.idle();
        other.model.traces[Symbol.dispose]();
        const added = backend.memory().active - read;
        assert(added < (read - loaded), `${added} bytes more than the ${read - loaded} of a prompt`);
        other.model[Symbol.dispose]();
      }
      model[Symbol.dispose]();
    });

    const { concurrent } = mx.withDevice(device, getBackend).limits;
    Deno.test(
      { name: `a batch in one dispatch that fails goes on with the same tokens on ${device}`, ignore: !concurrent },
      async () => {
        const lines: string[] = [];
        const log = console.error;
        console.error = (line: string) => lines.push(line);
        try {
          const kernels = await fused(device, async () => {
            using changes = new DisposableStack();
            changes.use(withOptions({ launchMode: "barriers" }));
            // After the prompts: one look is never enough.
            const onPrompt = (done: number): void => {
              if (done === 3) changes.use(withOptions({ launchMode: "persistent", spinLimit: 1 }));
            };
            const { model, tokenizer } = await load(TINY_DIR, { device });
            const some = GOLDEN.slice(0, 3);
            const { tokens } = await batchGenerate(model, tokenizer, some.map((g) => g.prompt), {
              maxTokens: 4,
              onPrompt,
            });
            assertEquals(tokens, some.map(({ greedy }) => greedy.slice(0, 4)));
            model[Symbol.dispose]();
          });
          assert(kernels.includes("batch_layers"), String(kernels));
        } finally {
          console.error = log;
          forgetLaunchModes(mx.withDevice(device, getBackend));
        }
        assertEquals(lines.filter((line) => line.includes("failed")).length, 1, lines.join("\n"));
      },
    );

    Deno.test(`a fused batch gives every prompt its reference continuation on ${device}`, async () => {
      const kernels = await fused(device, async () => {
        const { model, tokenizer } = await load(TINY_DIR, { device });
        for (const limits of drawSome(device, "limits", [[6, 3, 5, 2], [4, 2, 3]], 1)) {
          const prompts = GOLDEN.slice(0, limits.length).map((g) => g.prompt);
          const { tokens } = await batchGenerate(model, tokenizer, prompts, { maxTokens: limits });
          assertEquals(tokens, limits.map((limit, i) => GOLDEN[i].greedy.slice(0, limit)));
        }
        model[Symbol.dispose]();
      });
      assert(kernels.some((kernel) => kernel.startsWith("batch_layers")), String(kernels));
    });
  }
}

// The rest is about the loop and not the device.
const DEVICE = anyDevice();
const { model, tokenizer } = await load(TINY_DIR, { device: DEVICE });
const PROMPTS = GOLDEN.slice(0, 3).map((g) => g.prompt);

/** Caches of three prompts beside each other in one buffer, with room for `rows` tokens, and what they hold. */
async function held(rows: number): Promise<{ readonly caches: mx.lm.KvCache[]; readonly keys: unknown[][] }> {
  const caches = PROMPTS.map(() => model.makeCache());
  KvCache.allocateSlab(caches, rows);
  for (const [i, cache] of caches.entries()) await generate(model, tokenizer, PROMPTS[i], { maxTokens: 2, cache });
  return { caches, keys: caches.map((cache) => rowsIn(cache, 0, cache.offset)) };
}

/** The first `count` keys and values of a sequence, of all layers. */
function rowsIn({ state }: mx.lm.KvCache, sequence: number, count: number): unknown[] {
  return mx.tidy(() =>
    state.map((buffer) =>
      buffer.index(mx.Slice(sequence, sequence + 1), "...", mx.Slice(0, count), mx.Slice(null)).tolist()
    )
  );
}

Deno.test("KvCache.stack() copies nothing where caches lie side by side, and copies where one of them grew", async () => {
  for (const cache of (await held(200)).caches) cache.dispose(); // weights in other layouts stay
  const before = mx.getActiveMemory();
  for (const grows of [false, true]) {
    const { caches, keys } = await held(200);
    const lengths = caches.map((cache) => cache.offset);
    const { capacity } = caches[0];
    if (grows) caches[1].reserve(capacity);
    const memory = mx.getActiveMemory();
    mx.resetPeakMemory();
    const together = KvCache.stack(caches);
    assertEquals(together.capacity, grows ? 2 * capacity : capacity);
    // The peak is 0 until something is allocated, and a copy would lift it above what was there.
    if (!grows) assertEquals([mx.getActiveMemory(), mx.getPeakMemory() <= memory], [memory, true]);
    lengths.forEach((count, i) => assertEquals(rowsIn(together, i, count), keys[i]));
    assertEquals(caches.map((cache) => cache.capacity), [0, 0, 0]);
    together.dispose();
    assertEquals(mx.getActiveMemory(), before);
  }
});

for (const device of testDevices()) {
  Deno.test(`what steps keep of the caches that they ran over is no array's on ${device}`, async () => {
    const { model: own } = await load(TINY_DIR, { device });
    mx.setDefaultDevice(device);
    const run = (): Promise<string[]> =>
      fused(device, async () => {
        await batchGenerate(own, tokenizer, PROMPTS.slice(0, 2), { maxTokens: 2 });
      });
    await run();
    const before = mx.getActiveMemory();
    const other = mx.zeros([1 << 18]);
    mx.eval(other); // the next caches lie somewhere else
    await run();
    other.dispose();
    assertEquals(mx.getActiveMemory(), before);
    own[Symbol.dispose]();
  });
}

Deno.test("KvCache.allocateSlab() takes new caches of one model only", () => {
  using used = model.makeCache();
  used.reserve(1);
  for (const other of [used, model.makeCache(2)]) {
    assertThrows(() => KvCache.allocateSlab([model.makeCache(), other], 1), LlmError, "make new ones");
  }
});

Deno.test("caches that lie side by side live one by one", async () => {
  const before = mx.getActiveMemory();
  const { caches, keys } = await held(200);
  caches[0].dispose();
  assertEquals(rowsIn(caches[2], 0, caches[2].offset), keys[2]);
  // In another order they cannot be joined without a copy.
  const lengths = caches.map((cache) => cache.offset);
  using both = KvCache.stack([caches[2], caches[1]]);
  assertEquals([rowsIn(both, 0, lengths[2]), rowsIn(both, 1, lengths[1])], [keys[2], keys[1]]);
  both.dispose();
  assertEquals(mx.getActiveMemory(), before);
});

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
  const limited = wrapped(model, {
    config: { ...model.config, maxPositionEmbeddings: limit },
    makeCache: () => new mx.lm.KvCache({ layers, batch: 1, heads, headDim, dtype: mx.float32, limit }),
  });
  const long = GOLDEN[0].ids;
  const prompt = Array.from({ length: limit - 3 }, (_, i) => long[i % long.length]);
  const options = { maxTokens: 12 };
  const { tokens, finishReasons } = await batchGenerate(limited, tokenizer, [prompt, PROMPTS[1], PROMPTS[2]], options);
  assertEquals([tokens[0].length, finishReasons[0]], [4, "length"]);
  assertEquals(tokens.slice(1), GOLDEN.slice(1, 3).map((g) => g.greedy.slice(0, 12)));
});

Deno.test("batchGenerate() encodes each prompt once", async () => {
  const encoded: string[] = [];
  const counting: typeof tokenizer = Object.assign(Object.create(tokenizer), {
    encode: (text: string, options?: Parameters<typeof tokenizer.encode>[1]): number[] => {
      encoded.push(text);
      return tokenizer.encode(text, options);
    },
    decoder: () => tokenizer.decoder(),
    idOf: (token: string) => tokenizer.idOf(token),
  });
  const { promptTokens } = await batchGenerate(model, counting, PROMPTS, { maxTokens: 1 });
  assertEquals(encoded, PROMPTS);
  assertEquals(promptTokens, PROMPTS.reduce((n, prompt) => n + tokenizer.encode(prompt).length, 0));
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

Deno.test("an abort ends the wait for a batch's prompts at once, and their memory goes when the device is done", async () => {
  const backend = getBackend(DEVICE);
  const before = mx.getActiveMemory();
  const controller = new AbortController();
  const gate = Promise.withResolvers<void>();
  const wait = backend.waitAsync;
  backend.waitAsync = async (ticket) => {
    controller.abort();
    await gate.promise;
    await wait.call(backend, ticket);
  };
  try {
    const { signal } = controller;
    await assertRejects(() => batchGenerate(model, tokenizer, PROMPTS, { signal }), DOMException, "aborted");
    assert(mx.getActiveMemory() > before); // the device is not done
  } finally {
    backend.waitAsync = wait;
    gate.resolve();
  }
  for (let i = 0; i < 2000 && mx.getActiveMemory() > before; i++) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert(mx.getActiveMemory() <= before);
});

Deno.test("a prompt of a batch is submitted while the one before is read, where rows cost little", async () => {
  const backend = getBackend(DEVICE);
  const { device } = decodingModel(model);
  const { tiled } = device;
  const { run, waitAsync } = backend;
  let order: string[] = [];
  backend.run = (...args) => {
    order.push("run");
    return run.apply(backend, args);
  };
  backend.waitAsync = async (...args) => {
    await waitAsync.apply(backend, args);
    order.push("end");
  };
  try {
    for (const ahead of [false, true]) {
      Object.defineProperty(device, "tiled", { value: ahead, configurable: true });
      order = [];
      await batchGenerate(model, tokenizer, PROMPTS, { maxTokens: 1 });
      assertEquals(order.slice(0, 3), ahead ? ["run", "run", "end"] : ["run", "end", "run"]);
    }
  } finally {
    Object.assign(backend, { run, waitAsync });
    Object.defineProperty(device, "tiled", { value: tiled, configurable: true });
  }
});

Deno.test("batchGenerate() takes no prompts and refuses lists of another length", async () => {
  assertEquals((await batchGenerate(model, tokenizer, [])).texts, []);
  const wrong = batchGenerate(model, tokenizer, PROMPTS, { maxTokens: [1, 2] });
  await assertRejects(() => wrong, LlmError, "maxTokens has 2 values for 3 prompts");
  await assertRejects(() => batchGenerate(model, tokenizer, ["Hi", []]), LlmError, "The prompt is empty");
  const text = "Hi" as unknown as mx.lm.Prompt[];
  await assertRejects(() => batchGenerate(model, tokenizer, text), LlmError, "The prompts are no list");
  for (
    const [options, message] of [
      [{ stop: [5] }, "stop is [5], expected a text"],
      [{ maxTokens: null }, "maxTokens is null, expected a number or a list of numbers"],
      [{ seed: "x", temp: 1 }, 'seed is "x", expected a number or a list of numbers'],
      [{ logitsProcessors: 5 }, "logitsProcessors is 5, expected a list of functions"],
    ] as const
  ) {
    const untyped = options as unknown as mx.lm.BatchGenerateOptions;
    await assertRejects(() => batchGenerate(model, tokenizer, ["Hi"], untyped), LlmError, message);
  }
});
