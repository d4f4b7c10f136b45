/**
 * The option `responseFormat`: what an answer has to look like.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { nearest } from "../../graph/nearest.ts";
import { LlmError } from "../error.ts";
import type { CallDemand, GrammarSource } from "./protocol.ts";
import { type JsonSchema, SchemaError } from "./json/schema.ts";
import { rulesOf } from "./rules.ts";

/**
 * The format of an answer: any text, a JSON object, JSON of a schema, or text of a grammar. A grammar is in EBNF, or it is
 * a regular expression that matches the whole text. `strict` (default true) leaves out properties and items that a schema does not name.
 * The form with `json_schema` is OpenAI's.
 */
export type ResponseFormat =
  | { readonly type: "text" }
  | { readonly type: "json_object" }
  | { readonly type: "json_schema"; readonly schema: JsonSchema; readonly strict?: boolean }
  | {
    readonly type: "json_schema";
    readonly json_schema: {
      readonly name?: string;
      readonly description?: string;
      readonly schema: JsonSchema;
      readonly strict?: boolean;
    };
  }
  | { readonly type: "grammar"; readonly grammar: string }
  | { readonly type: "regex"; readonly regex: string }
  | ToolCallsFormat;

/** Calls of functions, in the format of a model's family: {@link requireToolCalls} makes it. */
export interface ToolCallsFormat {
  readonly type: "tool_calls";
  /** What the grammar is made of. */
  readonly demand: CallDemand;
}

/** Most characters of a schema, grammar or pattern. */
const MAX_TEXT = 1 << 18;

/** The members that each type has besides. */
const MEMBERS = {
  text: [],
  json_object: [],
  json_schema: ["schema", "strict", "json_schema"],
  grammar: ["grammar"],
  regex: ["regex"],
  tool_calls: ["demand"],
} as const satisfies Record<ResponseFormat["type"], readonly string[]>;

/** The name of a source in messages. */
export const TITLES = { json: "schema", ebnf: "grammar", regex: "pattern", calls: "schema of a function" } as const;

/** The grammar of a format, `undefined` if any text will do. Throws an {@link LlmError} that says what is wrong with it. */
export function grammarOf(format: ResponseFormat | undefined): GrammarSource | undefined {
  const source = sourceOf(format);
  if (source) checkSource(source);
  return source;
}

/** Throws what is wrong with a source before any work is done for it. */
function checkSource(source: GrammarSource): void {
  try {
    rulesOf(source);
  } catch (error) {
    const { message } = error as Error;
    const what = error instanceof SchemaError
      ? message
      : `the ${TITLES[source.kind]} cannot be used: ${quoted(message)}`;
    throw new LlmError("option", `responseFormat: ${what}`);
  }
}

function sourceOf(format: ResponseFormat | undefined): GrammarSource | undefined {
  if (format === undefined) return undefined;
  const types = Object.keys(MEMBERS);
  if (typeof format !== "object" || format === null || !Object.hasOwn(MEMBERS, format.type)) {
    const found = typeof format === "object" && format !== null ? format.type : format;
    const near = typeof found === "string" ? nearest(found.slice(0, 64), types) : undefined;
    const meant = near === undefined ? "" : `, did you mean "${near}"?`;
    const shown = typeof found === "string" ? quoted(found) : typeof found;
    throw new LlmError("option", `responseFormat has the type ${shown}${meant} expected one of ${types.join(", ")}`);
  }
  const unknown = Object.keys(format).find((name) =>
    name !== "type" && !(MEMBERS[format.type] as readonly string[]).includes(name)
  );
  if (unknown !== undefined) {
    throw new LlmError("option", `responseFormat of type "${format.type}" has no member ${quoted(unknown)}`);
  }
  switch (format.type) {
    case "text":
      return undefined;
    case "json_object":
      return { kind: "json", text: '{"type":"object"}', strict: false };
    case "json_schema":
      return jsonOf("json_schema" in format ? format.json_schema : format);
    case "grammar":
      return { kind: "ebnf", text: textOf("grammar", format.grammar) };
    case "regex":
      return { kind: "regex", text: textOf("regex", format.regex) };
    case "tool_calls":
      return { kind: "calls", demand: format.demand };
  }
}

function jsonOf(given: { readonly schema: JsonSchema; readonly strict?: boolean } | undefined): GrammarSource {
  const { schema, strict } = given ?? {};
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
    const hint = typeof schema === "string" ? ": read the text with JSON.parse()" : "";
    throw new LlmError("option", `responseFormat has a schema that is no object${hint}`);
  }
  if (strict !== undefined && strict !== null && typeof strict !== "boolean") {
    throw new LlmError("option", `responseFormat has strict ${quoted(String(strict))}, expected true or false`);
  }
  return { kind: "json", text: checkLength("schema", serialized(schema)), strict: strict ?? true };
}

function serialized(schema: JsonSchema): string {
  try {
    return JSON.stringify(schema);
  } catch {
    throw new LlmError(
      "option",
      "responseFormat has a schema that is no JSON: it holds itself, or is nested too deeply",
    );
  }
}

function textOf(name: "grammar" | "regex", text: string): string {
  if (typeof text === "string" && text !== "") return checkLength(name, text);
  throw new LlmError("option", `responseFormat needs ${name}, a text`);
}

function checkLength(name: string, text: string): string {
  if (text.length <= MAX_TEXT) return text;
  throw new LlmError(
    "option",
    `responseFormat has a ${name} of ${text.length} characters, at most ${MAX_TEXT} are taken`,
  );
}
