/**
 * Regular expressions in JavaScript's syntax with the u flag, of which a finite automaton can be made.
 *
 * @module
 */

import { type CodePoints, complement, EVERY, MAX_CODE_POINT, pointsOf, union } from "./code_points.ts";

/** A parsed regular expression. */
export type Pattern =
  /** One code point of a set, which is computed when it is first needed. */
  | { readonly kind: "class"; readonly set: () => CodePoints }
  | { readonly kind: "sequence" | "choice"; readonly parts: readonly Pattern[] }
  | { readonly kind: "repeat"; readonly part: Pattern; readonly min: number; readonly max: number }
  /** Where the text begins or ends. */
  | { readonly kind: "start" | "end" };

/** Deepest group. */
const MAX_DEPTH = 200;
/** Most repetitions that a quantifier counts. */
const MAX_COUNT = 100_000;

const DIGITS = pointsOf("0123456789");
const WORDS = union(DIGITS, [0x41, 0x5a, 0x61, 0x7a], pointsOf("_"));
const SPACES = union(pointsOf("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), [0x2000, 0x200a]);
const LINE_ENDS = pointsOf("\n\r\u2028\u2029");
/** Classes by the letter that names them. */
const CLASSES: Readonly<Record<string, CodePoints>> = {
  d: DIGITS,
  D: complement(DIGITS),
  w: WORDS,
  W: complement(WORDS),
  s: SPACES,
  S: complement(SPACES),
};
/** Control characters by the letter that names them. */
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13 };
/** Groups that are none of an automaton, by how they begin. */
const REFUSED_GROUPS: readonly (readonly [string, string])[] = [
  ["?=", "a lookahead"],
  ["?!", "a lookahead"],
  ["?<=", "a lookbehind"],
  ["?<!", "a lookbehind"],
];

/**
 * Parses a regular expression. Groups, lazy quantifiers and names of groups do not change which texts match. Any punctuation may have a
 * backslash before it. Throws a RangeError that names the mistake, or the construct that no finite automaton supports.
 */
export function parseRegex(source: string): Pattern {
  return new RegexParser(source).parse();
}

class RegexParser {
  readonly #chars: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(source: string) {
    this.#chars = [...source];
  }

  parse(): Pattern {
    const pattern = this.#choice();
    if (this.#at < this.#chars.length) throw new RangeError('a closing parenthesis without "("');
    return pattern;
  }

  #peek(ahead: number = 0): string | undefined {
    return this.#chars[this.#at + ahead];
  }

  /** Takes a text where it comes next. */
  #take(text: string): boolean {
    const chars = [...text];
    if (chars.some((char, i) => this.#peek(i) !== char)) return false;
    this.#at += chars.length;
    return true;
  }

  #choice(): Pattern {
    if (++this.#depth > MAX_DEPTH) throw new RangeError(`groups of more than ${MAX_DEPTH} levels`);
    const parts = [this.#sequence()];
    while (this.#take("|")) parts.push(this.#sequence());
    this.#depth--;
    return parts.length === 1 ? parts[0] : { kind: "choice", parts };
  }

  #sequence(): Pattern {
    const parts: Pattern[] = [];
    for (let char; (char = this.#peek()) !== undefined && char !== "|" && char !== ")";) {
      const part = this.#atom();
      parts.push(part.kind === "start" || part.kind === "end" ? part : this.#quantified(part));
    }
    return parts.length === 1 ? parts[0] : { kind: "sequence", parts };
  }

  #quantified(part: Pattern): Pattern {
    const counts = this.#quantifier();
    if (!counts) return part;
    this.#take("?");
    const [min, max] = counts;
    if (min > max) throw new RangeError(`the quantifier {${min},${max}}, whose numbers are out of order`);
    const count = max === Infinity ? min : max;
    if (count > MAX_COUNT) throw new RangeError(`a quantifier that counts to ${count}, at most ${MAX_COUNT} is held`);
    return { kind: "repeat", part, min, max };
  }

  #quantifier(): [number, number] | undefined {
    if (this.#take("*")) return [0, Infinity];
    if (this.#take("+")) return [1, Infinity];
    if (this.#take("?")) return [0, 1];
    if (!this.#take("{")) return undefined;
    const min = this.#digits();
    const max = this.#take(",") ? this.#digits() || "Infinity" : min;
    if (min === "" || !this.#take("}")) throw new RangeError('"{" without a count: write \\{ for the character');
    return [Number(min), Number(max)];
  }

  #digits(): string {
    let digits = "";
    while (/^[0-9]$/.test(this.#peek() ?? "")) digits += this.#chars[this.#at++];
    return digits;
  }

  #atom(): Pattern {
    const char = this.#chars[this.#at++];
    switch (char) {
      case "^":
        return { kind: "start" };
      case "$":
        return { kind: "end" };
      case ".":
        return classOf(() => complement(LINE_ENDS));
      case "(":
        return this.#group();
      case "[":
        return this.#class();
      case "\\":
        return this.#escape();
    }
    if ("*+?".includes(char)) throw new RangeError(`"${char}" with nothing to repeat`);
    if ("{}]".includes(char)) throw new RangeError(`a lone "${char}": write \\${char} for the character`);
    return single(char.codePointAt(0)!);
  }

  #group(): Pattern {
    const refused = REFUSED_GROUPS.find(([begin]) => this.#take(begin));
    if (refused) throw new RangeError(`${refused[1]}, which no finite automaton holds`);
    if (this.#take("?<")) {
      let name = "";
      while (this.#peek() !== undefined && this.#peek() !== ">") name += this.#chars[this.#at++];
      if (!this.#take(">") || !/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name)) {
        throw new RangeError("a group whose name is none");
      }
    } else if (this.#peek() === "?" && !this.#take("?:")) {
      throw new RangeError(`a group that begins with (?${this.#peek(1) ?? ""}`);
    }
    const pattern = this.#choice();
    if (!this.#take(")")) throw new RangeError('a parenthesis "(" without ")"');
    // A group takes a quantifier even where it holds an assertion alone.
    return { kind: "sequence", parts: [pattern] };
  }

  /** An escape outside of brackets, after its backslash. */
  #escape(): Pattern {
    const char = this.#peek();
    if (char !== undefined && /^[1-9k]$/.test(char)) {
      throw new RangeError(`\\${char}, a reference to a group, which no finite automaton holds`);
    }
    if (char === "b" || char === "B") {
      throw new RangeError(`\\${char}, which is not held: say what stands on both sides`);
    }
    const found = this.#escaped(false);
    return typeof found === "number" ? single(found) : classOf(found);
  }

  /** The value of an escape, after its backslash: a code point, or a set. */
  #escaped(inClass: boolean): number | (() => CodePoints) {
    const char = this.#chars[this.#at++];
    if (char === undefined) throw new RangeError("a backslash at its end");
    if (Object.hasOwn(CLASSES, char)) return () => CLASSES[char];
    if (Object.hasOwn(CONTROLS, char)) return CONTROLS[char];
    if (char === "p" || char === "P") return this.#property(char);
    if (char === "0" && !/^[0-9]$/.test(this.#peek() ?? "")) return 0;
    if (char === "b" && inClass) return 8;
    if (char === "c" && /^[a-zA-Z]$/.test(this.#peek() ?? "")) return this.#chars[this.#at++].charCodeAt(0) % 32;
    if (char === "x") return this.#hex(2);
    if (char === "u") return this.#unicode();
    if (!/^[!-/:-@[-`{-~]$/.test(char)) throw new RangeError(`\\${char}, an escape that has no meaning`);
    return char.charCodeAt(0);
  }

  /** A Unicode property: JavaScript's own knowledge of it. */
  #property(letter: string): () => CodePoints {
    let name = "";
    const begun = this.#take("{");
    while (begun && this.#peek() !== undefined && this.#peek() !== "}") name += this.#chars[this.#at++];
    if (!begun || !this.#take("}")) throw new RangeError(`\\${letter} without the name of a property`);
    const source = `\\${letter}{${name}}`;
    let matcher: RegExp;
    try {
      matcher = new RegExp(`^${source}$`, "u");
    } catch {
      throw new RangeError(`${source}, a property that is not known`);
    }
    return () => propertySet(matcher);
  }

  #hex(count: number): number {
    const digits = this.#chars.slice(this.#at, this.#at + count).join("");
    if (digits.length !== count || !/^[0-9a-fA-F]+$/.test(digits)) throw new RangeError("an escape without its digits");
    this.#at += count;
    return parseInt(digits, 16);
  }

  #unicode(): number {
    if (this.#take("{")) {
      let digits = "";
      while (/^[0-9a-fA-F]$/.test(this.#peek() ?? "")) digits += this.#chars[this.#at++];
      const point = parseInt(digits, 16);
      if (!this.#take("}") || !(point <= MAX_CODE_POINT)) throw new RangeError("\\u{} without a code point");
      return point;
    }
    const unit = this.#hex(4);
    if (unit < 0xd800 || unit > 0xdbff || this.#peek() !== "\\" || this.#peek(1) !== "u") return unit;
    const low = parseInt(this.#chars.slice(this.#at + 2, this.#at + 6).join(""), 16);
    if (!(low >= 0xdc00 && low <= 0xdfff)) return unit;
    this.#at += 6;
    return 0x10000 + ((unit - 0xd800) << 10) + low - 0xdc00;
  }

  #class(): Pattern {
    const negated = this.#take("^");
    const sets: (() => CodePoints)[] = [];
    const ranges: number[] = [];
    while (!this.#take("]")) {
      const first = this.#member();
      const ranged = this.#peek() === "-" && this.#peek(1) !== "]" && this.#take("-");
      const last = ranged ? this.#member() : first;
      if (typeof first === "number" && typeof last === "number") {
        if (first > last) throw new RangeError("a range of a class whose ends are out of order");
        ranges.push(first, last);
      } else if (ranged) {
        throw new RangeError("a range of a class that begins or ends with a class");
      } else {
        sets.push(first as () => CodePoints);
      }
    }
    return classOf(() => {
      const set = union(ranges, ...sets.map((one) => one()));
      return negated ? complement(set) : set;
    });
  }

  #member(): number | (() => CodePoints) {
    const char = this.#chars[this.#at++];
    if (char === undefined) throw new RangeError('"[" without "]"');
    return char === "\\" ? this.#escaped(true) : char.codePointAt(0)!;
  }
}

function single(point: number): Pattern {
  return classOf(() => union([point, point]));
}

/** A class whose set is computed once. */
function classOf(compute: () => CodePoints): Pattern {
  let set: CodePoints | undefined;
  return { kind: "class", set: () => set ??= compute() };
}

const properties = new Map<string, CodePoints>();

/** Code points that an expression of one of them matches. */
function propertySet(matcher: RegExp): CodePoints {
  const known = properties.get(matcher.source);
  if (known) return known;
  const ranges: number[] = [];
  for (let i = 0; i < EVERY.length; i += 2) {
    for (let point = EVERY[i]; point <= EVERY[i + 1]; point++) {
      if (!matcher.test(String.fromCodePoint(point))) continue;
      if (ranges.length > 0 && ranges[ranges.length - 1] === point - 1) ranges[ranges.length - 1] = point;
      else ranges.push(point, point);
    }
  }
  properties.set(matcher.source, ranges);
  return ranges;
}
