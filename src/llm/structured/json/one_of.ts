/**
 * Whether no value fits two schemas: `oneOf` is held only if that is seen.
 *
 * @module
 */

import { bounds, type Limits } from "./numbers.ts";
import { isObject, referred } from "./pointer.ts";

/** References that are followed before nothing is known. */
const MAX_DEPTH = 16;
const TYPES = ["null", "boolean", "number", "string", "array", "object"];

/** Whether it is certain that no value fits both schemas of a document. */
export function areDisjoint(root: unknown, a: unknown, b: unknown, depth: number = 0): boolean {
  if (a === false || b === false) return true;
  if (depth > MAX_DEPTH || !isObject(a) || !isObject(b)) return false;
  const parts = alternatives(root, a);
  if (parts) return parts.every((part) => areDisjoint(root, part, b, depth + 1));
  if (alternatives(root, b)) return areDisjoint(root, b, a, depth + 1);
  const [left, right] = [valuesOf(a), valuesOf(b)];
  if (left && right) return left.every((value) => right.every((other) => canonical(value) !== canonical(other)));
  if (left) return left.every((value) => !mayFit(value, b));
  if (right) return right.every((value) => !mayFit(value, a));
  return typesOf(a).filter((type) => typesOf(b).includes(type)).every((type) => {
    if (type === "number") return limitsDiffer(a, b);
    return type === "object" && (differByMember(root, a, b, depth) || differByMember(root, b, a, depth));
  });
}

/** Schemas of which a value fits one at least, where a schema says nothing else. */
function alternatives(root: unknown, schema: Readonly<Record<string, unknown>>): readonly unknown[] | undefined {
  if (typeof schema.$ref === "string") return referred(root, schema.$ref);
  const parts = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  return Array.isArray(parts) ? parts : undefined;
}

function valuesOf(schema: Readonly<Record<string, unknown>>): readonly unknown[] | undefined {
  if ("const" in schema) return [schema.const];
  return Array.isArray(schema.enum) ? schema.enum : undefined;
}

/** Types that values may have; integers are numbers here. */
function typesOf({ type }: Readonly<Record<string, unknown>>): readonly string[] {
  if (type === undefined) return TYPES;
  return (Array.isArray(type) ? type : [type]).map((name) => name === "integer" ? "number" : String(name));
}

/** Whether a value may fit, as far as its type and the limits of numbers tell. */
function mayFit(value: unknown, schema: Readonly<Record<string, unknown>>): boolean {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  if (!typesOf(schema).includes(type)) return false;
  if (typeof value !== "number") return true;
  const [min, max] = bounds(limitsOf(schema));
  return value >= min && value <= max;
}

/** The limits of numbers that a schema names. */
export function limitsOf(schema: Readonly<Record<string, unknown>>): Limits {
  const number = (value: unknown): number | undefined => typeof value === "number" ? value : undefined;
  return {
    min: number(schema.minimum),
    max: number(schema.maximum),
    above: number(schema.exclusiveMinimum),
    below: number(schema.exclusiveMaximum),
  };
}

function limitsDiffer(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>): boolean {
  const [[minA, maxA], [minB, maxB]] = [bounds(limitsOf(a)), bounds(limitsOf(b))];
  return minA > maxB || minB > maxA;
}

/** Whether a member that objects of `a` have differs in those of `b`, or is none of theirs. */
function differByMember(
  root: unknown,
  a: Readonly<Record<string, unknown>>,
  b: Readonly<Record<string, unknown>>,
  depth: number,
): boolean {
  const properties = (of: Readonly<Record<string, unknown>>): ReadonlyMap<string, unknown> =>
    new Map(isObject(of.properties) ? Object.entries(of.properties) : []);
  const [left, right] = [properties(a), properties(b)];
  return Array.isArray(a.required) && a.required.some((name) => {
    if (!right.has(name)) return b.additionalProperties === false;
    return areDisjoint(root, left.get(name) ?? true, right.get(name), depth + 1);
  });
}

/** A value as text; objects with the same members have the same. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part) => isObject(part) ? Object.entries(part).sort() : part);
}
