/**
 * What drafts the requests of an engine. Drafts beside everything else that happens to pages: windows, 8 bits, kept prefixes, short memory and
 * aborts. These are about the engine and not the device: the CPU's, which makes no pipelines beside the first answers.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { NgramPool, PoolDrafter } from "../../../src/llm/speculation/ngram_pool.ts";
import { pageBytes } from "../../../src/llm/kv/paged.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { checkpointOf } from "../../support/models/changed_checkpoints.ts";
import {
  assertAlike,
  errorOf,
  type Loaded,
  replay,
  take,
  takeAlone,
  tinyPage,
} from "../../support/models/engine_requests.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const { Engine } = mx.lm;
const device = "wasm";
mx.withDevice(device, getBackend); // opened outside the tests, which count resources
const loaded = await mx.lm.load(TINY_DIR, { device });
const { model, tokenizer } = loaded;
const kvBytes = 24 * tinyPage(device);
const ALWAYS = { adaptive: false } as const;

const tokensOf = (responses: readonly mx.lm.EngineResponse[]): number[] => responses.map(({ token }) => token);

/** The requests, drafted by their own answers alone of which `right` tokens of a draft are right, and those answers. */
async function drafted(
  of: Loaded,
  requests: readonly mx.lm.EngineRequest[],
  right: number,
): Promise<{ readonly requests: mx.lm.EngineRequest[]; readonly alone: mx.lm.EngineResponse[][] }> {
  const alone: mx.lm.EngineResponse[][] = [];
  for (const request of requests) alone.push(await takeAlone(of, request));
  const all = requests.map((request, i) => ({
    ...request,
    speculation: { drafter: replay(tokensOf(alone[i]), right), ...ALWAYS },
  }));
  return { requests: all, alone };
}

/** Asserts that an engine gives requests what they get alone. */
async function assertServes(
  engine: mx.lm.Engine,
  { requests, alone }: Awaited<ReturnType<typeof drafted>>,
  what: string,
): Promise<void> {
  const served = await Promise.all(requests.map((request) => take(engine.add(request))));
  for (const [i, responses] of served.entries()) assertAlike(responses, alone[i], `${what}, request ${i}`);
}

/** Prompts of a number of tokens that begin alike. */
const idsOf = (count: number, last: number): number[] =>
  Array.from({ length: count }, (_, i) => i === count - 1 ? last : GOLDEN[1].ids[i % GOLDEN[1].ids.length]);

Deno.test("pages of 8 bits hold drafts", async () => {
  const requests = [{ prompt: idsOf(60, 7), maxTokens: 20 }, {
    prompt: "The sea was",
    maxTokens: 20,
    temp: 1,
    seed: 2,
  }];
  await using plain = new Engine(model, tokenizer, { kvBytes, kvBits: 8 });
  const alone: mx.lm.EngineResponse[][] = [];
  for (const request of requests) alone.push(await take(plain.add(request)));
  await using engine = new Engine(model, tokenizer, { kvBytes, kvBits: 8 });
  const speculations = alone.map((responses) => ({ drafter: replay(tokensOf(responses), 2), ...ALWAYS }));
  const all = requests.map((request, i) => ({ ...request, speculation: speculations[i] }));
  await assertServes(engine, { requests: all, alone }, "8 bits");
  assert(engine.metrics.acceptedTokens > 10);
});

