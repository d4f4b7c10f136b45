/**
 * Answers with calls in the format of each family, drawn by a seed. What an answer says and calls is drawn first. It is written then
 * as the family's template does, so the expected parts come from no parser.
 *
 * @module
 */

import type { CallFormatName } from "../../../src/llm/answer/call_formats.ts";
import { Draw, type DrawnCall, gemma, json, list, plain, python, type Value } from "./call_literals.ts";

/** An answer and its parts. White space between parts is the format's, so texts count by their words. */
export interface CallForm {
  readonly answer: string;
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly DrawnCall[];
  /** The text of each block of calls without the marks around it, as mlx-lm's parsers get it. */
  readonly blocks: readonly string[];
}

/** How a family is drawn and written. */
interface Writer {
  /** Marks that texts in arguments have too: those that end a call, above all. */
  readonly marks: readonly string[];
  /** Texts that no argument can have, since the format has no escape for them. */
  readonly never?: readonly string[];
  /** Whether values are texts that a schema gives a type: then no white space is kept at their ends. */
  readonly bySchema?: true;
  /** Whether calls have ids. */
  readonly ids?: true;
  /** Most calls of an answer. Default 3. */
  readonly most?: number;
  /** Whether text comes before calls and after them. Default both. */
  readonly around?: "before" | "after" | "none";
  /** Thoughts before the answer, and the mark that begins the answer itself. */
  readonly thoughts: (thought: string) => string;
  /** Text before and after calls; default as it is. */
  readonly says?: (text: string) => string;
  /** The blocks of calls and, between the marks, what stands in them. */
  readonly write: (
    calls: readonly DrawnCall[],
    draw: Draw,
  ) => readonly (readonly [open: string, body: string, close: string])[];
  /** White space between blocks. */
  readonly between: readonly string[];
}

const THINK = (thought: string): string => `<think>\n${thought}\n</think>\n\n`;
const BRACKETS = (thought: string): string => `[THINK]${thought}[/THINK]`;
const CHANNEL = (thought: string): string => `<|channel>thought\n${thought}<channel|>`;
const SPACES = ["\n", "", "\n\n", " "];

const object = (call: DrawnCall, key = "arguments", draw: Draw): string =>
  json({ name: call.name, [key]: call.arguments, ...(call.id !== undefined && { id: call.id }) }, draw);

