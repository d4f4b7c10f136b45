/**
 * Drafts by the head of the model itself. Tokens are those that come without drafts. A head that was built to be right has its drafts accepted.
 * What another one drafts is what `model.draft` gives without a cache, which draft_head_test.ts holds to a reference.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { HeadDrafter } from "../../../src/llm/decode/head_drafter.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import {
  DRAFT_CASES,
  expectedDrafts,
  HeadOracle,
  loadWithHead,
  writeWithHead,
} from "../../support/models/draft_heads.ts";
import { assertAlike } from "../../support/models/engine_requests.ts";
import { onceMade } from "../../support/models/idle_after.ts";

const { load, streamGenerate, LlmError } = mx.lm;
const device = anyDevice();
mx.setDefaultDevice(device);
const dir = await Deno.makeTempDir();
await writeWithHead(dir, DRAFT_CASES[0]);

const idsOf = (count: number, seed: number): number[] =>
  Array.from({ length: count }, (_, i) => (i * 271 + seed * 97 + 13) % 500);

/** The model whose head is right. */
const exact = await loadWithHead(dir, 0, device);

interface Answer {
  readonly responses: mx.lm.GenerationResponse[];
  readonly tokens: number[];
  readonly drafted: number;
  readonly accepted: number;
}

/** An answer with `numDraftTokens` in each draft; without drafts if that is 0. Pipelines are made before. */
async function answer(
  { model, tokenizer }: mx.lm.Loaded,
  prompt: readonly number[],
  options: mx.lm.GenerateOptions,
  numDraftTokens: number,
): Promise<Answer> {
  const speculation = { drafter: "mtp", numDraftTokens, adaptive: false } as const;
  const all = { ...options, ...(numDraftTokens > 0 && { speculation }) };
  const run = (): Promise<mx.lm.GenerationResponse[]> => Array.fromAsync(streamGenerate(model, tokenizer, prompt, all));
  const responses = await onceMade([model], run);
  const { draftedTokens: drafted = 0, acceptedTokens: accepted = 0 } = responses.at(-1)!;
  return { responses, tokens: responses.map(({ token }) => token), drafted, accepted };
}

const SETTINGS: Readonly<Record<string, mx.lm.GenerateOptions>> = {
  "greedy": {},
  "sampled": { temp: 1, topP: 0.9, seed: 3, logprobs: 2 },
  "in chunks of a prompt": { prefillStepSize: 7 },
  "in a cache that grows": { maxTokens: 230 },
  "in a cache of 8 bits": { kvBits: 8 },
};

for (const [name, options] of Object.entries(SETTINGS)) {
  Deno.test(`a head that is right has its drafts accepted: ${name}`, async () => {
    const loaded = exact;
    const { model } = loaded;
    const all = { maxTokens: 24, ...options };
    const plain = await answer(loaded, idsOf(40, 1), all, 0);
    for (const count of name === "greedy" ? [1, 3] : [3]) {
      const found = await answer(loaded, idsOf(40, 1), all, count);
      assertAlike(found.responses, plain.responses, name);
      assert(found.drafted > 8 && found.accepted >= 0.95 * found.drafted, `${found.accepted} of ${found.drafted}`);
      // Each step has all of its drafts, but for the last one.
      assert(found.accepted >= (plain.tokens.length - 2) * count / (count + 1) - count, `${found.accepted}`);
    }
    await model.traces.idle();
  });
}

Deno.test("a head drafts what it gives without a cache, whichever drafts were right before", async () => {
  const loaded = await loadWithHead(dir, 0.15, device);
  using model = loaded.model;
  await answer(loaded, idsOf(9, 1), { maxTokens: 6 }, 1); // has the steps of short drafts made
  const prompt = idsOf(21, 1);
  const all = { maxTokens: 30, prefillStepSize: 9 };
  const plain = await answer(loaded, prompt, all, 0);
  const found = await answer(loaded, prompt, all, 3);
  assertEquals(found.tokens, plain.tokens);
  const { drafted, accepted } = expectedDrafts(loaded, prompt, plain.tokens, { most: 3, maxTokens: 30 });
  assertEquals([found.drafted, found.accepted], [drafted, accepted]);
  assert(accepted > 3 && accepted < 0.9 * drafted, `${accepted} of ${drafted}: drafts of both kinds are wanted`);
  await model.traces.idle();
});

/**
 * Notes what heads draft in sessions until it is disposed: after which token of the answer, and what. Every second draft gives way to the answer, so that
 * it is right.
 */
function noteDrafts(
  answer: readonly number[],
): Disposable & { readonly all: { at: number; tokens: readonly number[] }[] } {
  const { draft } = HeadDrafter.prototype;
  const all: { at: number; tokens: readonly number[] }[] = [];
  let at = 0;
  HeadDrafter.prototype.draft = async function (count) {
    const tokens = await draft.call(this, count);
    if (tokens.length === 0) return tokens;
    all.push({ at, tokens });
    const given = all.length % 2 === 0 ? answer.slice(at + 1, at + 1 + count) : tokens;
    const wrong = given.findIndex((token, i) => token !== answer[at + 1 + i]);
    at += 1 + (wrong < 0 ? given.length : wrong);
    return given;
  };
  return { all, [Symbol.dispose]: () => void (HeadDrafter.prototype.draft = draft) };
}

