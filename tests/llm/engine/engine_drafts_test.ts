/**
 * Speculation in an engine. Requests whose answers are drafted get beside each other the tokens that `streamGenerate` gives for each
 * alone, whatever was drafted, with every option.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import {
  assertAlike,
  type Loaded,
  replay,
  take,
  takeAlone,
  tinyPage,
  TOLERANCE,
} from "../../support/models/engine_requests.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { idleAfter, onceMade } from "../../support/models/idle_after.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const REQUESTS: readonly mx.lm.EngineRequest[] = [
  { prompt: "Once upon a time" },
  { prompt: "The sea was", temp: 0.9, seed: 1, logprobs: 2 },
  {
    prompt: "The fox and the fox and the fox",
    repetitionPenalty: 1.4,
    frequencyPenalty: 0.3,
    repetitionContextSize: 5,
    temp: 0.8,
    topP: 0.9,
    seed: 5,
  },
  { prompt: "The shader", logitBias: { 300: 4, 0: -2 }, presencePenalty: 1, temp: 1.2, topK: 40, seed: 7 },
  { prompt: "Is it so?", responseFormat: { type: "regex", regex: "(yes|no) [0-9]{3}" } },
  { prompt: "Once upon a time", stop: [" little girl"], maxTokens: 30 },
  { prompt: GOLDEN[1].ids, temp: 1.1, minP: 0.05, seed: 9 },
];

/** The requests, each with drafts of its answer alone of which so many tokens are right. `adaptive` is false, so all are verified. */
function draftedRequests(
  requests: readonly mx.lm.EngineRequest[],
  answers: readonly (readonly mx.lm.EngineResponse[])[],
  rights: readonly number[],
): mx.lm.EngineRequest[] {
  return requests.map((request, i) => {
    const drafter = replay(answers[i].map(({ token }) => token), rights[i % rights.length], i % 2 === 1);
    return { ...request, speculation: { drafter, numDraftTokens: 1 + (3 * i + 2) % 7, adaptive: false } };
  });
}

for (const device of DEVICES) {
  const shared: { loaded?: Loaded } = {};
  const isSlow = device !== "wasm" && !mx.withDevice(device, getBackend).limits.concurrent;
  const test = (name: string, work: () => Promise<void>, ignore = false): void =>
    Deno.test({ name, ignore, fn: idleAfter(() => shared.loaded?.model, work) });
  const load = async (): Promise<Loaded> => shared.loaded ??= await mx.lm.load(TINY_DIR, { device });
  const tolerance = TOLERANCE[hasMatrices(device) ? "matrices" : "exact"];

  test(`drafted requests give the tokens of another implementation on ${device}`, async () => {
    const { model, tokenizer } = await load();
    await using engine = new mx.lm.Engine(model, tokenizer, { kvBytes: 8 * tinyPage(device), maxSequences: 2 });
    const served = await Promise.all(
      GOLDEN.slice(0, 2).map(({ ids, greedy }, i) => {
        const speculation = { drafter: replay(greedy, [7, 1][i]), numDraftTokens: 3, adaptive: false };
        return take(engine.add({ prompt: ids, maxTokens: 8, speculation }));
      }),
    );
    for (const [i, responses] of served.entries()) {
      assertEquals(responses.map(({ token }) => token), GOLDEN[i].greedy.slice(0, 8));
    }
    await model.traces.idle();
    // Where pipelines take longer than the answers, nothing was drafted meanwhile.
    const { draftedTokens, acceptedTokens } = engine.metrics;
    assert(device !== "wasm" || (acceptedTokens > 4 && acceptedTokens < draftedTokens), `${acceptedTokens}`);
  });

  // Software Vulkan compiles the kernels of each number of columns for long.
  test(`drafted requests get beside each other what they get alone on ${device}`, async () => {
    const loaded = await load();
    const requests = REQUESTS.map((request) => ({ maxTokens: 12, ...request }));
    const alone: mx.lm.EngineResponse[][] = [];
    for (const request of requests) alone.push(await takeAlone(loaded, request));
    for (const count of [1, 3, requests.length]) {
      await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
        kvBytes: 24 * tinyPage(device),
        maxSequences: count,
      });
      await onceMade([loaded.model], async () => {
        const drafted = draftedRequests(requests, alone, [7, 2, 1, 0]);
        const served = await Promise.all(drafted.map((request) => take(engine.add(request))));
        for (const [i, responses] of served.entries()) {
          assertAlike(responses, alone[i], `request ${i} of ${count} together`, tolerance);
        }
      });
      const { draftedTokens, acceptedTokens, running, waiting } = engine.metrics;
      assertEquals([running, waiting], [0, 0]);
      assert(acceptedTokens > 4 && acceptedTokens < draftedTokens, `${acceptedTokens} of ${draftedTokens}`);
    }
  }, isSlow);

  test(`the model of the tests of drafts is freed on ${device}`, async () => {
    await shared.loaded?.model.traces.idle();
    shared.loaded?.model[Symbol.dispose]();
  });
}
