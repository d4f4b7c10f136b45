/**
 * Strings that know which of their parts users wrote.
 *
 * A string is text with a list of the ranges that users wrote. These are contents of messages, names and arguments of tools, and
 * all text that was made of them. The rest was written by the template's author. Every operation carries the ranges along. So at the end the
 * prompt falls into parts, and control tokens are looked for only in those of the template. A range may be empty: if user text was
 * cut out, the template's text before it does not join the text after it.
 *
 * Concatenations are kept as pairs until they are read, so a template that adds up its prompt piece by piece takes linear time.
 *
 * @module
 */

import { allocate, checkLength, step, TemplateFault, touch } from "./limits.ts";

/** Starts and ends of the ranges that users wrote, in UTF-16 units, ascending; none of them touch. */
type Ranges = readonly number[];

const NONE: Ranges = [];

/** White space as Python's str.strip() and regular expressions know it. */
export const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const PAIR = /[\ud800-\udbff][\udc00-\udfff]/;
const SPACES: ReadonlySet<number> = new Set(
  [0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000, ...Array.from({ length: 11 }, (_, i) => 0x2000 + i)],
);

/** Whether a UTF-16 unit is white space. */
export function isSpace(unit: number): boolean {
  if (unit < 0x80) return unit === 32 || (unit >= 9 && unit <= 13) || (unit >= 28 && unit < 32);
  return SPACES.has(unit);
}

/** A string. */
export class Str {
  /** Length in UTF-16 units. */
  readonly length: number;
  /** At most the number of pieces that it is made of, plus its length. */
  readonly #weight: number;
  #text: string;
  #user: Ranges;
  #pair: readonly [Str, Str] | undefined;
  /** Where code points begin, unless that is everywhere. */
  #starts: Uint32Array | null | undefined;
  #markup = false;

  private constructor(length: number, weight: number, text: string, user: Ranges, pair?: readonly [Str, Str]) {
    this.length = length;
    this.#weight = weight;
    this.#text = text;
    this.#user = user;
    this.#pair = pair;
  }

  /** Text that the template's author wrote. */
  static template(text: string): Str {
    return Str.#made(text, NONE);
  }

  /** Text that a user wrote. */
  static user(text: string): Str {
    return Str.#made(text, [0, text.length]);
  }

  /** A text of the conversation, which may be as long as it is. */
  static input(text: string): Str {
    return new Str(text.length, 1, text, [0, text.length]);
  }

  /** Text with ranges of users in it. */
  static ranged(text: string, user: Ranges): Str {
    return Str.#made(text, user);
  }

