/**
 * A small stand-in for `@std/assert` over `node:assert`, for networks that cannot reach JSR. Same names, same argument order,
 * same errors thrown; only what the tests use.
 *
 * @module
 */

import assert_ from "node:assert/strict";
import { inspect } from "node:util";

// deno-lint-ignore no-explicit-any -- constructors of any signature
type Constructor<T = unknown> = abstract new (...args: any[]) => T;

/** Thrown by every failing assertion. */
export const AssertionError: typeof assert_.AssertionError = assert_.AssertionError;

function fail(message: string, detail?: string): never {
  throw new AssertionError({ message: detail === undefined ? message : `${message}: ${detail}` });
}

/** Fails unless `value` is truthy. */
export function assert(value: unknown, message = "expected a truthy value"): asserts value {
  if (!value) fail(message);
}

/** Fails unless both are deeply equal; numbers by Object.is, except that 0 equals -0. */
export function assertEquals<T>(actual: T, expected: T, message?: string): void {
  if (!equal(actual, expected)) {
    fail("values are not equal", `${message ? `${message}: ` : ""}${inspect(actual)}, expected ${inspect(expected)}`);
  }
}

/** Fails when both are deeply equal. */
export function assertNotEquals<T>(actual: T, expected: T, message?: string): void {
  if (equal(actual, expected)) fail(message ?? "values are equal", inspect(actual));
}

/** Fails unless both are the same by Object.is. */
export function assertStrictEquals<T>(actual: unknown, expected: T, message?: string): asserts actual is T {
  if (!Object.is(actual, expected)) {
    fail(message ?? "values are not the same", `${inspect(actual)}, ${inspect(expected)}`);
  }
}

/** Fails when the numbers are further apart than the tolerance, by default 1e-7 of the expected one. */
export function assertAlmostEquals(actual: number, expected: number, tolerance?: number, message?: string): void {
  if (Object.is(actual, expected)) return;
  const within = tolerance ?? (Number.isFinite(expected) ? Math.abs(expected * 1e-7) : 1e-7);
  if (Math.abs(actual - expected) <= within) return;
  fail(message ?? "numbers are not close", `${actual}, expected ${expected} within ${within}`);
}

/** Fails unless `fn` throws an error of the class whose message includes the text; returns it. */
export function assertThrows<E extends Error = Error>(
  fn: () => unknown,
  type?: Constructor<E> | string,
  includes?: string,
  message?: string,
): E {
  try {
    fn();
  } catch (error) {
    return checkError(error, type, includes, message);
  }
  fail(message ?? "expected the function to throw");
}

/** Fails unless `fn` rejects with an error of the class whose message includes the text; resolves to it. */
export async function assertRejects<E extends Error = Error>(
  fn: () => PromiseLike<unknown>,
  type?: Constructor<E> | string,
  includes?: string,
  message?: string,
): Promise<E> {
  let promise: PromiseLike<unknown>;
  try {
    promise = fn();
  } catch (error) {
    fail(message ?? "expected a rejected promise, the function threw", String(error));
  }
  try {
    await promise;
  } catch (error) {
    return checkError(error, type, includes, message);
  }
  fail(message ?? "expected the promise to reject");
}

/** Fails unless `actual` contains `expected`. */
export function assertStringIncludes(actual: string, expected: string, message?: string): void {
  if (!actual.includes(expected)) fail(message ?? "text is not included", `${inspect(expected)} in ${inspect(actual)}`);
}

/** Fails unless `actual` matches the pattern. */
export function assertMatch(actual: string, expected: RegExp, message?: string): void {
  if (!expected.test(actual)) fail(message ?? "text does not match", `${inspect(actual)}, ${expected}`);
}

/** Fails unless `actual` is an instance of the class. */
export function assertInstanceOf<T>(actual: unknown, expected: Constructor<T>, message?: string): asserts actual is T {
  if (!(actual instanceof expected)) fail(message ?? `expected a ${expected.name}`, inspect(actual));
}

/** Fails when `actual` is null or undefined. */
export function assertExists<T>(actual: T, message?: string): asserts actual is NonNullable<T> {
  if (actual === undefined || actual === null) fail(message ?? "expected a value", String(actual));
}

/** Deep equality as std has it: NaN equals NaN and, other than in node:assert, 0 equals -0 at any depth. */
function equal(a: unknown, b: unknown): boolean {
  if (typeof a === "number" && typeof b === "number") return a === b || Object.is(a, b);
  if (isList(a) && isList(b)) {
    return a.constructor === b.constructor && a.length === b.length && a.every((x, i) => equal(x, b[i]));
  }
  if (isPlain(a) && isPlain(b)) {
    const keys = Object.keys(a);
    return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && equal(a[key], b[key]));
  }
  try {
    assert_.deepStrictEqual(a, b);
    return true;
  } catch {
    return false;
  }
}

function isList(x: unknown): x is readonly unknown[] {
  return Array.isArray(x) || (ArrayBuffer.isView(x) && !(x instanceof DataView));
}

function isPlain(x: unknown): x is Readonly<Record<string, unknown>> {
  return typeof x === "object" && x !== null && Object.getPrototypeOf(x) === Object.prototype;
}

function checkError<E extends Error>(
  error: unknown,
  type: Constructor<E> | string | undefined,
  includes: string | undefined,
  message: string | undefined,
): E {
  if (!(error instanceof Error)) fail(message ?? "expected an Error", inspect(error));
  if (typeof type === "function" && !(error instanceof type)) {
    fail(message ?? `expected a ${type.name}`, `${error.constructor.name}: ${error.message}`);
  }
  if (includes !== undefined && !error.message.includes(includes)) {
    fail(message ?? `expected a message that includes ${inspect(includes)}`, error.message);
  }
  return error as E;
}
