/**
 * Answers of a format. They are what the schema says, and masks are those of the grammar token by token. Unsupported
 * formats are refused, and no memory grows.
 */

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import * as mx from "../../../mod.ts";
import { maskLogits } from "../../../src/array/fast/token_mask.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { Constraint, everyToken } from "../../../src/llm/structured/constraint.ts";
import { Masks } from "../../../src/llm/structured/automaton/masks.ts";
import { States } from "../../../src/llm/structured/automaton/states.ts";
import { tokenTree } from "../../../src/llm/structured/automaton/token_tree.ts";
import { matcherMemory, openMatcher, vocabularyOf } from "../../../src/llm/structured/matcher.ts";
import { rulesOf } from "../../../src/llm/structured/rules.ts";
import { grammarOf } from "../../../src/llm/structured/response_format.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { withoutMatrices } from "../../support/devices/matrices.ts";
import { invalid } from "../../support/oracles/json_validator.ts";
import { TINY_DIR } from "../../support/models/models.ts";

const { batchGenerate, complete, generate, load, streamGenerate, LlmError } = mx.lm;

const object = (properties: Record<string, unknown>, more: Record<string, unknown> = {}): mx.lm.JsonSchema => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  ...more,
});
/** A value whose length ends by itself, however small the model. */
const SHORT = { type: "string", maxLength: 8 };

/** Schemas by what they are about. Their answers are short whatever a model says. */
const SCHEMAS: Readonly<Record<string, mx.lm.JsonSchema>> = {
  boolean: object({ a: { type: "boolean" }, b: { type: "null" } }),
  enum: object({ color: { enum: ["red", "dark green", 'é"\\\n', 3, null, true] } }),
  const: object({ kind: { const: "Ünïcode ☃ 汉字" }, n: { type: "integer", enum: [1, 22] } }),
  range: object({
    a: { type: "integer", minimum: -12, maximum: 7 },
    b: { type: "integer", exclusiveMinimum: 98, maximum: 1003 },
  }),
  array: object({ a: { type: "array", items: { type: "boolean" }, minItems: 2, maxItems: 4 } }),
  tuple: { type: "array", prefixItems: [{ enum: ["x"] }, { type: "boolean" }], items: false, minItems: 2 },
  nested: object({
    a: object({ b: object({ c: { enum: [1, 2] } }) }),
    d: { type: "array", items: SHORT, maxItems: 2 },
  }),
  optional: { ...object({ a: SHORT, b: SHORT, c: { type: "boolean" } }), required: ["b"] },
  additional: {
    type: "object",
    additionalProperties: false,
    properties: { only: { type: "boolean" } },
    required: ["only"],
  },
  anyOf: object({
    a: { anyOf: [{ type: "boolean" }, SHORT, { type: "null" }] },
    b: { oneOf: [{ const: 1 }, { const: "one" }] },
  }),
  types: object({ a: { type: ["boolean", "null"] }, b: { allOf: [{ type: "boolean" }] } }),
  ref: {
    ...object({ left: { $ref: "#/$defs/leaf" }, right: { $ref: "#/$defs/leaf" } }),
    $defs: { leaf: object({ on: { type: "boolean" } }) },
  },
  pattern: object({
    a: { type: "string", pattern: "^[A-Z]{2}-\\d{3}$" },
    b: { type: "string", pattern: '^.[^a-z]\\s"\\\\x$' },
  }),
  length: object({ a: { type: "string", minLength: 3, maxLength: 5 } }),
  format: object({ day: { type: "string", format: "date" } }),
};