/** The families. Names are those of the formats; "coder" is Qwen3-Coder's form of Hermes'. */
export const WRITERS: Readonly<Record<CallFormatName | "coder", Writer>> = {
  hermes: {
    marks: ["</tool_call>", "<tool_call>"],
    thoughts: THINK,
    write: (calls, draw) =>
      calls.map((call) => ["<tool_call>", draw.around(object(call, "arguments", draw)), "</tool_call>"]),
    between: SPACES,
  },
  coder: {
    marks: [],
    never: ["</parameter>", "</function>", "</tool_call>", "<parameter=", "<tool_call>"],
    bySchema: true,
    thoughts: THINK,
    write: (calls) =>
      calls.map(({ name, arguments: given }) => {
        const pairs = Object.entries(given).map(([key, value]) =>
          `<parameter=${key}>\n${plain(value)}\n</parameter>\n`
        );
        return ["<tool_call>", `\n<function=${name}>\n${pairs.join("")}</function>\n`, "</tool_call>"];
      }),
    between: SPACES,
  },
  glm: {
    marks: [],
    never: ["</arg_value>", "<arg_key>", "</arg_key>", "<arg_value>", "</tool_call>", "<tool_call>"],
    bySchema: true,
    thoughts: THINK,
    write: (calls, draw) =>
      calls.map(({ name, arguments: given }) => {
        const gap = draw.of(["\n", ""]);
        const pairs = Object.entries(given).map(([key, value]) =>
          `<arg_key>${key}</arg_key>${gap}<arg_value>${plain(value)}</arg_value>${gap}`
        );
        return ["<tool_call>", `${name}${gap}${pairs.join("")}`, "</tool_call>"];
      }),
    between: SPACES,
  },
  mistralList: {
    marks: ["]", "[TOOL_CALLS]"],
    ids: true,
    around: "before",
    thoughts: THINK,
    write: (calls, draw) => [[
      "[TOOL_CALLS]",
      draw.of(["", " "]) + list(calls.map((call) => object(call, "arguments", draw))),
      "",
    ]],
    between: [""],
  },
  mistral: {
    marks: ["[TOOL_CALLS]", "[ARGS]"],
    around: "before",
    thoughts: BRACKETS,
    write: (calls, draw) =>
      calls.map(({ name, arguments: given }) => ["[TOOL_CALLS]", `${name}[ARGS]${json(given, draw)}`, ""]),
    between: [""],
  },
  mistralIds: {
    marks: ["[TOOL_CALLS]", "[CALL_ID]"],
    ids: true,
    around: "before",
    thoughts: THINK,
    write: (calls, draw) =>
      calls.map((
        { name, arguments: given, id },
      ) => ["[TOOL_CALLS]", `${name}[CALL_ID]${id}[ARGS]${json(given, draw)}`, ""]),
    between: [""],
  },
  llama3: {
    marks: ["<|python_tag|>", ";"],
    around: "none",
    thoughts: THINK,
    write: (calls, draw) =>
      calls.map((
        call,
        i,
      ) => [
        i === 0 ? draw.of(["", "<|python_tag|>"]) : ";",
        draw.of(["", " "]) + object(call, "parameters", draw),
        "",
      ]),
    between: ["", " "],
  },
  gemma4: {
    marks: ["<tool_call|>", "<|tool_call>", "}"],
    never: ['<|"|>'],
    thoughts: CHANNEL,
    write: (calls) =>
      calls.map((
        { name, arguments: given },
      ) => ["<|tool_call>", `call:${name}${gemma(given, '<|"|>')}`, "<tool_call|>"]),
    between: [""],
  },
  functionGemma: {
    marks: ["<end_function_call>", "}"],
    never: ["<escape>"],
    thoughts: THINK,
    write: (calls) =>
      calls.map(({ name, arguments: given }) => [
        "<start_function_call>",
        `call:${name}${gemma(given, "<escape>")}`,
        "<end_function_call>",
      ]),
    between: [""],
  },
  lfm2: {
    marks: ["<|tool_call_end|>", ")]"],
    thoughts: THINK,
    write: (
      calls,
      draw,
    ) => [["<|tool_call_start|>", list(calls.map((call) => python(call, draw))), "<|tool_call_end|>"]],
    between: [""],
  },
  olmo3: {
    marks: ["</function_calls>", ")"],
    thoughts: THINK,
    write: (
      calls,
      draw,
    ) => [["<function_calls>", calls.map((call) => python(call, draw)).join("\n"), "</function_calls>"]],
    between: [""],
  },
  gemma3: {
    marks: ["```", "```tool_code"],
    thoughts: THINK,
    write: (calls, draw) => [["```tool_code\n", list(calls.map((call) => python(call, draw))), "\n```"]],
    between: [""],
  },
  list: {
    marks: ["<|/tool_call|>", "]"],
    around: "before",
    thoughts: THINK,
    write: (
      calls,
      draw,
    ) => [[
      "<|tool_call|>",
      list(calls.map((call) => object(call, "arguments", draw))),
      draw.of(["", "<|/tool_call|>"]),
    ]],
    between: [""],
  },
  harmony: {
    marks: [],
    never: ["<|call|>", "<|end|>", "<|start|>", "<|return|>"],
    most: 1,
    around: "before",
    thoughts: (thought) => `<|channel|>analysis<|message|>${thought}<|end|><|start|>assistant`,
    says: (text) => text === "" ? "" : `<|channel|>commentary<|message|>${text}<|end|><|start|>assistant`,
    write: (calls, draw) =>
      calls.map(({ name, arguments: given }) => [
        draw.of([
          `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>`,
          ` to=functions.${name}<|channel|>commentary json<|message|>`,
        ]),
        json(given, draw),
        draw.of(["<|call|>", ""]),
      ]),
    between: [""],
  },
};

