/** Generation with drafted tokens: the tokens, log probabilities and caches that come without them, on every device. */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { assertAlike, replay, TOLERANCE } from "../../support/models/engine_requests.ts";
import { onceMade } from "../../support/models/idle_after.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const { load, streamGenerate, LlmError } = mx.lm;
const [{ prompt: PROMPT, ids: IDS, greedy: GREEDY }] = GOLDEN;

/** All responses of a generation. */
function collect(
  { model, tokenizer }: Pick<mx.lm.Loaded, "model" | "tokenizer">,
  options: mx.lm.GenerateOptions,
  prompt: mx.lm.Prompt = PROMPT,
): Promise<mx.lm.GenerationResponse[]> {
  return Array.fromAsync(streamGenerate(model, tokenizer, prompt, options));
}

const tokensOf = (responses: readonly mx.lm.GenerationResponse[]): number[] => responses.map(({ token }) => token);

/** Speculation by {@link replay} that always drafts as many tokens. */
const replayed = (answer: readonly number[], right: number, numDraftTokens: number): mx.lm.SpeculationOptions => ({
  drafter: replay(answer, right),
  numDraftTokens,
  adaptive: false,
});

const SETTINGS: Readonly<Record<string, mx.lm.GenerateOptions>> = {
  "greedy": {},
  "sampled": { temp: 1, topP: 0.95, topK: 50, seed: 3 },
  "penalized": {
    temp: 0.8,
    seed: 5,
    repetitionPenalty: 1.3,
    frequencyPenalty: 0.4,
    repetitionContextSize: 3,
    logitBias: { 300: 2, 17: -Infinity },
  },
  "penalized by the last token, with log probabilities": { presencePenalty: 1, repetitionContextSize: 1, logprobs: 2 },
  "of a fixed cache": { temp: 1, seed: 1, maxKvSize: 16 },
  "of a cache of 8 bits": { kvBits: 8 },
};

