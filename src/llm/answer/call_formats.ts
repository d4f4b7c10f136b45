/**
 * How families of models write calls of functions, an entry for each. The format of a model follows from its chat template.
 *
 * @module
 */

import { closeOutside, JSON_QUOTES, markedQuotes, PYTHON_QUOTES, type Quotes } from "./block_end.ts";
import { parseGemmaCalls } from "./gemma.ts";
import { jsonEnd } from "./json_end.ts";
import { parseJson, parsePythonCalls } from "./literal.ts";
import { callOf, isObject, parseArgumentPairs, type ParsedToolCall, parseToolCall } from "./tool_calls.ts";

/** What a block that may be a call turned out to be. */
export interface CallBlock {
  /** Characters of the block, its marks included. */
  readonly length: number;
  /** The calls in it; undefined if the block is text. */
  readonly calls: readonly ParsedToolCall[] | undefined;
}

/** How an answer that has to begin with calls is written, as texts and, in capitals, what stands between them. */
export interface CallSyntax {
  /** Before the first call. */
  readonly before: readonly SyntaxPart[];
  /** A call. */
  readonly call: readonly SyntaxPart[];
  /** Between two calls; undefined if an answer has one call only. */
  readonly between: readonly SyntaxPart[] | undefined;
  /** After the last call. */
  readonly after: readonly SyntaxPart[];
}

/** A part of a {@link CallSyntax}. `THOUGHTS` is any text or none, with `begin` and `end` around it. */
export type SyntaxPart =
  | string
  | { readonly kind: "NAME" | "ARGUMENTS" | "ID" }
  | { readonly kind: "THOUGHTS"; readonly begin: string; readonly end: string };

/** How a family writes calls. */
export interface CallFormat {
  /** Whether a model with this chat template, or this vocabulary, belongs to the family. */
  matches(template: string, hasToken: (token: string) => boolean): boolean;
  /** Marks that may begin a call. */
  readonly opens: readonly string[];
  /** Marks that may begin a call only at the beginning of an answer or right after a call. */
  readonly opensFirst: readonly string[];
  /**
   * Reads the block at the beginning of a text, which begins with one of the marks; undefined if more text is needed. `last` says that
   * none will come.
   */
  read(text: string, last: boolean, tools: readonly unknown[]): CallBlock | undefined;
  readonly syntax: CallSyntax;
}

/** The marks of messages of gpt-oss, whose answers are several messages. */
export const HARMONY_CHANNEL = "<|channel|>";

const NAME = { kind: "NAME" } as const;
const ARGUMENTS = { kind: "ARGUMENTS" } as const;
const ID = { kind: "ID" } as const;

/** Reads up to a mark that ends the block. One within a text of an argument, which `quotes` tells, does not end it. */
function readUntil(
  open: string,
  close: string,
  parse: (block: string, tools: readonly unknown[]) => readonly ParsedToolCall[] | undefined,
  quotes?: Quotes,
): CallFormat["read"] {
  return (text, last, tools) => {
    const at = text.indexOf(close, open.length);
    if (at < 0) return last ? { length: text.length, calls: undefined } : undefined;
    const blockTo = (end: number): CallBlock => ({
      length: end + close.length,
      calls: parse(text.slice(open.length, end), tools),
    });
    const block = blockTo(at);
    if (
      block.calls !== undefined || quotes === undefined ||
      !OBJECT.test(text.slice(open.length)) && quotes === JSON_QUOTES
    ) {
      return block;
    }
    const end = closeOutside(text, open.length, close, quotes);
    if (end === "more" && !last) return undefined;
    const whole = typeof end === "number" && end > at ? blockTo(end) : block;
    return whole.calls === undefined ? block : whole;
  };
}