Deno.test("each draft of a head is what it gives without a cache, of a layer that counts in full", async () => {
  const loaded = await loadWithHead(dir, 1, device);
  using model = loaded.model;
  const { tokenizer } = loaded;
  const prompt = idsOf(21, 1);
  const all = { maxTokens: 24, prefillStepSize: 9 };
  const { tokens } = await answer(loaded, prompt, all, 3);
  using noted = noteDrafts(tokens);
  const speculation = { drafter: "mtp", adaptive: false } as const;
  const stream = streamGenerate(model, tokenizer, prompt, { ...all, speculation });
  assertEquals((await Array.fromAsync(stream)).map(({ token }) => token), tokens);
  mx.tidy(() => {
    const oracle = new HeadOracle(loaded, [...prompt, ...tokens], 3);
    for (const { at, tokens } of noted.all) {
      assertEquals(tokens, oracle.draft(prompt.length + at, tokens.length), `after token ${at}`);
    }
  });
  assert(noted.all.length > 7, `${noted.all.length} drafts`);
  await model.traces.idle();
});

Deno.test("a head drafts for a grammar, as far as that allows it", async () => {
  const loaded = exact;
  const { model } = loaded;
  const responseFormat = { type: "regex", regex: "[a-zA-Z0-9 ]{40}" } as const;
  for (const sampling of [{}, { temp: 0.7, seed: 1 }]) {
    const options = { maxTokens: 16, responseFormat, ...sampling };
    const plain = await answer(loaded, idsOf(12, 4), options, 0);
    const found = await answer(loaded, idsOf(12, 4), options, 3);
    assertAlike(found.responses, plain.responses, JSON.stringify(sampling));
    assert(found.drafted > 0, `${found.accepted} of ${found.drafted}`);
  }
  await model.traces.idle();
});

Deno.test("the account drafts with a head by itself", async () => {
  const loaded = exact;
  const { model } = loaded;
  const prompt = idsOf(12, 5);
  const plain = await answer(loaded, prompt, { maxTokens: 60 }, 0);
  const { tokenizer } = loaded;
  const stream = streamGenerate(model, tokenizer, prompt, { maxTokens: 60, speculation: { drafter: "mtp" } });
  const responses = await Array.fromAsync(stream);
  assertEquals(responses.map(({ token }) => token), plain.tokens);
  assert(responses.at(-1)!.draftedTokens! >= responses.at(-1)!.acceptedTokens!);
  await model.traces.idle();
});

Deno.test("drafts by a head go on in a conversation, after an answer that was left and after an abort, and leave no memory", async () => {
  const loaded = exact;
  const { model } = loaded;
  const { tokenizer } = loaded;
  const speculation = { drafter: "mtp", adaptive: false } as const;
  const run = async (): Promise<void> => {
    const prompt = idsOf(20, 6);
    const all = { maxTokens: 20, speculation };
    const whole = (await answer(loaded, prompt, { maxTokens: 20 }, 0)).tokens;
    using cache = model.makeCache();
    let taken = 0;
    for await (const { token } of streamGenerate(model, tokenizer, prompt, { ...all, cache })) {
      assertEquals(token, whole[taken]);
      if (++taken === 6) break;
    }
    const begun = [...prompt, ...whole.slice(0, 6)];
    const more = streamGenerate(model, tokenizer, begun, { ...all, maxTokens: 10, cache, cachePrompt: true });
    const rest = await Array.fromAsync(more);
    assertEquals(rest.map(({ token }) => token), whole.slice(6, 16));
    assert(rest.at(-1)!.acceptedTokens! > 3, `${rest.at(-1)!.acceptedTokens}`);
    const aborted = streamGenerate(model, tokenizer, prompt, { ...all, signal: AbortSignal.abort() });
    await assertRejects(() => Array.fromAsync(aborted), DOMException);
    await model.traces.idle();
  };
  await run();
  const before = mx.getActiveMemory();
  await run();
  assertEquals(mx.getActiveMemory(), before);
});

Deno.test("a model without a head, and a cache that forgets positions, are refused", async () => {
  const { model, tokenizer } = await load(dir, { device });
  using _model = model;
  const speculation = { drafter: "mtp" } as const;
  const ask = (of: mx.lm.LanguageModel, options: mx.lm.GenerateOptions): Promise<unknown> =>
    Array.fromAsync(streamGenerate(of, tokenizer, [1, 2, 3], { ...options, speculation }));
  await assertRejects(() => ask(model, {}), LlmError, "The model has no head that drafts tokens");
  const { model: headed } = await loadWithHead(dir, 1, device);
  using _headed = headed;
  await assertRejects(() => ask(headed, { maxKvSize: 64 }), LlmError, '"mtp" keeps all positions: leave maxKvSize out');
});

Deno.test("the model of these tests is freed, and its folder removed", async () => {
  await exact.model.traces.idle();
  exact.model[Symbol.dispose]();
  await Deno.remove(dir, { recursive: true });
});
