/**
 * Drafts by the head of the model in an engine. What it drafts for a request is what `model.draft` gives without a cache, which draft_head_test.ts
 * holds to a reference. That does not depend on other requests, on the parts that a prompt is read in, or on prefixes that were kept.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { HeadDrafts } from "../../../src/llm/engine/head_drafts.ts";
import { HeadRunner } from "../../../src/llm/engine/head_runner.ts";
import { Sequence } from "../../../src/llm/engine/sequence.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { DRAFT_CASES, HeadOracle, loadWithHead, writeWithHead } from "../../support/models/draft_heads.ts";
import { ALWAYS } from "./drafters.ts";
import { assertAlike, errorOf, take, takeAlone } from "../../support/models/engine_requests.ts";
import { onceMade } from "../../support/models/idle_after.ts";

const { Engine } = mx.lm;
const device = anyDevice();
mx.setDefaultDevice(device);
const dir = await Deno.makeTempDir();
await writeWithHead(dir, DRAFT_CASES[0]);
/** A model whose head is right, and one whose head is wrong too. */
const exact = await loadWithHead(dir, 0, device);
const other = await loadWithHead(dir, 0.1, device);

const idsOf = (count: number, seed: number): number[] =>
  Array.from({ length: count }, (_, i) => (i * 271 + seed * 97 + 13) % 500);
const speculation = { drafter: "mtp", ...ALWAYS } as const;

/** What requests get together once all of their steps are made. */
function serve(
  engine: mx.lm.Engine,
  requests: readonly mx.lm.EngineRequest[],
  { model }: mx.lm.Loaded,
): Promise<readonly mx.lm.EngineResponse[][]> {
  return onceMade([model], () => Promise.all(requests.map((request) => take(engine.add(request)))));
}

const SETTINGS: Readonly<Record<string, mx.lm.EngineOptions>> = {
  "of one request": { maxSequences: 1 },
  "of three": { maxSequences: 3 },
  "of 16, with one token each": { maxSequences: 16 },
  "in pages of 8 bits": { maxSequences: 2, kvBits: 8 },
};

for (const [name, options] of Object.entries(SETTINGS)) {
  Deno.test(`a head that is right has its drafts accepted in an engine: ${name}`, async () => {
    const { model, tokenizer } = exact;
    await using engine = new Engine(model, tokenizer, { contextSize: 192, ...options, speculation });
    const requests = Array.from({ length: options.maxSequences! }, (_, i): mx.lm.EngineRequest => ({
      prompt: idsOf(20 + i, i),
      maxTokens: 16,
      ...(i % 2 === 1 && { temp: 1, topP: 0.9, seed: i, logprobs: 2 }),
    }));
    const served = await serve(engine, requests, exact);
    for (const [i, responses] of served.entries()) {
      if (!options.kvBits) assertAlike(responses, await takeAlone(exact, requests[i]), `request ${i}`);
      const { draftedTokens: drafted = 0, acceptedTokens: accepted = 0 } = responses.at(-1)!;
      const least = responses.length > 12 ? 5 : 0; // some answers end early
      assert(accepted >= 0.95 * drafted && accepted >= least, `${accepted} of ${drafted}`);
    }
    await model.traces.idle();
  });
}

/** Drafts of an engine: the tokens after token number `at` of a sequence. */
interface Drafted {
  readonly id: number;
  readonly at: number;
  readonly tokens: readonly number[];
}

/**
 * Notes what heads draft in engines until it is disposed. Every second draft gives way to the rest of the answer, by the number of its request, so that
 * it is right.
 */
