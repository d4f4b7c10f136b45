/**
 * Speculation in an engine. Requests whose answers are drafted get beside each other the tokens that `streamGenerate` gives for each
 * alone, whatever was drafted, with every option.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { drawsCases } from "../../support/draw_cases.ts";
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
import { idleAfter } from "../../support/models/idle_after.ts";

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
  most?: number,
): mx.lm.EngineRequest[] {
  return requests.map((request, i) => {
    const drafter = replay(answers[i].map(({ token }) => token), rights[i % rights.length], i % 2 === 1);
    return { ...request, speculation: { drafter, numDraftTokens: most ?? 1 + (3 * i + 2) % 7, adaptive: false } };
  });
}

for (const device of DEVICES) {
  const shared: { loaded?: Loaded } = {};
  const test = (name: string, work: () => Promise<void>): void =>
    Deno.test(name, idleAfter(() => shared.loaded?.model, work));
  const load = async (): Promise<Loaded> => shared.loaded ??= await mx.lm.load(TINY_DIR, { device });
  const tolerance = TOLERANCE[hasMatrices(device) ? "matrices" : "exact"];
  // Software Vulkan compiles the kernels of each number of columns for long.
  const isSlow = drawsCases(device);

  test(`drafted requests get beside each other what they get alone on ${device}`, async () => {
    const loaded = await load();
    const requests = (isSlow ? REQUESTS.slice(0, 2) : REQUESTS).map((request) => ({
      maxTokens: isSlow ? 5 : 12,
      ...request,
    }));
    const alone: mx.lm.EngineResponse[][] = [];
    for (const request of requests) alone.push(await takeAlone(loaded, request));
    for (const count of isSlow ? [2] : [1, 3, requests.length]) {
      await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
        kvBytes: 24 * tinyPage(device),
        maxSequences: count,
      });
      for (const round of isSlow ? [0] : [0, 1]) { // pipelines are made meanwhile; before that nothing is drafted
        const drafted = draftedRequests(requests, alone, [7, 2, 1, 0], isSlow ? 3 : undefined);
        const served = await Promise.all(drafted.map((request) => take(engine.add(request))));
        for (const [i, responses] of served.entries()) {
          assertAlike(responses, alone[i], `request ${i} of ${count} together, round ${round}`, tolerance);
        }
        await loaded.model.traces.idle();
      }
      const { draftedTokens, acceptedTokens, running, waiting } = engine.metrics;
      assertEquals([running, waiting], [0, 0]);
      assert(
        acceptedTokens > (isSlow ? 1 : 4) && acceptedTokens < draftedTokens,
        `${acceptedTokens} of ${draftedTokens}`,
      );
    }
  });

  test(`the model of the tests of drafts is freed on ${device}`, async () => {
    await shared.loaded?.model.traces.idle();
    shared.loaded?.model[Symbol.dispose]();
  });
}
