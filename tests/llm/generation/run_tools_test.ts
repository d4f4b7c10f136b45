/**
 * Functions that a model calls: what each call becomes, in which conversation the model goes on, and where the rounds end. The test writes
 * most answers; the embedded model gives one that has to be a call.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { toolRounds } from "../../../src/llm/generation/run_tools.ts";
import { misfit } from "../../../src/llm/generation/tool_arguments.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { TINY_DIR } from "../../support/models/models.ts";

const DEVICE = anyDevice();
/** A template with functions, calls and their results, in the form of Hermes. */
const TEMPLATE = `{%- for m in messages %}<|im_start|>{{ m.role }}
{% if loop.first and tools %}{{ tools | tojson }}
{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

const folder = await Deno.makeTempDir();
for (const { name } of Deno.readDirSync(TINY_DIR)) await Deno.copyFile(new URL(name, TINY_DIR), `${folder}/${name}`);
await Deno.writeTextFile(`${folder}/chat_template.jinja`, TEMPLATE);
const { model, tokenizer } = await mx.lm.load(folder, { device: DEVICE });
await Deno.remove(folder, { recursive: true });
Deno.test.afterAll(() => model[Symbol.dispose]());

const ASK: readonly mx.lm.ChatMessage[] = [{ role: "user", content: "Weather?" }];

/** A text, and calls after it. */
type Written = readonly [text: string, ...calls: readonly (readonly [name: string, given: Record<string, unknown>])[]];

/** Rounds whose answers a test writes. */
function rounds(
  answers: readonly Written[],
  tools: readonly mx.lm.Tool[],
  { finishReason = "stop", ...options }: mx.lm.RunToolsOptions & { readonly finishReason?: "stop" | "length" } = {},
): ReturnType<typeof toolRounds<Pick<mx.lm.Completion, "text" | "reasoning" | "toolCalls" | "finishReason">>> {
  const left = [...answers];
  const answer = () => {
    const [text, ...calls] = left.shift()!;
    const toolCalls = calls.map(([name, given]) => ({ function: { name, arguments: given } }));
    return Promise.resolve({ text, reasoning: "", toolCalls, finishReason });
  };
  const { maxRounds, allow, onCall, signal } = options;
  return toolRounds(answer, ASK, tools, { maxRounds, allow, onCall, signal });
}

const weather = mx.lm.tool({
  name: "weather",
  description: "Tells the weather",
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
  },
  run: ({ city, days = 1 }) => {
    const typed: [string, number] = [city, days]; // as the schema has them
    if (typed[0] === "Atlantis") throw new Error("no such city");
    return { city, sun: days };
  },
});

Deno.test("calls are made, and the model goes on with their results", async () => {
  const answers: Written[] = [
    ["Let me look.", ["weather", { city: "Paris" }], ["weather", { city: "Rome", days: 3 }]],
    ["", ["hour", {}]],
    ["It is sunny."],
  ];
  const hour = mx.lm.tool({ name: "hour", run: () => "noon" });
  const seen: string[] = [];
  const { text, messages, runs, toolCalls } = await rounds(answers, [weather, hour], {
    onCall: ({ name, result }) => seen.push(`${name} ${result}`),
  });
  assertEquals([text, toolCalls], ["It is sunny.", []]);
  assertEquals(seen, ['weather {"city":"Paris","sun":1}', 'weather {"city":"Rome","sun":3}', "hour noon"]);
  assert(runs.every(({ ok }) => ok));
  assertEquals(messages.map(({ role, content }) => [role, content]), [
    ["user", "Weather?"],
    ["assistant", "Let me look."],
    ["tool", '{"city":"Paris","sun":1}'],
    ["tool", '{"city":"Rome","sun":3}'],
    ["assistant", ""],
    ["tool", "noon"],
    ["assistant", "It is sunny."],
  ]);
  const [first, second] = messages[1].tool_calls!;
  assertEquals([first.id, second.id], [messages[2].tool_call_id, messages[3].tool_call_id]);
  assert(first.id !== second.id);
});

Deno.test("what is wrong with a call is its result, and the model may try again", async () => {
  const answers: Written[] = [
    ["", ["wether", {}]],
    ["", ["weather", { days: 1 }], ["weather", { city: 7 }]],
    ["", ["weather", { city: "Atlantis" }]],
    ["", ["weather", { city: "Oslo" }]],
    ["Well."],
  ];
  const { runs, text } = await rounds(answers, [weather], {
    allow: ({ arguments: { city } }) => city !== "Oslo",
  });
  assertEquals(runs.map(({ result, ok }) => [JSON.parse(result).error, ok]), [
    ['there is no function "wether", only weather', false],
    ["arguments.city is missing", false],
    ["arguments.city is 7, expected string", false],
    ["no such city", false],
    ["the user did not allow this call", false],
  ]);
  assertEquals(text, "Well.");
});

Deno.test("rounds end at their limit, at a limit of tokens and at an abort", async () => {
  const again = new Array<Written>(9).fill(["", ["weather", { city: "Paris" }]]);
  const run = (options: Parameters<typeof rounds>[2]): ReturnType<typeof rounds> => rounds(again, [weather], options);
  const two = await run({ maxRounds: 2 });
  assertEquals([two.runs.length, two.toolCalls.length, two.messages.length], [1, 1, 4]);
  assertEquals((await run({})).runs.length, 7); // eight rounds, the last of which makes no call
  const cut = await run({ finishReason: "length" });
  assertEquals([cut.finishReason, cut.runs.length], ["length", 0]);
  const controller = new AbortController();
  const gone = new Error("gone");
  await assertRejects(() => run({ signal: controller.signal, onCall: () => controller.abort(gone) }), Error, "gone");
  await assertRejects(() => run({ maxRounds: 0 }), mx.lm.LlmError, "maxRounds is 0, expected a positive integer");
  await assertRejects(
    () => rounds([["a"]], [weather, weather]),
    mx.lm.LlmError,
    "expected tools of different names",
  );
});

Deno.test("a first call can be required, of which the model reads the result", async () => {
  const parameters = {
    type: "object",
    properties: { city: { type: "string", maxLength: 8 } },
    required: ["city"],
  } as const;
  const short = mx.lm.tool({ name: "weather", parameters, run: ({ city }) => city.length });
  const { runs, promptTokens, cachedTokens } = await mx.lm.runTools(model, tokenizer, ASK, [short], {
    ...{ toolChoice: "required", maxRounds: 2, maxTokens: 400, temp: 0 },
  });
  assertEquals(runs.map(({ name, ok, result, arguments: { city } }) => [name, ok, result, (city as string).length]), [
    ["weather", true, runs[0].result, Number(runs[0].result)],
  ]);
  assert(cachedTokens > 0 && promptTokens > cachedTokens, `${cachedTokens} of ${promptTokens}`);
});

Deno.test("arguments are held to the types of their schema", () => {
  const schema = {
    type: "object",
    properties: {
      kind: { enum: ["a", 1] },
      list: { type: "array", items: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] } },
      any: { anyOf: [{ type: "null" }, { type: "string" }] },
      both: { type: ["number", "null"] },
      one: { const: true },
    },
    additionalProperties: false,
  };
  const rows: readonly [unknown, string | undefined][] = [
    [{ kind: 1, list: [{ n: 2 }], any: null, both: 1.5, one: true }, undefined],
    [{}, undefined],
    [[], "x is [], expected object"],
    [{ kind: "b" }, 'x.kind is "b", expected "a" or 1'],
    [{ list: [{ n: 1 }, {}] }, "x.list[1].n is missing"],
    [{ list: [{ n: 1.5 }] }, "x.list[0].n is 1.5, expected integer"],
    [{ any: 1 }, "x.any is 1, expected null"],
    [{ both: "1" }, 'x.both is "1", expected number or null'],
    [{ one: false }, "x.one is false, expected true"],
    [{ other: 1 }, 'x has no "other"'],
  ];
  for (const [value, expected] of rows) assertEquals(misfit(schema, value, "x"), expected);
});
