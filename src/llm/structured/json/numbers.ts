/**
 * Numbers in JSON, with limits.
 *
 * A limit is held by comparing digits. Rounding to a double keeps the order of two numbers, so the limit holds for the parsed
 * values too. An exclusive limit is the next double.
 *
 * @module
 */

import { choice, EMPTY, type Expression, literal, NEVER, oneOf, repeat, sequence } from "../grammar/expression.ts";

/** Most digits of an integer, and of a number before its point. */
export const MAX_DIGITS = 20;
/** Most digits after the point of a number. */
export const MAX_DECIMALS = 20;

/** Limits of numbers; both count. */
export interface Limits {
  readonly min?: number;
  readonly max?: number;
  readonly above?: number;
  readonly below?: number;
}

const DIGIT = oneOf("0123456789");

/** The smallest and the largest double that limits allow. */
export function bounds({ min = -Infinity, max = Infinity, above, below }: Limits): [number, number] {
  return [
    Math.max(min, above === undefined ? -Infinity : nextDouble(above)),
    Math.min(max, below === undefined ? Infinity : -nextDouble(-below)),
  ];
}

/** The double after another. */
function nextDouble(value: number): number {
  if (value === 0) return Number.MIN_VALUE;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigInt64(0, view.getBigInt64(0) + (value > 0 ? 1n : -1n));
  return view.getFloat64(0);
}

/** Integers between limits. Without a limit, they have at most {@link MAX_DIGITS} digits. */
export function integers(limits: Limits): Expression {
  const [min, max] = bounds(limits);
  const [low, high] = completed(
    min === -Infinity ? undefined : BigInt(Math.ceil(min)),
    max === Infinity ? undefined : BigInt(Math.floor(max)),
    1n,
  );
  if (low > high) return NEVER;
  return choice(
    low < 0n ? sequence(literal("-"), naturals(high < 0n ? -high : 1n, -low)) : NEVER,
    high >= 0n ? naturals(low > 0n ? low : 0n, high) : NEVER,
  );
}

/** Limits in units of 1 / `scale`, of which one that is not there leaves room for {@link MAX_DIGITS} digits. */
function completed(low: bigint | undefined, high: bigint | undefined, scale: bigint): [bigint, bigint] {
  const far = (from: bigint | undefined): bigint => {
    const digits = from === undefined ? 0 : String(from / scale).replace("-", "").length;
    return 10n ** BigInt(Math.max(MAX_DIGITS, digits)) * scale - 1n;
  };
  return [low ?? -far(high), high ?? far(low)];
}

/** Natural numbers from one to another, without leading zeros. */
function naturals(low: bigint, high: bigint): Expression {
  if (low > high) return NEVER;
  const [from, to] = [String(low), String(high)];
  const parts: Expression[] = [];
  for (let length = from.length; length <= to.length; length++) {
    const first = length === from.length ? from : `1${"0".repeat(length - 1)}`;
    const last = length === to.length ? to : "9".repeat(length);
    parts.push(sameLength(first, last));
  }
  return choice(...parts);
}

/** Digits from one text to another of the same length. */
function sameLength(from: string, to: string): Expression {
  const length = from.length;
  if (/^0*$/.test(from) && /^9*$/.test(to)) return repeat(DIGIT, length, length);
  const [rest, low, high] = [length - 1, Number(from[0]), Number(to[0])];
  if (low === high) return sequence(literal(from[0]), sameLength(from.slice(1), to.slice(1)));
  return choice(
    sequence(literal(from[0]), sameLength(from.slice(1), "9".repeat(rest))),
    sequence(digitsBetween(low + 1, high - 1), repeat(DIGIT, rest, rest)),
    sequence(literal(to[0]), sameLength("0".repeat(rest), to.slice(1))),
  );
}

function digitsBetween(from: number, to: number): Expression {
  return from > to ? NEVER : oneOf("0123456789".slice(from, to + 1));
}