for (const device of testDevices()) {
  Deno.test(`answers are valid JSON of their schema on ${device}`, async () => {
    const { model, tokenizer } = await load(TINY_DIR, { device });
    // Software Vulkan is slow; what a schema allows does not depend on the device.
    const slow = device !== "wasm" && mx.deviceInfo(device).type === "cpu";
    const all = Object.entries(SCHEMAS);
    for (const [name, schema] of slow ? all.filter(([name]) => ["boolean", "ref"].includes(name)) : all) {
      for (
        const options of [{}, { temp: 1.5, seed: 1 }, { temp: 1, seed: 2, topK: 50, topP: 0.9, frequencyPenalty: 0.5 }]
      ) {
        const responseFormat = { type: "json_schema", schema } as const;
        let [text, last] = ["", null as string | null];
        const stream = streamGenerate(model, tokenizer, "Once upon a time", {
          maxTokens: 300,
          responseFormat,
          ...options,
        });
        for await (const response of stream) [text, last] = [text + response.text, response.finishReason];
        assertEquals(last, "stop", `${name}: ${text}`);
        assertEquals(invalid(JSON.parse(text), schema), undefined, `${name}: ${text}`);
        if (slow) break;
      }
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });

  Deno.test(`masked logits are -Infinity, the others keep their bits, on ${device}`, () => {
    const size = (count: number): void => {
      for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
        const values = Float32Array.from({ length: 2 * count }, (_, i) => Math.sin(i * 7.3) * 40);
        const logits = mx.array([...values]).reshape([2, count]).astype(dtype);
        const before = logits.astype(mx.float32).toTypedArray();
        const words = Math.ceil(count / 32);
        const mask = Uint32Array.from({ length: 2 * words }, (_, i) => Math.imul(i + 1, 2654435761) >>> 0);
        const masks = mx.array([...mask], mx.uint32).reshape([2, words]);
        const after = maskLogits(logits, masks);
        assertEquals(after.dtype, dtype);
        const found = after.astype(mx.float32).toTypedArray();
        for (let i = 0; i < 2 * count; i++) {
          const [row, token] = [Math.floor(i / count), i % count];
          const set = mask[row * words + Math.floor(token / 32)] >>> (token % 32) & 1;
          assertEquals(found[i], set ? before[i] : -Infinity, `${dtype.name} ${i}`);
        }
      }
    };
    for (const count of [4096, 1003]) mx.withDevice(device, () => size(count));
  });
}

// Matrix units round the rows of a batch, and close tokens would change places.
const device = withoutMatrices(anyDevice());
mx.withDevice(device, getBackend); // opened outside the tests, which count resources
const { model, tokenizer } = await load(TINY_DIR, { device });
const SIZE = model.config.vocabSize;
Deno.test.afterAll(() => model[Symbol.dispose]());

/** A test after which nothing of the model is running; on a GPU it may still look for a faster step. */
function test(name: string, run: () => Promise<void>): void {
  Deno.test(name, () => run().finally(() => model.traces.idle()));
}

/** The tokens of a mask. */
function tokensIn(mask: Int32Array): number[] {
  return Array.from({ length: SIZE }, (_, id) => id).filter((id) => mask[id >> 5] >>> (id & 31) & 1);
}

/** The matcher of a format after some tokens. */
async function matcherBehind(format: mx.lm.ResponseFormat, tokens: readonly number[]): ReturnType<typeof openMatcher> {
  const matcher = await openMatcher(tokenizer, SIZE, grammarOf(format)!);
  for (const token of tokens) {
    matcher.accept(token);
    await matcher.mask();
  }
  return matcher;
}

Deno.test("a mask allows the tokens that are accepted, and no other", () => {
  const cases: readonly [mx.lm.ResponseFormat, string][] = [
    [{ type: "json_schema", schema: object({ a: { type: "integer", minimum: 0, maximum: 30 } }) }, '{"a": 2'],
    [{ type: "json_object" }, '{"a": ['],
    [{ type: "json_schema", schema: object({ a: SHORT }) }, '{"a": "b'],
    [{ type: "json_schema", schema: { type: "string", minLength: 5, maxLength: 30 } }, '"ab'],
    [{ type: "regex", regex: "(once|twice) upon [a-c]+" }, "o"],
    [{ type: "regex", regex: ".{1,7}(\\n.{2})*" }, "o"],
    [{ type: "grammar", grammar: 'root ::= word (" " word)*\nword ::= [a-z]+' }, "once up"],
  ];
  const vocabulary = vocabularyOf(tokenizer, SIZE);
  for (const [format, text] of cases) {
    const states = new States(rulesOf(grammarOf(format)!));
    const masks = new Masks(states, tokenTree(vocabulary), vocabulary);
    const state = tokenizer.encode(text).reduce((at, token) => masks.accept(at, token)!, states.start());
    const allowed = tokensIn(masks.mask(state)).filter((id) => !tokenizer.eosTokenIds.has(id));
    const accepted = Array.from({ length: SIZE }, (_, id) => id).filter((id) => masks.accept(state, id) !== undefined);
    assertEquals(allowed, accepted, text);
    assert(allowed.length > 0 && allowed.length < SIZE, text);
  }
});

