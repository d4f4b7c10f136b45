/**
 * Arguments of functions by the JSON schema of their parameters: their TypeScript type, and what does not fit.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { exactJson } from "../../graph/exact_json.ts";
import type { JsonSchema } from "../structured/json/schema.ts";

/** The values of a JSON schema that is written `as const`; `unknown` where a keyword has no type of its own. */
export type SchemaValue<S> = S extends { readonly const: infer C } ? C
  : S extends { readonly enum: readonly (infer E)[] } ? E
  : S extends { readonly anyOf: readonly (infer A)[] } ? SchemaValue<A>
  : S extends { readonly type: "object"; readonly properties: infer P } ? ObjectValue<P, RequiredNames<S>>
  : S extends { readonly type: "array"; readonly items: infer I } ? readonly SchemaValue<I>[]
  : S extends { readonly type: keyof Types } ? Types[S["type"]]
  : S extends { readonly type: readonly (infer T extends keyof Types)[] } ? Types[T]
  : unknown;

interface Types {
  readonly string: string;
  readonly number: number;
  readonly integer: number;
  readonly boolean: boolean;
  readonly null: null;
  readonly array: readonly unknown[];
  readonly object: Readonly<Record<string, unknown>>;
}

type RequiredNames<S> = S extends { readonly required: readonly (infer N)[] } ? N : never;

type ObjectValue<P, N> =
  & { readonly [K in keyof P as K extends N ? K : never]: SchemaValue<P[K]> }
  & { readonly [K in keyof P as K extends N ? never : K]?: SchemaValue<P[K]> };

const TESTS: Readonly<Record<keyof Types, (value: unknown) => boolean>> = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: Number.isSafeInteger,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
};

/**
 * Says what of a value is not as its schema has it: its types, `enum`, `const`, `anyOf`, `required`, `properties`, `items` and
 * `additionalProperties: false`. Undefined if all of that fits; other keywords are for the model to read.
 */
export function misfit(schema: unknown, value: unknown, at: string): string | undefined {
  if (!isObject(schema)) return undefined;
  const { type, enum: listed, anyOf } = schema;
  const types = [type ?? []].flat().filter((name): name is keyof Types => Object.hasOwn(TESTS, String(name)));
  if (types.length > 0 && !types.some((name) => TESTS[name](value))) {
    return `${at} is ${quoted(value)}, expected ${types.join(" or ")}`;
  }
  const values = Array.isArray(listed) ? listed : Object.hasOwn(schema, "const") ? [schema.const] : undefined;
  if (values && !values.some((one) => JSON.stringify(one) === exactJson(value))) {
    return `${at} is ${quoted(value)}, expected ${values.map((one) => JSON.stringify(one)).join(" or ")}`;
  }
  if (Array.isArray(anyOf)) {
    const wrong = anyOf.map((one) => misfit(one, value, at));
    if (wrong.length > 0 && wrong.every((one) => one !== undefined)) return wrong[0];
  }
  if (Array.isArray(value)) return first(value.map((item, i) => misfit(schema.items, item, `${at}[${i}]`)));
  return isObject(value) ? misfitOfObject(schema, value, at) : undefined;
}

function misfitOfObject(schema: JsonSchema, value: Readonly<Record<string, unknown>>, at: string): string | undefined {
  const { required, properties, additionalProperties } = schema;
  const known = isObject(properties) ? properties : {};
  const missing = (Array.isArray(required) ? required : []).find((name) => !Object.hasOwn(value, String(name)));
  if (missing !== undefined) return `${at}.${missing} is missing`;
  const unknown = Object.keys(value).find((name) => !Object.hasOwn(known, name));
  if (additionalProperties === false && unknown !== undefined) return `${at} has no ${quoted(unknown)}`;
  const names = Object.keys(value).filter((name) => Object.hasOwn(known, name));
  return first(names.map((name) => misfit(known[name], value[name], `${at}.${name}`)));
}

function first(found: readonly (string | undefined)[]): string | undefined {
  return found.find((one) => one !== undefined);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
