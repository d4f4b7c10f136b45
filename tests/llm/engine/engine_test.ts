/**
 * The tokens of a request do not depend on its company. What an engine gives for requests beside each other is what `streamGenerate` gives
 * for each alone. Requests join at random steps; memory is short, so that some are read again; prompts begin alike.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { drawsCases, drawSome } from "../../support/draw_cases.ts";
import {
  assertAlike,
  type Loaded,
  take,
  takeAlone,
  tinyPage,
  TOLERANCE,
} from "../../support/models/engine_requests.ts";
import { GOLDEN, TINY_DIR, tinySource } from "../../support/models/models.ts";
import { generator } from "../../support/oracles/oracle.ts";
import { Tokenizer } from "../../../src/llm/tokenizer/tokenizer.ts";
import { SEED } from "../../support/tier.ts";
import { hashOf } from "../../../scripts/test/seed.ts";
import { idleAfter } from "../../support/models/idle_after.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const CHAT = [{ role: "user", content: "What is 17 + 25?" }] as const;
const TOOLS = [{ type: "function", function: { name: "add", parameters: { type: "object", properties: {} } } }];
const SCHEMA = {
  type: "object",
  properties: { name: { type: "string", maxLength: 6 }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
} as const;

/** Requests with every option. */
const REQUESTS: Readonly<Record<string, mx.lm.EngineRequest>> = {
  "greedy": { prompt: "Once upon a time" },
  "ids": { prompt: GOLDEN[1].ids },
  "a temperature": { prompt: "The sea was", temp: 0.9, seed: 1 },
  "another temperature and topP": { prompt: "A dog and a cat", temp: 1.3, topP: 0.8, seed: 2 },
  "topP of 0": { prompt: "A dog and a cat", temp: 1, topP: 0, seed: 2 },
  "topK": { prompt: "One day the king", temp: 1.5, topK: 3, seed: 3 },
  "minP": { prompt: "Nina", temp: 1.5, minP: 0.1, seed: 2 ** 40 + 1 },
  "all filters": { prompt: "A small boat", temp: 1, topK: 50, topP: 0.9, minP: 0.02, seed: 4 },
  "a repetition penalty": {
    prompt: "The fox and the fox and the fox",
    repetitionPenalty: 1.4,
    repetitionContextSize: 5,
  },
  "a repetition penalty with a seed": { prompt: "The fox", repetitionPenalty: 1.2, temp: 0.8, seed: 5 },
  "a presence penalty": { prompt: "Hello there, how", presencePenalty: 3, repetitionContextSize: 1 },
  "a frequency penalty": { prompt: "So, so, so, so", frequencyPenalty: 2, repetitionContextSize: 64 },
  "all penalties": {
    prompt: "The sea, the sea",
    repetitionPenalty: 1.1,
    presencePenalty: -0.5,
    frequencyPenalty: 0.7,
    repetitionContextSize: 33,
    temp: 0.7,
    seed: 6,
  },
  "a bias": { prompt: "Once upon a time", logitBias: { 300: 4, 0: -2, 4095: 1 } },
  "forbidden tokens": { prompt: "Once upon a time", logitBias: { [GOLDEN[0].greedy[0]]: -Infinity, 0: -Infinity } },
  "log probabilities": { prompt: "The shader", logprobs: 0 },
  "20 log probabilities, a bias and a penalty": {
    prompt: "The shader",
    logprobs: 20,
    temp: 0.6,
    seed: 7,
    logitBias: { 300: 2 },
    presencePenalty: 1,
  },
  "1 log probability": { prompt: "Nina and", logprobs: 1 },
  "a stop string": { prompt: "Once upon a time", stop: [" little girl", "nothing"], maxTokens: 30 },
  "one token": { prompt: "Once upon a time", maxTokens: 1 },
  "a regular expression": { prompt: "Is it so?", responseFormat: { type: "regex", regex: "(yes|no) [0-9]{3}" } },
  "a grammar with a seed": {
    prompt: "Count:",
    responseFormat: { type: "grammar", grammar: 'root ::= ("ab" | "cd" [0-9])+' },
    temp: 1,
    seed: 8,
    logprobs: 2,
  },
  "a schema after thoughts": {
    prompt: CHAT,
    responseFormat: { type: "json_schema", schema: SCHEMA },
    temp: 0.9,
    seed: 9,
    maxTokens: 40,
  },
  "a schema without thoughts": {
    prompt: CHAT,
    enableThinking: false,
    responseFormat: { type: "json_schema", schema: SCHEMA },
    presencePenalty: 0.5,
    maxTokens: 40,
  },
  "a conversation": { prompt: [{ role: "system", content: "Be brief." }, ...CHAT], maxTokens: 20 },
  "a tool": {
    prompt: CHAT,
    tools: TOOLS,
    enableThinking: false,
    responseFormat: { type: "regex", regex: '<tool_call>\n\\{"name": "add", "arguments": \\{\\}\\}\n</tool_call>' },
    maxTokens: 60,
  },
};