function noteDrafts(
  answers: ReadonlyMap<number, readonly number[]>,
): Disposable & { readonly all: Drafted[] } {
  const { draft } = HeadRunner.prototype;
  const all: Drafted[] = [];
  HeadRunner.prototype.draft = async function (sequences, count, forget) {
    const ats = sequences.map(({ tokens }) => tokens.length - 1);
    const drafts = await draft.call(this, sequences, count, forget);
    return drafts && sequences.map(({ id, promptLength }, i) => {
      const tokens = [...drafts[i]];
      const isRight = all.push({ id, at: ats[i], tokens }) % 2 === 0;
      return Int32Array.from(isRight ? answers.get(id)!.slice(ats[i] + 1 - promptLength).slice(0, count) : tokens);
    });
  };
  return { all, [Symbol.dispose]: () => void (HeadRunner.prototype.draft = draft) };
}

for (const share of [0.1, 1]) {
  const what = share < 1 ? "which are right at times" : "of a layer that counts in full";
  Deno.test(`a head drafts in an engine what it gives without a cache, ${what}`, async () => {
    const loaded = share < 1 ? other : await loadWithHead(dir, share, device);
    const { model, tokenizer } = loaded;
    const options = { contextSize: 256, maxSequences: 3, prefillStepSize: 48, speculation };
    await using engine = new Engine(model, tokenizer, options);
    // Prompts of several parts, of several pages, and one that ends with a page.
    const requests = [3, 128, 150].map((count, i) => ({ prompt: idsOf(count, 5 * i), maxTokens: 24 - 4 * i }));
    const served = await serve(engine, requests, loaded);
    const { requests: begun, cachedTokens: before } = engine.metrics;
    const answers = served.map((responses) => responses.map(({ token }) => token));
    using noted = noteDrafts(new Map(answers.map((answer, i) => [begun + i, answer])));
    const again = await Promise.all(requests.map((request) => take(engine.add(request))));
    assert(engine.metrics.cachedTokens >= before + 64 + 128, `${engine.metrics.cachedTokens} after ${before}`);
    assertEquals(again.map((responses) => responses.map(({ token }) => token)), answers);
    mx.tidy(() => {
      const oracles = answers.map((answer, i) => new HeadOracle(loaded, [...requests[i].prompt, ...answer], 3));
      for (const { id, at, tokens } of noted.all) {
        assertEquals(tokens, oracles[id - begun].draft(at, tokens.length), `request ${id - begun} at ${at}`);
      }
    });
    assert(noted.all.length > 12, `${noted.all.length} drafts`);
    const { draftedTokens, acceptedTokens } = engine.metrics;
    assert(share === 1 || (acceptedTokens > 20 && acceptedTokens < 0.9 * draftedTokens), `${acceptedTokens}`);
    await model.traces.idle();
    if (loaded !== other) model[Symbol.dispose]();
  });
}

Deno.test("an engine with a head takes requests that draft otherwise or not at all", async () => {
  const { model, tokenizer } = exact;
  await using engine = new Engine(model, tokenizer, { contextSize: 128, maxSequences: 3, speculation });
  const request = { prompt: idsOf(12, 3), maxTokens: 20 };
  const alone = await takeAlone(exact, request);
  const requests = [
    { ...request, speculation: false },
    { ...request, speculation: { drafter: "ngrams", ...ALWAYS } },
    { ...request, speculation: { drafter: "mtp", numDraftTokens: 1, ...ALWAYS } },
  ] as const;
  const [without, , short] = (await serve(engine, requests, exact)).map((responses, i) => {
    assertAlike(responses, alone, `request ${i}`);
    return responses.at(-1)!;
  });
  assertEquals([without.draftedTokens, without.acceptedTokens], [undefined, undefined]);
  assert(short.acceptedTokens! >= 8, `${short.acceptedTokens} of ${short.draftedTokens}`);
  await model.traces.idle();
});

