/** The parts of answers: thoughts, text and calls, in whatever pieces they come. */

import { assert, assertEquals } from "@std/assert";
import { splitAnswer } from "../../../src/llm/answer/parser.ts";
import type { AnswerFormat } from "../../../src/llm/answer/parts.ts";
import { parseJson, parsePython } from "../../../src/llm/answer/literal.ts";
import { parseToolCall } from "../../../src/llm/answer/tool_calls.ts";
import { loadChatTemplate } from "../../../src/llm/chat/template.ts";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const TOOLS = [{
  type: "function",
  function: {
    name: "f",
    parameters: {
      type: "object",
      properties: { n: { type: "integer" }, s: { type: "string" }, o: { type: "object" }, bad: { type: "number" } },
    },
  },
}];
const MARKS = { calls: "hermes", thoughts: { open: "<think>", close: "</think>" } } as const;
const CHAT: AnswerFormat = { ...MARKS, reasoning: true, thinking: false, tools: [] };
const TOOL_CHAT: AnswerFormat = { ...CHAT, tools: TOOLS };
const THINKING: AnswerFormat = { ...TOOL_CHAT, thinking: true };
const PLAIN: AnswerFormat = { ...MARKS, reasoning: false, thinking: false, tools: [] };

const call = (name: string, args: Record<string, unknown>): mx.lm.ParsedToolCall => ({
  function: { name, arguments: args },
});
const F1 = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>';
const F2 = '<tool_call>{"arguments": {"s": "</think> <tool_call>"}, "name": "g"}</tool_call>';
const ELEMENTS = "<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n12\n</parameter>\n" +
  '<parameter=o>\n{"a": [1]}\n</parameter>\n<parameter=bad>\nno number\n</parameter>\n<parameter=more>\n7\n</parameter>\n' +
  "</function>\n</tool_call>";

/** Format, what the model wrote, and text, thoughts and calls of it. */
const ANSWERS: readonly [AnswerFormat, string, string, string, mx.lm.ParsedToolCall[]][] = [
  [CHAT, "Hi.", "Hi.", "", []],
  [CHAT, "", "", "", []],
  [CHAT, "  Hi.\n", "  Hi.\n", "", []],
  [CHAT, "<think>\nLet me see.\n\nYes.\n</think>\n\nHi.\n", "Hi.\n", "Let me see.\n\nYes.", []],
  [CHAT, "\n<think>\n\n</think>\n\nHi.", "Hi.", "", []],
  [CHAT, "<think>a</think>b</think>c<think>d</think>", "b</think>c<think>d</think>", "a", []],
  [CHAT, "<thin ice", "<thin ice", "", []],
  [CHAT, "<think", "<think", "", []],
  [CHAT, "<think>never en</thin", "", "never en</thin", []],
  [CHAT, "The mark <think> begins a thought.", "The mark <think> begins a thought.", "", []],
  [CHAT, F1, F1, "", []],
  [PLAIN, `<think>a</think>\n${F1}`, `<think>a</think>\n${F1}`, "", []],
  [THINKING, "I see.\n</think>\n\nYes.", "Yes.", "I see.", []],
  [THINKING, `no call: ${F1}</think>${F1}`, "", `no call: ${F1}`, [call("f", { n: 1 })]],
  [TOOL_CHAT, `<think>\nhm\n</think>\n\n${F1}\n${F2}\n`, "", "hm", [
    call("f", { n: 1 }),
    call("g", { s: "</think> <tool_call>" }),
  ]],
  [TOOL_CHAT, `I look.\n\n${F1}\n\nDone.`, "I look.\n\nDone.", "", [call("f", { n: 1 })]],
  [TOOL_CHAT, `First I look.\n${F1}\n${F1}\nThen I say.\n`, "First I look.\nThen I say.\n", "", [
    call("f", { n: 1 }),
    call("f", { n: 1 }),
  ]],
  [
    TOOL_CHAT,
    `I look.${F1}\n\nDone.${F1}Yes.${F1} `,
    "I look.\n\nDone.\nYes.",
    "",
    [1, 2, 3].map(() => call("f", { n: 1 })),
  ],
  [TOOL_CHAT, `a ${F1}\n<tool_call>none</tool_call>`, "a <tool_call>none</tool_call>", "", [call("f", { n: 1 })]],
  [TOOL_CHAT, `${F1}\n\nDone.`, "Done.", "", [call("f", { n: 1 })]],
  [TOOL_CHAT, "a <b  c < tool_call>\n <tool_calls", "a <b  c < tool_call>\n <tool_calls", "", []],
  [TOOL_CHAT, "x \n<tool_call>no JSON</tool_call> y", "x \n<tool_call>no JSON</tool_call> y", "", []],
  [TOOL_CHAT, 'x <tool_call>{"name": "f"', 'x <tool_call>{"name": "f"', "", []],
  [TOOL_CHAT, "text \n ", "text \n ", "", []],
  [TOOL_CHAT, ELEMENTS, "", "", [call("f", { n: 12, s: "12", o: { a: [1] }, bad: "no number", more: "7" })]],
];

