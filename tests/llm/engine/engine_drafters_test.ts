/**
 * What holds for everything that drafts the requests of an engine. Their tokens are those that `streamGenerate` gives for each alone: with every
 * option, where memory is short, and beside requests that are aborted.
 */

import { setImmediate } from "node:timers/promises";
import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { DRAFTERS, smallEngine } from "./drafters.ts";
import { assertAlike, type Loaded, take, takeAlone, TOLERANCE } from "../../support/models/engine_requests.ts";
import { idleAfter, onceMade } from "../../support/models/idle_after.ts";

const device = anyDevice();
mx.withDevice(device, getBackend); // opened outside the tests, which count resources
const tolerance = TOLERANCE[hasMatrices(device) ? "matrices" : "exact"];

const tokensOf = (responses: readonly mx.lm.EngineResponse[]): number[] => responses.map(({ token }) => token);

for (const row of DRAFTERS) {
  const shared: { loaded?: mx.lm.Loaded } = {};
  const load = async (): Promise<mx.lm.Loaded> => shared.loaded ??= await row.load(device);
  const test = (name: string, work: () => Promise<void>): void =>
    Deno.test({ name: `${name}: ${row.name}`, fn: idleAfter(() => shared.loaded?.model, work) });

  /** Prompts of a number of tokens that begin alike. */
  const idsOf = (count: number, last: number): number[] =>
    Array.from({ length: count }, (_, i) => i === count - 1 ? last : row.token(i));

  const requestsOfAllKinds: readonly mx.lm.EngineRequest[] = [
    { prompt: idsOf(12, 1) },
    { prompt: idsOf(7, 2), temp: 0.9, seed: 1, logprobs: 2 },
    {
      prompt: [5, 6, 7, 5, 6, 7, 5],
      repetitionPenalty: 1.4,
      frequencyPenalty: 0.3,
      repetitionContextSize: 5,
      temp: 0.8,
      topP: 0.9,
      seed: 5,
    },
    { prompt: [9], logitBias: { 300: 4, 0: -2 }, presencePenalty: 1, temp: 1.2, topK: 40, seed: 7 },
    { prompt: idsOf(30, 4), responseFormat: { type: "regex", regex: "(yes|no) [0-9a-z ]{30}" } },
    { prompt: idsOf(70, 5), temp: 1.1, minP: 0.05, seed: 9, stop: ["e"] },
  ];

  /** The answers to requests alone. */
  const answersOf = async (of: Loaded, requests: readonly mx.lm.EngineRequest[]): Promise<mx.lm.EngineResponse[][]> => {
    const answers: mx.lm.EngineResponse[][] = [];
    for (const request of requests) answers.push(await takeAlone(of, request));
    return answers;
  };

  /** Asserts that an engine gives requests what they get alone. */
  const assertServes = async (
    engine: mx.lm.Engine,
    requests: readonly mx.lm.EngineRequest[],
    answers: readonly (readonly mx.lm.EngineResponse[])[],
    what: string,
  ): Promise<void> => {
    const served = await Promise.all(
      requests.map((request, i) => take(engine.add({ ...request, ...row.request(tokensOf(answers[i]), i) }))),
    );
    for (const [i, responses] of served.entries()) {
      assertAlike(responses, answers[i], `${what}, request ${i}`, tolerance);
    }
  };

  test("drafted requests with every option get beside each other what they get alone", async () => {
    const loaded = await load();
    const requests = requestsOfAllKinds.map((request) => ({ maxTokens: 12, ...request }));
    const answers = await answersOf(loaded, requests);
    const { speculation } = row.engine(loaded);
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
      contextSize: 128,
      maxSequences: requests.length,
      ...(speculation && { speculation }),
    });
    await onceMade([loaded.model], () => assertServes(engine, requests, answers, "together"));
    const { draftedTokens, acceptedTokens } = engine.metrics;
    assert(acceptedTokens > 4 && acceptedTokens <= draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
  });

  test("drafted requests give up their memory, are read again and share kept prefixes", async () => {
    const loaded = await load();
    // A page has 64 positions. The prompts begin alike and share the first one, so three of them have 1 + 3 of the 6 pages once they are read.
    // After 128 positions each wants one more, 7 in all. That is within 6 tokens, before any of them ends.
    const requests = [123, 124, 125, 126].map((count, i): mx.lm.EngineRequest => ({
      prompt: idsOf(count, 300 + i),
      maxTokens: 24,
      // With this seed temperatures nearby give the same answers. With others a draw may lie so close to the next token that rounding decides.
      ...(i % 2 === 1 && { temp: 0.9, seed: 10 }),
    }));
    const answers = await answersOf(loaded, requests);
    const options = smallEngine(loaded, row.engine(loaded), { pages: 6, maxSequences: 4 });
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, options);
    await onceMade([loaded.model], () => assertServes(engine, requests, answers, "in few pages"));
    const { preemptions, cachedTokens, acceptedTokens } = engine.metrics;
    assert(preemptions > 0 && cachedTokens > 0 && acceptedTokens > 0, JSON.stringify(engine.metrics));
    // What was drafted wrong is no part of a kept prefix: an answer goes on after the answer before.
    // Where products round, what is drawn in the middle of two close tokens depends on the rows that are read together.
    const longer = requests.map(({ temp, ...request }, i) => ({
      ...request,
      ...(!hasMatrices(device) && temp !== undefined && { temp }),
      prompt: [...request.prompt as number[], ...tokensOf(answers[i]).slice(0, 20)],
      maxTokens: 6,
    }));
    await assertServes(engine, longer, await answersOf(loaded, longer), "the next turn");
  });

  test("drafted requests are aborted and left at any time, and no memory stays", async () => {
    const loaded = await load();
    const { model, tokenizer } = loaded;
    const [answer] = await answersOf(loaded, [{ prompt: idsOf(12, 1), maxTokens: 40 }]);
    const own = row.request(tokensOf(answer), 0);
    const run = async (): Promise<void> => {
      await using engine = new mx.lm.Engine(
        model,
        tokenizer,
        smallEngine(loaded, row.engine(loaded), { pages: 12, maxSequences: 4 }),
      );
      const beside = take(engine.add({ prompt: idsOf(12, 1), maxTokens: 15, ...own }));
      for (const count of [1, 2, 5]) {
        const controller = new AbortController();
        let taken = 0;
        const aborted = engine.add({ prompt: idsOf(12, 1), signal: controller.signal, ...own });
        for await (const { finishReason } of aborted) {
          if (++taken === count) controller.abort();
          if (finishReason !== null) assertEquals(finishReason, "abort");
        }
        for await (const _ of engine.add({ prompt: idsOf(9, 2), ...own })) if (++taken > count + 2) break;
      }
      assertEquals((await beside).length, 15);
      void take(engine.add({ prompt: idsOf(7, 3), ...own })).catch(() => {}); // ends with the engine
    };
    await run();
    await model.traces.idle();
    model.traces[Symbol.dispose]();
    const before = mx.getActiveMemory();
    await run();
    await model.traces.idle();
    model.traces[Symbol.dispose]();
    assertEquals(mx.getActiveMemory(), before);
  });

  test("an engine that ends at any time while it drafts leaves no memory on its way", async () => {
    const loaded = await load();
    const { model, tokenizer } = loaded;
    const [answer] = await answersOf(loaded, [{ prompt: idsOf(12, 1), maxTokens: 40 }]);
    const own = row.request(tokensOf(answer), 0);
    const run = async (turns: number): Promise<number> => {
      await using cleanup = new AsyncDisposableStack();
      const options = smallEngine(loaded, row.engine(loaded), { pages: 12, maxSequences: 4 });
      const engine = cleanup.use(new mx.lm.Engine(model, tokenizer, options));
      const ended = [1, 2].map((last) =>
        assertRejects(() => take(engine.add({ prompt: idsOf(10, last), maxTokens: 80, ...own })), Error, "disposed")
      );
      for (let i = 0; i < turns; i++) await setImmediate();
      await cleanup.disposeAsync();
      await Promise.all(ended);
      await model.traces.idle();
      model.traces[Symbol.dispose]();
      return mx.getActiveMemory();
    };
    await run(0);
    mx.synchronize();
    const before = mx.getActiveMemory();
    // Software Vulkan makes pipelines for long. The fault showed after 2 turns.
    for (const turns of device === "wasm" ? [0, 1, 2, 3, 4, 5, 6, 7] : [2]) {
      assertEquals(await run(turns), before, `after ${turns} turns`);
    }
  });

  test("the model is freed", async () => {
    await shared.loaded?.model.traces.idle();
    shared.loaded?.model[Symbol.dispose]();
  });
}
