/** Drafts over HTTP: OpenAI's `prediction`, what usage and metrics say of it, and how models are opened that draft. */

import { assert, assertEquals } from "@std/assert";
import { devices, lm } from "../../mod.ts";
import { openModel } from "../../src/server/open.ts";
import { predicted, PREDICTION } from "../../src/server/prediction.ts";
import type { Served } from "../../src/server/served.ts";
import { DRAFT_CASES, writeWithHead } from "../support/models/draft_heads.ts";
import { GOLDEN } from "../support/models/models.ts";
import { KV_BYTES, TestServer, TINY } from "../support/server/served.ts";

devices(); // opens the Vulkan library outside of any test

const [, , ANSWER] = /^<think>\n([^]*)\n<\/think>\n\n([^]*)<\|im_end\|>$/.exec(GOLDEN[3].text)!;
const HI = [{ role: "user", content: "Hi what is your name" }];
const STORY = GOLDEN[0].text.replace("<|endoftext|>", "");
const greedy = { temperature: 0 };

/** A server whose engine always verifies what a request predicts, and by itself drafts as `speculation` says. */
const start = (speculation?: lm.EngineSpeculation): Promise<TestServer> =>
  TestServer.start({
    engines: {
      [TINY]: ({ model, tokenizer }) =>
        new lm.Engine(model, tokenizer, { kvBytes: KV_BYTES, ...(speculation && { speculation }) }),
    },
  });

Deno.test("a prediction drafts the answer of a conversation, which stays the same", async () => {
  await using server = await start({ adaptive: false });
  const ask = (prediction: unknown): Promise<unknown> =>
    server.ask("/v1/chat/completions", { messages: HI, ...greedy, prediction });
  // deno-lint-ignore no-explicit-any -- JSON
  const all: any[] = [];
  for (
    const prediction of [
      { type: "content", content: ANSWER },
      {
        type: "content",
        content: [{ type: "text", text: ANSWER.slice(0, 9) }, { type: "text", text: ANSWER.slice(9) }],
      },
      { type: "content", content: "Something else altogether, which is no answer." },
    ]
  ) all.push(await ask(prediction));
  for (const { choices: [{ message }], usage } of all) {
    assertEquals(message.content, ANSWER);
    assertEquals(usage.completion_tokens, GOLDEN[3].greedy.length);
  }
  const details = all.map(({ usage }) => usage.completion_tokens_details);
  for (const { accepted_prediction_tokens: accepted } of details.slice(0, 2)) {
    assert(accepted > ANSWER.length / 12, JSON.stringify(details));
  }
  assert(details[2].accepted_prediction_tokens < 8, JSON.stringify(details)); // by chance, or what the prompt has
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const sum = (name: string): number => details.reduce((total, detail) => total + detail[name], 0);
  const accepted = sum("accepted_prediction_tokens");
  const drafted = accepted + sum("rejected_prediction_tokens");
  assert(metrics.includes(`vkmx_accepted_tokens_total{model="${TINY}"} ${accepted}\n`), metrics);
  assert(metrics.includes(`vkmx_drafted_tokens_total{model="${TINY}"} ${drafted}\n`), metrics);
});

Deno.test("completions take a prediction, and answers of a stream have its usage", async () => {
  await using server = await start({ adaptive: false });
  const body = { prompt: GOLDEN[0].prompt, ...greedy, max_tokens: 40, prediction: { type: "content", content: STORY } };
  const { choices, usage } = await server.ask("/v1/completions", { ...body, n: 2 });
  for (const { text } of choices) assert(STORY.startsWith(text) && text.length > 40);
  const { accepted_prediction_tokens: accepted } = usage.completion_tokens_details;
  assert(accepted > 40, `${accepted}`);
  const events = await server.events("/v1/completions", { ...body, stream_options: { include_usage: true } });
  assert(events.at(-2)!.data.usage.completion_tokens_details.accepted_prediction_tokens > 20);
});

