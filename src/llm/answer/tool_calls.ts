/**
 * Calls of functions as models write them between `<tool_call>` and `</tool_call>`: the JSON object of Hermes and Qwen3,
 *
 *     {"name": "weather", "arguments": {"city": "Paris"}}
 *
 * and the elements of Qwen3-Coder, whose values are text that the function's schema gives a type, JSON or a Python literal:
 *
 *     <function=weather><parameter=city>Paris</parameter></function>
 *
 * @module
 */

import { parseJson, parsePython } from "./literal.ts";

/** A call that a model made, in the form that goes back into `ChatMessage.tool_calls`. */
export interface ParsedToolCall {
  /** The call's id, if the model wrote one: Mistral's do. */
  readonly id?: string;
  /** The function. */
  readonly function: {
    /** Its name, which may be none that was offered: that is for the caller to see. */
    readonly name: string;
    /**
     * Arguments by name, as the model wrote them: they are not checked against the function's schema. Integers beyond 2^53 are bigints, of
     * any depth, which `JSON.stringify` takes with a replacer only.
     */
    readonly arguments: Readonly<Record<string, unknown>>;
  };
}

/** The call that a block describes; undefined if it is none. `tools` are those that were offered. */
export function parseToolCall(block: string, tools: readonly unknown[]): ParsedToolCall | undefined {
  const text = block.trim();
  return text.startsWith("<function=") ? parseElements(text, tools) : callOf(parseJson(text));
}

/** An object with a name; `parameters` is Llama's word for the arguments, which may be a JSON text as in the OpenAI API. */
export function callOf(call: unknown): ParsedToolCall | undefined {
  if (!isObject(call)) return undefined;
  const { name, id, arguments: found = call.parameters ?? {} } = call;
  const given = typeof found === "string" ? parseJson(found) : found;
  if (typeof name !== "string" || name === "" || !isObject(given)) return undefined;
  return { ...(typeof id === "string" && { id }), function: { name, arguments: given } };
}

const FUNCTION = /^<function=([^<>\n]+)>([\s\S]*?)(?:<\/function>)?$/;
const PARAMETER = /<parameter=([^<>\n]+)>\n?([\s\S]*?)\n?<\/parameter>/g;

function parseElements(text: string, tools: readonly unknown[]): ParsedToolCall | undefined {
  const [, name, body] = FUNCTION.exec(text) ?? [];
  if (name === undefined) return undefined;
  if (body.replaceAll(PARAMETER, "").trim() !== "") return undefined;
  const schemas = parameterSchemas(name, tools);
  const pairs = Array.from(
    body.matchAll(PARAMETER),
    ([, key, value]) => [key, typed(value, schemas.get(key))] as const,
  );
  return { function: { name, arguments: Object.fromEntries(pairs) } };
}

const NAMED = /^([\w.-]+)\s*(?=<arg_key>|$)/;
const PAIR = /<arg_key>([^<>\n]+)<\/arg_key>\s*<arg_value>([\s\S]*?)<\/arg_value>\s*/g;

/** A name and pairs of keys and values, as GLM writes a call: texts as they are and other values as JSON. */
export function parseArgumentPairs(block: string, tools: readonly unknown[]): ParsedToolCall | undefined {
  const text = block.trim();
  const found = NAMED.exec(text);
  if (found === null) return undefined;
  const [head, name] = found;
  const body = text.slice(head.length);
  if (body.replaceAll(PAIR, "") !== "") return undefined;
  const schemas = parameterSchemas(name, tools);
  const pairs = Array.from(body.matchAll(PAIR), ([, key, value]) => [key, typed(value, schemas.get(key))] as const);
  return { function: { name, arguments: Object.fromEntries(pairs) } };
}

/** Schemas of a function's parameters by name, if the tools describe it. */
function parameterSchemas(name: string, tools: readonly unknown[]): ReadonlyMap<string, unknown> {
  const all = tools.filter(isObject).map((tool) => isObject(tool.function) ? tool.function : tool);
  const { parameters } = all.find((tool) => tool.name === name) ?? {};
  const properties = isObject(parameters) && isObject(parameters.properties) ? parameters.properties : {};
  return new Map(Object.entries(properties));
}

/** Types that a schema allows by its `type`, its alternatives, or the values that it lists; none if it does not tell. */
function typesOf(schema: unknown): ReadonlySet<string> {
  if (!isObject(schema)) return new Set();
  const { type, anyOf, oneOf, allOf, enum: values, const: value } = schema;
  const listed = [type].flat().filter((name) => typeof name === "string");
  if (listed.length > 0) return new Set(listed);
  const parts = [anyOf, oneOf, allOf].filter(Array.isArray).flat();
  if (parts.length > 0) return new Set(parts.flatMap((part) => [...typesOf(part)]));
  return new Set(
    [values ?? [], "const" in schema ? value : []].flat().map((one) => one === null ? "null" : typeof one),
  );
}

/**
 * A value whose schema is not text is read as JSON or as a Python literal, which templates write. If that fails, it stays text.
 * If the schema names no type, only lists and objects are read.
 */
function typed(text: string, schema: unknown): unknown {
  const types = typesOf(schema);
  if (schema === undefined || types.has("string") && !types.has("null")) return text;
  const json = parseJson(text);
  const value = json === undefined ? parsePython(text) : json;
  const taken = types.has("string") ? value === null : types.size > 0 || typeof value === "object" && value !== null;
  return value !== undefined && taken ? value : text;
}

/** Whether a value is an object that is no list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
