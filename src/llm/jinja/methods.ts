/**
 * Methods of strings, dicts, lists and numbers: those of Python that make sense for text, in its semantics.
 *
 * @module
 */

import { formatBraces } from "./format.ts";
import { table } from "./functions.ts";
import { checkItems, checkLength, step, TemplateFault, touch } from "./limits.ts";
import { indexOf } from "./numbers.ts";
import { Builder, isSpace, join, SPACE, Str } from "./text.ts";
import {
  type Args,
  Dict,
  type Float,
  itemsOf,
  iterate,
  List,
  numberOf,
  type Range,
  same,
  Tuple,
  typeName,
  type Value,
  View,
} from "./values.ts";

/** A method: what it is called on, and the arguments. */
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

/** A string argument. */
export function textOf(value: Value | undefined, what: string): Str {
  if (value instanceof Str) return value;
  throw new TemplateFault(`${what} is a string, not ${typeName(value ?? null)}`);
}

/** Without characters of `chars`, or white space, at its ends. */
export function strip(value: Str, chars: Value | undefined, sides: "both" | "left" | "right" = "both"): Str {
  const { text } = value;
  let [start, end] = [0, text.length];
  if (chars === undefined || chars === null) {
    if (sides !== "right") { while (start < end && isSpace(text.charCodeAt(start))) start++; }
    if (sides !== "left") { while (end > start && isSpace(text.charCodeAt(end - 1))) end--; }
  } else {
    const set = new Set(textOf(chars, "strip()'s argument").text);
    if (sides !== "right") start = pastChars(text, set);
    if (sides !== "left") end = Math.max(start, beforeChars(text, set));
  }
  touch(start + text.length - end);
  return value.slice(start, end);
}

/** Where the first character stands that is not in a set. */
function pastChars(text: string, set: ReadonlySet<string>): number {
  let at = 0;
  for (const char of text) {
    if (!set.has(char)) break;
    at += char.length;
  }
  return at;
}

/** Behind the last character that is not in a set. */
function beforeChars(text: string, set: ReadonlySet<string>): number {
  let at = text.length;
  while (at > 0) {
    const isPair = at > 1 && text.codePointAt(at - 2)! > 0xffff;
    const char = text.slice(at - (isPair ? 2 : 1), at);
    if (!set.has(char)) break;
    at -= char.length;
  }
  return at;
}

/** Every `old`, or the first `count`, replaced by `new`. */
export function replace(text: Str, old: Str, replacement: Str, count: Value | undefined): Str {
  let left = count === undefined || count === null ? -1 : indexOf(count, "replace()'s count");
  if (left < 0) left = Infinity;
  touch(text.length);
  const source = text.text;
  const out = new Builder();
  let at = 0;
  if (old.length === 0) {
    for (let i = 0; i < text.points && left > 0; i++, left--) {
      const end = text.offset(i + 1);
      out.add(replacement).add(text.slice(at, end));
      at = end;
    }
    return left > 0 ? out.add(replacement).done() : out.add(text.slice(at)).done();
  }
  for (let found = source.indexOf(old.text); found >= 0 && left > 0; found = source.indexOf(old.text, at), left--) {
    out.add(text.slice(at, found)).add(replacement);
    at = found + old.length;
  }
  return at === 0 ? text : out.add(text.slice(at)).done();
}

function split(text: Str, separator: Value | undefined, most: Value | undefined, fromRight: boolean): Value {
  const limit = most === undefined ? -1 : indexOf(most, "split()'s maxsplit");
  const cuts: [number, number][] = [];
  const source = text.text;
  touch(source.length);
  if (separator === undefined || separator === null) return new List(splitBlanks(text, limit, fromRight));
  const by = textOf(separator, "split()'s separator").text;
  if (by === "") throw new TemplateFault("split() got an empty separator");
  if (fromRight) {
    let end = source.length;
    while (cuts.length !== limit) {
      const found = end < by.length ? -1 : source.lastIndexOf(by, end - by.length);
      if (found < 0) break;
      cuts.unshift([found, found + by.length]);
      end = found;
      checkItems(cuts.length);
      step(1 + (cuts.length >>> 6));
    }
  } else {
    for (
      let found = source.indexOf(by);
      found >= 0 && cuts.length !== limit;
      found = source.indexOf(by, found + by.length)
    ) {
      cuts.push([found, found + by.length]);
      checkItems(cuts.length);
    }
  }
  let at = 0;
  const pieces: Str[] = [];
  for (const [start, end] of [...cuts, [text.length, text.length]]) {
    pieces.push(text.slice(at, start));
    at = end;
  }
  return new List(pieces);
}

const WORDS = new RegExp(`[^${SPACE}]+`, "g");

function splitBlanks(text: Str, limit: number, fromRight: boolean): Str[] {
  const words: [number, number][] = [];
  for (const { 0: word, index } of text.text.matchAll(WORDS)) {
    words.push([index, index + word.length]);
    checkItems(words.length);
    step();
  }
  if (limit >= 0 && words.length > limit) {
    const whole = fromRight
      ? [[0, words[words.length - limit - 1][1]], ...words.slice(words.length - limit)]
      : [...words.slice(0, limit), [words[limit][0], text.length]];
    return whole.map(([start, end]) => text.slice(start, end));
  }
  return words.map(([start, end]) => text.slice(start, end));
}

// deno-lint-ignore no-control-regex
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

/** The lines of a text. */
export function splitLines(text: Str, keepEnds = false): Str[] {
  touch(text.length);
  const lines: Str[] = [];
  let at = 0;
  for (const { 0: end, index } of text.text.matchAll(LINE_ENDS)) {
    lines.push(text.slice(at, keepEnds ? index + end.length : index));
    at = index + end.length;
    checkItems(lines.length);
  }
  if (at < text.length) lines.push(text.slice(at));
  return lines;
}

