/** Calls of functions in the formats of all families, in whatever pieces they come, and grammars of answers that have to call. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { CALL_FORMATS, callFormat, type CallFormatName } from "../../../src/llm/answer/call_formats.ts";
import { parseJson } from "../../../src/llm/answer/literal.ts";
import { splitAnswer } from "../../../src/llm/answer/parser.ts";
import type { AnswerFormat } from "../../../src/llm/answer/parts.ts";
import { loadChatTemplate } from "../../../src/llm/chat/template.ts";
import { thoughtMarks } from "../../../src/llm/chat/thoughts.ts";
import { States } from "../../../src/llm/structured/automaton/states.ts";
import { controlBytes } from "../../../src/llm/structured/grammar/expression.ts";
import { callRules } from "../../../src/llm/structured/json/calls.ts";
import * as mx from "../../../mod.ts";

type Calls = readonly mx.lm.ParsedToolCall[];

const TOOLS = [{ type: "function", function: { name: "f" } }];
const call = (name: string, args: Record<string, unknown> = {}, id?: string): mx.lm.ParsedToolCall => ({
  ...(id !== undefined && { id }),
  function: { name, arguments: args },
});

/** Tokens around the thoughts of the formats that do not write `<think>`. */
const THOUGHTS: Partial<Record<CallFormatName, readonly string[]>> = {
  mistral: ["[THINK]", "[/THINK]"],
  gemma4: ["<|channel>", "<channel|>"],
};

const formatOf = (calls: CallFormatName, tools: readonly unknown[] = TOOLS): AnswerFormat => ({
  calls,
  thoughts: thoughtMarks((token) => THOUGHTS[calls]?.includes(token) ?? false),
  reasoning: true,
  thinking: false,
  tools,
});

const BIG = 2512292042121000001n;
const ANALYSIS = "<|channel|>analysis<|message|>I need it.<|end|>";