test("a mask of a pattern allows what an automaton by hand does", async () => {
  using matcher = await matcherBehind({ type: "regex", regex: "(cat|car)s?" }, []);
  const prefix = (text: string): boolean => ["cat", "car", "cats", "cars"].some((word) => word.startsWith(text));
  const expected = Array.from({ length: SIZE }, (_, id) => id).filter((id) =>
    !tokenizer.isSpecial(id) && (tokenizer.tokenBytes(id)?.length ?? 0) > 0 &&
    prefix(new TextDecoder("latin1").decode(tokenizer.tokenBytes(id)))
  );
  assertEquals(tokensIn(await matcher.mask()), expected);
  assert(expected.length > 0);
});

test("an answer may end where its grammar may, and nowhere else", async () => {
  const [eos] = tokenizer.eosTokenIds;
  using matcher = await matcherBehind({ type: "regex", regex: "ab?" }, []);
  assert(!tokensIn(await matcher.mask()).includes(eos));
  matcher.accept(tokenizer.encode("a")[0]);
  assert(tokensIn(await matcher.mask()).includes(eos));
  matcher.accept(eos);
  await matcher.mask();
  assert(matcher.ended);
});

test("json_object gives an object, text anything, a grammar its text", async () => {
  for (const seed of [1, 2, 3]) {
    const options = { temp: 1, seed, maxTokens: 400, responseFormat: { type: "json_object" } } as const;
    let [text, last] = ["", null as string | null];
    for await (const r of streamGenerate(model, tokenizer, "Once", options)) {
      [text, last] = [text + r.text, r.finishReason];
    }
    assert(text.startsWith("{"), text);
    if (last === "stop") assert(JSON.parse(text).constructor === Object);
  }
  const plain = await generate(model, tokenizer, "Once", { maxTokens: 5 });
  assertEquals(await generate(model, tokenizer, "Once", { maxTokens: 5, responseFormat: { type: "text" } }), plain);
  const grammar = 'root ::= "yes" | "no"';
  const answer = await generate(model, tokenizer, "Once", { responseFormat: { type: "grammar", grammar } });
  assert(["yes", "no"].includes(answer), answer);
});

test("a grammar of any text gives the greedy answer", async () => {
  const options = { maxTokens: 40 };
  const plain = await generate(model, tokenizer, "Once upon a time", options);
  const grammar = "root ::= [\\u0000-\\U0010FFFF]+";
  const responseFormat = { type: "grammar", grammar } as const;
  assertEquals(await generate(model, tokenizer, "Once upon a time", { ...options, responseFormat }), plain);
});

test("OpenAI's form of a schema is the same; an answer that is cut says so; seeds repeat it", async () => {
  const schema = object({ a: SHORT });
  const options = { temp: 1, seed: 5, maxTokens: 60 };
  const own = await generate(model, tokenizer, "Hi", { ...options, responseFormat: { type: "json_schema", schema } });
  const form = { type: "json_schema", json_schema: { name: "x", schema, strict: true } } as const;
  assertEquals(await generate(model, tokenizer, "Hi", { ...options, responseFormat: form }), own);
  const cut = [];
  for await (const r of streamGenerate(model, tokenizer, "Hi", { maxTokens: 2, responseFormat: form })) cut.push(r);
  assertEquals(cut.at(-1)!.finishReason, "length");
});

