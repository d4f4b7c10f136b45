/**
 * Grammars in EBNF, as the option `grammar` takes them: rules `name ::= …`, of which `root` is the whole text.
 *
 * @module
 */

import { type CodePoints, complement, EVERY, MAX_CODE_POINT, union } from "./code_points.ts";
import { choice, type Expression, literal, points, repeat, type Rules, sequence } from "./expression.ts";

/** Deepest parenthesis. */
const MAX_DEPTH = 200;
/** Most repetitions that a quantifier counts. */
const MAX_COUNT = 100_000;

const NAME = /[A-Za-z_][\w.-]*/y;
const SPACE = /(?:\s|#[^\n]*)*/y;
const RULE_BEGIN = /[A-Za-z_][\w.-]*(?:\s|#[^\n]*)*::=/y;
const COUNTS = /\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}/y;
const QUANTIFIERS: Readonly<Record<string, readonly [min: number, max: number]>> = {
  "*": [0, Infinity],
  "+": [1, Infinity],
  "?": [0, 1],
};
/** Characters by the letter of their escape. */
const ESCAPES: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, f: 12, v: 11, b: 8, a: 7, e: 27, "0": 0 };
/** Digits of an escape by its letter. */
const DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/** Parses a grammar. Throws a RangeError that says what is wrong and where. */
export function parseEbnf(source: string): Rules {
  return new EbnfParser(source).parse();
}

class EbnfParser {
  readonly #source: string;
  #at = 0;
  #depth = 0;
  /** Indices of rules by name. */
  readonly #indices = new Map<string, number>([["root", 0]]);
  readonly #rules: (Expression | undefined)[] = [];

  constructor(source: string) {
    this.#source = source;
  }

  parse(): Rules {
    for (this.#space(); this.#at < this.#source.length; this.#space()) {
      const name = this.#match(NAME)?.[0];
      this.#space();
      if (name === undefined || !this.#take("::=")) this.#fail("expected a rule, name ::= …");
      const index = this.#indexOf(name!);
      if (this.#rules[index]) this.#fail(`the rule "${name}" is defined twice`);
      this.#rules[index] = this.#choice();
    }
    const missing = [...this.#indices].find(([, index]) => !this.#rules[index]);
    if (missing) throw new RangeError(`the rule "${missing[0]}" is not defined`);
    return this.#rules as Rules;
  }

  #fail(what: string): never {
    const line = this.#source.slice(0, this.#at).split("\n").length;
    throw new RangeError(`line ${line}: ${what}`);
  }

  #match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source);
    if (!found) return undefined;
    this.#at = pattern.lastIndex;
    return found;
  }

  #take(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #space(): void {
    this.#match(SPACE);
  }

  #indexOf(name: string): number {
    const known = this.#indices.get(name);
    if (known !== undefined) return known;
    const index = this.#indices.size;
    this.#indices.set(name, index);
    return index;
  }

  #choice(): Expression {
    if (++this.#depth > MAX_DEPTH) this.#fail(`parentheses of more than ${MAX_DEPTH} levels`);
    const parts = [this.#sequence()];
    while (this.#take("|")) parts.push(this.#sequence());
    this.#depth--;
    return choice(...parts);
  }

  /** Ends where a choice, a parenthesis or the next rule does. */
  #sequence(): Expression {
    const parts: Expression[] = [];
    for (;;) {
      this.#space();
      const char = this.#source[this.#at];
      if (char === undefined || char === "|" || char === ")") break;
      if (this.#nextRule()) break;
      parts.push(this.#quantified(this.#part(char)));
    }
    this.#space();
    return sequence(...parts);
  }

  /** Whether the next rule begins here. */
  #nextRule(): boolean {
    RULE_BEGIN.lastIndex = this.#at;
    return RULE_BEGIN.test(this.#source);
  }

  #part(char: string): Expression {
    if (char === '"') return this.#literal();
    if (char === "[") return this.#class();
    if (this.#take("(")) return this.#group();
    if (this.#take(".")) return points(EVERY);
    const name = this.#match(NAME)?.[0];
    if (name === undefined) return this.#fail(`unexpected ${JSON.stringify(char)}`);
    if (this.#source[this.#at] === "(") this.#fail(`${name}(…), which is not held`);
    return { kind: "rule", index: this.#indexOf(name) };
  }

  #group(): Expression {
    if (this.#source[this.#at] === "=") this.#fail("a lookahead (= …), which is not held");
    const part = this.#choice();
    if (!this.#take(")")) this.#fail('a parenthesis "(" without ")"');
    return part;
  }

  #quantified(part: Expression): Expression {
    let whole = part;
    for (;;) {
      this.#space();
      const char = this.#source[this.#at] ?? "";
      if (Object.hasOwn(QUANTIFIERS, char)) {
        this.#at++;
        whole = repeat(whole, ...QUANTIFIERS[char]);
      } else if (char === "{") {
        whole = this.#counted(whole);
      } else {
        return whole;
      }
    }
  }

  #counted(part: Expression): Expression {
    const found = this.#match(COUNTS);
    if (!found) return this.#fail("expected counts, {2}, {2,} or {2,5}");
    const min = Number(found[1]);
    const max = found[2] === undefined ? min : found[3] === "" ? Infinity : Number(found[3]);
    if (min > max) this.#fail(`the counts {${min},${max}} are out of order`);
    const count = max === Infinity ? min : max;
    if (count > MAX_COUNT) this.#fail(`counts to ${count}, at most ${MAX_COUNT} are held`);
    return repeat(part, min, max);
  }

  #literal(): Expression {
    this.#at++;
    let text = "";
    while (!this.#take('"')) text += String.fromCodePoint(this.#char('"'));
    return literal(text);
  }

  #class(): Expression {
    this.#at++;
    const negated = this.#take("^");
    const ranges: number[] = [];
    while (!this.#take("]")) {
      const first = this.#char("]");
      const ranged = this.#source[this.#at] === "-" && this.#source[this.#at + 1] !== "]" && this.#take("-");
      const last = ranged ? this.#char("]") : first;
      if (first > last) this.#fail("a range of a class whose ends are out of order");
      ranges.push(first, last);
    }
    const set: CodePoints = union(ranges);
    return points(negated ? complement(set) : set);
  }

  /** A character of a literal or a class that ends with `end`. */
  #char(end: string): number {
    const point = this.#source.codePointAt(this.#at);
    if (point === undefined || point === 10) return this.#fail(`expected ${end} before the end of the line`);
    const char = String.fromCodePoint(point);
    this.#at += char.length;
    if (char !== "\\") return this.#scalar(point);
    const letter = this.#source[this.#at++] ?? "";
    if (Object.hasOwn(DIGITS, letter)) {
      const digits = this.#source.slice(this.#at, this.#at + DIGITS[letter]);
      if (!new RegExp(`^[0-9a-fA-F]{${DIGITS[letter]}}$`).test(digits)) {
        this.#fail(`\\${letter} without its ${DIGITS[letter]} digits`);
      }
      this.#at += digits.length;
      return this.#scalar(parseInt(digits, 16));
    }
    if (Object.hasOwn(ESCAPES, letter)) return ESCAPES[letter];
    if (!/^[!-/:-@[-`{-~ ]$/.test(letter)) this.#fail(`\\${letter}, an escape that has no meaning`);
    return letter.charCodeAt(0);
  }

  #scalar(point: number): number {
    if (point <= MAX_CODE_POINT && (point < 0xd800 || point > 0xdfff)) return point;
    return this.#fail(`U+${point.toString(16)} is no character`);
  }
}