for (const checkpoint of ["Gemma 3 text, 4 bits", "Mistral with windows, 4 bits"]) {
  Deno.test(`layers with windows give back pages between drafts: ${checkpoint}`, async () => {
    const folder = await Deno.makeTempDir();
    try {
      const known = checkpointOf(checkpoint);
      const config = { ...JSON.parse(known.config), sliding_window: 70 };
      await writeCheckpoint(folder, { ...known, config: JSON.stringify(config) });
      const windowed = await mx.lm.load(folder, { device });
      using _model = windowed.model;
      const { vocabSize } = windowed.model.config;
      const prompts = [90, 130].map((count, seed) =>
        Array.from({ length: count }, (_, i) => (i * 7 + seed) % vocabSize)
      );
      const requests = prompts.map((prompt) => ({ prompt, maxTokens: 150 }));
      const bytes = 16 * 4 * pageBytes(decodingModel(windowed.model).poolSizes());
      const all = await drafted(windowed, requests, 5);
      await using engine = new Engine(windowed.model, windowed.tokenizer, { kvBytes: bytes, prefillStepSize: 64 });
      await assertServes(engine, all, checkpoint);
      assert(engine.metrics.acceptedTokens > 100, `${engine.metrics.acceptedTokens}`);
      await windowed.model.traces.idle();
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

Deno.test("an engine drafts by n-grams of a request and of other answers, unless a request does not want it", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes, speculation: { drafter: "ngrams", ...ALWAYS } });
  const request = { prompt: "Once upon a time", maxTokens: 24 };
  const first = await take(engine.add(request));
  assertEquals(tokensOf(first), GOLDEN[0].greedy.slice(0, 24));
  const { draftedTokens: before } = engine.metrics;
  const again = await take(engine.add(request));
  assertEquals(tokensOf(again), tokensOf(first));
  const { draftedTokens, acceptedTokens } = again.at(-1)!;
  assert(acceptedTokens! > 5, `${acceptedTokens} of ${draftedTokens}`);
  assertEquals(engine.metrics.draftedTokens, before + draftedTokens!);
  const without = await take(engine.add({ ...request, speculation: false }));
  assertEquals([tokensOf(without), without.at(-1)!.draftedTokens], [tokensOf(first), undefined]);
});

Deno.test("a draft model drafts for all requests together, at any temperature", async () => {
  const requests: mx.lm.EngineRequest[] = [
    { prompt: "Once upon a time" },
    { prompt: "The sea was", temp: 0.9, seed: 1 },
    { prompt: "A dog and a cat", temp: 1.2, topP: 0.9, seed: 2, repetitionPenalty: 1.2, repetitionContextSize: 7 },
  ].map((request) => ({ maxTokens: 20, ...request }));
  const speculation = { drafter: loaded, numDraftTokens: 3, ...ALWAYS };
  await using engine = new Engine(model, tokenizer, { kvBytes, speculation });
  for (const count of [1, 3]) {
    const some = requests.slice(0, count);
    const served = await Promise.all(some.map((request) => take(engine.add(request))));
    for (const [i, request] of some.entries()) {
      assertAlike(served[i], await takeAlone(loaded, request), `${i} of ${count}`);
    }
  }
  const { draftedTokens, acceptedTokens } = engine.metrics;
  assert(draftedTokens > 20 && acceptedTokens === draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
});

Deno.test("a drafter gets the prompt first, and then each token once", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes, maxSequences: 20 });
  const prompt = GOLDEN[0].ids;
  const calls: number[][] = [];
  const drafter = { extend: (tokens: readonly number[]) => void calls.push([...tokens]), draft: () => [] };
  // Beside more requests than may have drafts, until those end.
  const others = Array.from({ length: 17 }, (_, i) => take(engine.add({ prompt: idsOf(9, 300 + i), maxTokens: 3 })));
  const own = take(engine.add({ prompt, maxTokens: 20, speculation: { drafter, ...ALWAYS } }));
  await Promise.all(others);
  const tokens = tokensOf(await own);
  assertEquals(calls[0], [...prompt]);
  const rest = calls.slice(1).flat();
  assert(rest.length > 5 && rest.length < 20, `${rest.length}`);
  assertEquals(rest, tokens.slice(0, rest.length));
});

Deno.test("what fails to draft ends its request alone", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes });
  const request = { prompt: "Once upon a time", maxTokens: 12 };
  const wrong = { extend: () => {}, draft: () => [4096] };
  const failing = { extend: () => {}, draft: () => Promise.reject(new Error("no draft")) };
  const [plain, ...errors] = await Promise.all([
    take(engine.add(request)),
    ...[wrong, failing].map((drafter) =>
      errorOf(() => take(engine.add({ ...request, speculation: { drafter, ...ALWAYS } })))
    ),
  ]);
  assertAlike(plain as mx.lm.EngineResponse[], await takeAlone(loaded, request), "beside failures");
  assertEquals(errors, [
    "option: The drafter of speculation gave 4096, expected token ids below 4096",
    "Error: no draft",
  ]);
});

