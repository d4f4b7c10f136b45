/**
 * What an engine refuses, at once and by name; and requests that fail while they run: they end with their error, the others go on.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { assertAlike, errorOf, take, takeAlone, tinyPage } from "../../support/models/engine_requests.ts";
import { loadDamaged } from "../../support/models/damaged_model.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Wrong requests, and what names their fault. */
const WRONG: readonly (readonly [request: unknown, message: string])[] = [
  [undefined, "Engine.add"],
  [{}, "The prompt is neither"],
  [{ prompt: "" }, "The prompt is empty"],
  [{ prompt: [] }, "The prompt is empty"],
  [{ prompt: [4096] }, "token id 4096"],
  [{ prompt: [-1] }, "token id -1"],
  [{ prompt: [1.5] }, "token id 1.5"],
  [{ prompt: 7 }, "The prompt is neither"],
  [{ prompt: "Hi", prompts: ["Hi"] }, "prompts"],
  [{ prompt: "Hi", cache: 1 }, "cache"],
  [{ prompt: "Hi", sampler: () => 1 }, "sampler"],
  [{ prompt: "Hi", logitsProcessors: [] }, "logitsProcessors"],
  [{ prompt: "Hi", prefillStepSize: 5 }, "prefillStepSize"],
  [{ prompt: "Hi", onPrompt: () => {} }, "onPrompt"],
  [{ prompt: "Hi", maxTokens: 0 }, "maxTokens"],
  [{ prompt: "Hi", maxTokens: [1] }, "maxTokens"],
  [{ prompt: "Hi", seed: -1, temp: 1 }, "seed"],
  [{ prompt: "Hi", seed: [1] }, "seed"],
  [{ prompt: "Hi", temp: NaN }, "temp"],
  [{ prompt: "Hi", topP: 1.1 }, "topP"],
  [{ prompt: "Hi", topK: 0.5 }, "topK"],
  [{ prompt: "Hi", minP: -1 }, "minP"],
  [{ prompt: "Hi", repetitionPenalty: 0 }, "repetitionPenalty"],
  [{ prompt: "Hi", presencePenalty: NaN }, "presencePenalty"],
  [{ prompt: "Hi", frequencyPenalty: "1" }, "frequencyPenalty"],
  [{ prompt: "Hi", repetitionContextSize: 0 }, "repetitionContextSize"],
  [{ prompt: "Hi", logitBias: { 1: NaN } }, "logitBias[1]"],
  [{ prompt: "Hi", logitBias: { "-1": 1 } }, "logitBias"],
  [{ prompt: "Hi", logitBias: { 4096: 1 } }, "logitBias"],
  [{ prompt: "Hi", logitBias: { one: 1 } }, "logitBias"],
  [{ prompt: "Hi", logitBias: 5 }, "logitBias"],
  [{ prompt: "Hi", logprobs: 21 }, "logprobs"],
  [{ prompt: "Hi", stop: [1] }, "stop"],
  [{ prompt: "Hi", signal: {} }, "signal"],
  [{ prompt: "Hi", tools: "add" }, "tools"],
  [{ prompt: "Hi", enableThinking: "no" }, "enableThinking"],
  [{ prompt: "Hi", responseFormat: { type: "xml" } }, "responseFormat"],
  [{ prompt: "Hi", responseFormat: "json" }, "responseFormat"],
  [{ prompt: "Hi", priority: 0.5 }, "priority"],
  [{ prompt: "Hi", priority: "high" }, "priority"],
  [{ prompt: [{ role: "user" }] }, "content"],
  [{ prompt: "Hi", speculation: true }, "speculation is true, expected an object"],
  [{ prompt: "Hi", speculation: { numDraftTokens: 8 } }, "speculation.numDraftTokens is 8"],
  [{ prompt: "Hi", speculation: { drafter: "suffix" } }, "speculation.drafter"],
];

/** Wrong options of an engine. */
const WRONG_OPTIONS: readonly (readonly [options: unknown, message: string])[] = [
  [{ maxSequences: 0 }, "maxSequences"],
  [{ maxSequences: 1.5 }, "maxSequences"],
  [{ maxQueue: -1 }, "maxQueue"],
  [{ kvBytes: tinyPage("wasm") - 1 }, "kvBytes"],
  [{ kvBytes: Infinity }, "kvBytes"],
  [{ kvBits: 4 }, "kvBits"],
  [{ kvBits: "8" }, "kvBits"],
  [{ speculation: "ngrams" }, "speculation"],
  [{ speculation: { draftTokens: 3 } }, "draftTokens"],
  [
    { speculation: { drafter: { extend: () => {}, draft: () => [] } } },
    "an object that drafts is an option of a request",
  ],
  [{ contextSize: 0 }, "contextSize"],
  [{ prefillStepSize: "128" }, "prefillStepSize"],
  [{ kvbytes: 1 }, "kvbytes"],
  [null, "Engine"],
];

