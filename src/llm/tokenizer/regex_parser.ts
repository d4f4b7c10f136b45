/**
 * Reads regular expressions in the syntax of Oniguruma, which the pre-tokenizers of a tokenizer.json are written in, into a
 * tree. Unsupported syntax is an error, never another pattern.
 *
 * @module
 */

import {
  anyCase,
  CASELESS,
  type CharTest,
  CLASSES,
  complement,
  intersection,
  isWordInClass,
  matching,
  PROPERTIES,
  range,
  union,
} from "./char_set.ts";
import { type Assertion, type RegexNode, widthOf } from "./regex_tree.ts";

/** Longest pattern, in characters: published ones have up to 400. */
const MAX_CHARS = 10_000;
/** Deepest nesting of groups and classes. */
const MAX_DEPTH = 50;
/** Most repetitions that a pattern may count. */
const MAX_COUNT = 1000;

const ASSERTIONS: Readonly<Record<string, Assertion>> = {
  A: "start",
  z: "end",
  Z: "lastLineEnd",
  b: "boundary",
  B: "noBoundary",
};
const CONTROLS: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  f: "\f",
  v: "\v",
  a: "\x07",
  e: "\x1b",
};
/** Letters that together are the fold of a single one, such as "ss" of "ß". */
const FOLDED_PAIRS = ["ss", "ff", "fi", "fl", "st"];

interface Flags {
  readonly ignoreCase: boolean;
  readonly dotAll: boolean;
}

/** Reads a pattern. Throws an `Error` whose message says what is not supported and where. */
export function parseRegex(pattern: string): RegexNode {
  if (pattern.length > MAX_CHARS) throw new Error(`it has ${pattern.length} characters, at most ${MAX_CHARS}`);
  return new Parser(pattern).all();
}

