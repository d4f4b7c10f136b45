/**
 * Methods of strings, dicts, lists and numbers: those of Python that make sense for text, in its semantics.
 *
 * @module
 */

import { sameOrEqual } from "./compare.ts";
import { TemplateFault } from "./limits.ts";
import { indexOf } from "./numbers.ts";
import { Builder, join, SPACE, Str } from "./text.ts";
import {
  type Args,
  Dict,
  type Float,
  itemsOf,
  iterate,
  List,
  numberOf,
  type Range,
  type Tuple,
  type Value,
  View,
} from "./values.ts";
import { table } from "./functions.ts";
import {
  capitalize,
  count,
  every,
  find,
  found,
  isCased,
  isTitle,
  meets,
  pad,
  partition,
  replace,
  split,
  splitLines,
  strip,
  swapcase,
  textOf,
  titled,
  window,
} from "./strings.ts";

/** A method: the object of the call, and the arguments. */
export type Method = (self: Value, args: Args) => Value;

/** Methods that change what they are called on, by the types that have them: the sandbox forbids them. */
export const UNSAFE: Readonly<Record<string, readonly string[]>> = {
  append: ["list"],
  clear: ["list", "dict"],
  extend: ["list"],
  insert: ["list"],
  pop: ["list", "dict"],
  popitem: ["dict"],
  remove: ["list"],
  reverse: ["list"],
  setdefault: ["dict"],
  sort: ["list"],
  update: ["dict"],
};

