/**
 * The values of a template's expressions: Python's values, as far as templates meet them.
 *
 * `null` is None, a boolean is a bool, a whole number is an int (a bigint if it is not safe), {@link Float} is a float.
 * Nothing but a namespace can be changed, as in the sandbox that Hugging Face renders templates in.
 *
 * @module
 */

import { allocate, checkItems, countRange, enter, leave, step, TemplateFault } from "./limits.ts";
import { Str } from "./text.ts";

/** A float, also if it has no fraction. */
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

/** The result of dict.keys(), values() and items(). */
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

/** The result of range(). */
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

/** A value that can be read once, such as the result of map() or select(). */
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

  /** The rest. */
  *values(): Generator<Value> {
    for (let value = this.next(); value !== undefined; value = this.next()) yield value;
  }
}

/** A name, attribute or item that is not there: prints and iterates as nothing, everything else fails. */
export class Undefined {
  /** The message about the missing value. */
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

  /** An attribute, if there is one. */
  attribute(_name: string): Value | undefined {
    return undefined;
  }

  /** Calls it. */
  call(_args: Args): Value {
    throw new TemplateFault(`'${this.typeName}' object is not callable`);
  }

  /** Its printed form. */
  get text(): string {
    return `<${this.typeName}>`;
  }
}

/** A function of the language. */
export class Func extends Thing {
  /** Its type. */
  readonly typeName = "function";
  readonly #run: (args: Args) => Value;

  /** Wraps a function. */
  constructor(readonly name: string, run: (args: Args) => Value) {
    super();
    this.#run = run;
  }

  /** Calls it. */
  override call(args: Args): Value {
    return this.#run(args);
  }
}

/** A namespace: attributes that `set` may change from inside of loops. */
export class Namespace extends Thing {
  /** Its type. */
  readonly typeName = "Namespace";

  /** Begins with some attributes. */
  constructor(readonly fields: Map<string, Value>) {
    super();
  }

  /** One of its fields. */
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

/** The hash of a key, the same for equal keys. A string is its own hash, unless it could be taken for a tuple's. */
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

/** The number that an int, a bool or a float is. */
export function numberOf(value: Value): number | bigint | undefined {
  if (typeof value === "number" || typeof value === "bigint") return value;
  if (value instanceof Float) return value.value;
  return typeof value === "boolean" ? Number(value) : undefined;
}
