/**
 * JSON schemas as grammars. Each keyword of a schema is enforced, or refused with its place.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import { choice, EMPTY, type Expression, literal, NEVER, type Rules, sequence } from "../grammar/expression.ts";
import { parseRegex } from "../grammar/regex.ts";
import { FORMAT_PATTERNS, NUMBER_FORMATS, REGEX_FORMAT, regexText } from "./formats.ts";
import { arrays, type Member, objects } from "./members.ts";
import { ANY_NUMBER, integers, type Limits, numbers } from "./numbers.ts";
import { areDisjoint, limitsOf } from "./one_of.ts";
import { isObject, referred } from "./pointer.ts";
import { formatPattern, type StringLimits, strings } from "./strings.ts";
import { ANY_CHARACTER, anyString, jsonText, listed, literalJson, otherName, quotedText } from "./text.ts";

/** A schema, or a part of one. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Deepest part of a schema. */
const MAX_DEPTH = 64;
/** Most parts. */
const MAX_PARTS = 5000;
/** Largest length of a string and most items of an array that are counted. */
const MAX_COUNT = 100_000;

/** Lengths from which on characters are a rule: their copies would be too many. */
const LONG = 2000;

/** Keywords for values of a type. */
const BY_TYPE: Readonly<Record<string, readonly string[]>> = {
  string: ["minLength", "maxLength", "pattern", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  boolean: [],
  null: [],
  array: ["items", "prefixItems", "minItems", "maxItems"],
  object: ["properties", "required", "additionalProperties"],
};
/** The types that a value has exactly one of. */
const EVERY_TYPE = ["null", "boolean", "number", "string", "array", "object"];
/** Keywords for values that are not supported. */
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
/** Keywords that replace a type. */
const WHOLE = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"] as const;
const CONSTRAINTS = new Set<string>([...WHOLE, "type", ...Object.values(BY_TYPE).flat()]);

/** A mistake in a schema, and its place. */
export class SchemaError extends Error {}

/**
 * The grammar of a schema's values. With `strict`, objects and arrays have no more than the schema describes, and a pattern matches
 * the whole string. A schema without a type then applies to the types that its keywords are for. Throws a {@link SchemaError}.
 */
export function schemaRules(schema: JsonSchema, strict: boolean): Rules {
  return new Translator(schema, strict).translate();
}

class Translator {
  readonly #root: JsonSchema;
  readonly #strict: boolean;
  readonly #rules: Expression[] = [];
  /** Indices of rules by what they are for. */
  readonly #indices = new Map<string, number>();
  /** References whose rules are to be made. */
  readonly #waiting: [index: number, schema: unknown, path: string][] = [];
  #parts = 0;

  constructor(root: JsonSchema, strict: boolean) {
    this.#root = root;
    this.#strict = strict;
  }

  translate(): Rules {
    this.#rules.push(EMPTY);
    this.#rules[0] = this.#visit(this.#root, "#", 0);
    for (let next; (next = this.#waiting.pop());) this.#rules[next[0]] = this.#visit(next[1], next[2], 0);
    return this.#rules;
  }

  #fail(path: string, what: string): never {
    throw new SchemaError(`the schema at ${quoted(path)} has ${what}`);
  }

  /** A rule that is made once. */
  #rule(key: string, make: (self: Expression) => Expression): Expression {
    const known = this.#indices.get(key);
    if (known !== undefined) return { kind: "rule", index: known };
    const index = this.#rules.push(EMPTY) - 1;
    this.#indices.set(key, index);
    const self: Expression = { kind: "rule", index };
    this.#rules[index] = make(self);
    return self;
  }

  /** Any value of a type, or of all types. */
  #any(type: string): Expression {
    switch (type) {
      case "null":
        return literal("null");
      case "boolean":
        return choice(literal("true"), literal("false"));
      case "integer":
        return this.#rule("any integer", () => integers({}));
      case "number":
        return this.#rule("any number", () => ANY_NUMBER);
      case "string":
        return this.#rule("any string", () => anyString());
      case "array":
        return this.#rule("any array", () => sequence(literal("["), listed(this.#any("value")), literal("]")));
      case "object": {
        const member = (): Expression => sequence(this.#any("string"), literal(": "), this.#any("value"));
        return this.#rule("any object", () => sequence(literal("{"), listed(member()), literal("}")));
      }
    }
    return this.#rule("any value", () => choice(...EVERY_TYPE.map((each) => this.#any(each))));
  }

  #visit(schema: unknown, path: string, depth: number): Expression {
    if (schema === true) return this.#any("value");
    if (schema === false) return NEVER;
    if (!isObject(schema)) {
      const found = schema === null ? "null" : Array.isArray(schema) ? "a list" : `a ${typeof schema}`;
      return this.#fail(path, `${found} where a schema belongs`);
    }
    if (depth > MAX_DEPTH) return this.#fail(path, `more than ${MAX_DEPTH} levels`);
    if (++this.#parts > MAX_PARTS) return this.#fail(path, `more than ${MAX_PARTS} parts`);
    const refused = REFUSED.find((name) => Object.hasOwn(schema, name) && !(name === "uniqueItems" && !schema[name]));
    if (refused) this.#fail(path, `"${refused}", which is not held: leave it out, and check answers for it`);
    if (schema !== this.#root && typeof schema.$id === "string") {
      this.#fail(path, 'a "$id" of its own, which is not held: references are those of the whole schema');
    }
    const whole = WHOLE.find((name) => Object.hasOwn(schema, name));
    return whole ? this.#whole(whole, schema, path, depth) : this.#typed(schema, path, depth);
  }

  /** A schema that is said by one keyword. */
  #whole(name: typeof WHOLE[number], schema: JsonSchema, path: string, depth: number): Expression {
    const ofValues = name === "const" || name === "enum";
    const beside = Object.keys(schema).find((key) =>
      CONSTRAINTS.has(key) && key !== name && !(ofValues && key === "type")
    );
    if (beside) {
      this.#fail(path, `"${beside}" beside "${name}", which is not held: write it into the schemas there`);
    }
    if (name === "$ref") return this.#reference(schema.$ref, path);
    if (ofValues) return this.#values(name === "const" ? [schema.const] : schema.enum, schema, path);
    const parts = schema[name];
    if (!Array.isArray(parts) || parts.length === 0) return this.#fail(`${path}/${name}`, "no list of schemas");
    if (name === "allOf" && parts.length > 1) {
      this.#fail(path, '"allOf" of several schemas, which is not held: write them as one');
    }
    if (name === "oneOf") this.#checkOneOf(parts, path);
    return { kind: "choice", parts: parts.map((part, i) => this.#visit(part, `${path}/${name}/${i}`, depth + 1)) };
  }

  /** Refuses alternatives that a value may fit several of. */
  #checkOneOf(parts: readonly unknown[], path: string): void {
    for (const [i, part] of parts.entries()) {
      const same = parts.slice(0, i).findIndex((other) => !areDisjoint(this.#root, other, part));
      if (same < 0) continue;
      this.#fail(
        path,
        `"oneOf" of schemas of which a value may fit two, those at ${same} and ${i}, which is not held: ` +
          'write "anyOf", or tell them apart by a constant of a required property',
      );
    }
  }

  #reference(reference: unknown, path: string): Expression {
    if (typeof reference !== "string") return this.#fail(path, 'a "$ref" that is no text');
    const found = referred(this.#root, reference);
    if (found.length === 0) return this.#fail(path, `the "$ref" ${quoted(reference)}, which is not in the schema`);
    return this.#rule(`reference ${reference}`, (self) => {
      if (self.kind === "rule") this.#waiting.push([self.index, found[0], reference]);
      return EMPTY;
    });
  }

  #values(values: unknown, schema: JsonSchema, path: string): Expression {
    if (!Array.isArray(values) || values.length === 0) return this.#fail(path, 'an "enum" that is no list of values');
    const types = this.#types(schema, path);
    const wrong = values.filter((value) => types && !types.some((type) => isOf(value, type)));
    if (wrong.length > 0) this.#fail(path, `the value ${quoted(jsonText(wrong[0]))}, which is not of its type`);
    return { kind: "choice", parts: values.map(literalJson) };
  }

  /** The types that a schema names, if it does. */
  #types(schema: JsonSchema, path: string): readonly string[] | undefined {
    if (schema.type === undefined) return undefined;
    const types: readonly unknown[] = Array.isArray(schema.type) ? schema.type : [schema.type];
    const unknown = types.find((type) => typeof type !== "string" || !Object.hasOwn(BY_TYPE, type));
    if (unknown !== undefined || types.length === 0) {
      const expected = `expected ${Object.keys(BY_TYPE).join(", ")}`;
      this.#fail(
        path,
        `the type ${quoted(typeof unknown === "string" ? unknown : jsonText(schema.type))}, ${expected}`,
      );
    }
    return types as readonly string[];
  }

  #typed(schema: JsonSchema, path: string, depth: number): Expression {
    const described = EVERY_TYPE.filter((type) => BY_TYPE[type].some((name) => Object.hasOwn(schema, name)));
    const types = this.#types(schema, path) ??
      (described.length === 0 ? ["value"] : this.#strict ? described : EVERY_TYPE);
    const all = types.includes("number") ? types.filter((type) => type !== "integer") : types;
    return choice(...all.map((type) => this.#ofType(type, schema, path, depth)));
  }

  #ofType(type: string, schema: JsonSchema, path: string, depth: number): Expression {
    const says = BY_TYPE[type]?.filter((name) => Object.hasOwn(schema, name)) ?? [];
    switch (says.length === 0 && typeof schema.format !== "string" ? "any" : type) {
      case "integer":
      case "number":
        return this.#number(type, schema, path);
      case "string":
        return this.#string(schema, path);
      case "array":
        return this.#rule(`${type} ${JSON.stringify(schema)}`, () => this.#array(schema, path, depth));
      case "object":
        return this.#rule(`${type} ${JSON.stringify(schema)}`, () => this.#object(schema, path, depth));
    }
    return this.#any(type);
  }

  #number(type: string, schema: JsonSchema, path: string): Expression {
    for (const name of BY_TYPE.number) {
      const limit = schema[name];
      if (limit === undefined || (typeof limit === "number" && Number.isFinite(limit))) continue;
      this.#fail(path, `${name} ${quoted(jsonText(limit))}, expected a number`);
    }
    const ofFormat: Limits = typeof schema.format === "string" ? NUMBER_FORMATS[schema.format] ?? {} : {};
    const given = limitsOf(schema);
    const limits = {
      ...given,
      min: Math.max(given.min ?? -Infinity, ofFormat.min ?? -Infinity),
      max: Math.min(given.max ?? Infinity, ofFormat.max ?? Infinity),
    };
    const free = Object.values(limits).every((limit) => limit === undefined || Math.abs(limit) === Infinity);
    if (free) return this.#any(type);
    const key = Object.values(limits).join(" ");
    return this.#rule(`${type} ${key}`, () => type === "integer" ? integers(limits) : numbers(limits));
  }

  /** A count that a keyword gives. */
  #count(name: string, schema: JsonSchema, path: string): number | undefined {
    const count = schema[name];
    if (count === undefined) return undefined;
    if (!Number.isSafeInteger(count) || (count as number) < 0) {
      this.#fail(path, `${name} ${quoted(jsonText(count))}, expected an integer of at least 0`);
    }
    if ((count as number) > MAX_COUNT) this.#fail(path, `${name} ${count}, at most ${MAX_COUNT} is held`);
    return count as number;
  }

  #string(schema: JsonSchema, path: string): Expression {
    const { pattern, format } = schema;
    const [min, max] = [
      this.#count("minLength", schema, path) ?? 0,
      this.#count("maxLength", schema, path) ?? Infinity,
    ];
    const patterns: StringLimits["patterns"][number][] = [];
    if (pattern !== undefined) patterns.push({ pattern: this.#pattern(pattern, path), whole: this.#strict });
    if (format === REGEX_FORMAT) {
      const beside = BY_TYPE.string.find((name) => name !== "format" && schema[name] !== undefined);
      if (beside) this.#fail(path, `"${beside}" beside the format "${REGEX_FORMAT}", which is not held`);
      return quotedText(this.#rule("regular expression", regexText));
    }
    if (typeof format === "string" && Object.hasOwn(FORMAT_PATTERNS, format)) {
      patterns.push({ pattern: formatPattern(format), whole: true });
    } else if (format !== undefined && !Object.hasOwn(NUMBER_FORMATS, String(format))) {
      const known = [...Object.keys(FORMAT_PATTERNS), REGEX_FORMAT].join(", ");
      this.#fail(path, `the format ${quoted(String(format))}, which is not held: expected one of ${known}`);
    }
    const character = max > LONG ? this.#rule("character", () => ANY_CHARACTER) : ANY_CHARACTER;
    const key = JSON.stringify([pattern, format, min, max === Infinity ? null : max]);
    return this.#rule(`string ${key}`, () => strings({ min, max, patterns }, character));
  }

  #pattern(pattern: unknown, path: string): ReturnType<typeof parseRegex> {
    if (typeof pattern !== "string") return this.#fail(path, 'a "pattern" that is no text');
    try {
      return parseRegex(pattern);
    } catch (error) {
      return this.#fail(path, `a pattern that cannot be used: ${(error as Error).message}`);
    }
  }

  #array(schema: JsonSchema, path: string, depth: number): Expression {
    const [min, max] = [this.#count("minItems", schema, path) ?? 0, this.#count("maxItems", schema, path) ?? Infinity];
    const { prefixItems, items } = schema;
    if (prefixItems !== undefined && !Array.isArray(prefixItems)) {
      this.#fail(`${path}/prefixItems`, "no list of schemas");
    }
    const first = ((prefixItems ?? []) as readonly unknown[]).map((item, i) =>
      this.#visit(item, `${path}/prefixItems/${i}`, depth + 1)
    );
    const rest = items ?? !(this.#strict && prefixItems !== undefined);
    return arrays(first, this.#visit(rest, `${path}/items`, depth + 1), min, max);
  }

  #object(schema: JsonSchema, path: string, depth: number): Expression {
    const { properties = {}, required = [], additionalProperties } = schema;
    if (!isObject(properties)) return this.#fail(`${path}/properties`, "no object");
    if (!Array.isArray(required) || required.some((name) => typeof name !== "string")) {
      return this.#fail(path, 'a "required" that is no list of names');
    }
    const described = Object.hasOwn(schema, "properties") || Object.hasOwn(schema, "required");
    const others = additionalProperties ?? !(this.#strict && described);
    const members: Member[] = Object.entries(properties).map(([name, value]) => ({
      name,
      value: this.#visit(value, `${path}/properties/${name}`, depth + 1),
      required: required.includes(name),
    }));
    const other = this.#visit(others, `${path}/additionalProperties`, depth + 1);
    for (const name of new Set(required as readonly string[])) {
      if (Object.hasOwn(properties, name)) continue;
      if (others === false) {
        this.#fail(path, `${quoted(name)} in "required" but not in "properties": describe it there`);
      }
      members.push({ name, value: other, required: true });
    }
    const names = members.map((member) => member.name);
    const more = others === false ? undefined : sequence(otherName(names), literal(": "), other);
    return objects(members, more);
  }
}

function isOf(value: unknown, type: string): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  return (value === null ? "null" : typeof value) === type;
}
