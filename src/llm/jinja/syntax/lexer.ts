/**
 * Template text to tokens, as Jinja cuts it with `trim_blocks` and `lstrip_blocks`. The newline after a block goes, and so do the
 * blanks of its line before it. `-` takes all white space on its side and `+` leaves it.
 *
 * Patterns are tried at one place only, and the text between tags is searched once, so reading takes linear time.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import { step, TemplateFault } from "../limits.ts";
import { whole } from "../numbers.ts";
import { SPACE } from "../text.ts";

/** A piece of a template. */
export interface Token {
  /** The kind of token; operators are their own type. */
  readonly type: "data" | "{{" | "}}" | "{%" | "%}" | "name" | "string" | "int" | "float" | "operator" | "end";
  /** Its text, without quotes and escapes. */
  readonly text: string;
  /** The value of an int or a float. */
  readonly number?: number | bigint;
  /** Line, from 1. */
  readonly line: number;
}

const OPERATORS = /\*\*|\/\/|==|!=|>=|<=|[-+*/%~[\](){}<>=.:|,;]/y;
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{ID_Start}_][\p{ID_Continue}]*/uy;
const STRING = /'[^'\\]*(?:\\[^][^'\\]*)*'|"[^"\\]*(?:\\[^][^"\\]*)*"/y;
const BLANKS = new RegExp(`[${SPACE}]+`, "y");
const ONLY_BLANKS = new RegExp(`^[${SPACE}]+$`);
const RAW = new RegExp(`\\{%[-+]?[${SPACE}]*raw[${SPACE}]*(-?)%\\}`, "y");
const END_RAW = new RegExp(`\\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*([-+]?)%\\}`, "y");
const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

/** Cuts a template into tokens. */
export function tokenize(template: string): Token[] {
  return new Lexer(template.replace(/\r\n?/g, "\n").replace(/\n$/, "")).run();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** Up to where lines have been counted. */
  #counted = 0;

  constructor(source: string) {
    this.#source = source;
  }

  run(): Token[] {
    const source = this.#source;
    while (this.#at < source.length) {
      const start = this.#at;
      let open = start;
      do open = source.indexOf("{", open); while (open >= 0 && !"{%#".includes(source[open + 1] || " ") && ++open);
      if (open < 0) {
        this.#data(start, source.length);
        break;
      }
      const sign = source[open + 2];
      this.#data(start, this.#dataEnd(start, open, sign, source[open + 1] !== "{"));
      this.#at = open;
      if (this.#match(RAW) !== undefined) this.#raw(open);
      else if (source[open + 1] === "#") this.#comment(open, sign);
      else this.#tag(open, sign);
    }
    this.#push("end", "", source.length);
    return this.#tokens;
  }

  /** Where the text before a tag ends. */
  #dataEnd(start: number, end: number, sign: string, lstrip: boolean): number {
    const source = this.#source;
    if (sign === "-") {
      while (end > start && ONLY_BLANKS.test(source[end - 1])) end--;
    } else if (sign !== "+" && lstrip) {
      let lineStart = end;
      while (lineStart > start && source[lineStart - 1] !== "\n" && ONLY_BLANKS.test(source[lineStart - 1])) {
        lineStart--;
      }
      const beginsLine = lineStart === 0 || source[lineStart - 1] === "\n";
      if (beginsLine) return lineStart;
    }
    return end;
  }

  #data(start: number, end: number): void {
    if (end > start) this.#push("data", this.#source.slice(start, end), start);
    this.#at = end;
  }

  #comment(open: number, sign: string): void {
    const start = open + (sign === "-" || sign === "+" ? 3 : 2);
    const close = this.#source.indexOf("#}", start);
    if (close < 0) throw new TemplateFault("a comment does not end", this.#lineOf(open));
    this.#at = close + 2;
    this.#trim(close > start ? this.#source[close - 1] : "", true);
  }

  #raw(open: number): void {
    if (this.#source.slice(open, this.#at).endsWith("-%}")) this.#match(BLANKS);
    const start = this.#at;
    for (let close = this.#source.indexOf("{%", start); close >= 0; close = this.#source.indexOf("{%", close + 1)) {
      this.#at = close;
      const end = this.#match(END_RAW);
      if (end === undefined) continue;
      const after = this.#at;
      this.#data(start, this.#dataEnd(start, close, end[2], true));
      this.#at = after;
      this.#trim(end.at(-3) ?? "", true);
      return;
    }
    throw new TemplateFault("a raw block does not end", this.#lineOf(open));
  }

  /** Skips the white space that goes after a tag. */
  #trim(sign: string, block: boolean): void {
    if (sign === "-") this.#match(BLANKS);
    else if (sign !== "+" && block && this.#source[this.#at] === "\n") this.#at++;
  }

  #tag(open: number, sign: string): void {
    const source = this.#source;
    const block = source[open + 1] === "%";
    const end = block ? "%}" : "}}";
    this.#push(block ? "{%" : "{{", "", open);
    this.#at = open + (sign === "-" || sign === "+" ? 3 : 2);
    const nesting: string[] = [];
    for (;;) {
      this.#match(BLANKS);
      const at = this.#at;
      if (at >= source.length) throw new TemplateFault(`a tag does not end with ${end}`, this.#lineOf(open));
      if (nesting.length === 0) {
        const signed = source[at] === "-" || (block && source[at] === "+");
        if (source.startsWith(end, signed ? at + 1 : at)) {
          this.#push(end, "", at);
          this.#at = at + (signed ? 3 : 2);
          return this.#trim(signed ? source[at] : "", block);
        }
      }
      this.#token(nesting);
    }
  }

  #token(nesting: string[]): void {
    const at = this.#at;
    let text: string | undefined;
    if ((text = this.#match(FLOAT)) !== undefined) this.#push("float", text, at, Number(text.replaceAll("_", "")));
    else if ((text = this.#match(INTEGER)) !== undefined) {
      this.#push("int", text, at, whole(BigInt(text.replaceAll("_", ""))));
    } else if ((text = this.#match(NAME)) !== undefined) this.#push("name", text, at);
    else if ((text = this.#match(STRING)) !== undefined) {
      this.#push("string", this.#unescaped(text.slice(1, -1), at), at);
    } else if ((text = this.#match(OPERATORS)) !== undefined) {
      if (text in CLOSING) nesting.push(CLOSING[text]);
      else if (")]}".includes(text) && nesting.pop() !== text) {
        throw new TemplateFault(`${text} closes what is not open`, this.#lineOf(at));
      }
      this.#push("operator", text, at);
    } else {
      const char = String.fromCodePoint(this.#source.codePointAt(at)!);
      throw new TemplateFault(`${quoted(char)} is not expected here`, this.#lineOf(at));
    }
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const text = pattern.exec(this.#source)?.[0];
    if (text !== undefined) this.#at += text.length;
    return text;
  }

  #unescaped(text: string, at: number): string {
    const fail = (): never => {
      throw new TemplateFault("a string has a wrong escape", this.#lineOf(at));
    };
    return text.replace(
      /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{1,3})|([^]))/gi,
      (whole, x, u, U, octal, char) => {
        if (octal !== undefined) return String.fromCharCode(parseInt(octal, 8));
        if (char !== undefined) return "xuUN".includes(char) ? fail() : SIMPLE_ESCAPES[char] ?? whole;
        const code = parseInt(x ?? u ?? U, 16);
        return whole[1] === "X" || (u !== undefined && whole[1] === "U") || code > 0x10ffff
          ? fail()
          : String.fromCodePoint(code);
      },
    );
  }

  #lineOf(at: number): number {
    for (; this.#counted < at; this.#counted++) if (this.#source[this.#counted] === "\n") this.#line++;
    return this.#line;
  }

  #push(type: Token["type"], text: string, at: number, number?: number | bigint): void {
    step();
    this.#tokens.push({ type, text, number, line: this.#lineOf(at) });
  }
}

const SIMPLE_ESCAPES: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