for (const device of DEVICES) {
  Deno.test(`an engine refuses what is wrong at once, by name, on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const options = { kvBytes: 2 * tinyPage(device), maxSequences: 1, maxQueue: 1 };
    {
      await using engine = new mx.lm.Engine(model, tokenizer, options);
      const check = async (what: unknown, call: () => unknown, message: string): Promise<void> => {
        const error = await errorOf(call);
        const shown = `${JSON.stringify(what)}: ${error}`;
        assert(/^(option|context|tokenizer|template): /.test(error), shown);
        assert(error.includes(message) && !error.includes("\n"), shown);
      };
      for (const [request, message] of WRONG) {
        await check(request, () => engine.add(request as mx.lm.EngineRequest), message);
      }
      for (const [wrong, message] of WRONG_OPTIONS) {
        await check(wrong, () => new mx.lm.Engine(model, tokenizer, wrong as mx.lm.EngineOptions), message);
      }
      await check("no model", () => new mx.lm.Engine(undefined as never, tokenizer), "Engine(model");
      // Of two places one runs and one waits.
      const taken = [1, 2].map(() => take(engine.add({ prompt: "Hi", maxTokens: 2 })));
      assertEquals(await errorOf(() => engine.add({ prompt: "Hi" })), "busy: 1 requests wait already: try again later");
      assertEquals((await Promise.all(taken)).map(({ length }) => length), [2, 2]);
      assertEquals((await take(engine.add({ prompt: "Hi", maxTokens: 2 }))).length, 2);
      // A grammar that cannot be used is found when it is compiled.
      const format = { type: "regex", regex: "[^\\s\\S]x" } as const;
      const error = await errorOf(() => take(engine.add({ prompt: "Hi", responseFormat: format })));
      assertEquals(error, "option: responseFormat: no answer can be what the pattern says");
      engine.add({ prompt: "Hi", responseFormat: format }); // no caller looks: no rejection is unhandled
      await engine.drain();
      assertEquals(engine.metrics.requests, 5);
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });

  Deno.test(`prompts fill the context to its last token on ${device}`, async () => {
    const loaded = await mx.lm.load(TINY_DIR, { device });
    const { model, tokenizer } = loaded;
    const ids = Array.from({ length: 65 }, (_, i) => GOLDEN[1].ids[i % GOLDEN[1].ids.length]);
    const sizes = [{ kvBytes: tinyPage(device) }, { kvBytes: 2 * tinyPage(device), contextSize: 50 }, {
      kvBytes: 5 * tinyPage(device) / 2,
    }];
    for (const [i, context] of [64, 50, 128].entries()) {
      await using engine = new mx.lm.Engine(model, tokenizer, sizes[i]);
      assertEquals(engine.contextSize, context);
      if (context > 64) continue;
      const whole = ids.slice(0, context);
      const served = await take(engine.add({ prompt: whole }));
      assertAlike(
        served,
        await takeAlone(loaded, { prompt: whole, maxTokens: 1 }),
        `a prompt of ${context} tokens`,
      );
      const near = await take(engine.add({ prompt: whole.slice(3) }));
      assertAlike(near, await takeAlone(loaded, { prompt: whole.slice(3), maxTokens: 4 }), "three fewer");
      const error = await errorOf(() => engine.add({ prompt: ids.slice(0, context + 1) }));
      assertEquals(
        error,
        `context: The prompt has ${context + 1} tokens and the context has room for ${context}: shorten the prompt`,
      );
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });

  Deno.test(`logits of NaN end their request alone on ${device}`, async () => {
    const { greedy, ids } = GOLDEN[0];
    // The embedding of the third token of this answer is spoiled. Others that never have it are not touched.
    const { model, tokenizer } = await loadDamaged(device, ["model.embed_tokens.scales", greedy[2], NaN]);
    const loaded = { model, tokenizer };
    {
      await using engine = new mx.lm.Engine(model, tokenizer, { kvBytes: 3 * tinyPage(device), maxSequences: 3 });
      const whole = GOLDEN[1].ids.filter((id) => id !== greedy[2]);
      const others: mx.lm.EngineRequest[] = [
        { prompt: GOLDEN[2].ids, maxTokens: 20, logitBias: { [greedy[2]]: -Infinity } },
        { prompt: whole, maxTokens: 20, presencePenalty: 0.3, logitBias: { [greedy[2]]: -Infinity, 4095: 9 } },
      ];
      const beside = Promise.allSettled(others.map((other) => take(engine.add(other))));
      const failing = (more: object): Promise<[number[], string]> => {
        const tokens: number[] = [];
        return errorOf(async () => {
          for await (const { token } of engine.add({ prompt: ids, maxTokens: 12, ...more })) tokens.push(token);
        }).then((error) => [tokens, error.split(" tokens")[0]]);
      };
      const expected = [greedy.slice(0, 3), `logits: The logits of step 4, after ${ids.length + 3}`];
      assertEquals(await failing({ frequencyPenalty: 1e-6, repetitionContextSize: 4 }), expected);
      // Pages with NaN in them go to others.
      for (let i = 0; i < 3; i++) assertEquals(await failing({}), expected);
      for (const [i, outcome] of (await beside).entries()) {
        if (outcome.status === "rejected") throw outcome.reason;
        assertAlike(outcome.value, await takeAlone(loaded, others[i]), `request ${i} beside it`);
      }
      for (const other of others) {
        assertAlike(await take(engine.add(other)), await takeAlone(loaded, other), "afterwards");
      }
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });
}