/** Whether a text begins or ends with another one, or with one of a tuple. */
function meets(text: Str, what: Value, start: Value | undefined, end: Value | undefined, atEnd: boolean): boolean {
  const part = window(text, start, end);
  if (part === undefined) return false;
  const options = what instanceof Tuple ? what.items : [what];
  return options.some((option) => {
    const affix = textOf(option, atEnd ? "endswith()'s argument" : "startswith()'s argument").text;
    touch(affix.length);
    return atEnd ? part.text.endsWith(affix) : part.text.startsWith(affix);
  });
}

/** The part of a text that "start" and "end" of a search name; nothing where it would begin behind the end. */
function window(text: Str, start: Value | undefined, end: Value | undefined): Str | undefined {
  if ((start ?? null) === null && (end ?? null) === null) return text;
  const bound = (value: Value | undefined, otherwise: number): number => {
    if (value === undefined || value === null) return otherwise;
    const index = indexOf(value, "a bound");
    return index < 0 ? Math.max(0, index + text.points) : index;
  };
  const from = bound(start, 0);
  const to = Math.min(bound(end, text.points), text.points);
  return from > to ? undefined : text.part(from, to);
}

function find(text: Str, what: Value, start: Value | undefined, end: Value | undefined, last: boolean): number {
  const part = window(text, start, end);
  const sought = textOf(what, "find()'s argument").text;
  if (part === undefined) return -1;
  touch(part.length);
  const found = last ? part.text.lastIndexOf(sought) : part.text.indexOf(sought);
  if (found < 0) return -1;
  const skipped = (start ?? null) === null ? 0 : indexOf(start!, "a bound");
  return part.pointAt(found) + (skipped < 0 ? Math.max(0, skipped + text.points) : skipped);
}

function found(place: number): number {
  if (place < 0) throw new TemplateFault("substring not found");
  return place;
}

function count(text: Str, what: Str): number {
  if (what.length === 0) return text.points + 1;
  touch(text.length);
  let times = 0;
  const source = text.text;
  for (let at = source.indexOf(what.text); at >= 0; at = source.indexOf(what.text, at + what.length)) times++;
  return times;
}

function partition(text: Str, separator: Str, last: boolean): Value {
  if (separator.length === 0) throw new TemplateFault("partition() got an empty separator");
  touch(text.length);
  const at = last ? text.text.lastIndexOf(separator.text) : text.text.indexOf(separator.text);
  const none = text.slice(0, 0);
  if (at < 0) return new Tuple(last ? [none, none, text] : [text, none, none]);
  const end = at + separator.length;
  return new Tuple([text.slice(0, at), text.slice(at, end), text.slice(end)]);
}

/** Fills a text up to a width. */
export function pad(text: Str, width: Value, fill: Value | undefined, align: "left" | "right" | "center"): Str {
  const missing = indexOf(width, "a width") - text.points;
  const char = fill === undefined ? Str.template(" ") : textOf(fill, "the fill character");
  if (char.points !== 1) throw new TemplateFault("the fill character must be exactly one character long");
  if (missing <= 0) return text;
  checkLength(missing);
  const before = align === "left"
    ? 0
    : align === "right"
    ? missing
    : (missing >> 1) + (missing & (text.points + missing) & 1);
  return char.repeat(before).plus(text).plus(char.repeat(missing - before));
}

/** The first character large, the others small. */
export function capitalize(text: Str): Str {
  const first = text.part(0, 1);
  return first.map(titled).plus(text.slice(first.length).map((rest) => rest.toLowerCase()));
}

function titled(char: string): string {
  const [head = "", ...tail] = char.toUpperCase();
  return head + tail.join("").toLowerCase();
}

function swapcase(word: string): string {
  return word === word.toLowerCase() ? word.toUpperCase() : word.toLowerCase();
}

/** Whether a text is not empty and every code point is of a kind. */
const every = (pattern: RegExp) => (self: Str): boolean => {
  touch(self.length);
  return pattern.test(self.text);
};

function isCased(text: Str, other: RegExp): boolean {
  touch(text.length);
  return /[\p{Lu}\p{Ll}\p{Lt}]/u.test(text.text) && !other.test(text.text);
}

function isTitle(text: Str): boolean {
  touch(text.length);
  return /\p{L}/u.test(text.text) && !/(?<=\p{Cased})[\p{Lu}\p{Lt}]|(?<!\p{Cased})\p{Ll}/u.test(text.text);
}

/** Methods of strings. */
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

/** format() takes any arguments. */
Object.assign(STR_METHODS, {
  format: (self: Str, args: Args) => formatBraces(self, args),
  format_map: (self: Str, { positional: [fields] }: Args) => {
    if (!(fields instanceof Dict)) throw new TemplateFault("format_map() needs a dict");
    const named = new Map(
      [...fields.entries()].map(([key, value]) => [textOf(key, "a key of format_map()").text, value]),
    );
    return formatBraces(self, { positional: [], named });
  },
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
  count: ["value", (self: List | Tuple | Range, value) => itemsOf(self).filter((item) => same(item, value)).length],
  index: ["value start? stop?", (self: List | Tuple | Range, value, start, stop) => {
    const [from, to] = [indexOf(start ?? 0, "a bound"), stop === undefined ? Infinity : indexOf(stop, "a bound")];
    const place = [...iterate(self)].findIndex((item, i) => i >= from && i < to && same(item, value));
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