const TEXTS = [
  ...[
    "",
    "Paris",
    'say "hi"',
    "it's 5 o'clock",
    "a\nb\tc",
    "back\\slash\\",
    "{[()]}",
    "naïve 北京 👍🏽",
    "1",
    "true",
    "null",
  ],
  ...[
    "<think>no</think>",
    "a, b: c = d; e",
    "C:\\new\\table",
    '\\"',
    "\\u0041",
    "#!/bin/sh\necho $(ls) | cat <<EOF\nEOF",
    "%s`~",
  ],
  ...[
    "\u2028\u00a0x",
    "e\u0301",
    '{"name": "g", "arguments": {}}',
    "<function=f>",
    "call:f{}",
    "f(a=1)",
    "]}'\"",
    "\u0001\u007f",
  ],
];
const NUMBERS = [0, -1, 42, 3.5, -0.25, 1e-7, 2512292042121000001n];
const KEYS = ["city", "n", "on", "list", "deep", "x_1", "camelCase"];
const NAMES = ["weather", "get_time", "search-web", "f"];
const SAYS = ["Let me look.", "I call `f` now: 1 < 2.", "Nun, schön!"];
const THOUGHT = ["I need it.", "First a call, then <b>text</b>."];

/** Types of a schema for the arguments of a call. */
export function schemaOf(given: DrawnCall["arguments"]): Record<string, { readonly type: string }> {
  const typeOf = (value: Value): string =>
    value === null ? "null" : Array.isArray(value) ? "array" : typeof value === "bigint" ? "integer" : typeof value;
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [key, { type: typeOf(value) }]));
}

/** Answer `index` of a family. */
export function callForm(family: keyof typeof WRITERS, index: number): CallForm {
  const writer = WRITERS[family];
  const draw = new Draw(index * 31 + family.length * 7 + 1);
  const { around } = writer;
  const texts = [...TEXTS, ...writer.marks, ...writer.marks.map((mark) => `x${mark}y`)]
    .filter((text) => !writer.never?.some((mark) => text.includes(mark)))
    .filter((text) => !writer.bySchema || text === text.trim() && text !== "");
  const calls = Array.from({ length: 1 + draw.below(writer.most ?? 3) }, (_, i): DrawnCall => ({
    name: (writer.bySchema ? NAMES[i] : draw.of(NAMES)).replaceAll(
      "-",
      family === "functionGemma" || PYTHONIC.has(family) ? "_" : "-",
    ),
    arguments: drawObject(draw, texts, 0),
    ...(writer.ids && { id: `id${100000 + draw.below(900000)}` }),
  }));
  const before = around === "after" || around === "none" ? "" : draw.of(["", "", ...SAYS]);
  const after = around === "before" || around === "none" ? "" : draw.of(["", "", ...SAYS]);
  const thought = draw.of(["", ...THOUGHT]);
  const blocks = writer.write(calls, draw);
  const says = writer.says ?? ((text: string) => text);
  const gap = (text: string): string => text === "" ? "" : draw.of(SPACES);
  const answer = (thought === "" ? "" : writer.thoughts(thought)) +
    (before === "" ? "" : `${says(before)}${writer.says ? "" : gap(before)}`) +
    blocks.map((parts) => parts.join("")).join(draw.of(writer.between)) +
    (after === "" ? "" : `${gap(after)}${says(after)}`);
  return {
    answer,
    text: [before, after].filter((text) => text !== "").join(" "),
    reasoning: thought,
    calls,
    blocks: blocks.map(([, body]) => body),
  };
}

/** Formats whose names and keys are those of Python. */
const PYTHONIC: ReadonlySet<string> = new Set(["lfm2", "olmo3", "gemma3"]);

function drawObject(draw: Draw, texts: readonly string[], depth: number): Record<string, Value> {
  const pairs: [string, Value][] = [];
  for (let count = draw.below(depth === 0 ? 5 : 3); count > 0; count--) {
    pairs.push([draw.of(KEYS), drawValue(draw, texts, depth)]);
  }
  return Object.fromEntries(pairs);
}

function drawValue(draw: Draw, texts: readonly string[], depth: number): Value {
  const kind = draw.below(depth > 2 ? 6 : 8);
  if (kind < 4) return draw.of(texts);
  if (kind === 4) return draw.of(NUMBERS);
  if (kind === 5) return draw.of([true, false, null]);
  if (kind === 6) return drawObject(draw, texts, depth + 1);
  return Array.from({ length: draw.below(4) }, () => drawValue(draw, texts, depth + 1));
}