/** The beginning of a block that is JSON. */
const OBJECT = /^\s*[{[]/;

/** A call as a list; undefined if there is none. */
function listed(call: ParsedToolCall | undefined): readonly ParsedToolCall[] | undefined {
  return call && [call];
}

/** Calls in a list of JSON objects, or in one object. Each has to name its arguments if `named` says so. */
function parseObjects(text: string, named: boolean): readonly ParsedToolCall[] | undefined {
  const value = parseJson(text);
  const objects = Array.isArray(value) ? value : [value];
  const calls = objects.map((one) =>
    named && !(isObject(one) && ("parameters" in one || "arguments" in one)) ? undefined : callOf(one)
  );
  return calls.length > 0 && calls.every((call) => call !== undefined) ? calls : undefined;
}

/** The block of a JSON value that begins at `start`, whose calls `parse` reads. */
function readJson(
  text: string,
  start: number,
  last: boolean,
  parse: (json: string) => readonly ParsedToolCall[] | undefined,
): CallBlock | undefined {
  const end = jsonEnd(text, start);
  if (end === undefined) return last ? { length: text.length, calls: undefined } : undefined;
  return { length: end, calls: parse(text.slice(start, end)) };
}

const MISTRAL = "[TOOL_CALLS]";
const MISTRAL_HEAD = /\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*([\w-]+)\s*)?\[ARGS\]\s*/y;
/** What may become a head. */
const MISTRAL_BEGUN = /^\s*[\w.-]*\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[[A-Z_]*\]?\s*)?$/;

/** `[TOOL_CALLS][{"name": …}]`, or `[TOOL_CALLS]name[ARGS]{…}` with an id if the model writes one. */
function readMistral(text: string, last: boolean): CallBlock | undefined {
  const list = text.length - text.slice(MISTRAL.length).trimStart().length;
  if (text[list] === "[" || text[list] === "{") return readJson(text, list, last, (json) => parseObjects(json, false));
  MISTRAL_HEAD.lastIndex = MISTRAL.length;
  const [, name, id] = MISTRAL_HEAD.exec(text) ?? [];
  if (name === undefined) {
    if (!last && MISTRAL_BEGUN.test(text.slice(MISTRAL.length))) return undefined;
    return { length: MISTRAL.length, calls: undefined };
  }
  const start = MISTRAL_HEAD.lastIndex;
  if (start < text.length && text[start] !== "{") return { length: start, calls: undefined };
  return readJson(text, start, last, (json) => listed(callOf({ name, id, arguments: parseJson(json) ?? null })));
}

const PYTHON_TAG = "<|python_tag|>";
const LLAMA_HEAD = /^(?:<\|python_tag\|>|;)?\s*/;
/** Llama's built-in tools are methods with this name. */
const BUILT_IN = /\.call$/;

/** `{"name": …, "parameters": …}`, several with `;` between them, or `<|python_tag|>name.call(query="…")`. */
function readLlama(text: string, last: boolean): CallBlock | undefined {
  const start = LLAMA_HEAD.exec(text)![0].length;
  const tagged = text.startsWith(PYTHON_TAG);
  if (text[start] === "{") return readJson(text, start, last, (json) => parseObjects(json, !tagged));
  if (start === text.length && !last) return undefined;
  if (!tagged) return { length: 1, calls: undefined };
  if (!last) return undefined;
  const calls = parsePythonCalls(text.slice(start))?.filter(({ name }) => BUILT_IN.test(name)) ?? [];
  const named = calls.map((call) => ({ function: { ...call, name: call.name.replace(BUILT_IN, "") } }));
  return { length: text.length, calls: named.length > 0 ? named : undefined };
}

const LIST = "<|tool_call|>";
const LIST_END = "<|/tool_call|>";

/** `<|tool_call|>[{"name": …, "arguments": …}]`, with a mark after it or without one. */
function readList(text: string, last: boolean): CallBlock | undefined {
  const start = text.length - text.slice(LIST.length).trimStart().length;
  if (start === text.length && !last) return undefined;
  if (text[start] !== "[" && text[start] !== "{") return { length: LIST.length, calls: undefined };
  const block = readJson(text, start, last, (json) => parseObjects(json, true));
  if (block?.calls === undefined) return block;
  const rest = text.slice(block.length);
  const space = rest.length - rest.trimStart().length;
  if (rest.startsWith(LIST_END, space)) return { ...block, length: block.length + space + LIST_END.length };
  return !last && LIST_END.startsWith(rest.slice(space)) ? undefined : block;
}

/** Calls in Python's syntax, one in a line, whose values may be words of JSON. */
function parseLines(block: string): readonly ParsedToolCall[] | undefined {
  const lines = block.split("\n").filter((line) => line.trim() !== "");
  return parsePython(block) ?? (lines.length > 1 ? parsePython(`[${lines.join(",")}]`) : undefined);
}