Deno.test("a batch drafts by the head of its model, and the account of an engine by itself", async () => {
  const { model, tokenizer } = exact;
  const prompts = [0, 1, 2].map((i) => idsOf(14 + i, i));
  const plain = await mx.lm.batchGenerate(model, tokenizer, prompts, { maxTokens: 20 });
  const drafted = await onceMade([model], async () => {
    const batch = await mx.lm.batchGenerate(model, tokenizer, prompts, { maxTokens: 20, speculation });
    assertEquals(batch.tokens, plain.tokens);
    return batch;
  });
  assert(drafted.acceptedTokens! > 20, `${drafted.acceptedTokens} of ${drafted.draftedTokens}`);
  await using engine = new Engine(model, tokenizer, { contextSize: 128, speculation: { drafter: "mtp" } });
  const responses = await take(engine.add({ prompt: prompts[0], maxTokens: 20 }));
  assertEquals(responses.map(({ token }) => token), plain.tokens[0]);
  await model.traces.idle();
});

Deno.test("drafts that are asked for at once are one step, without requests that ended meanwhile", async () => {
  const calls: unknown[][] = [];
  let answer: (count: number) => Promise<readonly number[][] | undefined>;
  const drafts = new HeadDrafts((sequences, count) => {
    calls.push([sequences.map(({ id }) => id), count]);
    return answer(count);
  });
  const sequences = [0, 1, 2].map((id) => {
    const sequence = new Sequence({ id, prompt: [1], maxTokens: 9 });
    sequence.status = id === 1 ? "ended" : "running";
    return sequence;
  });
  const ask = (): Promise<unknown[]> =>
    Promise.all(sequences.map((sequence, i) => drafts.drafterFor(sequence).draft(1 + i)));
  answer = () => Promise.resolve([[5, 6, 7], [8, 9, 10]]);
  assertEquals(await ask(), [[5], [], [8, 9, 10]]);
  answer = () => Promise.resolve([[-1, 6, 7], [8, -1, 10]]); // logits had NaN in them
  assertEquals(await ask(), [[], [], [8]]);
  answer = () => Promise.resolve(undefined); // while pipelines are made
  assertEquals(await ask(), [[], [], []]);
  answer = () => Promise.reject(new Error("lost"));
  assertEquals(await errorOf(ask), "Error: lost");
  for (const sequence of sequences) sequence.status = "ended";
  assertEquals(await ask(), [[], [], []]);
  assertEquals(calls, Array(4).fill([[0, 2], 3]));
});

Deno.test("keys and values of a head are one more layer of the pages, and its state one more of a slot", () => {
  const model = decodingModel(exact.model);
  const [plain, headed] = [model.poolSizes(), model.poolSizes(true)];
  assertEquals([plain.head, headed.head], [undefined, { layer: plain.layers, state: plain.states!.length }]);
  assertEquals([headed.layers, headed.states!.length], [plain.layers + 1, plain.states!.length + 1]);
  const [size] = mx.tidy(() => model.hidden(mx.zeros([1, 1], mx.int32)).shape.slice(-1));
  assertEquals(headed.states!.at(-1)!.shape, [1, size]);
});

Deno.test("a head is refused where there is none, and for a request alone", async () => {
  const { model, tokenizer } = await mx.lm.load(dir, { device });
  using _model = model;
  const noHead = "weights: The model has no head that drafts tokens: load it with draftHead: true";
  assertEquals(await errorOf(() => new Engine(model, tokenizer, { contextSize: 128, speculation })), noHead);
  assertEquals(await errorOf(() => mx.lm.batchGenerate(model, tokenizer, [[1, 2]], { speculation })), noHead);
  await using engine = new Engine(model, tokenizer, { contextSize: 128, speculation: { drafter: "ngrams" } });
  const expected = 'option: speculation.drafter of a request is "mtp": give it to the engine for all requests';
  assertEquals(await errorOf(() => engine.add({ prompt: [1, 2], speculation })), expected);
});

Deno.test("the models of these tests are freed, and their folder removed", async () => {
  for (const { model } of [exact, other]) {
    await model.traces.idle();
    model[Symbol.dispose]();
  }
  await Deno.remove(dir, { recursive: true });
});