for (const device of testDevices()) {
  const tolerance = device !== "wasm" && hasMatrices(device) ? TOLERANCE.matrices : 1e-3;
  const isSlow = device !== "wasm" && !mx.withDevice(device, getBackend).limits.concurrent;
  for (const [name, options] of Object.entries(SETTINGS)) {
    Deno.test(`tokens are those that come without drafts: ${name} on ${device}`, async () => {
      const loaded = await load(TINY_DIR, { device });
      using model = loaded.model;
      const maxTokens = isSlow ? 12 : 50;
      const plain = await collect(loaded, { maxTokens, ...options });
      for (const [right, length] of isSlow ? [[1, 3]] : [[7, 7], [1, 3], [0, 1]]) {
        const speculation = replayed(tokensOf(plain), right, length);
        // Pipelines are made meanwhile; before that nothing is drafted.
        const once = { ...speculation, drafter: replay(tokensOf(plain), right) };
        await collect(loaded, { maxTokens, ...options, speculation: once });
        await model.traces.idle();
        // Ordinary steps between drafts go on from the state that those leave.
        const drafter = replay(tokensOf(plain), right, true);
        const drafted = await collect(loaded, { maxTokens, ...options, speculation: { ...speculation, drafter } });
        const what = `${right} of ${length} right`;
        assertAlike(drafted, plain, what, tolerance);
        const { draftedTokens, acceptedTokens } = drafted.at(-1)!;
        assert(
          draftedTokens! >= length && (right === 0 ? acceptedTokens === 0 : acceptedTokens! > 0),
          `${what}: ${acceptedTokens} of ${draftedTokens}`,
        );
        assert(right < length || acceptedTokens === draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
      }
      await model.traces.idle();
    });
  }

  if (device === "wasm") continue; // which has no kernels of whole layers
  // Software Vulkan compiles and runs them for minutes.
  Deno.test(`a step that verifies drafts runs in the kernels of chunks on ${device}`, { ignore: isSlow }, async () => {
    using _options = withOptions({ regions: "on", batched: "on" });
    const loaded = await load(TINY_DIR, { device });
    using model = loaded.model;
    const run = (): Promise<mx.lm.GenerationResponse[]> =>
      collect(loaded, { maxTokens: 6, speculation: replayed(GREEDY, 7, 3) });
    const kernels = await kernelsOf(device, async () => {
      await run(); // which has the pipelines made
      await model.traces.idle();
      const responses = await run();
      assertEquals(tokensOf(responses), GREEDY.slice(0, 6));
      assert(responses.at(-1)!.acceptedTokens! >= 3);
    });
    assert([...kernels].some((kernel) => kernel.startsWith("batch_layers")), [...kernels].join());
    assert(!kernels.has("attention"), [...kernels].join());
    await model.traces.idle();
  });
}

// The rest is about the loop and not the device.
const loaded = await load(TINY_DIR, { device: anyDevice() });
const { model, tokenizer } = loaded;
// Makes the steps that verify.
await onceMade([model], () => collect(loaded, { maxTokens: 24, speculation: replayed(GREEDY, 7, 7) }));

Deno.test("an answer that repeats itself is drafted by n-grams", async () => {
  const options = { maxTokens: 60, logitBias: { 300: 100 } };
  const plain = await collect(loaded, options);
  const drafted = await onceMade([model], () => collect(loaded, { ...options, speculation: { adaptive: false } }));
  assertEquals(tokensOf(drafted), tokensOf(plain));
  const { draftedTokens, acceptedTokens } = drafted.at(-1)!;
  assert(acceptedTokens! > 10, `${acceptedTokens} of ${draftedTokens}`);
  assertEquals(plain.at(-1)!.draftedTokens, undefined);
  await model.traces.idle();
});

Deno.test("a cache has the tokens that were fed, wherever an answer with drafts ends", async () => {
  for (const maxTokens of [1, 2, 3, 5, 9]) {
    using cache = model.makeCache();
    const speculation = replayed(GREEDY, 7, 7);
    const first = await collect(loaded, { maxTokens, cache, speculation });
    assertEquals([tokensOf(first), cache.offset], [GREEDY.slice(0, maxTokens), IDS.length + maxTokens - 1]);
    assertEquals(cache.tokens, [...IDS, ...GREEDY.slice(0, maxTokens - 1)]);
    if (maxTokens === 9) assert(first.at(-1)!.acceptedTokens! > 0);
    const more = await collect(loaded, { maxTokens: 4, cache }, [GREEDY[maxTokens - 1]]);
    assertEquals(tokensOf(more), GREEDY.slice(maxTokens, maxTokens + 4));
  }
  using cache = model.makeCache();
  let taken = 0;
  const stream = streamGenerate(model, tokenizer, PROMPT, { cache, speculation: replayed(GREEDY, 7, 7) });
  for await (const { token } of stream) {
    assertEquals(token, GREEDY[taken]);
    if (++taken === 6) break; // within a draft
  }
  assertEquals(cache.offset, IDS.length + 5);
  await model.traces.idle();
});

Deno.test("a drafted answer ends at an EOS token and a stop string", async () => {
  const whole = await collect(loaded, { maxTokens: 500 });
  assertEquals(whole.at(-1)!.finishReason, "stop");
  const answer = tokensOf(whole);
  const ended = await collect(loaded, { maxTokens: 500, speculation: replayed([...answer, 9, 9, 9, 9], 7, 7) });
  assertEquals([tokensOf(ended), ended.at(-1)!.finishReason], [answer, "stop"]);
  const stop = tokenizer.decode(answer.slice(7, 9)).trim();
  const plain = await collect(loaded, { stop });
  const stopped = await collect(loaded, { stop, speculation: replayed(answer, 7, 7) });
  assertEquals(stopped.map(({ raw }) => raw).join(""), plain.map(({ raw }) => raw).join(""));
  assertEquals(stopped.length, plain.length);
  await model.traces.idle();
});

Deno.test("what a draft has room for is yielded before the error at the end of a cache", async () => {
  const { layers, kvHeads, headDim } = model.config as unknown as Record<string, number>;
  const sizes = { layers, heads: kvHeads, headDim, batch: 1, dtype: mx.float32, limit: 21 };
  const count = sizes.limit - IDS.length + 1; // the last one is not fed
  for (const speculation of [undefined, replayed(GREEDY, 7, 7), replayed(GREEDY, 7, 2)]) {
    using cache = new mx.lm.KvCache(sizes);
    const tokens: number[] = [];
    const whole = async (): Promise<void> => {
      const stream = streamGenerate(model, tokenizer, PROMPT, { maxTokens: 40, cache, speculation });
      for await (const { token } of stream) tokens.push(token);
    };
    await assertRejects(whole, LlmError, "The context holds 21 tokens: 22 would be needed");
    assertEquals(tokens, GREEDY.slice(0, count));
  }
  await model.traces.idle();
});

Deno.test("a cache grows under drafts, which see all of it afterwards", async () => {
  const prompt = Array.from({ length: 240 }, (_, i) => IDS[i % IDS.length]);
  const plain = await collect(loaded, { maxTokens: 290, logitBias: eosBias() }, prompt);
  const drafted = await onceMade([model], () => {
    const speculation = replayed(tokensOf(plain), 6, 7);
    return collect(loaded, { maxTokens: 290, logitBias: eosBias(), speculation }, prompt);
  });
  assertEquals(tokensOf(drafted), tokensOf(plain));
  assert(drafted.at(-1)!.acceptedTokens! > 120);
  await model.traces.idle();
});

/** Forbids the end. */
function eosBias(): Record<number, number> {
  return Object.fromEntries([...tokenizer.eosTokenIds].map((id) => [id, -Infinity]));
}

/**
 * Options with a seed whose answer has the same tokens at temperatures nearby. No token is so near to the end of its share of probability that another kernel's rounding chooses the next one.
 */
async function steadily(options: mx.lm.GenerateOptions & { readonly temp: number }): Promise<mx.lm.GenerateOptions> {
  for (let seed = 7; seed < 107; seed++) {
    const answers = new Set<string>();
    for (const factor of [0.98, 1, 1.02]) {
      answers.add(tokensOf(await collect(loaded, { ...options, seed, temp: factor * options.temp })).join());
    }
    if (answers.size === 1) return { ...options, seed };
  }
  throw new Error("no seed gives a steady answer");
}

Deno.test("drafts of an answer with a grammar are those that it allows, and it has the tokens that come without", async () => {
  const formats: mx.lm.ResponseFormat[] = [
    { type: "json_object" },
    { type: "regex", regex: "[a-z ]{30}\\." },
    { type: "json_schema", schema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] } },
  ];
  for (const responseFormat of formats) {
    for (const draws of [false, true]) {
      const greedy = { maxTokens: 24, responseFormat };
      const options = draws ? await steadily({ ...greedy, temp: 1 }) : greedy;
      const plain = await collect(loaded, options);
      const answer = tokensOf(plain);
      for (const right of [7, 1, 0]) {
        await onceMade([model], () => collect(loaded, { ...options, speculation: replayed(answer, right, 3) }));
        const drafter = replay(answer, right, true);
        const drafted = await collect(loaded, { ...options, speculation: { ...replayed(answer, right, 3), drafter } });
        assertAlike(drafted, plain, `${JSON.stringify(options)}, ${right} right`);
        const { acceptedTokens, draftedTokens } = drafted.at(-1)!;
        assert(right < 7 || acceptedTokens === draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
        assert(right === 0 || acceptedTokens! > 0, `${acceptedTokens} of ${draftedTokens}`);
      }
    }
  }
});

