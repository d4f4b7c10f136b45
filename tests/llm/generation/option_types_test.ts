/** Options of generation with values of a wrong type: the message names the option, what was given and what is expected. */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";

mx.setDefaultDevice(anyDevice());

const MODEL = new URL("../../../examples/models/tiny-qwen3", import.meta.url).pathname;

/** Options with one value of a wrong type, and the message. */
const WRONG: readonly (readonly [options: Record<string, unknown>, message: string])[] = [
  [{ maxTokens: "5" }, 'maxTokens is "5", expected a number'],
  [{ maxTokens: null }, "maxTokens is null, expected a number"],
  [{ maxTokens: [5] }, "maxTokens is [5], expected a number"],
  [{ maxTokens: 0.5 }, "maxTokens is 0.5, expected a positive integer"],
  [{ temp: "0.5" }, 'temp is "0.5", expected a number'],
  [{ temp: NaN }, "temp is NaN, expected a number from 0 to 100"],
  [{ topP: true }, "topP is true, expected a number"],
  [{ topK: "40" }, 'topK is "40", expected a number'],
  [{ minP: {} }, "minP is {}, expected a number"],
  [{ seed: "1" }, 'seed is "1", expected a number'],
  [{ repetitionPenalty: "1.1" }, 'repetitionPenalty is "1.1", expected a number'],
  [{ presencePenalty: "1" }, 'presencePenalty is "1", expected a number'],
  [{ frequencyPenalty: "1" }, 'frequencyPenalty is "1", expected a number'],
  [{ repetitionContextSize: "9" }, 'repetitionContextSize is "9", expected a number'],
  [{ prefillStepSize: "512" }, 'prefillStepSize is "512", expected a number'],
  [{ logprobs: "2" }, 'logprobs is "2", expected a number'],
  [{ logitBias: 5 }, "logitBias is 5, expected an object of numbers by token id"],
  [{ logitBias: { 7: "1" } }, 'logitBias[7] is "1", expected a number'],
  [{ begun: 1 }, "begun is 1, expected a text"],
  [{ enableThinking: "no" }, 'enableThinking is "no", expected true or false'],
  [{ cachePrompt: 1 }, "cachePrompt is 1, expected true or false"],
  [{ sampler: {} }, "sampler is {}, expected a function"],
  [{ logitsProcessors: [5] }, "logitsProcessors is [5], expected a list of functions"],
  [{ onPrompt: "x" }, 'onPrompt is "x", expected a function'],
  [{ tools: "x" }, 'tools is "x", expected a list'],
  [{ stop: [5] }, "stop is [5], expected a text or a list of texts"],
  [{ signal: {} }, "signal is {}, expected the signal of an AbortController"],
];

Deno.test("each option of a generation says by name what it is and what it has to be", async () => {
  const { model, tokenizer } = await mx.lm.load(MODEL);
  for (const [options, message] of WRONG) {
    const error = await assertRejects(() => mx.lm.generate(model, tokenizer, "Hi", options), mx.lm.LlmError);
    assertEquals([error.message, error.code], [message, "option"]);
  }
  for (const maxTokens of ["5", ["5"]] as unknown as number[]) {
    const error = await assertRejects(() => mx.lm.batchGenerate(model, tokenizer, ["Hi"], { maxTokens }));
    assertEquals(error.message, `maxTokens is ${JSON.stringify(maxTokens)}, expected a number or a list of numbers`);
  }
  const embed = await assertRejects(() => mx.lm.embed(model, tokenizer, ["Hi"], { normalize: "no" as never }));
  assertEquals(embed.message, 'normalize is "no", expected true or false');
  const perplexity = await assertRejects(() => mx.lm.perplexity(model, tokenizer, "Hi", { stride: "2" as never }));
  assertEquals(perplexity.message, 'stride is "2", expected a number');
});

Deno.test("an error of a model that ends a program has one line and one stack", async () => {
  const source = `import * as mx from ${JSON.stringify(new URL("../../../mod.ts", import.meta.url).href)};
    await mx.lm.load(${JSON.stringify(MODEL)} + "/config.json");`;
  const { stderr, code } = await new Deno.Command(Deno.execPath(), {
    args: ["eval", "--no-check", source],
    env: { NO_COLOR: "1" },
  }).output();
  const lines = new TextDecoder().decode(stderr).split("\n");
  assertEquals(code, 1);
  assertEquals(lines.filter((line) => /Error: /.test(line)).length, 1, lines.join("\n"));
  assertEquals(lines.filter((line) => /^\s*(\[cause\]|Caused by)/.test(line)), []);
});
