/**
 * Evaluates `a.b`, `a["b"]` and `a[1:2]`, and calls with arguments by position and name.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { type Access, formatBraces, formatPercent } from "./format.ts";
import { step, TemplateFault, touch } from "./limits.ts";
import { callMethod, escapedFields, markedAs } from "./markup.ts";
import { DICT_METHODS, LIST_METHODS, type Method, NUMBER_METHODS, STR_METHODS, UNSAFE } from "./methods.ts";
import { indexOf, integerOf } from "./numbers.ts";
import { textOf } from "./strings.ts";
import { EMPTY, join, Str } from "./text.ts";
import {
  type Args,
  Dict,
  Float,
  Func,
  isHashable,
  Iter,
  lengthOf,
  List,
  Range,
  Thing,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** `of.name`: an attribute or method, else the item of that name. */
export function attributeOf(of: Value, name: string): Value {
  if (of instanceof Undefined) return of.fail();
  const method = methodOf(of, name);
  if (method !== undefined) return method;
  const item = of instanceof Dict ? of.named(name) : undefined;
  return item === undefined ? missing(of, name) : item;
}

/** `of[index]`: an item, else the attribute of that name. */
export function itemOf(of: Value, index: Value): Value {
  if (of instanceof Undefined) return of.fail();
  if (of instanceof Dict) {
    const item = isHashable(index) ? of.get(index) : undefined;
    if (item !== undefined) return item;
  } else if (integerOf(index) !== undefined) {
    const item = at(of, indexOf(index, "an index"));
    if (item !== undefined) return item;
  }
  if (index instanceof Str) {
    const method = methodOf(of, index.text);
    return method === undefined ? missing(of, index.text) : method;
  }
  return new Undefined(`${describe(of)} has no element of that index`);
}

function at(of: Value, index: number): Value | undefined {
  const length = lengthOf(of);
  if (length === undefined || (index < 0 ? index + length < 0 : index >= length)) return undefined;
  const i = index < 0 ? index + length : index;
  if (of instanceof List || of instanceof Tuple) return of.items[i];
  if (of instanceof Str) return markedAs(of, of.part(i, i + 1));
  return of instanceof Range ? of.start + i * of.by : undefined;
}

function missing(of: Value, name: string): Undefined {
  return new Undefined(`'${describe(of)}' has no attribute ${quoted(name)}`);
}

function describe(of: Value): string {
  return of === null ? "None" : `${typeName(of)} object`;
}

function methodOf(of: Value, name: string): Value | undefined {
  if (of instanceof Thing) return name.startsWith("_") ? undefined : of.attribute(name);
  if (of instanceof Tuple && of.names.includes(name)) return of.items[of.names.indexOf(name)];
  const methods = methodsOf(of);
  if (
    methods === undefined || (!Object.hasOwn(methods, name) && !Object.hasOwn(UNSAFE, name) && !name.startsWith("__"))
  ) {
    return undefined;
  }
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (method !== undefined) {
    return new Func(name, (args) => of instanceof Str ? callMethod(of, name, method, args) : method(of, args));
  }
  const unsafe = name.startsWith("__") || UNSAFE[name].includes(typeName(of));
  return unsafe
    ? new Undefined(`access to attribute ${quoted(name)} of '${typeName(of)}' object is unsafe`)
    : undefined;
}

/** How values are read in the fields of a text. */
export const ACCESS: Access = { attributeOf, itemOf };

/** `format % value`. */
export function percent(format: Str, value: Value): Value {
  return markedAs(format, formatPercent(format, format.markup ? escapedFields(value) : value, ACCESS));
}

/** Methods of strings. format() takes any arguments. */
const TEXT_METHODS: Readonly<Record<string, Method>> = {
  ...STR_METHODS,
  format: (self, args) => formatBraces(self as Str, args, ACCESS),
  format_map: (self, { positional: [fields] }) => {
    if (!(fields instanceof Dict)) throw new TemplateFault("format_map() needs a dict");
    const named = new Map(
      [...fields.entries()].map(([key, value]) => [textOf(key, "a key of format_map()").text, value]),
    );
    return formatBraces(self as Str, { positional: [], named }, ACCESS);
  },
};

function methodsOf(of: Value): Readonly<Record<string, Method>> | undefined {
  if (of instanceof Str) return TEXT_METHODS;
  if (of instanceof Dict) return DICT_METHODS;
  if (of instanceof List || of instanceof Tuple || of instanceof Range) return LIST_METHODS;
  return of instanceof Float || integerOf(of) !== undefined ? NUMBER_METHODS : undefined;
}

/** `of[start:stop:by]`. */
export function sliceOf(of: Value, start: Value, stop: Value, by: Value): Value {
  if (of instanceof Undefined) return of.fail();
  const length = lengthOf(of);
  if (
    length === undefined || !(of instanceof Str || of instanceof List || of instanceof Tuple || of instanceof Range)
  ) {
    throw new TemplateFault(`${describe(of)} cannot be sliced`);
  }
  const stride = by === null ? 1 : indexOf(by, "a slice's step");
  if (stride === 0) throw new TemplateFault("slice step cannot be zero");
  const least = stride < 0 ? -1 : 0;
  const bound = (value: Value, otherwise: number): number => {
    if (value === null) return otherwise;
    const index = indexOf(value, "a slice's bound");
    return Math.max(least, Math.min(index < 0 ? index + length : index, length + least));
  };
  const from = bound(start, stride < 0 ? length - 1 : 0);
  const to = bound(stop, stride < 0 ? -1 : length);
  if (of instanceof Str && stride === 1) return markedAs(of, of.part(from, Math.max(from, to)));
  if (of instanceof Str && stride === -1 && from === length - 1 && to === -1) return markedAs(of, of.reversed());
  if (of instanceof Range) return new Range(of.start + from * of.by, of.start + to * of.by, of.by * stride);
  if (of instanceof Str) {
    return markedAs(of, join(places(from, to, stride).map((i) => of.part(i, i + 1)), EMPTY));
  }
  const items = stride === 1
    ? of.items.slice(from, Math.max(from, to))
    : places(from, to, stride).map((i) => of.items[i]);
  return of instanceof List ? new List(items) : new Tuple(items);
}

function places(from: number, to: number, by: number): number[] {
  const { length } = new Range(from, to, by);
  touch(length);
  return Array.from({ length }, (_, i) => from + i * by);
}

/** Calls a value. */
export function call(callee: Value, args: Args): Value {
  step();
  if (callee instanceof Thing) return callee.call(args);
  if (callee instanceof Undefined) return callee.fail();
  throw new TemplateFault(`'${callee instanceof Iter ? "generator" : typeName(callee)}' object is not callable`);
}