/** The parts of a text that comes in pieces. */
function parts(format: AnswerFormat, pieces: readonly string[]): [string, string, mx.lm.ParsedToolCall[]] {
  const parser = splitAnswer(format);
  const all: [string, string, mx.lm.ParsedToolCall[]] = ["", "", []];
  pieces.forEach((piece, i) => {
    const { text, reasoning, toolCalls } = parser.push(piece, i === pieces.length - 1);
    all[0] += text;
    all[1] += reasoning;
    all[2].push(...toolCalls);
  });
  return all;
}

Deno.test("an answer has the same parts in whatever pieces it comes", () => {
  for (const [format, answer, ...expected] of ANSWERS) {
    assertEquals(parts(format, [answer]), expected, answer);
    assertEquals(parts(format, [...answer, ""]), expected, answer);
    for (let size = 2; size < answer.length; size++) {
      for (const first of [1, size]) {
        const pieces = [answer.slice(0, first)];
        for (let at = first; at < answer.length; at += size) pieces.push(answer.slice(at, at + size));
        assertEquals(parts(format, pieces), expected, pieces.join("|"));
      }
    }
  }
});

Deno.test("text that can be no mark is given out at once", () => {
  const seen = (format: AnswerFormat, pieces: readonly string[]): string[][] => {
    const parser = splitAnswer(format);
    return pieces.map((piece) => parser.push(piece, false)).map(({ text, reasoning }) => [text, reasoning]);
  };
  assertEquals(seen(CHAT, ["H", "i <th", " "]), [["H", ""], ["i <th", ""], [" ", ""]]);
  assertEquals(seen(TOOL_CHAT, ["H", "i ", "<", "b"]), [["H", ""], ["i", ""], ["", ""], [" <b", ""]]);
  assertEquals(seen(THINKING, ["H", "m\n", "a<", "/think>\n", "b"]), [
    ["", "H"],
    ["", "m"],
    ["", "\na"],
    ["", ""],
    ["b", ""],
  ]);
});

Deno.test("a block that does not name a function and its arguments is no call", () => {
  for (
    const block of [
      "",
      "null",
      "[]",
      '"f"',
      '{"name": ""}',
      '{"name": 1, "arguments": {}}',
      '{"name": "f", "arguments": [1]}',
      '{"name": "f", "arguments": "no JSON"}',
      '{"name": "f", "arguments": {}} and more',
      "<function=>x</function>",
      "<function=f>stray<parameter=a>1</parameter></function>",
      "<function=f><parameter=a>1</function>",
    ]
  ) assertEquals(parseToolCall(block, TOOLS), undefined, block);
  assertEquals(parseToolCall('{"name": "f"}', []), call("f", {}));
  assertEquals(parseToolCall('{"name": "f", "parameters": {"a": 1}}', []), call("f", { a: 1 }));
  assertEquals(parseToolCall('{"name": "f", "arguments": "{\\"a\\": 1}"}', []), call("f", { a: 1 }));
  assertEquals(parseToolCall("<function=f></function>", []), call("f", {}));
  assertEquals(parseToolCall("<function=f><parameter=__proto__>1</parameter>", []), {
    function: { name: "f", arguments: Object.fromEntries([["__proto__", "1"]]) },
  });
});