test("thoughts come first and are free; without thinking the answer begins at once", async () => {
  const messages = [{ role: "user", content: "What is 2 + 3?" }] as const;
  const responseFormat = { type: "regex", regex: "The answer is [0-9]\\." } as const;
  const thought = await complete(model, tokenizer, messages, { responseFormat });
  assertStringIncludes(thought.raw, "</think>");
  assert(thought.reasoning.length > 0);
  assertEquals(thought.text, "The answer is 5.");
  const direct = await generate(model, tokenizer, messages, { responseFormat, enableThinking: false });
  assertEquals(direct, "The answer is 5.");
  // Thoughts that the prompt began go on, and do not end the answer.
  using open = (await Constraint.open(tokenizer, SIZE, grammarOf(responseFormat)))!;
  open.begin([tokenizer.idOf("<think>")!], false);
  const mask = tokensIn(await open.mask());
  assertEquals(mask.length, Math.min(tokenizer.vocabSize, SIZE) - tokenizer.eosTokenIds.size);
  open.accept(tokenizer.idOf("</think>")!);
  // Blank lines may follow them, but not for ever.
  const [blank] = tokenizer.encode("\n");
  const answer = [blank, tokenizer.encode("The")[0]];
  for (let i = 0; i < 4; i++) {
    const mask = tokensIn(await open.mask());
    assert(answer.every((id) => mask.includes(id)) && mask.length < 15, `${mask}`);
    open.accept(blank);
  }
  assert(!tokensIn(await open.mask()).includes(blank));
  open.accept(answer[1]);
  assert(tokensIn(await open.mask()).length < 10);
});

test("a blank line that the grammar begins with is its own", async () => {
  using constraint = (await Constraint.open(tokenizer, SIZE, grammarOf({ type: "regex", regex: "\n{2}x" })))!;
  const [blank] = tokenizer.encode("\n");
  constraint.begin([tokenizer.idOf("<think>")!, tokenizer.idOf("</think>")!], true);
  for (const token of [blank, blank]) {
    assert(tokensIn(await constraint.mask()).includes(token));
    constraint.accept(token);
  }
  assertEquals(tokensIn(await constraint.mask()), tokenizer.encode("x"));
});

test("prefix caches, log probabilities and stop strings work along", async () => {
  using cache = model.makeCache();
  const schema = object({ a: { type: "boolean" } });
  const options = { cache, cachePrompt: true, responseFormat: { type: "json_schema", schema }, logprobs: 1 } as const;
  const first = await generate(model, tokenizer, "Once upon a time", options);
  assertEquals(await generate(model, tokenizer, "Once upon a time", options), first); // all but a token is known
  assertEquals(invalid(JSON.parse(first), schema), undefined);
  for await (const { logprobs } of streamGenerate(model, tokenizer, "Once upon a time", options)) {
    assert(logprobs!.logprob <= 0 && logprobs!.logprob > -Infinity);
  }
  const stopped = await generate(model, tokenizer, "Once", { responseFormat: options.responseFormat, stop: '"a"' });
  assertEquals(stopped, "{");
});

test("each sequence of a batch has its format, and gets what it gets alone", async () => {
  const formats: readonly mx.lm.ResponseFormat[] = [
    { type: "text" },
    { type: "json_schema", schema: SCHEMAS.nested },
    { type: "regex", regex: "[a-z]{3}" },
    { type: "json_schema", schema: SCHEMAS.ref },
  ];
  const prompts = ["Once upon a time", "The sea", "A cat", "Two"];
  const options = { temp: 1, seed: [1, 2, 3, 4], maxTokens: [60, 200, 200, 200] };
  const { texts, finishReasons } = await batchGenerate(model, tokenizer, prompts, {
    ...options,
    responseFormat: formats,
  });
  for (const [i, prompt] of prompts.entries()) {
    const [seed, maxTokens] = [options.seed[i], options.maxTokens[i]];
    const alone = await generate(model, tokenizer, prompt, { temp: 1, seed, maxTokens, responseFormat: formats[i] });
    assertEquals(texts[i], alone);
  }
  assertEquals(invalid(JSON.parse(texts[1]), SCHEMAS.nested), undefined);
  assertEquals(finishReasons.slice(1), ["stop", "stop", "stop"]);
});

