/**
 * Several prompts continued together. Every sequence gets what it would get alone, whatever its length and wherever the
 * others end. No memory stays in use.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { whenReleased } from "../../support/devices/released.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { forgetLaunchModes } from "../../../src/schedule/decoder/megakernel.ts";
import { matrixMap } from "../../../src/schedule/ops/matmul/coopmat.ts";
import { collect } from "../../../src/schedule/plan/garbage.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { tinyPage } from "../../support/models/engine_requests.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { wrapped } from "../../support/models/wrapped_model.ts";
import { idleAfter } from "../../support/models/idle_after.ts";

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
    await model.traces.idle();
    model[Symbol.dispose]();
    assertEquals(await whenReleased(mx.getActiveMemory, before), before);
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
    await model.traces.idle();
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
        await model.traces.idle();
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
        await other.model.traces.idle();
        other.model[Symbol.dispose]();
      }
      await model.traces.idle();
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
            await model.traces.idle();
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
        await model.traces.idle();
        model[Symbol.dispose]();
      });
      assert(kernels.some((kernel) => kernel.startsWith("batch_layers")), String(kernels));
    });
  }
}

// The rest is about the loop and not the device.
const DEVICE = anyDevice();
const { model, tokenizer } = await load(TINY_DIR, { device: DEVICE });
const test = (name: string, work: () => Promise<void>): void => Deno.test(name, idleAfter(() => model, work));
const PROMPTS = GOLDEN.slice(0, 3).map((g) => g.prompt);

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

test("streamBatchGenerate() streams in steps, and a prompt of one token goes with others", async () => {
  const prompts = [[GOLDEN[0].ids[0]], GOLDEN[1].ids];
  const order: number[] = [];
  for await (const { sequence, generationTokens } of streamBatchGenerate(model, tokenizer, prompts, { maxTokens: 4 })) {
    order.push(10 * generationTokens + sequence);
  }
  assertEquals(order, [10, 11, 20, 21, 30, 31, 40, 41]);
});

test("batchGenerate() ends each sequence at its stop string", async () => {
  const whole = await batchGenerate(model, tokenizer, PROMPTS, { maxTokens: 30 });
  const stop = whole.texts[1].slice(12, 20);
  const { texts, finishReasons } = await batchGenerate(model, tokenizer, PROMPTS, { maxTokens: 30, stop });
  whole.texts.forEach((text, i) => {
    const at = text.indexOf(stop);
    assertEquals(texts[i], at < 0 ? text : text.slice(0, at));
    if (at >= 0) assertEquals(finishReasons[i], "stop");
  });
});

test("batchGenerate() goes on with others where the context ends for one", async () => {
  const limit = 40;
  const limited = wrapped(model, { config: { ...model.config, maxPositionEmbeddings: limit } });
  const long = GOLDEN[0].ids;
  const prompt = Array.from({ length: limit - 3 }, (_, i) => long[i % long.length]);
  const options = { maxTokens: 12 };
  const { tokens, finishReasons } = await batchGenerate(limited, tokenizer, [prompt, PROMPTS[1], PROMPTS[2]], options);
  assertEquals([tokens[0].length, finishReasons[0]], [4, "length"]);
  assertEquals(tokens.slice(1), GOLDEN.slice(1, 3).map((g) => g.greedy.slice(0, 12)));
});

test("batchGenerate() encodes each prompt once", async () => {
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

test("an abort ends all sequences within a token", async () => {
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

test("an abort ends the wait for a batch's prompts at once, and their memory goes when the device is done", async () => {
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
  assert(await whenReleased(mx.getActiveMemory, before) <= before);
});

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

test("a prompt of a batch is submitted while the one before is read, where rows cost little", async () => {
  const backend = getBackend(DEVICE);
  const { device } = decodingModel(model);
  const { tiled } = device;
  const { run, waitAsync } = backend;
  // Each fills a step, so that no step reads two.
  const prompts = [1, 2, 3].map((seed) => Array.from({ length: 32 }, (_, i) => 5 + seed * (i + 1)));
  let order: string[] = [];
  backend.run = (...args) => {
    order.push("run");
    return run.apply(backend, args);
  };
  backend.waitAsync = async (...args) => {
    await pause(50); // a GPU would be done before the host comes to the next prompt
    await waitAsync.apply(backend, args);
    order.push("end");
  };
  try {
    /** Submissions before the first one that the host waits for. */
    const first = async (tiled: boolean): Promise<number> => {
      Object.defineProperty(device, "tiled", { value: tiled, configurable: true });
      order = [];
      await batchGenerate(model, tokenizer, prompts, { maxTokens: 1, prefillStepSize: 32 });
      return order.indexOf("end");
    };
    await first(true); // its trace is kept
    const [alone, ahead] = [await first(false), await first(true)];
    assert(alone > 0 && ahead === 2 * alone, `${alone} submissions for a prompt, ${ahead} ahead`);
  } finally {
    Object.assign(backend, { run, waitAsync });
    Object.defineProperty(device, "tiled", { value: tiled, configurable: true });
  }
});