type Tagged = null | boolean | readonly unknown[];

/** Made by golden/templates/literals.py. */
const LITERALS: {
  readonly python: readonly (readonly [string, { readonly value: Tagged } | null])[];
  readonly json: readonly (readonly [string, { readonly value: Tagged } | null])[];
  readonly tools: readonly unknown[];
  readonly calls: readonly (readonly [string, Tagged])[];
} = JSON.parse(Deno.readTextFileSync(new URL("../../golden/templates/literals.json", import.meta.url)));

/** A value with its kinds, as literals.py writes it. */
function tagged(value: unknown): Tagged {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "bigint") {
    assert(!Number.isSafeInteger(Number(value)), `${value} is no number`);
    return ["i", String(value)];
  }
  // A whole number beyond 2^53 was a float: Python's int of it.
  if (typeof value === "number") return Number.isInteger(value) ? ["i", String(BigInt(value))] : ["f", value];
  if (typeof value === "string") return ["s", value];
  if (Array.isArray(value)) return ["l", ...value.map(tagged)];
  return ["d", ...Object.entries(value as object).map(([key, item]) => [key, tagged(item)])];
}

/** Order of keys does not count: JavaScript puts those that are numbers first. */
function sorted(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const [kind, ...rest] = value.map(sorted);
  return kind === "d"
    ? [kind, ...rest.sort((a, b) => String((a as unknown[])[0]) < String((b as unknown[])[0]) ? -1 : 1)]
    : value.map(sorted);
}

Deno.test("values of calls are read as Python and JSON read them, integers to the last digit", () => {
  for (const [texts, parse] of [[LITERALS.python, parsePython], [LITERALS.json, parseJson]] as const) {
    for (const [text, expected] of texts) {
      const found = parse(text);
      assertEquals(found === undefined ? null : sorted(tagged(found)), expected && sorted(expected.value), text);
    }
  }
  assertEquals(parsePython("[".repeat(100_000)), undefined);
  assertEquals(
    parseToolCall('{"name": "f", "arguments": {"id": 2512292042121000001}}', []),
    call("f", { id: 2512292042121000001n }),
  );
  assertEquals(
    parseToolCall('{"name": "f", "arguments": "{\\"id\\": [-9007199254740993]}"}', []),
    call("f", { id: [-9007199254740993n] }),
  );
});

Deno.test("arguments of Qwen3-Coder are those of mlx-lm", () => {
  for (const [block, expected] of LITERALS.calls) {
    assertEquals(tagged(parseToolCall(block, LITERALS.tools)?.function.arguments), expected, block);
  }
  // mlx-lm reads no alternatives: pydantic writes optional parameters so.
  const optional = { anyOf: [{ type: "integer" }, { type: "null" }] };
  const properties = { i: optional, s: { type: ["string", "null"] }, e: { enum: [1, 2] }, big: { type: "integer" } };
  const tools = [{ name: "f", parameters: { properties } }];
  const read = (values: Record<string, string>) => {
    const parameters = Object.entries(values).map(([name, value]) => `<parameter=${name}>\n${value}\n</parameter>\n`);
    return parseToolCall(`<function=f>\n${parameters.join("")}</function>`, tools);
  };
  assertEquals(
    read({ i: "None", s: "None", e: "2", big: "2512292042121000001" }),
    call("f", { i: null, s: null, e: 2, big: 2512292042121000001n }),
  );
  assertEquals(read({ i: "5", s: "True", e: "x" }), call("f", { i: 5, s: "True", e: "x" }));
});

