/**
 * A caller's values as values of the language.
 *
 * @module
 */

import { type InputSize, TemplateFault } from "./limits.ts";
import { Str } from "./text.ts";
import { Dict, Float, List, type Value } from "./values.ts";

const MAX_SAFE = 2n ** 53n - 1n;

/** Deepest nesting of a caller's values. */
const MAX_INPUT_DEPTH = 100;

/**
 * A value of the conversation, every string of it marked as a user's. Fields that are `undefined` are left out; functions and
 * symbols have no form here.
 */
export function fromUser(input: unknown, size: InputSize, depth = 0): Value {
  size.values++;
  if (input === null || typeof input === "boolean") return input;
  if (typeof input === "bigint") return input >= -MAX_SAFE && input <= MAX_SAFE ? Number(input) : input;
  if (typeof input === "string") {
    size.chars += input.length;
    return Str.input(input);
  }
  if (typeof input === "number") return fromNumber(input);
  if (typeof input !== "object") return null;
  if (depth >= MAX_INPUT_DEPTH) throw new TemplateFault(`the conversation is nested more than ${MAX_INPUT_DEPTH} deep`);
  const { toJSON } = input as { toJSON?: unknown };
  if (typeof toJSON === "function") return fromUser(toJSON.call(input), size, depth + 1);
  if (Array.isArray(input)) return new List(input.map((item) => fromUser(item, size, depth + 1)));
  const entries = Object.entries(input).filter(([, value]) => value !== undefined);
  return new Dict(entries.map(([key, value]) => {
    size.chars += key.length;
    return [Str.input(key), fromUser(value, size, depth + 1)];
  }));
}

/** JavaScript does not tell 1.0 from 1: whole numbers are ints as far as it prints them without an exponent. */
function fromNumber(input: number): Value {
  if (Number.isSafeInteger(input)) return input + 0;
  return Number.isInteger(input) && Math.abs(input) < 1e21 ? BigInt(input) : new Float(input);
}
