/**
 * What expressions of a template are: Python's values, as far as templates meet them.
 *
 * `null` is None, a boolean is a bool, a whole number is an int (a bigint where it is not safe), {@link Float} is a float.
 * Nothing but a namespace can be changed, as in the sandbox that Hugging Face renders templates in.
 *
 * @module
 */

import {
  allocate,
  checkItems,
  countRange,
  enter,
  type InputSize,
  leave,
  step,
  TemplateFault,
  touch,
} from "./limits.ts";
import { Str } from "./text.ts";

/** A float, also where it has no fraction. */
export class Float {
  /** Holds a number. */
  constructor(readonly value: number) {}
}

/** A list. */
export class List {
  /** Holds items. */
  constructor(readonly items: readonly Value[]) {
    checkItems(items.length);
    allocate(48 + 8 * items.length);
  }
}

/** A tuple; those of groupby have names too. */
export class Tuple {
  /** Holds items. */
  constructor(readonly items: readonly Value[], readonly names: readonly string[] = []) {
    checkItems(items.length);
    allocate(48 + 8 * items.length);
  }
}

/** What dict.keys(), values() and items() give. */
export class View {
  /** Looks at a dict. */
  constructor(readonly of: Dict, readonly what: "keys" | "values" | "items") {}

  /** The items. */
  *values(): Generator<Value> {
    for (const [key, value] of this.of.entries()) {
      yield this.what === "keys" ? key : this.what === "values" ? value : new Tuple([key, value]);
    }
  }
}

/** What range() gives. */
export class Range {
  /** Number of items. */
  readonly length: number;

  /** Counts from `start` up to and without `stop`. */
  constructor(readonly start: number, readonly stop: number, readonly by: number) {
    this.length = Math.max(0, Math.ceil((stop - start) / by));
  }

  /** The items. */
  *values(): Generator<number> {
    for (let i = 0; i < this.length; i++) {
      countRange(1);
      yield this.start + i * this.by;
    }
  }
}

/** What can be read once, such as the outcome of map() or select(). */
export class Iter {
  readonly #source: Iterator<Value>;

  /** Reads from a source. */
  constructor(source: Iterator<Value>) {
    this.#source = source;
  }

  /** The next item, or `undefined` at the end. */
  next(): Value | undefined {
    const { done, value } = this.#source.next();
    return done ? undefined : value;
  }

  /** What is left. */
  *values(): Generator<Value> {
    for (let value = this.next(); value !== undefined; value = this.next()) yield value;
  }
}

/** A name, attribute or item that is not there: prints and iterates as nothing, everything else fails. */
export class Undefined {
  /** Says what is missing. */
  constructor(readonly reason: string) {}

  /** Throws. */
  fail(): never {
    throw new TemplateFault(this.reason);
  }
}

/** Arguments of a call. */
export interface Args {
  /** By position. */
  readonly positional: readonly Value[];
  /** By name. */
  readonly named: ReadonlyMap<string, Value>;
}

/** Something with attributes of its own, or that can be called: functions, macros, namespaces, `loop`. */
export abstract class Thing {
  /** Python's name of its type. */
  abstract readonly typeName: string;

  /** An attribute, where there is one. */
  attribute(_name: string): Value | undefined {
    return undefined;
  }

  /** Calls it. */
  call(_args: Args): Value {
    throw new TemplateFault(`'${this.typeName}' object is not callable`);
  }

  /** What it prints. */
  get text(): string {
    return `<${this.typeName}>`;
  }
}

/** A function of the language. */
export class Func extends Thing {
  readonly typeName = "function";
  readonly #run: (args: Args) => Value;

  /** Wraps a function. */
  constructor(readonly name: string, run: (args: Args) => Value) {
    super();
    this.#run = run;
  }

  override call(args: Args): Value {
    return this.#run(args);
  }
}

/** A namespace: attributes that `set` may change from inside of loops. */
export class Namespace extends Thing {
  readonly typeName = "Namespace";

  /** Begins with some attributes. */
  constructor(readonly fields: Map<string, Value>) {
    super();
  }

  override attribute(name: string): Value | undefined {
    return this.fields.get(name);
  }
}

/** Any value. */
export type Value =
  | null
  | boolean
  | number
  | bigint
  | Float
  | Str
  | List
  | Tuple
  | Dict
  | View
  | Range
  | Iter
  | Undefined
  | Thing;

/** A dict. */
export class Dict {
  readonly #entries = new Map<unknown, readonly [Value, Value]>();

  /** Holds entries, of which a later one takes the place of an earlier one with an equal key. */
  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    for (const [key, value] of entries) this.#set(key, value);
  }

  #set(key: Value, value: Value): void {
    const hash = hashOf(key);
    const first = this.#entries.get(hash)?.[0];
    allocate(64);
    this.#entries.set(hash, [first ?? key, value]);
    checkItems(this.#entries.size);
  }

  /** Number of entries. */
  get size(): number {
    return this.#entries.size;
  }

  /** Keys and values, in order. */
  entries(): Iterable<readonly [Value, Value]> {
    return this.#entries.values();
  }

  /** Value of a key. */
  get(key: Value): Value | undefined {
    return this.#entries.get(hashOf(key))?.[1];
  }

  /** Value of a key that is a string. */
  named(key: string): Value | undefined {
    return this.#entries.get(key)?.[1];
  }

  /** Whether there is such a key. */
  has(key: Value): boolean {
    return this.#entries.has(hashOf(key));
  }
}