Deno.test("a grammar drafts the tokens that it demands", async () => {
  const text = "ᚠᛇᚻ᛫ᛒᛦᚦ";
  const options = { maxTokens: 40, responseFormat: { type: "grammar", grammar: `root ::= "${text}"` } } as const;
  const plain = await collect(loaded, options);
  const nothing = (): mx.lm.SpeculationOptions => ({
    drafter: { extend: () => {}, draft: () => [] },
    adaptive: false,
  });
  const drafted = await onceMade([model], () => collect(loaded, { ...options, speculation: nothing() }));
  assertEquals(drafted.map(({ text }) => text).join(""), text);
  assertEquals(tokensOf(drafted), tokensOf(plain));
  const { acceptedTokens, draftedTokens } = drafted.at(-1)!;
  assertEquals(acceptedTokens, draftedTokens);
  assert(acceptedTokens! > 10, `${acceptedTokens} of ${tokensOf(plain).length}`);
});

Deno.test("a drafter may wait, and is refused where it gives no token ids", async () => {
  const { extend, draft } = replay(GREEDY, 7);
  const later = { extend, draft: async (count: number) => (await Promise.resolve(), draft(count)) };
  const drafted = await collect(loaded, { maxTokens: 20, speculation: { drafter: later, adaptive: false } });
  assertEquals(tokensOf(drafted), GREEDY.slice(0, 20));
  assert(drafted.at(-1)!.acceptedTokens! > 10);
  for (const wrong of [4096, -1, 0.5, NaN]) {
    const drafter = { extend: () => {}, draft: () => [wrong] };
    await assertRejects(
      () => collect(loaded, { maxTokens: 20, speculation: { drafter, adaptive: false } }),
      LlmError,
      `The drafter of speculation gave ${wrong}, expected token ids below 4096`,
    );
  }
});

Deno.test("a cache keeps its tokens where the drafter is refused", async () => {
  using cache = model.makeCache();
  for await (const _ of streamGenerate(model, tokenizer, PROMPT, { maxTokens: 4, cache, cachePrompt: true }));
  const before = [...cache.tokens];
  const other = streamGenerate(model, tokenizer, "Something else", {
    ...{ maxTokens: 4, cache, cachePrompt: true },
    speculation: { drafter: "mtp" },
  });
  await assertRejects(() => Array.fromAsync(other), LlmError, "has no head that drafts tokens");
  assertEquals([...cache.tokens], before);
});

Deno.test("generateStep() drafts too", async () => {
  using cache = model.makeCache();
  const options = {
    maxTokens: 10,
    sampler: mx.lm.makeSampler({}),
    processors: [],
    contextSize: 20,
    cache,
    prefillStepSize: 512,
    speculation: replayed(GREEDY, 7, 3),
  };
  assertEquals(await Array.fromAsync(mx.lm.generateStep(IDS, model, options)), GREEDY.slice(0, 10));
  await model.traces.idle();
});

Deno.test("speculation leaves no memory", async () => {
  const run = (): Promise<mx.lm.GenerationResponse[]> =>
    collect(loaded, { maxTokens: 30, temp: 1, seed: 1, speculation: { adaptive: false } });
  await run();
  await model.traces.idle();
  const before = mx.getActiveMemory();
  await run();
  for await (const _ of streamGenerate(model, tokenizer, PROMPT, { speculation: replayed(GREEDY, 5, 7) })) break;
  await model.traces.idle();
  assertEquals(mx.getActiveMemory(), before);
});