class Parser {
  readonly #chars: readonly string[]; // by code point
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.#chars = Array.from(pattern);
  }

  all(): RegexNode {
    const node = this.#choice({ ignoreCase: false, dotAll: false });
    return this.#at < this.#chars.length ? this.#fail("a group that was not opened") : node;
  }

  #fail(what: string): never {
    throw new Error(`${what} at character ${this.#at}`);
  }

  #peek(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.#chars[this.#at + i] !== text[i]) return false;
    return true;
  }

  #passes(text: string): boolean {
    const found = this.#peek(text);
    if (found) this.#at += text.length;
    return found;
  }

  /** The text that fits `pattern` here, which is consumed; it begins with one of `first`. */
  #take(first: string, pattern: RegExp): RegExpExecArray | null {
    if (!first.includes(this.#chars[this.#at] ?? "\0")) return null;
    const found = pattern.exec(this.#chars.slice(this.#at, this.#at + 80).join(""));
    if (found) this.#at += Array.from(found[0]).length;
    return found;
  }

  #nest<T>(read: () => T): T {
    if (++this.#depth > MAX_DEPTH) this.#fail(`groups deeper than ${MAX_DEPTH} levels`);
    const result = read();
    this.#depth--;
    return result;
  }

  /** Alternatives, up to the end of the group. */
  #choice(flags: Flags): RegexNode {
    const items: RegexNode[] = [];
    do items.push(this.#sequence(flags)); while (this.#passes("|"));
    return items.length === 1 ? items[0] : { kind: "choice", items };
  }

  #sequence(flags: Flags): RegexNode {
    const items: RegexNode[] = [];
    let before = "";
    while (this.#at < this.#chars.length && !this.#peek("|") && !this.#peek(")")) {
      const switched = this.#take("(", /^\(\?([im]*)(?:-([im]*))?\)/);
      if (switched) { // holds to the end of the group, alternatives included
        items.push(this.#choice(withFlags(flags, switched)));
        break;
      }
      const atom = this.#atom(flags);
      const letter = atom.kind === "char" && atom.code !== undefined ? String.fromCodePoint(atom.code) : "";
      if (flags.ignoreCase) this.#checkFold(before, letter);
      const node = this.#quantified(atom);
      before = node === atom ? letter : "";
      items.push(node);
    }
    return items.length === 1 ? items[0] : { kind: "sequence", items };
  }

  /** Refuses letters that, without their case, are as good as another number of letters. */
  #checkFold(before: string, letter: string): void {
    const pair = (before + letter).toLowerCase();
    const one = letter.toUpperCase().length > letter.length || letter.toLowerCase().length > letter.length;
    const two = before !== "" && letter !== "" && (FOLDED_PAIRS.includes(pair) || /[^\0-\x7f]/.test(pair));
    if (one || two) this.#fail("letters whose case changes their number, without regard to case,");
  }

  #quantified(atom: RegexNode): RegexNode {
    let node = atom;
    for (;;) {
      const sign = this.#take("*+?", /^[*+?]/)?.[0];
      const counts = sign === undefined ? this.#take("{", /^\{(?:(\d+)(,?)(\d*)|,(\d+))\}/) : null;
      if (sign === undefined && counts === null) return node;
      if (node.kind === "assert") this.#fail("a repeated anchor");
      let [min, max] = [sign === "+" ? 1 : 0, sign === "?" ? 1 : Infinity];
      if (counts) {
        const [, low, comma, high, most] = counts;
        min = Number(low ?? 0);
        max = most ? Number(most) : comma ? Number(high || Infinity) : min;
        if (min > max || min > MAX_COUNT || (max > MAX_COUNT && max !== Infinity)) this.#fail("such a count");
      }
      // "{n}?" is an optional "{n}", and "{n,m}+" repeats it.
      const lazy = !(counts && min === max) && this.#passes("?");
      const mode = lazy ? "lazy" : !counts && this.#passes("+") ? "possessive" : "greedy";
      node = { kind: "repeat", item: node, min, max, mode };
    }
  }

  #atom(flags: Flags): RegexNode {
    const start = this.#at;
    const char = this.#chars[this.#at++];
    switch (char) {
      case "(":
        return this.#nest(() => this.#group(flags));
      case "[":
        return this.#named(this.#nest(() => this.#class(flags)), start, flags);
      case ".":
        return flags.dotAll ? this.#named(() => true, start, flags) : this.#named((code) => code !== 10, start, flags);
      case "^":
        return { kind: "assert", what: "lineStart" };
      case "$":
        return { kind: "assert", what: "lineEnd" };
      case "*":
      case "+":
      case "?":
        this.#at--;
        return this.#fail("nothing to repeat");
    }
    if (char !== "\\") return this.#literal(char, flags);
    const assertion = ASSERTIONS[this.#chars[this.#at]];
    if (assertion !== undefined) {
      this.#at++;
      return { kind: "assert", what: assertion };
    }
    const escape = this.#escape(flags);
    return typeof escape === "string" ? this.#literal(escape, flags) : this.#named(escape, start, flags);
  }

  #named(test: CharTest, start: number, { ignoreCase, dotAll }: Flags): RegexNode {
    const key = `${ignoreCase ? "i" : ""}${dotAll ? "m" : ""}${this.#chars.slice(start, this.#at).join("")}`;
    return { kind: "char", test, key };
  }

  #literal(char: string, { ignoreCase }: Flags): RegexNode {
    const code = char.codePointAt(0)!;
    const key = ` ${ignoreCase ? "i" : ""}${char}`;
    return { kind: "char", test: ignoreCase ? anyCase(code, code) : range(code, code), key, code };
  }

  /** The group after "(". */
  #group(flags: Flags): RegexNode {
    let wrap = (item: RegexNode): RegexNode => item;
    let inner = flags;
    if (this.#passes("?")) {
      const found = this.#take("<=!>im-:", /^(?:<?[=!]|>|([im]*)(?:-([im]*))?:)/);
      if (!found) return this.#fail("such a group");
      const [opening] = found;
      const negative = opening.endsWith("!");
      if (opening === ">") wrap = (item) => ({ kind: "atomic", item });
      else if (opening.endsWith(":")) inner = withFlags(flags, found);
      else if (opening.startsWith("<")) wrap = (item) => this.#behind(item, negative);
      else wrap = (item) => ({ kind: "look", item, behind: false, negative });
    }
    const item = this.#choice(inner);
    if (!this.#passes(")")) this.#fail("a group that does not end");
    return wrap(item);
  }

  /** A lookbehind: each alternative alone, since their widths may differ. */
  #behind(item: RegexNode, negative: boolean): RegexNode {
    const items = item.kind === "choice" ? item.items : [item];
    if (items.some((one) => widthOf(one) === undefined)) this.#fail("a lookbehind for a text of any length");
    const looks = items.map((one): RegexNode => ({ kind: "look", item: one, behind: true, negative }));
    return looks.length === 1 ? looks[0] : { kind: negative ? "sequence" : "choice", items: looks };
  }

  /** The escape after a backslash: a character or a set of them. */
  #escape(flags: Flags): string | CharTest {
    const property = this.#take("pP", /^([pP])\{(\^?)([A-Za-z_]+)\}/);
    if (property) {
      const test = this.#property(property[3], flags);
      return (property[1] === "P") !== (property[2] === "^") ? complement(test) : test;
    }
    const hex = this.#take("xu", /^(?:x\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))/);
    if (hex) {
      const code = Number.parseInt(hex[1] ?? hex[2] ?? hex[3], 16);
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || (hex[2] && code > 0x7f)) {
        this.#fail("such a character");
      }
      return String.fromCodePoint(code);
    }
    const char = this.#chars[this.#at++];
    if (char === undefined) return this.#fail("a backslash");
    if (Object.hasOwn(CONTROLS, char)) return CONTROLS[char];
    if (Object.hasOwn(CLASSES, char)) return CLASSES[char];
    const lower = char.toLowerCase();
    if (char !== lower && Object.hasOwn(CLASSES, lower)) return complement(CLASSES[lower]);
    return /[\p{L}\p{N}]/u.test(char) ? this.#fail(`\\${char}`) : char;
  }

  #property(name: string, { ignoreCase }: Flags): CharTest {
    const known = name.toLowerCase();
    if (ignoreCase && !CASELESS.test(name) && !CASELESS.test(known)) {
      return this.#fail(`\\p{${name}} without regard to case`);
    }
    if (Object.hasOwn(PROPERTIES, known)) return PROPERTIES[known]!;
    if (known === "punct") return this.#fail(`\\p{${name}}`); // with some symbols or without, as versions differ
    for (const property of [name, `Script=${name}`]) {
      try {
        return matching(`\\p{${property}}`);
      } catch { /* not known by that name */ }
    }
    return this.#fail(`\\p{${name}}`);
  }

  /** The class after "[": members and nested classes, parts of which "&&" intersects. */
  #class(flags: Flags): CharTest {
    const negative = this.#passes("^");
    const parts: CharTest[][] = [[]];
    if (this.#peek("]")) this.#fail("an empty class");
    while (!this.#passes("]")) {
      if (this.#at >= this.#chars.length) this.#fail("a class that does not end");
      if (this.#peek("[:")) this.#fail("a POSIX class");
      if (this.#passes("&&")) parts.push([]);
      else if (this.#passes("[")) parts.at(-1)!.push(this.#nest(() => this.#class(flags)));
      else parts.at(-1)!.push(this.#member(flags));
    }
    if (parts.some((tests) => tests.length === 0)) this.#fail("an empty class");
    const test = intersection(parts.map(union));
    return negative ? complement(test) : test;
  }

  /** A character, a range or an escape in a class. */
  #member(flags: Flags): CharTest {
    const low = this.#classChar(flags);
    if (typeof low !== "string") return low;
    const from = low.codePointAt(0)!;
    let to = from;
    if (this.#peek("-") && !this.#peek("-]") && !this.#peek("-&&") && !this.#peek("-[")) {
      this.#at++;
      const high = this.#classChar(flags);
      if (typeof high !== "string") return union([range(from, from), range(45, 45), high]);
      to = high.codePointAt(0)!;
      if (to < from) this.#fail("a range that ends before it begins");
    }
    if (!flags.ignoreCase) return range(from, to);
    return to > 0x7f ? this.#fail("other letters than those of ASCII, without regard to case,") : anyCase(from, to);
  }

  #classChar(flags: Flags): string | CharTest {
    if (this.#passes("\\w")) return isWordInClass;
    if (this.#passes("\\W")) return complement(isWordInClass);
    if (this.#passes("\\")) return this.#passes("b") ? "\b" : this.#escape(flags);
    return this.#chars[this.#at++] ?? this.#fail("a class that does not end");
  }
}

function withFlags(flags: Flags, [, on = "", off = ""]: RegExpExecArray): Flags {
  const set = (flag: string, was: boolean): boolean => off.includes(flag) ? false : on.includes(flag) || was;
  return { ignoreCase: set("i", flags.ignoreCase), dotAll: set("m", flags.dotAll) };
}
