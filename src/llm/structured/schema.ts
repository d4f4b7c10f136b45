/**
 * JSON schemas as the compiler of grammars takes them.
 *
 * It passes over what it does not know, and over some of what it knows where that stands beside something else: then answers would
 * not be what the schema says. So every schema is looked through first, and what a grammar cannot hold is an error that says where
 * it stands. What a string may be is rewritten as a pattern of the JSON text.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { jsonPattern, lengthPattern } from "./json_pattern.ts";

/** A schema, or a part of one. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Deepest part of a schema. */
const MOST_DEPTH = 64;
/** Most parts. */
const MOST_PARTS = 5000;

/** What says nothing about which values are valid. */
const ANNOTATIONS = new Set(["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"]);
const NAMES = new Set(["$schema", "$id", "$comment", "$anchor", "$defs", "definitions"]);
/** What holds for values of a type, and can be held. */
const BY_TYPE: Readonly<Record<string, readonly string[]>> = {
  string: ["minLength", "maxLength", "pattern", "format"],
  integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  number: [],
  boolean: [],
  null: [],
  array: ["items", "prefixItems", "minItems", "maxItems"],
  object: ["properties", "required", "additionalProperties"],
};
/** What holds for values, of which a grammar cannot hold any. */
const REFUSED = [
  ...[
    "not",
    "if",
    "then",
    "else",
    "multipleOf",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "$dynamicRef",
  ],
  ...["dependentRequired", "dependentSchemas", "dependencies", "patternProperties", "propertyNames", "minProperties"],
  ...["maxProperties", "unevaluatedItems", "unevaluatedProperties", "additionalItems", "$recursiveRef"],
];
/** What takes the place of a type; the first one counts. */
const WHOLE = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"] as const;
const CONSTRAINTS = new Set<string>([...WHOLE, "type", ...REFUSED, ...Object.values(BY_TYPE).flat()]);

/** A schema whose answers are all valid. Throws an {@link LlmError} that says where it has what cannot be held. */
export function supportedSchema(schema: JsonSchema): JsonSchema {
  let parts = 0;
  const fail = (path: string, what: string): never => {
    throw new LlmError("option", `responseFormat: the schema at ${quoted(path)} has ${what}`);
  };
  const visit = (value: unknown, path: string, depth: number): unknown => {
    if (typeof value === "boolean") return value;
    if (!isObject(value)) return fail(path, `${value === null ? "null" : `a ${typeof value}`} where a schema belongs`);
    if (depth > MOST_DEPTH) return fail(path, `more than ${MOST_DEPTH} levels`);
    if (++parts > MOST_PARTS) return fail(path, `more than ${MOST_PARTS} parts`);
    const at = (name: string, child: unknown): unknown => visit(child, `${path}/${name}`, depth + 1);
    const all = (name: string, children: unknown): unknown => {
      if (!isObject(children)) return fail(`${path}/${name}`, "no object");
      return Object.fromEntries(Object.entries(children).map(([key, child]) => [key, at(`${name}/${key}`, child)]));
    };
    const list = (name: string, children: unknown): unknown => {
      if (!Array.isArray(children) || children.length === 0) return fail(`${path}/${name}`, "no list of schemas");
      return children.map((child, i) => at(`${name}/${i}`, child));
    };

    const refused = REFUSED.find((name) => name in value);
    if (refused) return fail(path, `"${refused}", which a grammar cannot hold: leave it out, and check answers for it`);
    checkWhole(value, (what) => fail(path, what));
    const out: Record<string, unknown> = {};
    for (const [name, child] of Object.entries(value)) {
      if (ANNOTATIONS.has(name) || (!CONSTRAINTS.has(name) && !NAMES.has(name))) continue;
      if (name === "properties" || name === "$defs" || name === "definitions") out[name] = all(name, child);
      else if (name === "anyOf" || name === "oneOf" || name === "allOf" || name === "prefixItems") {
        out[name] = list(name, child);
      } else if (name === "items" || name === "additionalProperties") out[name] = at(name, child);
      else out[name] = child;
    }
    if ("properties" in value || "required" in value) checkNames(value, (what) => fail(path, what));
    return ofStrings(out, (what) => fail(path, what));
  };
  return visit(schema, "#", 0) as JsonSchema;
}