Deno.test("a request that comes while the last one fails to draft is answered", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes });
  const failing = { prompt: [5, 6], maxTokens: 9 };
  for (let turns = 0; turns < 12; turns++) {
    let next: Promise<mx.lm.EngineResponse[]> | undefined;
    const addLater = async (): Promise<void> => {
      for (let turn = 0; turn < turns; turn++) await null;
      next = take(engine.add({ prompt: [7, 8], maxTokens: 1 }));
    };
    const draft = (): Promise<number[]> => {
      void addLater();
      return Promise.reject(new Error("no draft"));
    };
    await errorOf(() =>
      take(engine.add({ ...failing, speculation: { drafter: { extend: () => {}, draft }, ...ALWAYS } }))
    );
    for (let turn = 0; turn < 12; turn++) await null;
    assertEquals((await next!).length, 1, `after ${turns} turns`); // or it never resolves
  }
});

Deno.test("a drafter that throws at once ends its request alone, and one that gives no list is named", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes });
  const request = { prompt: "Once upon a time", maxTokens: 12 };
  const fail = (): never => {
    throw new Error("no");
  };
  const drafter = { extend: () => {}, draft: () => [], matches: () => true };
  const wrong = [{ extend: fail }, { matches: fail }, { draft: fail }, { draft: () => 5 as unknown as number[] }];
  const [plain, ...errors] = await Promise.all([
    take(engine.add(request)),
    ...wrong.map((parts) =>
      errorOf(() => take(engine.add({ ...request, speculation: { drafter: { ...drafter, ...parts }, ...ALWAYS } })))
    ),
  ]);
  assertAlike(plain as mx.lm.EngineResponse[], await takeAlone(loaded, request), "beside failures");
  const notList = "option: The drafter of speculation gave 5, expected a list of token ids";
  assertEquals(errors, ["Error: no", "Error: no", "Error: no", notList]);
});

Deno.test("drafted tokens count as accepted if the answer has them", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes });
  const answer = GOLDEN[0].greedy.slice(0, 32);
  const prompt = "Once upon a time";
  const draftedTo = (end: number): mx.lm.GenerateOptions => ({
    stop: [tokenizer.decode(answer.slice(end - 2, end))],
    maxTokens: 32,
    speculation: { drafter: replay(answer, 7), ...ALWAYS },
  });
  const last = (await take(engine.add({ prompt, ...draftedTo(4) } as mx.lm.EngineRequest))).at(-1)!;
  const { finishReason, generationTokens } = last;
  // The first token comes of the prompt. The draft has seven more, and the answer ends with the third of them.
  assertEquals([finishReason, generationTokens, last.draftedTokens, last.acceptedTokens], ["stop", 4, 7, 3]);
  const { draftedTokens, acceptedTokens } = engine.metrics;
  assertEquals([draftedTokens, acceptedTokens], [7, 3]);
  const alone = (await take(mx.lm.streamGenerate(model, tokenizer, prompt, draftedTo(13)))).at(-1)!;
  assertEquals([alone.finishReason, alone.generationTokens], ["stop", 13]);
  assert(alone.acceptedTokens! < 13, `${alone.acceptedTokens} of ${alone.draftedTokens}`);
});

Deno.test("a pool of n-grams has an answer up to its last token", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes, speculation: ALWAYS });
  const prompt = "Once upon a time";
  await take(engine.add({ prompt, maxTokens: 8 }));
  const { draftedTokens: before } = engine.metrics;
  const last = (await take(engine.add({ prompt, maxTokens: 16 }))).at(-1)!;
  // After the first token, which comes of the prompt, the first answer drafts its other seven.
  assertEquals([before, last.acceptedTokens! >= 7], [0, true], `${last.acceptedTokens} of ${last.draftedTokens}`);
});