/** Methods of strings but format(), which reads attributes of others: see access.ts. */
export const STR_METHODS: Readonly<Record<string, Method>> = table({
  strip: ["chars?", (self: Str, chars) => strip(self, chars)],
  lstrip: ["chars?", (self: Str, chars) => strip(self, chars, "left")],
  rstrip: ["chars?", (self: Str, chars) => strip(self, chars, "right")],
  split: ["sep? maxsplit?", (self: Str, by, most) => split(self, by, most, false)],
  rsplit: ["sep? maxsplit?", (self: Str, by, most) => split(self, by, most, true)],
  splitlines: ["keepends?", (self: Str, keep) => new List(splitLines(self, keep === true || keep === 1))],
  startswith: ["prefix start? end?", (self: Str, what, start, end) => meets(self, what, start, end, false)],
  endswith: ["suffix start? end?", (self: Str, what, start, end) => meets(self, what, start, end, true)],
  removeprefix: ["prefix", (self: Str, affix) => {
    return meets(self, affix, undefined, undefined, false) ? self.slice(affix.length) : self;
  }],
  removesuffix: ["suffix", (self: Str, affix) => {
    return meets(self, affix, undefined, undefined, true) ? self.slice(0, self.length - affix.length) : self;
  }],
  replace: ["old new count?", (self: Str, old, by, most) => {
    return replace(self, textOf(old, "replace()'s first argument"), textOf(by, "replace()'s second argument"), most);
  }],
  join: ["iterable", (self: Str, items) => join(itemsOf(items).map((item) => textOf(item, "an item of join()")), self)],
  find: ["sub start? end?", (self: Str, what, start, end) => find(self, what, start, end, false)],
  rfind: ["sub start? end?", (self: Str, what, start, end) => find(self, what, start, end, true)],
  index: ["sub start? end?", (self: Str, what, start, end) => found(find(self, what, start, end, false))],
  rindex: ["sub start? end?", (self: Str, what, start, end) => found(find(self, what, start, end, true))],
  count: ["sub start? end?", (self: Str, what, start, end) => {
    const part = window(self, start, end);
    return part === undefined ? 0 : count(part, textOf(what, "count()'s argument"));
  }],
  partition: ["sep", (self: Str, by) => partition(self, textOf(by, "partition()'s argument"), false)],
  rpartition: ["sep", (self: Str, by) => partition(self, textOf(by, "rpartition()'s argument"), true)],
  upper: ["", (self: Str) => self.map((text) => text.toUpperCase())],
  lower: ["", (self: Str) => self.map((text) => text.toLowerCase())],
  casefold: ["", (self: Str) => self.map((text) => text.toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ"))],
  swapcase: ["", (self: Str) => self.rewrite(/\p{Lu}+|\p{Ll}+/gu, swapcase)],
  capitalize: ["", capitalize],
  title: ["", (self: Str) =>
    self.rewrite(/\p{Cased}+/gu, (word) => {
      const head = String.fromCodePoint(word.codePointAt(0)!);
      return titled(head) + word.slice(head.length).toLowerCase();
    })],
  ljust: ["width fillchar?", (self: Str, width, fill) => pad(self, width, fill, "left")],
  rjust: ["width fillchar?", (self: Str, width, fill) => pad(self, width, fill, "right")],
  center: ["width fillchar?", (self: Str, width, fill) => pad(self, width, fill, "center")],
  zfill: ["width", (self: Str, width) => {
    const sign = /^[+-]/.test(self.text) ? 1 : 0;
    const missing = indexOf(width, "a width") - self.points;
    return self.slice(0, sign).plus(Str.template("0").repeat(missing)).plus(self.slice(sign));
  }],
  expandtabs: ["tabsize?", (self: Str, size) => {
    const tab = Math.max(0, indexOf(size ?? 8, "a tab's size"));
    const out = new Builder();
    let [at, column] = [0, 0];
    for (const { 0: match, index } of self.text.matchAll(/[\t\n\r]/g)) {
      out.add(self.slice(at, index));
      column += self.slice(at, index).points;
      const spaces = tab === 0 ? 0 : tab - column % tab;
      out.add(match === "\t" ? Str.user(" ").repeat(spaces) : self.slice(index, index + 1));
      column = match === "\t" ? column + spaces : 0;
      at = index + 1;
    }
    return out.add(self.slice(at)).done();
  }],
  isdigit: ["", every(/^[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468]+$/u)],
  isdecimal: ["", every(/^\p{Nd}+$/u)],
  isnumeric: ["", every(/^\p{N}+$/u)],
  isalpha: ["", every(/^\p{L}+$/u)],
  isalnum: ["", every(/^[\p{L}\p{N}]+$/u)],
  isspace: ["", every(new RegExp(`^[${SPACE}]+$`))],
  isascii: ["", every(/^[\0-\x7f]*$/)],
  isprintable: ["", every(/^(?:[^\p{C}\p{Z}]| )*$/u)],
  isidentifier: ["", every(/^[\p{ID_Start}_]\p{ID_Continue}*$/u)],
  isupper: ["", (self: Str) => isCased(self, /[\p{Ll}\p{Lt}]/u)],
  islower: ["", (self: Str) => isCased(self, /[\p{Lu}\p{Lt}]/u)],
  istitle: ["", isTitle],
});

/** Methods of dicts. */
export const DICT_METHODS: Readonly<Record<string, Method>> = table({
  get: ["key default?", (self: Dict, key, otherwise = null) => {
    const value = self.get(key);
    return value === undefined ? otherwise : value;
  }],
  keys: ["", (self: Dict) => new View(self, "keys")],
  values: ["", (self: Dict) => new View(self, "values")],
  items: ["", (self: Dict) => new View(self, "items")],
  copy: ["", (self: Dict) => new Dict(self.entries())],
});

/** Methods of lists, tuples and ranges. */
export const LIST_METHODS: Readonly<Record<string, Method>> = table({
  count: [
    "value",
    (self: List | Tuple | Range, value) => itemsOf(self).filter((item) => sameOrEqual(item, value)).length,
  ],
  index: ["value start? stop?", (self: List | Tuple | Range, value, start, stop) => {
    const [from, to] = [indexOf(start ?? 0, "a bound"), stop === undefined ? Infinity : indexOf(stop, "a bound")];
    const place = [...iterate(self)].findIndex((item, i) => i >= from && i < to && sameOrEqual(item, value));
    if (place < 0) throw new TemplateFault("the value is not in the list");
    return place;
  }],
  copy: ["", (self: List) => self],
});

/** Methods of numbers. */
export const NUMBER_METHODS: Readonly<Record<string, Method>> = table({
  is_integer: ["", (self: Float | number) => Number.isInteger(Number(numberOf(self)))],
  bit_length: ["", (self: number | bigint) => self == 0 ? 0 : BigInt(self).toString(2).replace("-", "").length],
});
