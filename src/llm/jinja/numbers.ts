/**
 * Python's arithmetic: whole numbers without bounds, floats, and operators of strings and lists (formatting by % is in
 * format.ts).
 *
 * @module
 */

import type { Operator } from "./syntax/ast.ts";
import { checkItems, TemplateFault, touch } from "./limits.ts";
import { isSpace, Str } from "./text.ts";
import { Float, List, numberOf, Tuple, typeName, Undefined, type Value } from "./values.ts";

/** Most digits of a whole number in base 2. */
const MAX_BITS = 16_384;

/** A whole number in its one form: a bigint only where a number would not be exact. */
export function whole(value: bigint): number | bigint {
  if (value >= -(2n ** 53n) + 1n && value <= 2n ** 53n - 1n) return Number(value);
  const digits = value.toString(16).length;
  if (digits * 4 > MAX_BITS) throw new TemplateFault(`a whole number of more than ${MAX_BITS} bits`);
  touch(digits);
  return value;
}

const FLOATS: Readonly<Record<Operator, (a: number, b: number) => number>> = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / nonZero(b),
  "//": (a, b) => Math.floor((a - modulo(a, nonZero(b))) / b + 0.5),
  "%": (a, b) => modulo(a, nonZero(b)),
  "**": (a, b) => a ** b,
};

const BIGS: Readonly<Partial<Record<Operator, (a: bigint, b: bigint) => bigint>>> = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "//": (a, b) => (a - bigModulo(a, b)) / b,
  "%": bigModulo,
  "**": power,
};

/** Applies a binary operator. */
export function arithmetic(operator: Operator, left: Value, right: Value): Value {
  const [a, b] = [numberOf(left), numberOf(right)];
  if (a !== undefined && b !== undefined) return ofNumbers(operator, left, right, a, b);
  for (const value of [left, right]) if (value instanceof Undefined) value.fail();
  if (operator === "+") {
    if (left instanceof Str && right instanceof Str) return left.plus(right);
    if (left instanceof List && right instanceof List) return new List(concatLists(left.items, right.items));
    if (left instanceof Tuple && right instanceof Tuple) return new Tuple(concatLists(left.items, right.items));
  }
  if (operator === "*") {
    const count = integerOf(left) ?? integerOf(right);
    const sequence = integerOf(left) === undefined ? left : right;
    if (count !== undefined && sequence instanceof Str) {
      return sequence.repeat(Number(count)).withMarkup(sequence.markup);
    }
    if (count !== undefined && sequence instanceof List) return new List(repeated(sequence.items, Number(count)));
    if (count !== undefined && sequence instanceof Tuple) return new Tuple(repeated(sequence.items, Number(count)));
  }
  const shown = operator === "**" ? "** or pow()" : operator;
  throw new TemplateFault(`unsupported operand type(s) for ${shown}: '${typeName(left)}' and '${typeName(right)}'`);
}

function concatLists(a: readonly Value[], b: readonly Value[]): readonly Value[] {
  checkItems(a.length + b.length);
  return a.concat(b);
}

function repeated(items: readonly Value[], count: number): readonly Value[] {
  checkItems(items.length * Math.max(0, count));
  const all: Value[] = [];
  for (let i = 0; i < count && items.length > 0; i++) for (const item of items) all.push(item);
  return all;
}

function ofNumbers(operator: Operator, left: Value, right: Value, a: number | bigint, b: number | bigint): Value {
  const big = BIGS[operator];
  if (left instanceof Float || right instanceof Float || big === undefined || (operator === "**" && b < 0)) {
    const result = FLOATS[operator](Number(a), Number(b));
    if (Number.isNaN(result) && operator === "**" && a < 0) {
      throw new TemplateFault("complex numbers are not supported");
    }
    if (
      operator === "**" && !Number.isFinite(result) && Number.isFinite(Number(a)) && Number.isFinite(Number(b)) &&
      a != 0
    ) {
      throw new TemplateFault("the result of ** is out of range");
    }
    if (operator === "**" && a == 0 && b < 0) throw new TemplateFault("zero cannot be raised to a negative power");
    return new Float(result);
  }
  if (b == 0 && (operator === "//" || operator === "%")) nonZero(0);
  if (typeof a === "number" && typeof b === "number" && operator !== "//" && operator !== "**") {
    const result = FLOATS[operator](a, b);
    if (Number.isSafeInteger(result)) return result + 0;
  }
  return whole(big(BigInt(a), BigInt(b)));
}

function nonZero(divisor: number): number {
  if (divisor === 0) throw new TemplateFault("division by zero");
  return divisor;
}

/** The remainder has the divisor's sign. */
function modulo(a: number, b: number): number {
  const rest = a % b;
  return rest !== 0 && (rest < 0) !== (b < 0) ? rest + b : rest;
}

function bigModulo(a: bigint, b: bigint): bigint {
  const rest = a % b;
  return rest !== 0n && (rest < 0n) !== (b < 0n) ? rest + b : rest;
}