test("an abort ends an answer of a format", async () => {
  const abort = new AbortController();
  const responseFormat = { type: "regex", regex: "[a-z ]{200}" } as const;
  const reasons = [];
  for await (const r of streamGenerate(model, tokenizer, "Once", { responseFormat, signal: abort.signal })) {
    if (reasons.push(r.finishReason) === 3) abort.abort();
  }
  assertEquals(reasons, [null, null, null, "abort"]);
});

/** Formats that are refused, and why. */
const REFUSED: readonly (readonly [unknown, string])[] = [
  [{ type: "json" }, 'type "json"'],
  ["json_object", 'type "json_object"'],
  [{ type: "json_object", schema: {} }, 'no member "schema"'],
  [{ type: "json_schema" }, "schema that is no object"],
  [{ type: "json_schema", schema: "{}" }, "JSON.parse()"],
  [{ type: "json_schema", schema: { type: "wrong" } }, 'the type "wrong"'],
  [
    { type: "json_schema", schema: object({ a: { multipleOf: 3, type: "integer" } }) },
    '"#/properties/a" has "multipleOf"',
  ],
  [{ type: "json_schema", schema: object({ a: { type: "number", minimum: "3" } }) }, "expected a number"],
  [{ type: "json_schema", schema: { type: "object", required: ["a"] } }, '"a" in "required"'],
  [{ type: "json_schema", schema: { type: "string", pattern: "(" } }, "a pattern that cannot be used"],
  [{ type: "json_schema", schema: { type: "string", format: "color" } }, 'the format "color"'],
  [{ type: "json_schema", schema: { $ref: "#/$defs/none" } }, "not in the schema"],
  [{ type: "json_schema", schema: { $ref: "#" } }, "no answer"],
  [{ type: "json_schema", schema: { type: "string", enum: [1] } }, "not of its type"],
  [{ type: "json_schema", schema: { $ref: "#/$defs/a", minLength: 3, $defs: { a: {} } } }, 'beside "$ref"'],
  [{ type: "json_schema", schema: { type: "string", description: "x".repeat(1 << 18) } }, "at most 262144"],
  [{ type: "regex", regex: "(a" }, "parenthesis"],
  [{ type: "regex", regex: "" }, "needs regex"],
  [{ type: "grammar", grammar: "root ::= x" }, "not defined"],
];

test("formats that cannot be held are refused in one line, and the next one is served", async () => {
  for (const [format, why] of REFUSED) {
    const options = { responseFormat: format as mx.lm.ResponseFormat };
    const error = await assertRejects(() => generate(model, tokenizer, "Once", options), LlmError);
    assertEquals([error.code, error.message.includes("\n")], ["option", false], error.message);
    assertStringIncludes(error.message, why);
  }
  const list = { responseFormat: [{ type: "text" }, { type: "text" }] as const };
  await assertRejects(() => batchGenerate(model, tokenizer, ["Once"], list), LlmError, "2 formats for 1 prompts");
  const deep = Array.from({ length: 5000 }).reduce<mx.lm.JsonSchema>((items) => ({ type: "array", items }), {});
  const format = { type: "json_schema", schema: deep } as const;
  await assertRejects(() => generate(model, tokenizer, "Once", { responseFormat: format }), LlmError);
  const answer = await generate(model, tokenizer, "Once", { responseFormat: { type: "regex", regex: "ab" } });
  assertEquals(answer, "ab");
});

test("nothing grows over many generations", async () => {
  const run = (i: number): Promise<string> =>
    generate(model, tokenizer, "Once", {
      responseFormat: { type: "json_schema", schema: object({ [`key ${i % 40}`]: { type: "boolean" } }) },
    });
  const slow = device !== "wasm" && mx.deviceInfo(device).type === "cpu";
  for (let i = 0; i < (slow ? 3 : 40); i++) await run(i);
  await model.traces.idle();
  const before = [await matcherMemory(tokenizer), mx.getActiveMemory()];
  assert(before[0] > 0);
  for (let i = 0; i < (slow ? 3 : 80); i++) await run(i);
  assertEquals([await matcherMemory(tokenizer), mx.getActiveMemory()], before);
});

Deno.test("every token is the mask of all", () => {
  assertEquals([...everyToken(64)], [-1, -1]);
  assertEquals([...everyToken(33, 100)], [-1, 1, 0, 0]);
});
