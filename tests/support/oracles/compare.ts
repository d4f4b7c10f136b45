/**
 * Compares results of a device with those of the oracle: whole arrays by normalised mean squared error, or every element by
 * its class and value.
 */

import type { Tensor } from "../../../mod.ts";
import type { Expectation, TypeName } from "../../ops/cases/case.ts";
import { isFloat, rangeOf, stored } from "../../ops/cases/draw.ts";
import { type Dense, nmse } from "./oracle.ts";

/** The elements of an array as numbers; complex ones as pairs. */
export function numbersOf(x: Tensor): ArrayLike<number> {
  const values = x.toTypedArray();
  return values instanceof BigInt64Array || values instanceof BigUint64Array
    ? Float64Array.from({ length: values.length }, (_, i) => Number(values[i]))
    : values;
}

/** Numbers that are 0 on devices that flush subnormal float32. */
const SUBNORMAL = 2 ** -126;

/** How far the last bit of a 16-bit result may be off, as a part of it. */
const STEP: Partial<Record<TypeName, number>> = { float16: 2 ** -10, bfloat16: 2 ** -7 };

/** An array with subnormal numbers of float32 replaced by zeros of their signs. */
export function flushed(x: Dense): Dense {
  return { shape: x.shape, data: x.data.map((v) => Math.abs(v) < SUBNORMAL ? v * 0 : v) };
}

function sameFinite(a: number, e: number, dtype: TypeName, rule: Expectation, flushes: boolean): boolean {
  if (!isFloat(dtype)) return a === e;
  const step = STEP[dtype] ?? 0;
  const relative = rule.tolerance === 0 ? 0 : Math.max(step, Math.sqrt(rule.tolerance));
  const least = Math.max(flushes ? SUBNORMAL : 0, rule.tolerance === 0 ? 0 : rangeOf(dtype).least);
  if (Math.abs(a - e) > Math.abs(e) * relative + least + (rule.absolute ?? 0)) return false;
  return !(rule.classes === "zeros" && e === 0 && a === 0) || Object.is(a, e);
}

/** Whether one element is what the oracle has, of which `e` is not rounded to the dtype yet. */
function sameElement(a: number, e: number, dtype: TypeName, rule: Expectation, flushes: boolean): boolean {
  if (Number.isNaN(e)) return Number.isNaN(a);
  const rounded = isFloat(dtype) ? stored(dtype, e) : e;
  if (Number.isFinite(a) && Number.isFinite(rounded)) return sameFinite(a, rounded, dtype, rule, flushes);
  if (a === rounded) return true;
  // One of both is infinite: right where the other one is at the edge.
  const most = isFloat(dtype) ? rangeOf(dtype).most : Infinity;
  const edge = (v: number): boolean => Math.abs(v) >= most * 0.99 && Math.abs(v) <= most * 1.01;
  return Math.sign(a) === Math.sign(e) && edge(Number.isFinite(a) ? a : e);
}

/**
 * Why `actual` is not `expected`, or nothing. An element of a device that `flushes` subnormal numbers may also be what the oracle
 * makes of zeros in their places (`otherwise`).
 */
export function difference(
  actual: ArrayLike<number>,
  expected: Dense,
  dtype: TypeName,
  rule: Expectation,
  otherwise?: Dense,
): string | undefined {
  const { data } = expected;
  if (actual.length !== data.length) return `${actual.length} elements instead of ${data.length}`;
  if (!rule.classes && !otherwise) {
    const error = nmse(actual, data);
    if (error <= rule.tolerance) return undefined;
    if (rule.absolute === undefined) {
      return `NMSE ${error.toExponential(2)} > ${rule.tolerance.toExponential(0)}${firstOf(actual, data)}`;
    }
  }
  for (let i = 0; i < data.length; i++) {
    if (sameElement(actual[i], data[i], dtype, rule, otherwise !== undefined)) continue;
    if (otherwise && sameElement(actual[i], otherwise.data[i], dtype, rule, true)) continue;
    const or = otherwise && !Object.is(otherwise.data[i], data[i]) ? ` or ${show(otherwise.data[i])}` : "";
    return `element ${i} is ${show(actual[i])}, the oracle has ${show(data[i])}${or}`;
  }
  return undefined;
}

/** Where the two differ most. */
function firstOf(actual: ArrayLike<number>, expected: ArrayLike<number>): string {
  let [at, most] = [-1, 0];
  for (let i = 0; i < expected.length; i++) {
    const off = Object.is(actual[i], expected[i]) ? 0 : Math.abs(actual[i] - expected[i]);
    if (!(off <= most)) [at, most] = [i, off];
    if (Number.isNaN(off)) break;
  }
  return at < 0 ? "" : `; element ${at} is ${show(actual[at])}, the oracle has ${show(expected[at])}`;
}

function show(v: number): string {
  return Object.is(v, -0) ? "-0" : String(v);
}