function power(base: bigint, exponent: bigint): bigint {
  const bits = BigInt((base < 0n ? -base : base).toString(2).length);
  if (bits > 1n && bits * exponent > 2 * MAX_BITS) {
    throw new TemplateFault(`a whole number of more than ${MAX_BITS} bits`);
  }
  return base ** (bits === 1n ? exponent % 2n + (exponent > 0n ? 2n : 0n) : exponent);
}

/** The whole number that an int or a bool is. */
export function integerOf(value: Value): number | bigint | undefined {
  return value instanceof Float ? undefined : numberOf(value);
}

/** An argument that has to be a whole number, with what lies far outside of all lists brought near. */
export function indexOf(value: Value, what: string): number {
  const number = integerOf(value);
  if (number === undefined) throw new TemplateFault(`${what} is a whole number, not ${typeName(value)}`);
  return Math.max(-(2 ** 53) + 1, Math.min(2 ** 53 - 1, Number(number)));
}

/** Minus a value. */
export function negated(value: Value): Value {
  const number = numberOf(value);
  if (number === undefined) {
    if (value instanceof Undefined) value.fail();
    throw new TemplateFault(`bad operand type for unary -: '${typeName(value)}'`);
  }
  if (value instanceof Float) return new Float(-value.value);
  return typeof number === "bigint" ? whole(-number) : 0 - number;
}

/** A float as Python's repr() writes it: the shortest digits, with an exponent below 1e-4 and from 1e16. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const [mantissa, power] = (Object.is(value, -0) ? "-0e+0" : value.toExponential()).split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const sign = mantissa.startsWith("-") ? "-" : "";
  const digits = mantissa.replace(/[-.]/g, "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const padded = digits.padEnd(exponent + 2, "0");
  return `${sign}${padded.slice(0, exponent + 1)}.${padded.slice(exponent + 1)}`;
}

/** A float with `digits` decimals; of two that are equally near, the even one. */
export function fixed(value: number, digits: number): string {
  if (digits > 100) throw new TemplateFault(`${digits} decimals, at most 100`);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const size = Math.abs(value);
  if (size >= 1e21) return `${sign}${BigInt(size)}${digits > 0 ? `.${"0".repeat(digits)}` : ""}`;
  const rounded = size.toFixed(digits);
  // A tie shows all of its decimals: a five, and nothing after it.
  const [, decimals = ""] = size.toFixed(100).split(".");
  if (digits > 60 || !/^50*$/.test(decimals.slice(digits))) return sign + rounded;
  const below = size.toFixed(digits + 1).slice(0, digits === 0 ? -2 : -1);
  return sign + (Number(below.at(-1)) % 2 === 0 ? below : rounded);
}

const NUMERAL = /^[+-]?\d+(_\d+)*$/;
const FLOAT =
  /^[+-]?(?:(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?|inf(?:inity)?|nan)$/i;

/** The whole number that a text spells, or `undefined`. */
export function parseWhole(text: string, base: number): number | bigint | undefined {
  const digits = stripped(text);
  if (digits.length > 4300) return undefined;
  if (base === 10) return NUMERAL.test(digits) ? whole(bigOf(digits.replaceAll("_", ""))) : undefined;
  const [, sign, prefix, rest] = /^([+-]?)(0[box])?_?([0-9a-z]+(?:_[0-9a-z]+)*)$/i.exec(digits) ?? [];
  if (rest === undefined || (base !== 0 && (base < 2 || base > 36))) return undefined;
  const named = prefix === undefined ? undefined : { b: 2, o: 8, x: 16 }[prefix[1].toLowerCase() as "b" | "o" | "x"];
  if (base === 0 && named === undefined) return parseWhole(text, 10);
  const isPrefix = base === 0 || base === named;
  touch(16 * digits.length);
  let value = 0n;
  for (const digit of (isPrefix ? rest : (prefix ?? "") + rest).replaceAll("_", "")) {
    const number = parseInt(digit, 36);
    if (number >= (isPrefix ? named ?? base : base)) return undefined;
    value = value * BigInt(isPrefix ? named ?? base : base) + BigInt(number);
  }
  return whole(sign === "-" ? -value : value);
}

function bigOf(digits: string): bigint {
  return digits.startsWith("-") ? -BigInt(digits.slice(1)) : BigInt(digits.replace("+", ""));
}

/** The float that a text spells, or `undefined`. */
export function parseFloating(text: string): number | undefined {
  const spelt = stripped(text).toLowerCase();
  if (spelt.length > 5000 || !FLOAT.test(spelt)) return undefined;
  if (spelt.includes("nan")) return NaN;
  if (spelt.includes("inf")) return spelt.startsWith("-") ? -Infinity : Infinity;
  return Number(spelt.replaceAll("_", ""));
}

function stripped(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, Math.min(end, start + 10_000));
}