/** Format, what the model wrote, and text, thoughts and calls of it. */
const ANSWERS: readonly (readonly [CallFormatName, string, string, string, Calls])[] = [
  ["mistralList", '[TOOL_CALLS][{"name": "f", "arguments": {"a": "]"}, "id": "abcdefghi"}]', "", "", [
    call("f", { a: "]" }, "abcdefghi"),
  ]],
  [
    "mistralList",
    'Let me see.\n[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"n": [1]}}]',
    "Let me see.",
    "",
    [
      call("f"),
      call("g", { n: [1] }),
    ],
  ],
  [
    "mistral",
    `[THINK]Hm.[/THINK][TOOL_CALLS]f[ARGS]{"id": ${BIG}}[TOOL_CALLS]g[ARGS]{"s": "[TOOL_CALLS]}"}`,
    "",
    "Hm.",
    [
      call("f", { id: BIG }),
      call("g", { s: "[TOOL_CALLS]}" }),
    ],
  ],
  ["mistralIds", '[TOOL_CALLS]f[CALL_ID]abc123DEF[ARGS]{"a": {"b": "\\"}"}}', "", "", [
    call("f", { a: { b: '"}' } }, "abc123DEF"),
  ]],
  ["mistral", "[TOOL_CALLS] is a mark.", "[TOOL_CALLS] is a mark.", "", []],
  ["mistral", "[TOOL_CALLS]f and more", "[TOOL_CALLS]f and more", "", []],
  ["mistral", '[TOOL_CALLS]f[ARGS]{"a": 1', '[TOOL_CALLS]f[ARGS]{"a": 1', "", []],
  ["mistral", "[TOOL_CALLS]f[ARGS]{a}", "[TOOL_CALLS]f[ARGS]{a}", "", []],
  ["mistral", "[TOOL_CALLS]f[ARGS] none", "[TOOL_CALLS]f[ARGS] none", "", []],
  ["mistral", "[TOOL_CALLS][1, 2]", "[TOOL_CALLS][1, 2]", "", []],
  ["mistral", "Write [TOOL", "Write [TOOL", "", []],
  ["llama3", '{"name": "f", "parameters": {"a": "}", "n": -9007199254740993}}', "", "", [
    call("f", { a: "}", n: -9007199254740993n }),
  ]],
  ["llama3", ' {"type": "function", "name": "f", "parameters": {}}\n', "", "", [call("f")]],
  ["llama3", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}', "", "", [call("f", { a: 1 })]],
  ["llama3", '{"name": "f", "parameters": {}}; {"name": "g", "arguments": {"b": 2}}', "", "", [
    call("f"),
    call("g", { b: 2 }),
  ]],
  ["llama3", '<|python_tag|>brave_search.call(query="it\'s, here")', "", "", [
    call("brave_search", { query: "it's, here" }),
  ]],
  ["llama3", '{"name": "Bob", "age": 5} is JSON', '{"name": "Bob", "age": 5} is JSON', "", []],
  ["llama3", 'I say {"name": "f", "parameters": {}}', 'I say {"name": "f", "parameters": {}}', "", []],
  ["llama3", "<|python_tag|>print(1)", "<|python_tag|>print(1)", "", []],
  ["llama3", '{"name": "f", "par', '{"name": "f", "par', "", []],
  ["llama3", "; so it is", "; so it is", "", []],
  ["llama3", "\n", "\n", "", []],
  [
    "gemma4",
    '<|channel>thought\nI look.\n<channel|><|tool_call>call:f{a:<|"|>x, }y<|"|>,n:2}<tool_call|>',
    "",
    "I look.",
    [
      call("f", { a: "x, }y", n: 2 }),
    ],
  ],
  ["gemma4", "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{o:{k:[true,null]}}<tool_call|>", "", "", [
    call("f"),
    call("g", { o: { k: [true, null] } }),
  ]],
  ["gemma4", `A <|tool_call>call:f{id:${BIG}}<tool_call|>`, "A", "", [call("f", { id: BIG })]],
  ["gemma4", "<|tool_call>call:f{a:<tool_call|>", "<|tool_call>call:f{a:<tool_call|>", "", []],
  ["functionGemma", "<start_function_call>call:f{city:<escape>Paris<escape>}<end_function_call>", "", "", [
    call("f", { city: "Paris" }),
  ]],
  ["gemma3", 'I look.\n```tool_code\nprint(f(city="Paris", n=2))\n```', "I look.", "", [
    call("f", { city: "Paris", n: 2 }),
  ]],
  ["gemma3", "```tool_code\n[f(a=True), g()]\n```", "", "", [call("f", { a: true }), call("g")]],
  ["gemma3", "```tool_code\nx = 1\n```", "```tool_code\nx = 1\n```", "", []],
  ["gemma3", "```python\nf()\n```", "```python\nf()\n```", "", []],
  ["lfm2", '<|tool_call_start|>[f(a="x"), g()]<|tool_call_end|>Done.', "Done.", "", [call("f", { a: "x" }), call("g")]],
  ["lfm2", '<|tool_call_start|>[{"name": "f", "arguments": {"a": 1}}]<|tool_call_end|>', "", "", [call("f", { a: 1 })]],
  [
    "glm",
    "<think>Hm.</think>I look.\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x <b>\ny</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
    "I look.",
    "Hm.",
    [call("f", { a: "x <b>\ny" }), call("g")],
  ],
  [
    "glm",
    "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value></arg_value></tool_call>",
    "",
    "",
    [
      call("f", { a: "1", b: "" }),
    ],
  ],
  ["glm", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', "", "", [call("f", { a: 1 })]],
  ["glm", "<tool_call>f<arg_key>a</arg_key></tool_call>", "<tool_call>f<arg_key>a</arg_key></tool_call>", "", []],
  ["glm", "<tool_call>see above</tool_call>", "<tool_call>see above</tool_call>", "", []],
  ["hermes", "<tool_call>f</tool_call>", "<tool_call>f</tool_call>", "", []],
  ["olmo3", '<function_calls>\nf(a="x\\n", on=true)\ng(n=None)\n</function_calls>', "", "", [
    call("f", { a: "x\n", on: true }),
    call("g", { n: null }),
  ]],
  ["olmo3", "So: <function_calls>f(a=[1, {'b': 2}])</function_calls>", "So:", "", [call("f", { a: [1, { b: 2 }] })]],
  [
    "olmo3",
    "<function_calls>\nx = 1\ny = 2\n</function_calls>",
    "<function_calls>\nx = 1\ny = 2\n</function_calls>",
    "",
    [],
  ],
  ["list", '<|tool_call|>[{"name": "f", "arguments": {"a": "]"}}, {"name": "g", "arguments": {}}]', "", "", [
    call("f", { a: "]" }),
    call("g"),
  ]],
  ["list", 'I look.<|tool_call|> [{"name": "f", "arguments": {"a": 1}}]\n<|/tool_call|>Done.', "I look.\nDone.", "", [
    call("f", { a: 1 }),
  ]],
  ["list", '<|tool_call|>{"name": "f", "parameters": {}}<|/tool_call|>', "", "", [call("f")]],
  ["list", "<|tool_call|> is a mark.", "<|tool_call|> is a mark.", "", []],
  ["list", '<|tool_call|>[{"name": "f"}]', '<|tool_call|>[{"name": "f"}]', "", []],
  ["list", "<|tool_call|>[1", "<|tool_call|>[1", "", []],
  ["harmony", "<|channel|>final<|message|>Hi <b>.", "Hi <b>.", "", []],
  ["harmony", `${ANALYSIS}<|start|>assistant<|channel|>final<|message|>Hi.<|return|>`, "Hi.", "I need it.", []],
  [
    "harmony",
    `${ANALYSIS}<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"id":${BIG}}<|call|>`,
    "",
    "I need it.",
    [call("f", { id: BIG })],
  ],
  ["harmony", ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}', "", "", [call("f", { a: 1 })]],
  [
    "harmony",
    "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}" +
    '<|call|><|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json<|message|>{"b":[2]}<|call|>',
    "I look.",
    "",
    [call("f"), call("g", { b: [2] })],
  ],
  [
    "harmony",
    "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>" +
    "<|start|>assistant<|channel|>commentary<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B",
    "A\nB",
    "One.\nTwo.",
    [],
  ],
  [
    "harmony",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>no JSON<|call|>",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>no JSON",
    "",
    [],
  ],
  ["harmony", "Hi, plain text", "Hi, plain text", "", []],
  ["harmony", "<|channel|>analysis", "<|channel|>analysis", "", []],
  ["harmony", " to", " to", "", []],
];

/** The parts of a text that comes in pieces. */
function partsOf(format: AnswerFormat, pieces: readonly string[]): [string, string, mx.lm.ParsedToolCall[]] {
  const splitter = splitAnswer(format);
  const all: [string, string, mx.lm.ParsedToolCall[]] = ["", "", []];
  for (const [i, piece] of pieces.entries()) {
    const { text, reasoning, toolCalls } = splitter.push(piece, i === pieces.length - 1);
    all[0] += text;
    all[1] += reasoning;
    all[2].push(...toolCalls);
  }
  return all;
}

/** A text in pieces of the sizes that `next` gives. */
function cut(text: string, next: () => number): string[] {
  const pieces: string[] = [];
  for (let at = 0; at < text.length;) pieces.push(text.slice(at, at += next()));
  return pieces;
}

/** Numbers from 1 to 9 that a seed determines. */
function drawSizes(seed: number): () => number {
  let state = seed;
  return () => 1 + ((state = Math.imul(state, 1664525) + 1013904223 >>> 0) >>> 16) % 9;
}

Deno.test("calls of every family have the same parts in whatever pieces they come", () => {
  for (const [calls, answer, ...expected] of ANSWERS) {
    const format = formatOf(calls);
    for (const size of [1, 2, 3, 5, answer.length]) {
      assertEquals(
        partsOf(format, cut(answer, () => size)),
        expected as unknown,
        `${calls}, pieces of ${size}: ${answer}`,
      );
    }
    for (let seed = 1; seed <= 20; seed++) {
      assertEquals(
        partsOf(format, cut(answer, drawSizes(seed))),
        expected as unknown,
        `${calls}, seed ${seed}: ${answer}`,
      );
    }
    assertEquals(partsOf(format, [...answer, ""]), expected as unknown, `${calls}, an empty last piece: ${answer}`);
  }
});

Deno.test("values of GLM's calls have the types of the function's schema", () => {
  const properties = { a: { type: "string" }, n: { type: "integer" }, o: { type: "object" }, on: { type: "boolean" } };
  const tools = [{ type: "function", function: { name: "f", parameters: { type: "object", properties } } }];
  const values = { a: "12", n: String(BIG), o: '{"k": [1, null]}', on: "true" };
  const pairs = Object.entries(values).map(([key, value]) =>
    `<arg_key>${key}</arg_key>\n<arg_value>${value}</arg_value>\n`
  );
  const [, , found] = partsOf(formatOf("glm", tools), [`<tool_call>f\n${pairs.join("")}</tool_call>`]);
  assertEquals(found, [call("f", { a: "12", n: BIG, o: { k: [1, null] }, on: true })]);
});

Deno.test("without tools calls are text, but messages of gpt-oss are still messages", () => {
  for (const [calls, answer, text, reasoning] of ANSWERS) {
    if (calls === "harmony" || reasoning !== "") continue;
    assertEquals(partsOf(formatOf(calls, []), cut(answer, () => 3)), [answer, "", []], answer);
    assert(text.length <= answer.length);
  }
  const answer = `${ANALYSIS}<|start|>assistant<|channel|>final<|message|>Hi.`;
  assertEquals(partsOf(formatOf("harmony", []), [answer]), ["Hi.", "I need it.", []]);
  assertEquals(partsOf({ ...formatOf("harmony", []), reasoning: false }, [answer]), [answer, "", []]);
});

Deno.test("thoughts and text of gpt-oss are given out as they come", () => {
  const splitter = splitAnswer(formatOf("harmony"));
  const seen = [
    "<|channel|>analysis<|message|>I ",
    "see",
    ".<|e",
    "nd|><|start|>assistant<|channel|>final<|message|>Y",
    "es",
  ]
    .map((piece) => splitter.push(piece, false))
    .map(({ text, reasoning }) => [text, reasoning]);
  assertEquals(seen, [["", "I "], ["", "see"], ["", "."], ["Y", ""], ["es", ""]]);
});

/** Made by golden/templates/tool_calls.py. */
const ORACLE = parseJson(Deno.readTextFileSync(new URL("../../golden/templates/tool_calls.json", import.meta.url))) as [
  CallFormatName,
  string,
  { name: string; arguments: Record<string, unknown>; id?: string }[] | null,
][];

/** What mlx-lm takes away from around its blocks. */
const AROUND: Partial<Record<CallFormatName, readonly [string, string]>> = {
  hermes: ["<tool_call>", "</tool_call>"],
  mistral: ["[TOOL_CALLS]", ""],
  gemma4: ["<|tool_call>", "<tool_call|>"],
  functionGemma: ["<start_function_call>", "<end_function_call>"],
  lfm2: ["<|tool_call_start|>", "<|tool_call_end|>"],
};

Deno.test("blocks are read as mlx-lm reads them", () => {
  for (const [calls, block, expected] of ORACLE) {
    const [open, close] = AROUND[calls]!;
    const [, , found] = partsOf(formatOf(calls), [open + block + close]);
    assertEquals(found, (expected ?? []).map(({ name, arguments: args, id }) => call(name, args, id)), block);
  }
});

Deno.test("the format follows from the chat template", () => {
  const { templates } = JSON.parse(
    Deno.readTextFileSync(new URL("../../golden/templates/chat_templates.json", import.meta.url)),
  );
  const expected: Record<string, CallFormatName> = {
    "Qwen3": "hermes",
    "Qwen2.5": "hermes",
    "QwQ": "hermes",
    "Qwen3-Coder": "hermes",
    "SmolLM3": "hermes",
    "Mistral Small 3.2": "mistralIds",
    "Mistral Nemo": "mistralList",
    "gpt-oss": "harmony",
  };
  for (const [name, format] of Object.entries(expected)) {
    assertEquals(callFormat(templates[name].template, () => false), format, name);
  }
  const hasEot = (token: string): boolean => token === "<|eot_id|>";
  assertEquals(callFormat(`{{- '"parameters": ' }}`, hasEot), "llama3");
  assertEquals(callFormat("<|python_tag|>", () => false), "llama3");
  assertEquals(callFormat("Write ```tool_code", () => false), "gemma3");
  assertEquals(callFormat("'<|tool_call>call:' '}<tool_call|>'", () => false), "gemma4");
  assertEquals(callFormat("'<tool_call>' '<arg_key>'", () => false), "glm");
  assertEquals(callFormat("'<function_calls>'", () => false), "olmo3");
  const hasList = (token: string): boolean => token === "<|tool_call|>";
  assertEquals(callFormat("respond only with <|tool_call|>", () => false), "list");
  assertEquals(callFormat("'<|tool|>'", hasList), "list"); // Phi-4 mini
  assertEquals(callFormat("'<tool_call>'", hasList), "hermes"); // Granite 4
  assertEquals(callFormat("", () => false), "hermes");
});

/** Templates, and what comes after a call in them. */
const WRITTEN: Readonly<Record<string, string>> = {
  "Qwen3": "<|im_end|>\n",
  "Qwen3-Coder": "<|im_end|>\n",
  "Mistral Nemo": "</s>",
  "Mistral Small 3.2": "</s>",
  "gpt-oss": "<|call|>",
};

Deno.test("calls that templates write are read as they were", async () => {
  const { templates } = JSON.parse(
    Deno.readTextFileSync(new URL("../../golden/templates/chat_templates.json", import.meta.url)),
  );
  const args = { city: 'Paris, "F"', n: BIG, list: [1, "two"], on: true, nothing: { deep: null } };
  const types = { city: "string", n: "integer", list: "array", on: "boolean", nothing: "object" };
  const properties = Object.fromEntries(
    Object.entries(types).map(([name, type]) => [name, { type, description: name }]),
  );
  const tools = [{
    type: "function",
    function: { name: "f", description: "A function", parameters: { type: "object", properties } },
  }];
  const messages = [
    { role: "user", content: "Hi" },
    { role: "assistant", content: "", tool_calls: [{ id: "abcdefghi", ...call("f", args) }] },
  ] as const;
  for (const [name, end] of Object.entries(WRITTEN)) {
    const text: string = templates[name].template;
    const source = { name: "default", text, file: name };
    const template = (await loadChatTemplate([source], {
      controlTokens: [],
      variables: { bos_token: "<s>", eos_token: "</s>" },
    }))!;
    const render = (count: number, addGenerationPrompt: boolean): string =>
      template(messages.slice(0, count), { tools, addGenerationPrompt }).map((part) => part.text).join("");
    const [prompt, whole] = [render(1, true), render(2, false)];
    assert(whole.startsWith(prompt) && whole.endsWith(end), name);
    const format = formatOf(callFormat(text, () => false), tools);
    const answer = whole.slice(prompt.length, whole.length - end.length);
    const [said, , found] = partsOf(format, cut(answer, () => 3));
    assertEquals(
      [said, found.map((each) => each.function)],
      ["", [{ name: "f", arguments: args }]],
      `${name}: ${answer}`,
    );
  }
});

const SCHEMA = { type: "object", properties: { city: { type: "string" }, n: { type: "integer" } }, required: ["city"] };
const FUNCTIONS = [
  { name: "weather", schema: JSON.stringify(SCHEMA), strict: true },
  { name: "stop", schema: '{"type":"object"}', strict: true },
];
const ARGUMENTS = '{"city": "Paris", "n": 2}';

/** Format, an answer that has to be possible, and one with several calls where the format has them. */
const DEMANDED: Readonly<Record<CallFormatName, readonly [string, string?]>> = {
  hermes: [
    `<tool_call>\n{"name": "weather", "arguments": ${ARGUMENTS}}\n</tool_call>`,
    '\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
  ],
  mistral: [`[TOOL_CALLS]weather[ARGS]${ARGUMENTS}`, "[TOOL_CALLS]stop[ARGS]{}"],
  mistralIds: [`[TOOL_CALLS]weather[CALL_ID]abcDEF123[ARGS]${ARGUMENTS}`, "[TOOL_CALLS]stop[CALL_ID]abcDEF124[ARGS]{}"],
  mistralList: [`[TOOL_CALLS][{"name": "weather", "arguments": ${ARGUMENTS}, "id": "abcDEF123"}]`],
  llama3: [`{"name": "weather", "parameters": ${ARGUMENTS}}`],
  gemma4: [`<|tool_call>call:weather${ARGUMENTS}<tool_call|>`, "<|tool_call>call:stop{}<tool_call|>"],
  functionGemma: [`<start_function_call>call:weather${ARGUMENTS}<end_function_call>`],
  gemma3: ['```tool_code\n{"name": "weather", "arguments": {"city": "Paris"}}\n```'],
  lfm2: [`<|tool_call_start|>[{"name": "weather", "arguments": ${ARGUMENTS}}]<|tool_call_end|>`],
  glm: [
    `<tool_call>\n{"name": "weather", "arguments": ${ARGUMENTS}}\n</tool_call>`,
    '\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
  ],
  olmo3: [`<function_calls>[{"name": "weather", "arguments": ${ARGUMENTS}}]</function_calls>`],
  list: [`<|tool_call|>[{"name": "weather", "arguments": ${ARGUMENTS}}]`],
  harmony: [`<|channel|>commentary to=functions.weather <|constrain|>json<|message|>${ARGUMENTS}`],
};

/** Whether a grammar matches a text in which some texts are control tokens. */
function matches(states: States, text: string, tokens: readonly string[]): boolean {
  const pattern = /<\|?[\w/]+\|?>|\[[A-Z_]+\]/g;
  const bytes: number[] = [];
  let at = 0;
  for (const { 0: mark, index } of text.matchAll(pattern)) {
    if (!tokens.includes(mark)) continue;
    bytes.push(...new TextEncoder().encode(text.slice(at, index)), ...controlBytes(new TextEncoder().encode(mark)));
    at = index + mark.length;
  }
  bytes.push(...new TextEncoder().encode(text.slice(at)));
  let state = states.start();
  for (const byte of bytes) state = states.step(state, states.classes[byte]);
  return state !== states.dead && state.ends;
}

Deno.test("answers that have to call begin with a call of the model's format whose arguments fit the schema", () => {
  for (const [format, [answer, more]] of Object.entries(DEMANDED) as [CallFormatName, [string, string?]][]) {
    for (const tokens of [[], answer.match(/<\|?[\w/]+\|?>|\[[A-Z_]+\]/g) ?? []]) {
      const states = (parallel: boolean): States =>
        new States(callRules({ format, tokens, functions: FUNCTIONS, parallel }));
      const [one, several] = [states(false), states(true)];
      assert(matches(one, answer, tokens), `${format}: ${answer}`);
      assert(!matches(one, answer.replace('"city"', '"town"'), tokens), `${format}: a property that the schema lacks`);
      assert(!matches(one, answer.replace("weather", "weathers"), tokens), `${format}: a function that is none`);
      assert(!matches(one, "Hello", tokens), `${format}: text`);
      if (more === undefined) continue;
      assert(matches(several, answer + more, tokens), `${format}: two calls`);
      assert(!matches(one, answer + more, tokens), `${format}: two calls where one is wanted`);
    }
    const [text, , found] = partsOf(formatOf(format), [answer]);
    const args = format === "gemma3" ? { city: "Paris" } : { city: "Paris", n: 2 };
    assertEquals([text, found.map((each) => each.function)], ["", [{ name: "weather", arguments: args }]], format);
  }
  const tokens = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>"];
  const harmony = new States(callRules({ format: "harmony", tokens, functions: FUNCTIONS, parallel: true }));
  assert(matches(harmony, `${ANALYSIS}<|start|>assistant${DEMANDED.harmony[0]}`, tokens), "thoughts first");
  assert(!matches(harmony, DEMANDED.harmony[0], []), "marks spelled with the letters of text");
  assertEquals(Object.keys(DEMANDED).toSorted(), Object.keys(CALL_FORMATS).toSorted());
});

Deno.test("tools that no grammar holds are refused by name", () => {
  const tokenizer = { chatTemplate: "", idOf: () => undefined } as unknown as mx.lm.Tokenizer;
  const refused = (tools: readonly unknown[], message: string): void => {
    assertThrows(() => mx.lm.requireToolCalls(tokenizer, tools), mx.lm.LlmError, message);
  };
  refused([], "there is no tool to call");
  refused([{ function: { name: 'f"' } }], "tools[0] has the name");
  refused([{ function: { name: "f", parameters: [] } }], "tools[0] (f) has parameters that are no JSON schema");
  refused(
    [{ function: { name: "f", parameters: { properties: { a: { not: {} } } } } }],
    'of the function "f", the schema at',
  );
  const format = mx.lm.requireToolCalls(tokenizer, TOOLS, { parallel: false });
  assertEquals(format, {
    type: "tool_calls",
    demand: {
      format: "hermes",
      tokens: [],
      functions: [{
        name: "f",
        schema: '{"type":"object","properties":{},"additionalProperties":false}',
        strict: true,
      }],
      parallel: false,
    },
  });
});