test("processors of a caller change the logits of each sequence by its own tokens", async () => {
  const [frequency] = mx.lm.makeLogitsProcessors({ frequencyPenalty: 9 });
  const unnamed: mx.lm.LogitsProcessor = Object.assign(
    (tokens: mx.Tensor, logits: mx.Tensor, weights?: mx.Tensor) => frequency(tokens, logits, weights),
    { counts: true },
  );
  const prompts = [GOLDEN[0].ids.slice(0, 2), GOLDEN[1].ids, GOLDEN[2].ids]; // one is shorter than what processors see
  const shared = { maxTokens: 25, repetitionContextSize: 9 };
  const expected = await Promise.all(
    prompts.map((prompt) => alone(model, tokenizer, prompt, { ...shared, frequencyPenalty: 9 })),
  );
  const plain = await Promise.all(prompts.map((prompt) => alone(model, tokenizer, prompt, shared)));
  assert(expected.some((tokens, i) => String(tokens) !== String(plain[i])), "the penalty changes nothing");
  for (const processor of [frequency, unnamed]) {
    const { tokens } = await batchGenerate(model, tokenizer, prompts, { ...shared, logitsProcessors: [processor] });
    assertEquals(tokens, expected);
  }
  // After the bias: what it forbids, this one allows.
  const [bias] = mx.lm.makeLogitsProcessors({ logitBias: { 7: 1e4 } });
  const options = { maxTokens: 2, logitBias: { 7: -1e3 }, logitsProcessors: [bias] };
  assertEquals((await batchGenerate(model, tokenizer, prompts, options)).tokens, prompts.map(() => [7, 7]));
  const broken = (): mx.Tensor => {
    throw new Error("no logits");
  };
  const failing = batchGenerate(model, tokenizer, prompts, { logitsProcessors: [broken] });
  await assertRejects(() => failing, Error, "no logits");
});

test("more prompts than are computed at a time wait for their turn", async () => {
  const count = 270;
  const prompts = Array.from({ length: count }, (_, i) => GOLDEN[i % GOLDEN.length].ids);
  const read: number[] = [];
  const order: number[] = [];
  const tokens: number[][] = prompts.map(() => []);
  const onPrompt = (done: number, total: number): void => void read.push(done, total);
  for await (const r of streamBatchGenerate(model, tokenizer, prompts, { maxTokens: 3, onPrompt })) {
    if (r.generationTokens === 1) order.push(r.sequence);
    tokens[r.sequence].push(r.token);
  }
  assertEquals(tokens, prompts.map((_, i) => GOLDEN[i % GOLDEN.length].greedy.slice(0, 3)));
  assertEquals(order, prompts.map((_, i) => i));
  assertEquals(read, prompts.flatMap((_, i) => [i + 1, count]));
  // The first ones end within a token, and those that wait have none.
  const controller = new AbortController();
  const onToken = (done: number): void => done === 260 ? controller.abort() : undefined;
  const { signal } = controller;
  const settings = { maxTokens: prompts.map((_, i) => i < 250 ? 2 : 9), onPrompt: onToken, signal };
  const aborted = await batchGenerate(model, tokenizer, prompts, settings);
  assertEquals(aborted.finishReasons.slice(0, 250), Array.from({ length: 250 }, () => "length"));
  assertEquals(aborted.finishReasons.slice(250), Array.from({ length: 20 }, () => "abort"));
  assertEquals(aborted.tokens.slice(260), Array.from({ length: 10 }, () => []));
});