/** Any number: all that a double holds but the smallest and largest exponents. */
export const ANY_NUMBER: Expression = sequence(
  choice(literal("-"), EMPTY),
  choice(
    sequence(
      choice(literal("0"), sequence(oneOf("123456789"), repeat(DIGIT, 0, MAX_DIGITS - 1))),
      choice(sequence(literal("."), repeat(DIGIT, 1, MAX_DECIMALS)), EMPTY),
      choice(sequence(oneOf("eE"), choice(oneOf("+-"), EMPTY), repeat(DIGIT, 1, 2)), EMPTY),
    ),
    sequence(
      oneOf("123456789"),
      choice(sequence(literal("."), repeat(DIGIT, 1, MAX_DECIMALS)), EMPTY),
      oneOf("eE"),
      choice(oneOf("+-"), EMPTY),
      choice(sequence(oneOf("12"), repeat(DIGIT, 2, 2)), sequence(literal("30"), oneOf("01234567"))),
    ),
  ),
);

/** Numbers between limits, of which there is one at least: without exponents. */
export function numbers(limits: Limits): Expression {
  const [min, max] = bounds(limits);
  const [low, high] = completed(
    min === -Infinity ? undefined : scaled(min),
    max === Infinity ? undefined : -scaled(-max),
    SCALE,
  );
  if (low > high) return NEVER;
  return choice(
    low < 0n ? sequence(literal("-"), decimals(high < 0n ? -high : 0n, -low)) : NEVER,
    high >= 0n ? decimals(low > 0n ? low : 0n, high) : NEVER,
  );
}

const SCALE = 10n ** BigInt(MAX_DECIMALS);

/** A double times {@link SCALE}, rounded up. */
function scaled(value: number): bigint {
  const [mantissa, exponent] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const shift = Number(exponent) - (digits.length - 1) + MAX_DECIMALS;
  const negative = value < 0;
  if (shift >= 0) return BigInt(digits) * 10n ** BigInt(shift) * (negative ? -1n : 1n);
  const divisor = 10n ** BigInt(-shift);
  return negative ? -(BigInt(digits) / divisor) : (BigInt(digits) + divisor - 1n) / divisor;
}

/** Decimals that are not negative, between two in units of 1 / {@link SCALE}. */
function decimals(low: bigint, high: bigint): Expression {
  const [from, to] = [low / SCALE, high / SCALE];
  const [least, most] = [decimalsOf(low), decimalsOf(high)];
  if (from === to) return sequence(natural(from), withPoint(between(least, most, MAX_DECIMALS, 1), least === ""));
  return choice(
    sequence(natural(from), withPoint(atLeast(least, MAX_DECIMALS, 1), least === "")),
    sequence(naturals(from + 1n, to - 1n), withPoint(repeat(DIGIT, 1, MAX_DECIMALS), true)),
    sequence(natural(to), withPoint(atMost(most, MAX_DECIMALS, 1), true)),
  );
}

function natural(value: bigint): Expression {
  return literal(String(value));
}

/** Digits after the point, without zeros at their end. */
function decimalsOf(value: bigint): string {
  return String(value % SCALE).padStart(MAX_DECIMALS, "0").replace(/0+$/, "");
}

function withPoint(digits: Expression, optional: boolean): Expression {
  return choice(sequence(literal("."), digits), optional ? EMPTY : NEVER);
}

/** `count` to `most` digits after a point that make at least what other digits there do. */
function atLeast(digits: string, most: number, count: number): Expression {
  if (digits === "") return repeat(DIGIT, count, most);
  return choice(
    sequence(literal(digits[0]), atLeast(digits.slice(1), most - 1, 0)),
    sequence(digitsBetween(Number(digits[0]) + 1, 9), repeat(DIGIT, 0, most - 1)),
  );
}

/** The same for at most. */
function atMost(digits: string, most: number, count: number): Expression {
  if (digits === "") return repeat(literal("0"), count, most);
  return choice(
    count === 0 ? EMPTY : NEVER,
    sequence(literal(digits[0]), atMost(digits.slice(1), most - 1, 0)),
    sequence(digitsBetween(0, Number(digits[0]) - 1), repeat(DIGIT, 0, most - 1)),
  );
}

/** The same for both. */
function between(low: string, high: string, most: number, count: number): Expression {
  if (low === "") return atMost(high, most, count);
  if (low[0] === high[0]) return sequence(literal(low[0]), between(low.slice(1), high.slice(1), most - 1, 0));
  return choice(
    sequence(literal(low[0]), atLeast(low.slice(1), most - 1, 0)),
    sequence(digitsBetween(Number(low[0]) + 1, Number(high[0]) - 1), repeat(DIGIT, 0, most - 1)),
    sequence(literal(high[0]), atMost(high.slice(1), most - 1, 0)),
  );
}
