/**
 * Methods and filters of strings: cutting, searching, replacing, padding.
 *
 * @module
 */

import { checkItems, checkLength, step, TemplateFault, touch } from "./limits.ts";
import { indexOf } from "./numbers.ts";
import { Builder, isSpace, SPACE, Str } from "./text.ts";
import { List, Tuple, typeName, type Value } from "./values.ts";

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

/** The offset after the last character that is not in a set. */
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

/** str.split() and, from the right, str.rsplit(). */
export function split(text: Str, separator: Value | undefined, most: Value | undefined, fromRight: boolean): Value {
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
export function meets(
  text: Str,
  what: Value,
  start: Value | undefined,
  end: Value | undefined,
  atEnd: boolean,
): boolean {
  const part = window(text, start, end);
  if (part === undefined) return false;
  const options = what instanceof Tuple ? what.items : [what];
  return options.some((option) => {
    const affix = textOf(option, atEnd ? "endswith()'s argument" : "startswith()'s argument").text;
    touch(affix.length);
    return atEnd ? part.text.endsWith(affix) : part.text.startsWith(affix);
  });
}

/** The part of a text that "start" and "end" of a search name; nothing if it would begin after the end. */
export function window(text: Str, start: Value | undefined, end: Value | undefined): Str | undefined {
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

/** Where a text holds another one, in code points; -1 if it does not. */
export function find(text: Str, what: Value, start: Value | undefined, end: Value | undefined, last: boolean): number {
  const part = window(text, start, end);
  const sought = textOf(what, "find()'s argument").text;
  if (part === undefined) return -1;
  touch(part.length);
  const found = last ? part.text.lastIndexOf(sought) : part.text.indexOf(sought);
  if (found < 0) return -1;
  const skipped = (start ?? null) === null ? 0 : indexOf(start!, "a bound");
  return part.pointAt(found) + (skipped < 0 ? Math.max(0, skipped + text.points) : skipped);
}

/** A place, which has to be one. */
export function found(place: number): number {
  if (place < 0) throw new TemplateFault("substring not found");
  return place;
}

/** How often a text holds another one. */
export function count(text: Str, what: Str): number {
  if (what.length === 0) return text.points + 1;
  touch(text.length);
  let times = 0;
  const source = text.text;
  for (let at = source.indexOf(what.text); at >= 0; at = source.indexOf(what.text, at + what.length)) times++;
  return times;
}

/** The text before a separator, the separator, and the text after it. */
export function partition(text: Str, separator: Str, last: boolean): Value {
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
  const small = (part: Str): Str => part.map((run) => run.toLowerCase());
  // All of it, because a sigma at the end of a word is written by what stands before it.
  return first.map(titled).plus(small(text).slice(small(first).length));
}

/** Titlecase letters that stand for two, each after the capital form and before the small one. */
const DIGRAPHS = ["\u01c5", "\u01c8", "\u01cb", "\u01f2"];
const IOTA = "\u0345";

/** A character as the first one of a word: Unicode's titlecase, which JavaScript lacks. */
export function titled(char: string): string {
  const digraph = DIGRAPHS.find((title) => title.toLowerCase() === char.toLowerCase());
  if (digraph !== undefined) return digraph;
  if (/[\u10d0-\u10ff]/.test(char)) return char; // Georgian has large letters, but does not begin words with them
  if (char === "\u0149") return "\u02bcN"; // an apostrophe and n
  const parts = char.normalize("NFD");
  if (parts.endsWith(IOTA)) {
    const large = parts.slice(0, -1).toUpperCase().normalize("NFC") + IOTA;
    const joined = large.normalize("NFC");
    return joined.length === 1 ? joined : large;
  }
  const [head = "", ...tail] = char.toUpperCase();
  return head + tail.join("").toLowerCase();
}

/** Letters of one case in the other one. */
export function swapcase(word: string): string {
  return word === word.toLowerCase() ? word.toUpperCase() : word.toLowerCase();
}

/** Whether a text is not empty and every code point is of a kind. */
export const every = (pattern: RegExp): (self: Str) => boolean => (self) => {
  touch(self.length);
  return pattern.test(self.text);
};

/** Whether a text has letters with case, and none of the other one. */
export function isCased(text: Str, other: RegExp): boolean {
  touch(text.length);
  return /[\p{Lu}\p{Ll}\p{Lt}]/u.test(text.text) && !other.test(text.text);
}

/** Whether words begin with large letters and go on with small ones. */
export function isTitle(text: Str): boolean {
  touch(text.length);
  return /\p{L}/u.test(text.text) && !/(?<=\p{Cased})[\p{Lu}\p{Lt}]|(?<!\p{Cased})\p{Ll}/u.test(text.text);
}