Deno.test("calls that Qwen3-Coder's template writes are read as they were", async () => {
  const { templates } = JSON.parse(
    Deno.readTextFileSync(new URL("../../golden/templates/chat_templates.json", import.meta.url)),
  );
  const text: string = templates["Qwen3-Coder"].template;
  const template = await loadChatTemplate([{ name: "default", text, file: "template" }], {
    controlTokens: [],
    variables: {},
  });
  const args = {
    b: true,
    none: null,
    i: 2512292042121000001n,
    n: -2.5,
    l: ["x", null, 2n ** 64n],
    o: { a: [true, "it's"] },
    s: "True",
  };
  const types = { b: "boolean", none: "null", i: "integer", n: "number", l: "array", o: "object", s: "string" };
  const properties = Object.fromEntries(Object.entries(types).map(([name, type]) => [name, { type }]));
  const tools = [{ type: "function", function: { name: "f", parameters: { type: "object", properties } } }];
  const messages = [{ role: "user", content: "Hi" }, {
    role: "assistant",
    content: "I look.",
    tool_calls: [call("f", args)],
  }] as const;
  const prompt = template!(messages, { tools }).map((part) => part.text).join("");
  const [, answer] = /<\|im_start\|>assistant\n(.*)<\|im_end\|>/s.exec(prompt)!;
  assertEquals(parts({ ...CHAT, tools }, [answer]), ["I look.", "", [call("f", args)]]);
});

const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: anyDevice() });
const MESSAGES = [{ role: "user", content: "Hi what is your name" }] as const;
const RAW = GOLDEN[3].text.replace("<|im_end|>", "");
const [, THOUGHT, SAID] = /^<think>\s*(.*?)\s*<\/think>\s*(.*)$/s.exec(RAW)!;

Deno.test("answers in conversations come in parts, streamed, whole and in batches; what follows a text is text", async () => {
  let text = "", reasoning = "", raw = "";
  for await (const response of mx.lm.streamGenerate(model, tokenizer, MESSAGES)) {
    text += response.text;
    reasoning += response.reasoning;
    raw += response.raw;
  }
  assertEquals([text, reasoning, raw], [SAID, THOUGHT, RAW]);

  const whole = await mx.lm.complete(model, tokenizer, MESSAGES, { logprobs: 0 });
  assertEquals([whole.text, whole.reasoning, whole.raw, whole.toolCalls], [SAID, THOUGHT, RAW, []]);
  assertEquals([whole.tokens, whole.logprobs?.length], [GOLDEN[3].greedy, GOLDEN[3].greedy.length]);
  assertEquals([whole.finishReason, whole.generationTokens], ["stop", whole.tokens.length]);
  assertEquals(await mx.lm.generate(model, tokenizer, MESSAGES), SAID);

  const batch = await mx.lm.batchGenerate(model, tokenizer, [MESSAGES, GOLDEN[3].prompt]);
  assertEquals([batch.texts, batch.reasonings, batch.toolCalls], [[SAID, RAW], [THOUGHT, ""], [[], []]]);
  const plain = await mx.lm.complete(model, tokenizer, GOLDEN[3].prompt);
  assertEquals([plain.text, plain.reasoning, plain.raw], [RAW, "", RAW]);
  await model.traces.idle();
});

Deno.test("an answer behind a prompt that ends with <think> begins with a thought", async () => {
  const template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n";
  const files = ["tokenizer.json", "tokenizer_config.json"].map((name) => Deno.readFileSync(new URL(name, TINY_DIR)));
  const opened = await mx.lm.Tokenizer.load({
    tokenizer: files[0],
    config: new TextDecoder().decode(files[1]),
    chatTemplate: template,
    dir: "test",
    vocabSize: model.config.vocabSize,
    eosTokenIds: [],
  });
  const { text, reasoning, raw } = await mx.lm.complete(model, opened, MESSAGES, { maxTokens: 60, stop: "<|im_end|>" });
  const [thought, said, ...more] = raw.split("</think>");
  assertEquals([reasoning, text, more], [thought.trim(), said.trimStart(), []]);
  await model.traces.idle();
});