/** What equal keys have in common: strings stand for themselves, unless they could be taken for what stands for a tuple. */
export function hashOf(key: Value): unknown {
  if (key instanceof Str) return key.text.startsWith("\0") ? `\0s${key.text}` : key.text;
  if (key instanceof Float) return Number.isSafeInteger(key.value) ? key.value + 0 : `\0f${key.value}`;
  if (typeof key === "boolean") return Number(key);
  if (key === null || typeof key === "number" || typeof key === "bigint") return key;
  if (key instanceof Thing || key instanceof Iter || key instanceof Range) return key;
  if (key instanceof Undefined) return Undefined;
  if (!(key instanceof Tuple)) throw new TemplateFault(`unhashable type: '${typeName(key)}'`);
  enter();
  let hash = "\0t";
  for (const item of key.items) {
    const part = hashOf(item);
    const text = `${typeof part === "string" ? part : `\0n${String(part)}`}`;
    hash += `${text.length}:${text}`;
    allocate(hash.length);
  }
  leave();
  return hash;
}

/** Whether a value may be the key of a dict. */
export function isHashable(value: Value): boolean {
  if (value instanceof Tuple) return value.items.every(isHashable);
  return !(value instanceof List || value instanceof Dict || value instanceof View);
}

/** Python's name of a value's type. */
export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "number" || typeof value === "bigint") return "int";
  if (value instanceof Thing) return value.typeName;
  return TYPE_NAMES.find(([type]) => value instanceof type)?.[1] ?? `dict_${(value as View).what}`;
}

// deno-lint-ignore no-explicit-any
const TYPE_NAMES: readonly (readonly [new (...args: any[]) => Value, string])[] = [
  [Float, "float"],
  [List, "list"],
  [Tuple, "tuple"],
  [Dict, "dict"],
  [Range, "range"],
  [Iter, "generator"],
  [Undefined, "Undefined"],
];

/** Whether a condition holds. */
export function truthy(value: Value): boolean {
  if (typeof value === "boolean") return value;
  if (value === null || value instanceof Undefined) return false;
  if (value instanceof Float) return value.value !== 0;
  if (typeof value === "number" || typeof value === "bigint") return value != 0;
  return lengthOf(value) !== 0;
}

/** Number of items, or `undefined` for what has none. */
export function lengthOf(value: Value): number | undefined {
  if (value instanceof Str) return value.points;
  if (value instanceof List || value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof View) return value.of.size;
  if (value instanceof Range) return value.length;
  if (value instanceof Undefined) return 0;
  return undefined;
}

/** Whether a value can be iterated. */
export function isIterable(value: Value): boolean {
  return lengthOf(value) !== undefined || value instanceof Iter;
}

/** The items of a value. */
export function iterate(value: Value): IterableIterator<Value> {
  if (value instanceof List || value instanceof Tuple) return value.items.values();
  if (value instanceof Str) return characters(value);
  if (value instanceof Dict) return new View(value, "keys").values();
  if (value instanceof View || value instanceof Range || value instanceof Iter) return value.values();
  if (value instanceof Undefined) return [].values();
  throw new TemplateFault(`'${typeName(value)}' object is not iterable`);
}

function* characters(value: Str): Generator<Value> {
  const { points } = value;
  for (let i = 0; i < points; i++) yield value.part(i, i + 1);
}

/** The items of a value as an array. */
export function itemsOf(value: Value): readonly Value[] {
  if (value instanceof List || value instanceof Tuple) return value.items;
  const items: Value[] = [];
  for (const item of iterate(value)) {
    step();
    items.push(item);
    checkItems(items.length);
  }
  return items;
}

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
    return a.items.length === b.items.length && below(() => a.items.every((item, i) => same(item, b.items[i])));
  }
  if (a instanceof Dict && b instanceof Dict) {
    const inBoth = ([key, value]: readonly [Value, Value]): boolean => {
      const other = b.get(key);
      return other !== undefined && same(value, other);
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
export function same(a: Value, b: Value): boolean {
  return a === b || equal(a, b);
}

function below<T>(work: () => T): T {
  enter();
  const result = work();
  leave();
  return result;
}

/** The number that an int, a bool or a float is. */
export function numberOf(value: Value): number | bigint | undefined {
  if (typeof value === "number" || typeof value === "bigint") return value;
  if (value instanceof Float) return value.value;
  return typeof value === "boolean" ? Number(value) : undefined;
}

/** Negative, zero or positive as `a` comes before, with or behind `b`. NaN where neither is so. */
export function compare(a: Value, b: Value, operator = "<"): number {
  step();
  if (a instanceof Str && b instanceof Str) return compareText(a.text, b.text);
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return x < y ? -1 : x > y ? 1 : x == y ? 0 : NaN;
  if ((a instanceof List && b instanceof List) || (a instanceof Tuple && b instanceof Tuple)) {
    return below(() => {
      const i = a.items.findIndex((item, i) => i >= b.items.length || !same(item, b.items[i]));
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
  for (const item of iterate(container)) if (same(item, value)) return true;
  return false;
}

const MAX_SAFE = 2n ** 53n - 1n;

/** Deepest nesting of what a caller hands over. */
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