for (const checkpoint of ["LFM2, bfloat16", "Qwen3.5, bfloat16"]) {
  Deno.test(`recurrent layers take drafts back: ${checkpoint}`, async () => {
    const folder = await Deno.makeTempDir();
    try {
      await writeCheckpoint(folder, checkpointOf(checkpoint));
      const recurrent = await mx.lm.load(folder, { device, dtype: mx.float32 });
      using _model = recurrent.model;
      const prompt = (seed: number): number[] => Array.from({ length: 70 }, (_, i) => (i * 271 + seed * 97 + 13) % 500);
      const requests: mx.lm.EngineRequest[] = [
        { prompt: prompt(1), maxTokens: 24 },
        { prompt: prompt(2), maxTokens: 20, temp: 1, seed: 4 },
        { prompt: prompt(3), maxTokens: 16, responseFormat: { type: "regex", regex: "[a-z]{60}" } },
      ];
      await using engine = new Engine(recurrent.model, recurrent.tokenizer, { contextSize: 256, maxSequences: 3 });
      for (const right of [7, 2, 0]) {
        const all = await drafted(recurrent, requests, right);
        const { acceptedTokens: before } = engine.metrics;
        await assertServes(engine, all, `${right} right`);
        const accepted = engine.metrics.acceptedTokens - before;
        assert(right === 0 ? accepted === 0 : accepted > 8, `${accepted} accepted`);
      }
      await recurrent.model.traces.idle();
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

Deno.test("a draft that never comes leaves its request and others without drafts", async () => {
  await using engine = new Engine(model, tokenizer, { kvBytes });
  const request = { prompt: "Once upon a time", maxTokens: 16 };
  const never = { extend: () => {}, draft: () => new Promise<number[]>(() => {}) };
  const [stuck, beside] = await Promise.all([
    take(engine.add({ ...request, speculation: { drafter: never, ...ALWAYS } })),
    take(engine.add({ ...request, speculation: { drafter: replay(GOLDEN[0].greedy, 7), ...ALWAYS } })),
  ]);
  const alone = await takeAlone(loaded, request);
  assertAlike(stuck, alone, "without drafts");
  assertAlike(beside, alone, "beside it");
  assertEquals(stuck.at(-1)!.draftedTokens, 0);
  assert(beside.at(-1)!.acceptedTokens! > 5);
});

Deno.test("a pool of n-grams drafts what followed in an earlier answer, within its bytes", () => {
  const pool = new NgramPool(1024);
  assertEquals([pool.bytes, pool.draft([1, 2, 3, 4], 2)], [0, []]);
  pool.add([1, 2, 3, 4, 5, 6, 7]);
  assertEquals(pool.draft([9, 1, 2, 3, 4], 5), [5, 6, 7]); // no further than the answer
  assertEquals(pool.draft([2, 3, 4], 5), []); // too few tokens to be sure
  assertEquals(pool.draft([1, 2, 3, 9], 5), []);
  pool.add([8, 1, 2, 3, 4, 10]);
  assertEquals(pool.draft([1, 2, 3, 4], 2), [10]); // the last one
  const { bytes } = pool;
  for (let answer = 0; answer < 50; answer++) pool.add(Array.from({ length: 20 }, (_, i) => 100 * answer + i));
  assertEquals(pool.bytes, bytes);
  assertEquals([pool.draft([1, 2, 3, 4], 2), pool.draft([4905, 4906, 4907, 4908], 2)], [[], [4909, 4910]]);
  pool.add(Array.from({ length: 2000 }, (_, i) => i)); // more than there is room for
  assertEquals(pool.draft([1995, 1996, 1997, 1998], 4), [1999]);
  const drafter = new PoolDrafter(pool);
  drafter.extend([5, 5, 1995, 1996]);
  assertEquals(drafter.matches(), false);
  drafter.extend([1997, 1998]);
  assertEquals([drafter.matches(), drafter.draft(3)], [true, [1999]]);
  drafter.extend([7, 8, 9, 1997, 1998]);
  assertEquals(drafter.draft(2), [7, 8]); // its own tokens go first
});

Deno.test("the model of the tests of speculation is freed", async () => {
  await model.traces.idle();
  model[Symbol.dispose]();
});
