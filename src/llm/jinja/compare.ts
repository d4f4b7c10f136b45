/**
 * Python's comparisons: equality, order, and what a container holds.
 *
 * @module
 */

import { enter, leave, step, TemplateFault, touch } from "./limits.ts";
import { Str } from "./text.ts";
import {
  Dict,
  isIterable,
  iterate,
  List,
  numberOf,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.ts";

/** Whether two values are equal. */
export function equal(a: Value, b: Value): boolean {
  step();
  if (a instanceof Str && b instanceof Str) {
    if (a.length !== b.length) return false;
    touch(a.length);
    return a.text === b.text;
  }
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return x == y;
  if ((a instanceof List && b instanceof List) || (a instanceof Tuple && b instanceof Tuple)) {
    return a.items.length === b.items.length && below(() => a.items.every((item, i) => sameOrEqual(item, b.items[i])));
  }
  if (a instanceof Dict && b instanceof Dict) {
    const inBoth = ([key, value]: readonly [Value, Value]): boolean => {
      const other = b.get(key);
      return other !== undefined && sameOrEqual(value, other);
    };
    return a.size === b.size && below(() => [...a.entries()].every(inBoth));
  }
  if (a instanceof Range && b instanceof Range) {
    return a.length === b.length && (a.length === 0 || (a.start === b.start && (a.length === 1 || a.by === b.by)));
  }
  if (a instanceof Undefined) return b instanceof Undefined;
  return a === b;
}

/** Equal, or one and the same: what Python's containers compare by. */
export function sameOrEqual(a: Value, b: Value): boolean {
  return a === b || equal(a, b);
}

function below<T>(work: () => T): T {
  enter();
  const result = work();
  leave();
  return result;
}

/** Negative, zero or positive if `a` comes before, with or after `b`. NaN if none holds. */
export function compare(a: Value, b: Value, operator = "<"): number {
  step();
  if (a instanceof Str && b instanceof Str) return compareText(a.text, b.text);
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return x < y ? -1 : x > y ? 1 : x == y ? 0 : NaN;
  if ((a instanceof List && b instanceof List) || (a instanceof Tuple && b instanceof Tuple)) {
    return below(() => {
      const i = a.items.findIndex((item, i) => i >= b.items.length || !sameOrEqual(item, b.items[i]));
      if (i < 0 || i >= b.items.length) return a.items.length - b.items.length;
      return compare(a.items[i], b.items[i], operator);
    });
  }
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  throw new TemplateFault(
    `'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`,
  );
}

/** By code points: where two texts part in a surrogate, that one comes last. */
function compareText(a: string, b: string): number {
  touch(Math.min(a.length, b.length));
  if (a === b) return 0;
  const less = a < b;
  let low = 0;
  for (let high = Math.min(a.length, b.length); low < high;) {
    const middle = (low + high + 1) >> 1;
    if (a.slice(low, middle) === b.slice(low, middle)) low = middle;
    else high = middle - 1;
  }
  const isSurrogate = (text: string): boolean => (text.charCodeAt(low) & 0xf800) === 0xd800;
  if (low >= Math.min(a.length, b.length) || isSurrogate(a) === isSurrogate(b)) return less ? -1 : 1;
  return isSurrogate(a) ? 1 : -1;
}

/** Whether `container` holds `value`. */
export function contains(container: Value, value: Value): boolean {
  if (container instanceof Str) {
    if (value instanceof Str) {
      touch(container.length);
      return container.text.includes(value.text);
    }
    throw new TemplateFault(`'in <string>' requires string as left operand, not ${typeName(value)}`);
  }
  if (container instanceof Dict) return container.has(value);
  if (container instanceof View && container.what === "keys") return container.of.has(value);
  if (!isIterable(container)) throw new TemplateFault(`argument of type '${typeName(container)}' is not iterable`);
  for (const item of iterate(container)) if (sameOrEqual(item, value)) return true;
  return false;
}
