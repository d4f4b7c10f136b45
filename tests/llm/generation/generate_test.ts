/**
 * The embedded model end to end: logits and greedy continuations of the reference implementation on every device, and the
 * generation loop around them.
 */

import { assert, assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { GOLDEN, goldenLogits, TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { wrapped } from "../../support/models/wrapped_model.ts";

const { generate, load, streamGenerate, LlmError } = mx.lm;

/** All responses of a generation. */
async function collect(stream: AsyncIterable<mx.lm.GenerationResponse>): Promise<mx.lm.GenerationResponse[]> {
  const responses: mx.lm.GenerationResponse[] = [];
  for await (const response of stream) responses.push(response);
  return responses;
}

const text = (responses: readonly mx.lm.GenerationResponse[]): string => responses.map((r) => r.text).join("");

for (const device of testDevices()) {
  Deno.test(`forward() gives the reference logits on ${device}`, async () => {
    const { model } = await load(TINY_DIR, { device });
    for (const [i, { ids }] of GOLDEN.entries()) {
      const logits = mx.tidy(() => model.forward(mx.array([ids], mx.int32)));
      assertEquals(logits.shape, [1, ids.length, 4096]);
      const found = logits.toTypedArray();
      assert(nmse(found, goldenLogits(i)) <= 1e-5, `prompt ${i}: ${nmse(found, goldenLogits(i))}`);
      mx.dispose(logits);
    }
    model[Symbol.dispose]();
  });

  Deno.test(`streamGenerate() gives the reference continuations on ${device}`, async () => {
    const { model, tokenizer } = await load(TINY_DIR, { device });
    const most = mx.deviceInfo(device).type === "cpu" ? 130 : Infinity; // software Vulkan takes too long for all of them
    for (const { prompt, ids, greedy, text: expected } of GOLDEN.filter((g) => g.greedy.length < most)) {
      const responses = await collect(streamGenerate(model, tokenizer, prompt, { maxTokens: 200 }));
      assertEquals(responses.map((r) => r.token), [...greedy]);
      assertEquals(text(responses), expected.replace(/<\|(im_end|endoftext)\|>$/, ""));
      const last = responses.at(-1)!;
      assertEquals([last.finishReason, last.promptTokens, last.generationTokens], ["stop", ids.length, greedy.length]);
      assert(responses.slice(0, -1).every((r) => r.finishReason === null));
      assert(last.promptTps > 0 && last.generationTps > 0 && last.peakMemory > 0);
      assert(responses.every((r) => r.promptTps === last.promptTps) && responses[0].generationTps === 0);
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });

  Deno.test(`a stop wastes the rest of a submission and at most one more on ${device}`, async () => {
    const backend = mx.withDevice(device, getBackend);
    const { model, tokenizer } = await load(TINY_DIR, { device });
    const count = device === "wasm" || backend.limits.concurrent ? 60 : 6; // software devices are slow
    const { run } = backend;
    let submissions: number[] = [];
    backend.run = (plan, slots, times = 1) => {
      submissions.push(times);
      return run.call(backend, plan, slots, times);
    };
    try {
      for (let round = 0; round < 2; round++) { // the second one traces nothing
        let taken = 0;
        submissions = [];
        for await (const _ of streamGenerate(model, tokenizer, GOLDEN[0].prompt, { maxTokens: 120 })) {
          if (++taken === count) break;
        }
        await model.traces.idle();
      }
    } finally {
      backend.run = run;
    }
    assertEquals(submissions[0], 1, "the prompt");
    let steps = 0;
    const needed = submissions.findIndex((times) => (steps += times) >= count) + 1;
    assert(submissions.length - needed <= 1, `${submissions} for ${count} tokens`);
    model[Symbol.dispose]();
  });

  Deno.test(`streamGenerate() gives the reference continuations without fusion on ${device}`, async () => {
    using _options = withOptions({ fuse: false });
    const { model, tokenizer } = await load(TINY_DIR, { device });
    for (const { prompt, greedy } of GOLDEN.slice(0, 2)) {
      const responses = await collect(streamGenerate(model, tokenizer, prompt, { maxTokens: 12 }));
      assertEquals(responses.map((r) => r.token), greedy.slice(0, 12));
    }
    model[Symbol.dispose]();
  });

  Deno.test(`a model leaves no memory behind on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const before = mx.getActiveMemory();
    const { model, tokenizer } = await load(TINY_DIR, { device });
    const sampled = { maxTokens: 5, temp: 1, seed: 1, repetitionPenalty: 1.2 };
    const both = async (): Promise<void> => {
      await generate(model, tokenizer, "Once upon a time", { maxTokens: 5 });
      await generate(model, tokenizer, "Once upon a time", sampled);
    };
    // Some kernels keep weights in another layout, some steps a state, and Plans a few recordings with tables of addresses.
    for (let i = 0; i < (mx.withDevice(device, getBackend).limits.concurrent ? 4 : 1); i++) await both();
    const loaded = mx.getActiveMemory();
    await both();
    for await (const _ of streamGenerate(model, tokenizer, "Once", { maxTokens: 50 })) break;
    assertEquals(mx.getActiveMemory(), loaded);
    model[Symbol.dispose]();
    assertEquals(mx.getActiveMemory(), before);
  });
}

// The rest is about the loop and not the device.
const DEVICE = anyDevice();
const { model, tokenizer } = await load(TINY_DIR, { device: DEVICE });
const [{ prompt: PROMPT, ids: IDS, greedy: GREEDY, text: TEXT }] = GOLDEN;

Deno.test("streamGenerate() takes text, ids and conversations", async () => {
  const few = { maxTokens: 8 };
  const expected = await generate(model, tokenizer, PROMPT, few);
  assertEquals(await generate(model, tokenizer, IDS, few), expected);
  const chat = GOLDEN[5];
  const messages: mx.lm.ChatMessage[] = [{ role: "user", content: "What is 17 + 25?" }];
  assertEquals(
    await generate(model, tokenizer, messages, { enableThinking: false }),
    chat.text.replace("<|im_end|>", ""),
  );
});

Deno.test("streamGenerate() reads the prompt in chunks with the same result", async () => {
  const { prompt, greedy } = GOLDEN[6];
  for (const prefillStepSize of [2, 7]) {
    const responses = await collect(streamGenerate(model, tokenizer, prompt, { prefillStepSize, maxTokens: 10 }));
    assertEquals(responses.map((r) => r.token), greedy.slice(0, 10));
  }
});

Deno.test("streamGenerate() continues a cache as if it had seen all tokens at once", async () => {
  using cache = model.makeCache();
  const first = await collect(streamGenerate(model, tokenizer, PROMPT, { maxTokens: 5, cache }));
  assertEquals(cache.offset, IDS.length + 4); // all but the last token
  const more = await collect(streamGenerate(model, tokenizer, [first[4].token], { maxTokens: 5, cache }));
  assertEquals([...first, ...more].map((r) => r.token), GREEDY.slice(0, 10));
  assertEquals(cache.trim(3), 3);
  assertEquals(cache.offset, IDS.length + 6);
  const again = await collect(streamGenerate(model, tokenizer, [GREEDY[6]], { maxTokens: 4, cache }));
  assertEquals(again.map((r) => r.token), GREEDY.slice(7, 11));
  cache.reset();
  assertEquals(cache.offset, 0);
});

Deno.test("streamGenerate() refuses a cache that another generation writes to", async () => {
  using cache = model.makeCache();
  const first = generate(model, tokenizer, PROMPT, { maxTokens: 3, cache });
  await assertRejects(
    () => generate(model, tokenizer, "The", { cache }),
    LlmError,
    "The cache serves another generation",
  );
  assertEquals(await first, tokenizer.decode(GREEDY.slice(0, 3)));
  for await (const _ of streamGenerate(model, tokenizer, [GREEDY[2]], { cache })) break; // which frees it
  await generate(model, tokenizer, [GREEDY[3]], { maxTokens: 1, cache });
});

Deno.test("streamGenerate() refuses a cache of another model or of several sequences and frees one that it made", async () => {
  const { KvCache } = mx.lm;
  const { layers, kvHeads, headDim } = model.config as unknown as Record<string, number>;
  const sizes = { layers, heads: kvHeads, headDim, batch: 1, dtype: mx.float32, limit: 100 };
  const other = { layers: layers + 1, heads: 2 * kvHeads, headDim: 2 * headDim, batch: 2 };
  const wrong = Object.entries(other).map(([name, size]) => new KvCache({ ...sizes, [name]: size }));
  for (const cache of [...wrong, {} as mx.lm.KvCache]) {
    const message = "The cache is not one of this model for one sequence: make it with model.makeCache()";
    await assertRejects(() => generate(model, tokenizer, PROMPT, { cache }), LlmError, message);
  }
  using fits = new KvCache(sizes);
  await generate(model, tokenizer, PROMPT, { maxTokens: 2, cache: fits });
  const before = mx.getActiveMemory();
  await generate(model, tokenizer, PROMPT, { maxTokens: 2, cache: null as unknown as mx.lm.KvCache });
  assertEquals(mx.getActiveMemory(), before);
});

Deno.test("streamGenerate() takes the cache of an aborted prompt once the device is done with it", async () => {
  using cache = model.makeCache();
  const controller = new AbortController();
  const long = Array.from({ length: 320 }, (_, i) => 5 + i % 300);
  const { signal } = controller;
  const onPrompt = (): void => void setTimeout(() => controller.abort(), 0); // so it comes while a later chunk is read
  const aborted = generate(model, tokenizer, long, { cache, signal, prefillStepSize: 32, onPrompt });
  await assertRejects(() => aborted, DOMException, "aborted");
  assertEquals(
    await generate(model, tokenizer, PROMPT, { maxTokens: 3, cache, cachePrompt: true }),
    tokenizer.decode(GREEDY.slice(0, 3)),
  );
});

Deno.test("streamGenerate() with cachePrompt reads only what the cache does not begin with", async () => {
  using cache = model.makeCache();
  const messages: mx.lm.ChatMessage[] = [];
  const figures: number[][] = [];
  // The third turn takes another way than the second did.
  for (
    const [keep, question] of [[0, "Hi what is your name"], [2, "What is 17 + 25?"], [2, "What is Vulkan?"]] as const
  ) {
    messages.splice(keep, Infinity, { role: "user", content: question });
    const options = { enableThinking: false, maxTokens: 40, repetitionPenalty: 1.1 };
    const alone = await collect(streamGenerate(model, tokenizer, messages, options));
    const cached = await collect(streamGenerate(model, tokenizer, messages, { ...options, cache, cachePrompt: true }));
    assertEquals(cached.map((r) => r.token), alone.map((r) => r.token));
    const { promptTokens, cachedTokens } = cached.at(-1)!;
    assertEquals([alone[0].cachedTokens, promptTokens], [0, alone[0].promptTokens]);
    assertEquals(cache.tokens, [
      ...tokenizer.encodeChat(messages, options),
      ...cached.slice(0, -1).map((r) => r.token),
    ]);
    figures.push([promptTokens, cachedTokens]);
    messages.push({ role: "assistant", content: text(cached) });
  }
  const shared = tokenizer.encodeChat(messages.slice(0, 2), { addGenerationPrompt: false }).length;
  const [[, first], [, second], [, third]] = figures;
  assertEquals(first, 0);
  assert(second > 0 && second <= shared && third >= second, `${figures} of ${shared}`);
  // The same prompt once more: only its last token is read.
  const ids = cache.tokens.slice(0, 9);
  const again = await collect(streamGenerate(model, tokenizer, ids, { maxTokens: 2, cache, cachePrompt: true }));
  assertEquals([again[0].promptTokens, again[0].cachedTokens, cache.offset], [9, 8, 10]);
  mx.tidy(() => void model.forward(mx.array([[5]], mx.int32), cache));
  assertEquals(cache.tokens, []); // its content is not known any more
});

Deno.test("steps of a known length are submitted before the prompt is read, whose token comes first", async () => {
  const { model, tokenizer } = await load(TINY_DIR, { device: "wasm" });
  const backend = getBackend("wasm");
  const { run, waitAsync } = backend;
  let events: string[] = [];
  backend.run = (plan, slots, times = 1) => {
    events.push(`run ${times}`);
    return run.call(backend, plan, slots, times);
  };
  backend.waitAsync = async (ticket) => {
    await waitAsync.call(backend, ticket);
    events.push("done");
  };
  const AHEAD = "run 1, run 8, done";
  let seen = "";
  try {
    for (let round = 0; round < 50 && seen !== AHEAD; round++) { // a busy machine may take a step for a long one
      events = [];
      const tokens: number[] = [];
      for await (const { token } of streamGenerate(model, tokenizer, PROMPT, { maxTokens: 12 })) {
        if (tokens.push(token) === 1) seen = events.join(", ");
      }
      assertEquals(tokens, GREEDY.slice(0, 12));
      assert(round > 0 || seen === "run 1, done", seen); // nothing is known of the first step
    }
  } finally {
    Object.assign(backend, { run, waitAsync });
  }
  assertEquals(seen, AHEAD);
  model[Symbol.dispose]();
});

Deno.test("streamGenerate() takes a sampler and processors in place of options", async () => {
  const seen: number[][] = [];
  const logitsProcessors: mx.lm.LogitsProcessor[] = [(tokens, logits) => {
    seen.push(tokens.shape);
    return mx.negative(logits);
  }];
  const sampler = Object.assign((logits: mx.Tensor) => mx.argmin(logits, -1), { key: undefined });
  const options = { maxTokens: 6, sampler, logitsProcessors, repetitionContextSize: 4 };
  const responses = await collect(streamGenerate(model, tokenizer, PROMPT, options));
  assertEquals(responses.map((r) => r.token), GREEDY.slice(0, 6)); // the least of the negated
  assert(seen.length > 0 && seen.every((shape) => shape.at(-1) === 4));
});

Deno.test("processors see the last tokens, those of the prompt and of the cache included", async () => {
  /** Leaves the recent tokens alone possible, and all of them equally. */
  const onlyRecent: mx.lm.LogitsProcessor = (tokens, logits) => {
    const indices = tokens.reshape([1, -1]);
    return mx.putAlongAxis(mx.full(logits.shape, -Infinity), indices, mx.zeros(indices.shape), -1);
  };
  for (
    const [held, prompt] of [[[], [11, 40, 9, 300, 7]], [[], [9, 300]], [[11, 40, 9], [300, 7]], [[3, 11, 40, 9], [5]]]
  ) {
    using cache = model.makeCache();
    if (held.length > 0) await collect(streamGenerate(model, tokenizer, held, { maxTokens: 1, cache }));
    const settings = { maxTokens: 4, logprobs: 20, logitsProcessors: [onlyRecent], repetitionContextSize: 4, cache };
    const tokens = [...held, ...prompt];
    for (const { token, logprobs } of await collect(streamGenerate(model, tokenizer, prompt, settings))) {
      const possible = logprobs!.top.filter(({ logprob }) => logprob > -Infinity).map((t) => t.token);
      assertEquals(possible.toSorted(), [...new Set(tokens.slice(-4))].toSorted(), `behind ${tokens}`);
      tokens.push(token);
    }
  }
});

Deno.test("streamGenerate() never gives a token that logitBias forbids", async () => {
  const [forbidden] = GREEDY;
  const few = { maxTokens: 4, logitBias: { [forbidden]: -Infinity } };
  const responses = await collect(streamGenerate(model, tokenizer, PROMPT, few));
  assert(responses.every((r) => r.token !== forbidden));
  const sure = await collect(streamGenerate(model, tokenizer, PROMPT, { maxTokens: 3, logitBias: { 77: 1e4 } }));
  assertEquals(sure.map((r) => r.token), [77, 77, 77]);
  await assertRejects(
    () => generate(model, tokenizer, PROMPT, { logitBias: { 4096: 1 } }),
    LlmError,
    "logitBias has a token that is 4096, expected an id below 4096",
  );
});

Deno.test("streamGenerate() stops at a stop string and leaves it out", async () => {
  const stop = "named Nina";
  const responses = await collect(streamGenerate(model, tokenizer, PROMPT, { stop, maxTokens: 50 }));
  assertEquals(text(responses), TEXT.slice(0, TEXT.indexOf(stop)));
  assertEquals(responses.at(-1)?.finishReason, "stop");
  const none = await collect(
    streamGenerate(model, tokenizer, PROMPT, { stop: ["never seen", ", there was a great"], maxTokens: 5 }),
  );
  assertEquals(text(none), tokenizer.decode(GREEDY.slice(0, 5)));
  // Text that may begin a stop string at the very end comes with the last token.
  const begun = `${tokenizer.decode(GREEDY.slice(4, 5))}…`;
  const held = await collect(streamGenerate(model, tokenizer, PROMPT, { stop: begun, maxTokens: 5 }));
  assertEquals(text(held), tokenizer.decode(GREEDY.slice(0, 5)));
});

Deno.test("streamGenerate() ends at maxTokens with the reason length", async () => {
  const responses = await collect(streamGenerate(model, tokenizer, PROMPT, { maxTokens: 3 }));
  assertEquals(responses.map((r) => r.finishReason), [null, null, "length"]);
  assertEquals(text(responses), tokenizer.decode(GREEDY.slice(0, 3)));
});

Deno.test("streamGenerate() ends at the context limit with the reason length", async () => {
  const limited = wrapped(model, { config: { ...model.config, maxPositionEmbeddings: IDS.length + 3 } });
  const responses = await collect(streamGenerate(limited, tokenizer, PROMPT));
  assertEquals(responses.map((r) => r.token), GREEDY.slice(0, 4));
  assertEquals(responses.at(-1)?.finishReason, "length");
  using cache = model.makeCache();
  await collect(streamGenerate(limited, tokenizer, IDS.slice(0, 2), { maxTokens: 1, cache }));
  const behind = await collect(streamGenerate(limited, tokenizer, IDS.slice(2), { cache }));
  assertEquals(behind.map((r) => r.token), GREEDY.slice(0, 4));
  const message = "The prompt has 8 tokens and the context has room for 7: shorten the prompt";
  await assertRejects(() => generate(limited, tokenizer, [...IDS, ...IDS]), LlmError, message);
});

Deno.test("streamGenerate() stops within a token of an abort", async () => {
  const controller = new AbortController();
  const responses: mx.lm.GenerationResponse[] = [];
  for await (const response of streamGenerate(model, tokenizer, PROMPT, { signal: controller.signal })) {
    responses.push(response);
    if (responses.length === 4) controller.abort();
  }
  assertEquals(responses.length, 5);
  assertEquals(responses.at(-1)?.finishReason, "abort");
  await assertRejects(
    () => generate(model, tokenizer, PROMPT, { signal: AbortSignal.abort() }),
    DOMException,
    "aborted",
  );
});

Deno.test("streamGenerate() repeats itself with a seed", async () => {
  const options = { temp: 1, topP: 0.95, topK: 50, seed: 42, maxTokens: 20 };
  const first = await generate(model, tokenizer, PROMPT, options);
  assertEquals(await generate(model, tokenizer, PROMPT, options), first);
  assert(await generate(model, tokenizer, PROMPT, { ...options, seed: 43 }) !== first);
});

Deno.test("options that do not exist are refused by name, with the nearest that does", async () => {
  const near = (call: string, found: string, meant: string): string =>
    `${call}() has no option "${found}", did you mean "${meant}"? Its options are: `;
  // deno-lint-ignore no-explicit-any -- what a program without types may pass
  const lm = mx.lm as any;
  const cases: [() => Promise<unknown>, string][] = [
    [() => lm.generate(model, tokenizer, PROMPT, { max_tokens: 3 }), near("generate", "max_tokens", "maxTokens")],
    [() => lm.generate(model, tokenizer, PROMPT, { temperature: 1 }), near("generate", "temperature", "temp")],
    [
      () => lm.generate(model, tokenizer, PROMPT, { warmth: 1 }),
      'generate() has no option "warmth". Its options are: maxTokens, ',
    ],
    [() => lm.generate(model, tokenizer, PROMPT, { topp: undefined }), near("generate", "topp", "topP")],
    [() => lm.generate(model, tokenizer, PROMPT, "fast"), '): found "fast"'],
    [() => lm.generate(model, tokenizer, PROMPT, null), "): found null"],
    [() => lm.generate(model, tokenizer, PROMPT, [1]), "generate() expected an object with options (maxTokens, "],
    [() => lm.generate("x"), 'generate(model, tokenizer, …) expected the model that load() returns: found "x"'],
    [
      () => lm.generate(model),
      "generate(model, tokenizer, …) expected the tokenizer that load() returns: found nothing",
    ],
    [() => lm.generate({ model, tokenizer }, PROMPT), "expected the model that load() returns: found another object"],
    [() => lm.batchGenerate(model, tokenizer, [PROMPT], { seeds: 1 }), near("batchGenerate", "seeds", "seed")],
    [() => lm.batchGenerate(model, tokenizer, [PROMPT], { cache: 1 }), 'batchGenerate() has no option "cache"'],
    [() => lm.batchGenerate("x"), "batchGenerate(model, tokenizer, …) expected the model"],
    [() => lm.load(TINY_DIR, { devcie: "wasm" }), near("load", "devcie", "device")],
    [
      () => lm.load(TINY_DIR, { "a\n\x1b[2J": 1 }),
      String.raw`load() has no option "a\n\u001b[2J". Its options are: adapterPath, device, `,
    ],
    [() => lm.generateStep([1], model, { max_tokens: 1 }).next(), near("generateStep", "max_tokens", "maxTokens")],
    [() => Promise.resolve().then(() => lm.makeSampler({ tmp: 1 })), near("makeSampler", "tmp", "temp")],
    [
      () => Promise.resolve().then(() => lm.makeLogitsProcessors({ logitsBias: {} })),
      near("makeLogitsProcessors", "logitsBias", "logitBias"),
    ],
  ];
  for (const [run, message] of cases) {
    const error = await assertRejects(run, LlmError, message);
    assertEquals([error.code, error.message.includes("\n")], ["option", false]);
  }
});

Deno.test("forward() refuses what are no token ids of shape (batch, tokens)", () => {
  assertThrows(
    () => model.forward(mx.array([1, 2, 3], mx.int32)),
    mx.ShapeError,
    "forward() expected token ids of shape (batch, tokens), found (3): tokens.reshape(1, -1) is a batch of one",
  );
  assertThrows(() => model.forward(mx.array(1, mx.int32)), mx.ShapeError, "found ()");
  assertThrows(() => model.forward(mx.ones([1, 2])), mx.DtypeError, "integer dtype such as mx.int32, found float32");
  assertThrows(() => model.forward([1] as unknown as mx.Tensor), LlmError, "expected an array of token ids: found [1]");
});

Deno.test("streamGenerate() refuses bad options and prompts before any work", async () => {
  const wrong = (prompt: mx.lm.Prompt, options: mx.lm.GenerateOptions, message: string) =>
    assertRejects(() => generate(model, tokenizer, prompt, options), LlmError, message);
  await wrong("", {}, "The prompt is empty");
  await wrong([], {}, "The prompt is empty");
  for (const prompt of [null, 5, { role: "user", content: "Hi" }]) {
    await wrong(prompt as unknown as mx.lm.Prompt, {}, "neither a text nor a list of token ids or messages");
  }
  await wrong([4096], {}, "The prompt has token id 4096, the vocabulary ends at 4095");
  const lists = [[["Once"], "string"], [[1, undefined], "undefined"], [mx.array([1, 2], mx.int32), "object"]] as const;
  for (const [prompt, type] of lists) {
    await wrong(prompt as unknown as mx.lm.Prompt, {}, `The prompt is a list with a ${type} in it`);
  }
  await wrong(PROMPT, { stop: 5 as unknown as string }, "stop is 5, expected a text or a list of texts");
  await wrong(PROMPT, { maxTokens: 0 }, "maxTokens is 0, expected a positive integer");
  const signal = 5 as unknown as AbortSignal;
  await wrong(PROMPT, { signal }, "signal is 5, expected the signal of an AbortController");
  await assertRejects(() => mx.lm.batchGenerate(model, tokenizer, [PROMPT], { signal }), LlmError, "signal is 5");
  await assertRejects(() => mx.lm.load(TINY_DIR, { signal }), LlmError, "signal is 5");
  await wrong(PROMPT, { temp: -1 }, "temp is -1");
});

Deno.test("forward() refuses more tokens than the context holds", () => {
  using cache = model.makeCache();
  const tokens = mx.zeros([1, 4097], mx.int32);
  assertThrows(() => model.forward(tokens, cache), LlmError, "The context holds 4096 tokens: 4097 would be needed");
  mx.dispose(tokens);
});

Deno.test("a model that was disposed says so, and load() says what it takes", async () => {
  const gone = await mx.lm.load(TINY_DIR, { device: anyDevice() });
  gone.model[Symbol.dispose]();
  gone.model[Symbol.dispose]();
  await assertRejects(() => generate(gone.model, gone.tokenizer, PROMPT), LlmError, "The model was disposed");
  for (const dir of [undefined as unknown as string, new URL("https://example.org/model")]) {
    await assertRejects(() => mx.lm.load(dir), LlmError, `load() expected a model directory: found ${dir}`);
  }
  const dtype = "float16" as unknown as mx.Dtype;
  await assertRejects(() => mx.lm.load(TINY_DIR, { dtype }), LlmError, "found float16");
});

Deno.test("load() gives an LlmError for weights that are no safetensors file, and frees what it opened", async () => {
  const dir = await Deno.makeTempDir();
  for await (const { name } of Deno.readDir(TINY_DIR)) await Deno.copyFile(new URL(name, TINY_DIR), `${dir}/${name}`);
  await Deno.writeTextFile(`${dir}/model2.safetensors`, "x");
  const before = mx.getActiveMemory();
  const error = await assertRejects(() => load(dir, { device: DEVICE }), LlmError, "model2.safetensors: is too short");
  assertEquals([error.code, mx.getActiveMemory()], ["weights", before]);
  await Deno.remove(dir, { recursive: true });
});

Deno.test("load() reports progress up to the bytes of the weights", async () => {
  const seen: number[][] = [];
  using loaded =
    (await load(TINY_DIR, { device: DEVICE, onProgress: (done, total) => seen.push([done, total]) })).model;
  assertEquals(seen[0][0], 0);
  assertAlmostEquals(seen.at(-1)![0], seen.at(-1)![1]);
  assert(seen[0][1] > 4_700_000);
  assertEquals(loaded.config.modelType, "qwen3");
});