/** The tokenizer of the embedded model, with a chat template that names tools. */
function loadTokenizer(): Promise<Tokenizer> {
  const source = tinySource();
  const config = JSON.parse(source.config as string);
  const names = "{%- for tool in tools or [] %}{{ tool.function.name + '\\n' }}{%- endfor %}";
  return Tokenizer.load({
    ...source,
    config: JSON.stringify({ ...config, chat_template: names + config.chat_template }),
  });
}

/** A prompt of a number of tokens, which is the beginning of all longer ones. */
function idsOf(count: number): number[] {
  const text = GOLDEN.flatMap(({ ids, greedy }) => [...ids, ...greedy]).filter((id) => id < 4089);
  return Array.from({ length: count }, (_, i) => text[i % text.length]);
}

/**
 * Adds requests when as many tokens have come as a generator draws, or when nothing is left to do before; the first one at once. Gives
 * the responses of each.
 */
async function serve(
  engine: mx.lm.Engine,
  requests: readonly mx.lm.EngineRequest[],
  next: () => number,
  gap: number,
): Promise<mx.lm.EngineResponse[][]> {
  const served: mx.lm.EngineResponse[][] = [];
  const begins = requests.map((_, i) => Math.floor(next() * gap * i));
  const all = Promise.withResolvers<void>();
  let [begun, ended, tokens] = [0, 0, 0];
  const run = async (i: number): Promise<void> => {
    served[i] = await take(engine.add(requests[i]), () => {
      tokens++;
      begin();
    });
    ended++;
    begin();
    if (ended === requests.length) all.resolve();
  };
  const begin = (): void => {
    while (begun < requests.length && (begins[begun] <= tokens || ended === begun)) {
      run(begun++).catch(all.reject);
    }
  };
  begin();
  await all.promise;
  return served;
}