type Fail = (what: string) => never;

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Refuses what stands beside something that takes the place of all of it, and what holds for another type. */
function checkWhole(schema: Record<string, unknown>, fail: Fail): void {
  const constraints = Object.keys(schema).filter((name) => CONSTRAINTS.has(name));
  const whole = WHOLE.find((name) => name in schema);
  if (whole) {
    const values = whole === "const" ? [schema.const] : whole === "enum" ? schema.enum : undefined;
    if (values !== undefined && (!Array.isArray(values) || values.length === 0)) {
      fail('an "enum" that is no list of values');
    }
    const beside = constraints.find((name) => name !== whole && !(values && name === "type"));
    if (beside) fail(`"${beside}" beside "${whole}", which a grammar cannot hold: write it into the schemas there`);
    const wrong = values && "type" in schema &&
      (values as unknown[]).find((v) => !typesOf(schema).some((t) => isOf(v, t)));
    if (wrong !== undefined && wrong !== false) {
      fail(`the value ${quoted(JSON.stringify(wrong))}, which is not of its type`);
    }
    if (whole === "allOf" && (schema.allOf as unknown[]).length > 1) {
      fail('"allOf" of several schemas, which a grammar cannot hold: write them as one');
    }
    if (whole === "$ref" && typeof schema.$ref !== "string") fail('a "$ref" that is no text');
    return;
  }
  const types = typesOf(schema);
  const unknown = types.find((type) => !(type in BY_TYPE));
  if (unknown !== undefined) fail(`the type ${quoted(unknown)}, expected ${Object.keys(BY_TYPE).join(", ")}`);
  for (const name of constraints) {
    if (name === "type" || types.some((type) => BY_TYPE[type].includes(name))) continue;
    const holds = Object.keys(BY_TYPE).filter((type) => BY_TYPE[type].includes(name));
    const number = types.includes("number") && holds.includes("integer");
    fail(
      number
        ? `"${name}" of a number, which a grammar cannot hold: leave it out, and check answers for it, or take "integer"`
        : `"${name}" without "type": ${holds.map(quoted).join(" or ")}`,
    );
  }
}

/** The types that a schema names, or implies. */
function typesOf(schema: Record<string, unknown>): readonly string[] {
  const { type } = schema;
  if (type !== undefined) return (Array.isArray(type) ? type : [type]).map(String);
  return ["object", "array"].filter((implied) => BY_TYPE[implied].some((name) => name in schema)).slice(0, 1);
}

function isOf(value: unknown, type: string): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  return (value === null ? "null" : typeof value) === type;
}

/** Refuses names that no grammar writes, and required ones that are not described. */
function checkNames({ properties = {}, required = [] }: Record<string, unknown>, fail: Fail): void {
  const names = Object.keys(properties as object);
  // deno-lint-ignore no-control-regex
  const unwritten = names.find((name) => /["\\\x00-\x1f]/.test(name));
  if (unwritten !== undefined) fail(`the property ${quoted(unwritten)}, whose name has to be escaped`);
  if (!Array.isArray(required)) fail('a "required" that is no list of names');
  const missing = (required as unknown[]).find((name) => !names.includes(String(name)));
  if (missing !== undefined) {
    fail(`${quoted(String(missing))} in "required" but not in "properties": describe it there`);
  }
}

/** What says how long a string is, or how it is written, as a pattern of the JSON text. */
function ofStrings(schema: Record<string, unknown>, fail: Fail): JsonSchema {
  const { pattern, minLength, maxLength, format, ...rest } = schema;
  const sized = minLength !== undefined || maxLength !== undefined;
  if ([pattern, format, sized || undefined].filter((x) => x !== undefined).length > 1) {
    fail('several of "pattern", "format" and a length, of which a grammar holds only one: leave the others out');
  }
  for (const [name, value] of Object.entries({ minLength, maxLength })) {
    if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= 0)) continue;
    fail(`${name} ${quoted(JSON.stringify(value))}, expected an integer of at least 0`);
  }
  if (sized) return { ...rest, pattern: lengthPattern((minLength ?? 0) as number, maxLength as number | undefined) };
  if (pattern === undefined) return format === undefined ? rest : { ...rest, format };
  if (typeof pattern !== "string") return fail('a "pattern" that is no text');
  try {
    new RegExp(pattern, "u");
    return { ...rest, pattern: jsonPattern(pattern) };
  } catch (error) {
    return fail(
      error instanceof RangeError
        ? `a pattern with ${error.message}, which a grammar cannot hold in JSON`
        : `a pattern that is no regular expression: ${quoted((error as Error).message)}`,
    );
  }
}