  static #made(text: string, user: Ranges): Str {
    checkLength(text.length);
    allocate(64 + text.length + 8 * user.length);
    return new Str(text.length, text.length + 1, text, user);
  }

  /** The text. */
  get text(): string {
    if (this.#pair !== undefined) this.#flatten();
    return this.#text;
  }

  /** The ranges of users. */
  get user(): Ranges {
    if (this.#pair !== undefined) this.#flatten();
    return this.#user;
  }

  /** Whether it is markup: a text that other texts are escaped for before they are added to it (markup.ts). */
  get markup(): boolean {
    return this.#markup;
  }

  /** The same text as markup, or as none. */
  withMarkup(markup: boolean): Str {
    if (this.#markup === markup) return this;
    allocate(96);
    const copy = new Str(this.length, this.#weight, this.#text, this.#user, this.#pair);
    copy.#markup = markup;
    return copy;
  }

  /** Whether users wrote all of it (`true`), nothing (`false`), or a part. */
  get byUser(): boolean | undefined {
    const { user } = this;
    if (user.length === 0) return false;
    return user.length === 2 && user[0] === 0 && user[1] === this.length ? true : undefined;
  }

  /** Two strings as one. */
  plus(other: Str): Str {
    if (this.length + other.length === 0) return this.byUser === false ? other : this;
    if (other.length === 0 && other.byUser === false) return this;
    if (this.length === 0 && this.byUser === false) return other;
    const length = this.length + other.length;
    const weight = this.#weight + other.#weight;
    checkLength(length, weight);
    allocate(96);
    return new Str(length, weight, "", NONE, [this, other]);
  }

  #flatten(): void {
    allocate(this.length);
    const built = new Builder();
    const stack: Str[] = [this];
    for (let piece = stack.pop(); piece !== undefined; piece = stack.pop()) {
      touch(0);
      if (piece.#pair === undefined) built.flat(piece.#text, piece.#user);
      else stack.push(piece.#pair[1], piece.#pair[0]);
    }
    this.#text = built.text;
    this.#user = built.user;
    this.#pair = undefined;
  }

  /** The UTF-16 units from `start` to `end`. */
  slice(start: number, end: number = this.length): Str {
    if (start >= end) start = end;
    if (start === 0 && end === this.length) return this;
    const text = this.text.slice(start, end);
    const { user } = this;
    if (user.length === 0) return Str.template(text);
    const clipped: number[] = [];
    for (let i = firstEndingAt(user, start); i < user.length && user[i] <= end; i += 2) {
      clipped.push(Math.max(user[i], start) - start, Math.min(user[i + 1], end) - start);
    }
    return Str.ranged(text, clipped);
  }

  /** Number of code points. */
  get points(): number {
    return this.#pointStarts()?.length ?? this.length;
  }

  /** The UTF-16 offset of a code point. */
  offset(point: number): number {
    const starts = this.#pointStarts();
    if (starts === null) return Math.min(point, this.length);
    return point < starts.length ? starts[point] : this.length;
  }

  /** The code point at a UTF-16 offset. */
  pointAt(offset: number): number {
    const starts = this.#pointStarts();
    if (starts === null) return offset;
    let low = 0;
    for (let high = starts.length; low < high;) {
      const middle = (low + high) >> 1;
      if (starts[middle] < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The code points from `start` to `end`. */
  part(start: number, end: number): Str {
    return this.slice(this.offset(start), this.offset(end));
  }

  #pointStarts(): Uint32Array | null {
    if (this.#starts !== undefined) return this.#starts;
    const { text } = this;
    touch(text.length);
    if (!PAIR.test(text)) return this.#starts = null;
    allocate(4 * text.length);
    const starts = new Uint32Array(text.length);
    let count = 0;
    for (let at = 0; at < text.length; at += text.codePointAt(at)! > 0xffff ? 2 : 1) starts[count++] = at;
    return this.#starts = starts.subarray(0, count);
  }

  /** The same writers for a text that `change` makes of each run; a string of one writer is changed as a whole. */
  map(change: (text: string) => string): Str {
    touch(this.length);
    const { byUser } = this;
    if (byUser !== undefined) return byUser ? Str.user(change(this.text)) : Str.template(change(this.text));
    const built = new Builder();
    for (const { text, control } of this.parts()) {
      built.add(control ? Str.template(change(text)) : Str.user(change(text)));
    }
    return built.done();
  }

  /** Replaces every match of a global regular expression by a text of its writer; one that a user wrote a part of is a user's. */
  rewrite(pattern: RegExp, change: (match: string) => string): Str {
    touch(this.length);
    const { text } = this;
    if (text.search(pattern) < 0) return this;
    const counted = (match: string): string => {
      step();
      return change(match);
    };
    if (this.byUser !== undefined) return this.map((whole) => whole.replace(pattern, counted));
    const built = new Builder();
    let at = 0;
    for (const { 0: match, index } of text.matchAll(pattern)) {
      built.add(this.slice(at, index));
      const byUser = this.slice(index, index + match.length).user.length > 0;
      built.add(byUser ? Str.user(counted(match)) : Str.template(counted(match)));
      at = index + match.length;
    }
    return built.add(this.slice(at)).done();
  }

  /** `count` times the string. */
  repeat(count: number): Str {
    if (count <= 0) return this.slice(0, 0);
    checkLength(this.length * count);
    if (this.byUser === false) return Str.template(this.text.repeat(count));
    if (this.byUser && this.length > 0) return Str.user(this.text.repeat(count));
    const built = new Builder();
    if (this.length === 0) return this;
    for (let i = 0; i < count; i++) built.add(this);
    return built.done();
  }

  /** Code points in reverse order. */
  reversed(): Str {
    const { text, user, length } = this;
    touch(length);
    const mirrored = user.map((_, i) => length - user[user.length - 1 - i]);
    allocate(2 * length);
    const units = new Uint16Array(length);
    for (let i = 0; i < length; i++) units[i] = text.charCodeAt(length - 1 - i);
    let reversed = "";
    for (let i = 0; i < length; i += 8192) reversed += String.fromCharCode(...units.subarray(i, i + 8192));
    return Str.ranged(reversed.replace(/[\udc00-\udfff][\ud800-\udbff]/g, ([low, high]) => high + low), mirrored);
  }

  /** Runs of one writer each. */
  parts(): TextPart[] {
    return splitByWriter(this.text, this.user);
  }
}

/** A run of text by one writer. */
export interface TextPart {
  /** The text. */
  readonly text: string;
  /** Whether the template's author wrote it. */
  readonly control: boolean;
}

/** Between two runs of the template stands one of a user, which may be empty. */
function splitByWriter(text: string, user: Ranges): TextPart[] {
  const parts: TextPart[] = [];
  let at = 0;
  for (let i = 0; i < user.length; i += 2) {
    if (user[i] > at) parts.push({ text: text.slice(at, user[i]), control: true });
    parts.push({ text: text.slice(user[i], user[i + 1]), control: false });
    at = user[i + 1];
  }
  if (at < text.length) parts.push({ text: text.slice(at), control: true });
  return parts;
}

/** Index of the first range that ends at or after an offset. */
function firstEndingAt(user: Ranges, offset: number): number {
  let low = 0;
  for (let high = user.length / 2; low < high;) {
    const middle = (low + high) >> 1;
    if (user[2 * middle + 1] < offset) low = middle + 1;
    else high = middle;
  }
  return 2 * low;
}

/** The empty string. */
export const EMPTY: Str = Str.template("");

/** Strings put together. */
export class Builder {
  #text = "";
  readonly #user: number[] = [];
  readonly #max: number | undefined;

  /** Holds what a value may hold, or a prompt of at most `max` characters. */
  constructor(max?: number) {
    this.#max = max;
  }

  /** The text so far. */
  get text(): string {
    return this.#text;
  }

  /** The ranges so far. */
  get user(): Ranges {
    return this.#user;
  }

  /** Adds a string. */
  add(piece: Str): this {
    const length = this.#text.length + piece.length;
    if (this.#max === undefined) checkLength(length);
    else if (length > this.#max) throw new TemplateFault(`The prompt has ${length} characters, at most ${this.#max}`);
    touch(piece.length);
    return this.flat(piece.text, piece.user);
  }

  /** Adds what the program itself wrote about values of the conversation: never a control token. */
  addUser(text: string): this {
    return this.flat(text, [0, text.length]);
  }

  /** Adds text with ranges. */
  flat(text: string, user: Ranges): this {
    const at = this.#text.length;
    this.#text += text;
    let from = 0;
    if (user.length > 0 && this.#user.at(-1) === at + user[0]) {
      this.#user[this.#user.length - 1] = at + user[1];
      from = 2;
    }
    for (let i = from; i < user.length; i++) this.#user.push(at + user[i]);
    return this;
  }

  /** Runs of one writer each. */
  parts(): TextPart[] {
    return splitByWriter(this.#text, this.#user);
  }

  /** The string. */
  done(): Str {
    return Str.ranged(this.#text, this.#user);
  }
}

/** Strings with another one between them. */
export function join(pieces: Iterable<Str>, separator: Str): Str {
  const built = new Builder();
  let first = true;
  for (const piece of pieces) {
    if (!first) built.add(separator);
    built.add(piece);
    first = false;
  }
  return built.done();
}