for (const device of DEVICES) {
  const shared: { loaded?: Loaded } = {};
  const test = (name: string, work: () => Promise<void>): void =>
    Deno.test(name, idleAfter(() => shared.loaded?.model, work));
  const load = async (): Promise<Loaded> =>
    shared.loaded ??= { model: (await mx.lm.load(TINY_DIR, { device })).model, tokenizer: await loadTokenizer() };

  test(`requests with all options get beside each other what they get alone on ${device}`, async () => {
    const loaded = await load();
    const tolerance = TOLERANCE[hasMatrices(device) ? "matrices" : "exact"];
    const names = drawSome(device, "requests with all options", Object.keys(REQUESTS), 2);
    const requests = names.map((name): mx.lm.EngineRequest => ({ maxTokens: 12, ...REQUESTS[name] }));
    const next = generator(hashOf(`${SEED} engine`));
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
      kvBytes: 24 * tinyPage(device),
      maxSequences: 6,
    });
    const order = requests.map((_, i) => ({ i, at: next() })).sort((a, b) => a.at - b.at).map(({ i }) => i);
    const served = await serve(engine, order.map((i) => requests[i]), next, 8);
    for (const [place, i] of order.entries()) {
      assertAlike(served[place], await takeAlone(loaded, requests[i]), `${names[i]} (seed ${SEED})`, tolerance);
    }
    const { running, waiting, requests: count, generationTokens } = engine.metrics;
    assertEquals({ running, waiting, count }, { running: 0, waiting: 0, count: requests.length });
    assertEquals(generationTokens, served.flat().length);
    const calls = served[order.indexOf(names.indexOf("a tool"))]?.flatMap(({ toolCalls }) => toolCalls);
    if (calls) assertEquals(calls.map(({ function: { name } }) => name), ["add"]);
  });

  // On matrix units what is read again is rounded as a prompt is, so close tokens may change places.
  const ignore = hasMatrices(device);
  Deno.test({ name: `requests that give up their memory go on as if they had it on ${device}`, ignore }, async () => {
    const loaded = await load();
    // Three pages of 64 positions; each prompt fills nearly one and its answer begins another.
    const all: mx.lm.EngineRequest[] = [
      { prompt: idsOf(60) },
      { prompt: idsOf(61).reverse(), temp: 0.9, seed: 1, logprobs: 2 },
      { prompt: idsOf(90).slice(30), frequencyPenalty: 0.8, repetitionContextSize: 30, priority: 1 },
      { prompt: idsOf(62).slice(3), responseFormat: { type: "regex", regex: "[a-z ]{40}" }, temp: 1, seed: 2 },
      { prompt: idsOf(58).slice(1), temp: 1.2, topK: 5, seed: 3, priority: -1 },
    ];
    const requests = all.slice(0, drawsCases(device) ? 3 : all.length).map((request) => ({
      maxTokens: 14,
      ...request,
    }));
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, { kvBytes: 3 * tinyPage(device) });
    const served = await Promise.all(requests.map((request) => take(engine.add(request))));
    for (const [i, request] of requests.entries()) {
      assertAlike(served[i], await takeAlone(loaded, request), `request ${i}`);
    }
    assert(engine.metrics.preemptions > 0, "no request gave up its memory");
    assert(engine.metrics.kvBytesUsed <= engine.metrics.kvBytes);
  });

  test(`prompts that begin alike are read once on ${device}`, async () => {
    const loaded = await load();
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
      kvBytes: 40 * tinyPage(device),
      prefillStepSize: 48,
    });
    const first = idsOf(140);
    await take(engine.add({ prompt: first, maxTokens: 1 }));
    const counts = drawSome(device, "lengths of common beginnings", [1, 63, 64, 65, 127, 128, 129], 3);
    // The token after the common beginning is another one.
    const prompts = counts.map((count) => [...first.slice(0, count), first[count] === 7 ? 8 : 7, 300 + count, 9]);
    const served = await Promise.all(prompts.map((prompt) => take(engine.add({ prompt, maxTokens: 6 }))));
    for (const [i, prompt] of prompts.entries()) {
      assertAlike(served[i], await takeAlone(loaded, { prompt, maxTokens: 6 }), `${counts[i]} tokens in common`);
      assertEquals(served[i][0].cachedTokens, counts[i]);
    }
    // The whole prompt again: its last token is read in any case.
    const again = await take(engine.add({ prompt: first, maxTokens: 3 }));
    assertAlike(again, await takeAlone(loaded, { prompt: first, maxTokens: 3 }), "the whole prompt");
    assertEquals(again[0].cachedTokens, first.length - 1);
  });

  test(`the model of the engine's tests is freed on ${device}`, async () => {
    await shared.loaded?.model.traces.idle();
    shared.loaded?.model[Symbol.dispose]();
  });
}