/** Calls in Python's syntax, in a list or printed. */
function parsePython(block: string): readonly ParsedToolCall[] | undefined {
  const [, printed] = /^\s*print\(([\s\S]*)\)\s*$/.exec(block) ?? [];
  return parsePythonCalls(printed ?? block)?.map((call) => ({ function: call }));
}

const HERMES_SYNTAX: CallSyntax = {
  before: [],
  call: ['<tool_call>\n{"name": "', NAME, '", "arguments": ', ARGUMENTS, "}\n</tool_call>"],
  between: ["\n"],
  after: [],
};

/** Name of a format. */
export type CallFormatName =
  | "harmony"
  | "gemma4"
  | "functionGemma"
  | "lfm2"
  | "mistralIds"
  | "mistral"
  | "mistralList"
  | "glm"
  | "olmo3"
  | "list"
  | "hermes"
  | "llama3"
  | "gemma3";

/** Formats by name. The first one that matches counts. */
export const CALL_FORMATS: Readonly<Record<CallFormatName, CallFormat>> = {
  /** `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>`; its messages are read by harmony.ts. */
  harmony: {
    matches: (template) => template.includes(HARMONY_CHANNEL),
    opens: [],
    opensFirst: [],
    read: (text) => ({ length: text.length, calls: undefined }),
    syntax: {
      before: [
        { kind: "THOUGHTS", begin: "<|channel|>analysis<|message|>", end: "<|end|><|start|>assistant" },
        "<|channel|>commentary to=functions.",
      ],
      call: [NAME, " <|constrain|>json<|message|>", ARGUMENTS],
      between: undefined,
      after: [],
    },
  },
  /** `<|tool_call>call:f{a:<|"|>text<|"|>}<tool_call|>` of Gemma 4. */
  gemma4: {
    matches: (template) => template.includes("<|tool_call>") && template.includes("<tool_call|>"),
    opens: ["<|tool_call>"],
    opensFirst: [],
    read: readUntil("<|tool_call>", "<tool_call|>", (block) => parseGemmaCalls(block, '<|"|>'), markedQuotes('<|"|>')),
    syntax: { before: [], call: ["<|tool_call>call:", NAME, ARGUMENTS, "<tool_call|>"], between: [], after: [] },
  },
  /** `<start_function_call>call:f{a:<escape>text<escape>}<end_function_call>` of FunctionGemma. */
  functionGemma: {
    matches: (template) => template.includes("<start_function_call>"),
    opens: ["<start_function_call>"],
    opensFirst: [],
    read: readUntil(
      "<start_function_call>",
      "<end_function_call>",
      (block) => parseGemmaCalls(block, "<escape>"),
      markedQuotes("<escape>"),
    ),
    syntax: {
      before: [],
      call: ["<start_function_call>call:", NAME, ARGUMENTS, "<end_function_call>"],
      between: [],
      after: [],
    },
  },
  /** `<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>` of LFM2, also with JSON objects in the list. */
  lfm2: {
    matches: (template, hasToken) => template.includes("<|tool_call_start|>") || hasToken("<|tool_call_start|>"),
    opens: ["<|tool_call_start|>"],
    opensFirst: [],
    read: readUntil(
      "<|tool_call_start|>",
      "<|tool_call_end|>",
      (block) => parsePython(block) ?? parseObjects(block, true),
      PYTHON_QUOTES,
    ),
    syntax: {
      before: ["<|tool_call_start|>["],
      call: ['{"name": "', NAME, '", "arguments": ', ARGUMENTS, "}"],
      between: [", "],
      after: ["]<|tool_call_end|>"],
    },
  },
  /** `[TOOL_CALLS]f[ARGS]{…}` of Mistral's newer models, some with `[CALL_ID]` and an id after the name. */
  mistralIds: {
    matches: (template) => template.includes(MISTRAL) && template.includes("[CALL_ID]"),
    opens: [MISTRAL],
    opensFirst: [],
    read: readMistral,
    syntax: { before: [], call: [MISTRAL, NAME, "[CALL_ID]", ID, "[ARGS]", ARGUMENTS], between: [], after: [] },
  },
  mistral: {
    matches: (template) => template.includes(MISTRAL) && template.includes("[ARGS]"),
    opens: [MISTRAL],
    opensFirst: [],
    read: readMistral,
    syntax: { before: [], call: [MISTRAL, NAME, "[ARGS]", ARGUMENTS], between: [], after: [] },
  },
  /** `[TOOL_CALLS][{"name": "f", "arguments": {…}, "id": "…"}]` of Mistral's older models. */
  mistralList: {
    matches: (template) => template.includes(MISTRAL),
    opens: [MISTRAL],
    opensFirst: [],
    read: readMistral,
    syntax: {
      before: [`${MISTRAL}[`],
      call: ['{"name": "', NAME, '", "arguments": ', ARGUMENTS, ', "id": "', ID, '"}'],
      between: [", "],
      after: ["]"],
    },
  },
  /** `<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>` of GLM 4.5 to 4.7, or an object as Hermes writes it. */
  glm: {
    matches: (template) => template.includes("<tool_call>") && template.includes("<arg_key>"),
    opens: ["<tool_call>"],
    opensFirst: [],
    read: readUntil(
      "<tool_call>",
      "</tool_call>",
      (block, tools) => listed(parseArgumentPairs(block, tools) ?? parseToolCall(block, tools)),
      JSON_QUOTES,
    ),
    syntax: HERMES_SYNTAX,
  },
  /** `<function_calls>f(a=1)</function_calls>` of OLMo 3, a call in each line. */
  olmo3: {
    matches: (template) => template.includes("<function_calls>"),
    opens: ["<function_calls>"],
    opensFirst: [],
    read: readUntil(
      "<function_calls>",
      "</function_calls>",
      (block) => parseLines(block) ?? parseObjects(block, true),
      PYTHON_QUOTES,
    ),
    syntax: {
      before: ["<function_calls>["],
      call: ['{"name": "', NAME, '", "arguments": ', ARGUMENTS, "}"],
      between: [", "],
      after: ["]</function_calls>"],
    },
  },
  /** `<|tool_call|>[{"name": "f", "arguments": {…}}]` of Granite 3, with `<|/tool_call|>` after it of Phi-4 mini. */
  list: {
    matches: (template, hasToken) => template.includes(LIST) || !template.includes("<tool_call>") && hasToken(LIST),
    opens: [LIST],
    opensFirst: [],
    read: readList,
    syntax: {
      before: [`${LIST}[`],
      call: ['{"name": "', NAME, '", "arguments": ', ARGUMENTS, "}"],
      between: [", "],
      after: ["]"],
    },
  },
  /** `<tool_call>{"name": "f", "arguments": {…}}</tool_call>` of Hermes and Qwen, and the elements of Qwen3-Coder between these marks. */
  hermes: {
    matches: (template) => template.includes("<tool_call>"),
    opens: ["<tool_call>"],
    opensFirst: [],
    read: readUntil("<tool_call>", "</tool_call>", (block, tools) => listed(parseToolCall(block, tools)), JSON_QUOTES),
    syntax: HERMES_SYNTAX,
  },
  /** `{"name": "f", "parameters": {…}}` of Llama 3. */
  llama3: {
    matches: (template, hasToken) =>
      template.includes(PYTHON_TAG) || template.includes('"parameters": ') && hasToken("<|eot_id|>"),
    opens: [PYTHON_TAG],
    opensFirst: ["{", ";"],
    read: readLlama,
    syntax: {
      before: [],
      call: ['{"name": "', NAME, '", "parameters": ', ARGUMENTS, "}"],
      between: undefined,
      after: [],
    },
  },
  /** Python in a block of code: templates for Gemma 3 that ask for it. Its own template has no tools. */
  gemma3: {
    matches: (template) => template.includes("tool_code"),
    opens: ["```tool_code"],
    opensFirst: [],
    read: readUntil("```tool_code", "```", (block) => parsePython(block) ?? parseObjects(block, true), PYTHON_QUOTES),
    syntax: {
      before: [],
      call: ['```tool_code\n{"name": "', NAME, '", "arguments": ', ARGUMENTS, "}\n```"],
      between: ["\n"],
      after: [],
    },
  },
};

/** The format of a model with a chat template and a vocabulary: Hermes' if none matches. */
export function callFormat(template: string, hasToken: (token: string) => boolean): CallFormatName {
  const names = Object.keys(CALL_FORMATS) as CallFormatName[];
  return names.find((name) => CALL_FORMATS[name].matches(template, hasToken)) ?? "hermes";
}