Deno.test("an engine may draft by itself or not, and a wrong prediction is refused by name", async () => {
  await using drafting = await start({ drafter: "ngrams", adaptive: false });
  const body = { prompt: GOLDEN[0].prompt, ...greedy, max_tokens: 30 };
  await drafting.ask("/v1/completions", body);
  const { usage } = await drafting.ask("/v1/completions", body); // the answer before drafts this one
  assert(usage.completion_tokens_details.accepted_prediction_tokens > 10);
  await using server = await start();
  const plain = await server.ask("/v1/completions", body);
  assertEquals(plain.usage.completion_tokens_details.accepted_prediction_tokens, 0);
  for (
    const [prediction, param] of [
      ["a text", "prediction"],
      [{ type: "content" }, "prediction.content"],
      [{ type: "other", content: "x" }, "prediction.type"],
      [{ type: "content", content: [{ type: "image" }] }, "prediction.content[0].type"],
    ] as const
  ) {
    const response = await server.post("/v1/chat/completions", { messages: HI, prediction });
    const { error } = await response.json();
    assertEquals([response.status, error.param], [400, param]);
  }
});

Deno.test("a prediction is encoded once for all choices, without the tokens that begin a text", () => {
  const texts: string[] = [];
  const tokenizer = {
    encode: (text: string, { addSpecialTokens = true }: lm.EncodeOptions = {}) => {
      texts.push(text);
      return addSpecialTokens ? [1, 5, 6, 7, 2] : [5, 6, 7];
    },
  };
  const served = { engine: { canSpeculate: true }, tokenizer } as unknown as Served;
  const prediction = PREDICTION.read({ type: "content", content: "a b c" }, "prediction");
  for (let choice = 0; choice < 2; choice++) {
    const { speculation } = predicted(prediction, served);
    const { drafter } = speculation as { drafter: lm.Drafter };
    drafter.extend([3, 4]); // the prompt
    assertEquals(drafter.draft(7), [5, 6, 7]);
  }
  assertEquals(texts, ["a b c"]);
});

Deno.test("a model is opened with the model that drafts for it, whose memory counts", async () => {
  const room = { bytes: 2 ** 31, models: 1, isAll: true };
  const kvBytes = KV_BYTES / 8;
  const load = { device: "cpu" } as const;
  const source = lm.EMBEDDED_MODEL;
  const plain = await openModel("plain", source, room, { load, kvBytes });
  const speculation = (drafter: lm.DraftModel | undefined): lm.EngineOptions => ({
    speculation: { ...(drafter && { drafter }), adaptive: false, numDraftTokens: 3 },
  });
  const opened = await openModel("drafted", source, room, { load, kvBytes, draft: source, speculation });
  assertEquals([opened.bytes, plain.draft], [2 * plain.bytes, undefined]);
  const responses = await Array.fromAsync(opened.engine.add({ prompt: GOLDEN[0].ids, maxTokens: 12 }));
  assertEquals(responses.map(({ token }) => token), GOLDEN[0].greedy.slice(0, 12));
  const { draftedTokens, acceptedTokens } = opened.engine.metrics;
  assert(draftedTokens > 5 && acceptedTokens === draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
  for (const { engine, model, draft } of [plain, opened]) {
    await engine[Symbol.asyncDispose]();
    await model.traces.idle();
    await draft?.traces.idle();
    draft?.[Symbol.dispose]();
    model[Symbol.dispose]();
  }
});

Deno.test("a model is opened with its head, which drafts for all requests", async () => {
  const dir = await Deno.makeTempDir();
  try {
    await writeWithHead(dir, DRAFT_CASES[0]);
    const load = { device: "cpu", draftHead: true } as const;
    const speculation = (): lm.EngineOptions => ({ speculation: { drafter: "mtp", adaptive: false } });
    const room = { bytes: 2 ** 30, models: 1, isAll: true };
    const { engine, model } = await openModel("headed", dir, room, { load, engine: { contextSize: 128 }, speculation });
    const request = { prompt: [5, 6, 7], maxTokens: 12 };
    const plain = await Array.fromAsync(engine.add({ ...request, speculation: false }));
    for (let round = 0; round < 2; round++) { // pipelines are made beside the first one
      const responses = await Array.fromAsync(engine.add(request));
      assertEquals(responses.map(({ token }) => token), plain.map(({ token }) => token));
      await model.traces.idle();
    }
    assert(engine.metrics.draftedTokens > 5, `${engine.metrics.draftedTokens}`);
    await engine[Symbol.asyncDispose]();
    model[Symbol.dispose]();
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});