test("a batch takes the pages that its prompts and answers need, and frees them when it is left", async () => {
  // Three prompts of 60 tokens: one page each for 4 more positions, two for 5. The last token takes none.
  const prompts = [0, 1, 2].map((first) => Array.from({ length: 60 }, (_, i) => 1 + first + 3 * i));
  const taken = async (maxTokens: number): Promise<number> => {
    const before = mx.getActiveMemory();
    let during = 0;
    for await (const _ of streamBatchGenerate(model, tokenizer, prompts, { maxTokens })) {
      during = mx.getActiveMemory() - before;
      break;
    }
    assertEquals(mx.getActiveMemory(), before);
    return during;
  };
  await taken(5); // traces that are kept
  assertEquals(await taken(6) - await taken(5), 3 * tinyPage(DEVICE));
});

test("a batch computes no further than its caller reads", async () => {
  const backend = getBackend(DEVICE);
  const { run } = backend;
  let runs = 0;
  backend.run = (...args) => {
    runs++;
    return run.apply(backend, args);
  };
  try {
    let count = 0;
    for await (const _ of streamBatchGenerate(model, tokenizer, PROMPTS, { maxTokens: 40 })) {
      if (++count !== 12) continue;
      await pause(30);
      const before = runs;
      await pause(30);
      assertEquals(runs, before);
    }
    assert(count > 40, `${count} tokens`);
  } finally {
    backend.run = run;
  }
});

test("a batch drafts by n-grams of its prompts and of answers that ended", async () => {
  const prompts = ["Once upon a time", "The sea was", "Once upon a time"];
  const format = { type: "regex", regex: "[a-z ]{9}" } as const;
  for (const more of [{ logitBias: { 300: 100 } }, { maxTokens: [9, 30, 30] }, { responseFormat: format }]) {
    const options = { maxTokens: 24, temp: 0.8, seed: [1, 2, 1], ...more };
    const plain = await batchGenerate(model, tokenizer, prompts, options);
    const speculation = { adaptive: false } as const;
    for (const round of [0, 1]) { // pipelines are made meanwhile
      const drafted = await batchGenerate(model, tokenizer, prompts, { ...options, speculation });
      assertEquals([drafted.tokens, drafted.texts], [plain.tokens, plain.texts]);
      await model.traces.idle();
      const { draftedTokens, acceptedTokens } = drafted;
      const isRepetitive = "logitBias" in more && round > 0;
      assert(acceptedTokens! >= (isRepetitive ? 5 : 0), `${acceptedTokens} of ${draftedTokens}`);
      assert(draftedTokens! >= acceptedTokens!, `${acceptedTokens} of ${draftedTokens}`);
    }
    assertEquals(plain.draftedTokens, undefined);
  }
});

test("batchGenerate() takes no prompts and refuses lists of another length", async () => {
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
      [
        { speculation: { drafter: { extend: () => {}, draft: () => [] } } },
        'speculation.drafter is {}, expected "ngrams" or "mtp": an engine takes draft models',
      ],
      [{ logitsProcessors: 5 }, "logitsProcessors is 5, expected a list of functions"],
    ] as const
  ) {
    const untyped = options as unknown as mx.lm.BatchGenerateOptions;
    await assertRejects(() => batchGenerate(model, tokenizer, ["Hi"], untyped), LlmError, message);
  }
});
