/**
 * Reads JSON where it lies, in bytes.
 *
 * A tokenizer.json holds 150,000 tokens and as many merges. As JavaScript objects they would take ten times the memory of
 * the file and most of the time of loading; read from bytes into typed arrays they take neither.
 *
 * @module
 */

import { LlmError } from "./error.ts";

const [SPACE, QUOTE, COMMA, COLON, BACKSLASH] = Array.from(' ",:\\', (char) => char.charCodeAt(0));
const [BRACKET, BRACKET_END, BRACE, BRACE_END] = Array.from("[]{}", (char) => char.charCodeAt(0));

/** What editors on Windows write in front of UTF-8. */
const MARK = [0xef, 0xbb, 0xbf];

/** What stands behind a backslash, but for \\u, by what it means. */
const ESCAPED = new Uint8Array(256);
Array.from('"\\/bfnrt', (char, i) => ESCAPED[char.charCodeAt(0)] = '"\\/\b\f\n\r\t'.charCodeAt(i));

/** A place in the bytes of a JSON file, which moves forward over one value after the other. */
export class JsonBytes {
  /** What messages call the bytes. */
  readonly file: string;
  readonly #bytes: Uint8Array;
  #at: number;

  /** Starts at byte `at`, which is behind a byte order mark unless given. */
  constructor(
    bytes: Uint8Array,
    file: string,
    at: number = MARK.every((byte, i) => bytes[i] === byte) ? MARK.length : 0,
  ) {
    this.#bytes = bytes;
    this.file = file;
    this.#at = at;
  }

  /** Offset of the next byte that is no white space. */
  get at(): number {
    const bytes = this.#bytes;
    let at = this.#at;
    while (bytes[at] <= SPACE) at++;
    return this.#at = at;
  }

  /** Number of all bytes. */
  get length(): number {
    return this.#bytes.length;
  }

  /** Whether an object or an array comes next. */
  opens(char: "{" | "["): boolean {
    return this.#bytes[this.at] === char.charCodeAt(0);
  }

  /** Throws an error that says what was expected here. */
  expected(what: string): never {
    const where = this.#at < this.#bytes.length ? `at byte ${this.#at}` : "where it ends";
    throw new LlmError("tokenizer", `${this.file} is not valid JSON: expected ${what} ${where}`);
  }

  /** Passes an object; `read` is called at every key and must pass key, colon and value. */
  object(read: () => void): void {
    this.#list(BRACE, BRACE_END, read);
  }

  /** Passes an array; `read` is called at every element and must pass it. */
  array(read: () => void): void {
    this.#list(BRACKET, BRACKET_END, read);
  }

  /** Passes the key of a member and its colon. */
  key(): string {
    const key = this.string();
    this.colon();
    return key;
  }

  /** Passes a colon. */
  colon(): void {
    if (!this.#passes(COLON)) this.expected('":"');
  }

  /** Passes a whole number that is not negative. */
  count(): number {
    const bytes = this.#bytes;
    const start = this.at;
    let at = start;
    let value = 0;
    for (; bytes[at] >= 0x30 && bytes[at] <= 0x39; at++) value = value * 10 + bytes[at] - 0x30;
    if (at === start || !Number.isSafeInteger(value)) this.expected("a whole number");
    this.#at = at;
    return value;
  }

  /** Passes a string. */
  string(): string {
    const start = this.at;
    this.#at = this.#stringEnd(start);
    try {
      return JSON.parse(new TextDecoder().decode(this.#bytes.subarray(start, this.#at)));
    } catch {
      return this.expected("a string");
    }
  }

  /** Passes a string and writes its UTF-8 to `out` from byte `to` on; returns where it ends there. */
  copyString(out: Uint8Array, to: number): number {
    const bytes = this.#bytes;
    const start = this.at;
    if (bytes[start] !== QUOTE) this.expected("a string");
    let end = to;
    for (let at = start + 1; at < bytes.length; at++) {
      let byte = bytes[at];
      if (byte === QUOTE) {
        this.#at = at + 1;
        return end;
      }
      if (byte === BACKSLASH) {
        byte = ESCAPED[bytes[++at]];
        if (!byte) break;
      }
      out[end++] = byte;
    }
    const text = new TextEncoder().encode(this.string()); // a character by its number, or no end
    out.set(text, to);
    return to + text.length;
  }

  /** Passes any value; whether it is well formed inside is left to others. */
  skip(): void {
    const bytes = this.#bytes;
    let depth = 0;
    for (let at = this.at; at < bytes.length;) {
      const byte = bytes[at];
      const ends = byte === BRACE_END || byte === BRACKET_END;
      if (depth === 0 && (ends || byte === COMMA)) {
        this.#at = at;
        return;
      }
      if (ends) depth--;
      else if (byte === BRACE || byte === BRACKET) depth++;
      at = byte === QUOTE ? this.#stringEnd(at) : at + 1;
    }
    this.#at = bytes.length;
    this.expected("the rest of a value");
  }

  #list(open: number, close: number, read: () => void): void {
    if (!this.#passes(open)) this.expected(`"${String.fromCharCode(open)}"`);
    if (this.#passes(close)) return;
    do read(); while (this.#passes(COMMA));
    if (!this.#passes(close)) this.expected(`"," or "${String.fromCharCode(close)}"`);
  }

  #passes(byte: number): boolean {
    const found = this.#bytes[this.at] === byte;
    if (found) this.#at++;
    return found;
  }

  /** Offset behind the string that starts at a quote. */
  #stringEnd(start: number): number {
    const bytes = this.#bytes;
    if (bytes[start] !== QUOTE) this.expected("a string");
    let at = start + 1;
    while (at < bytes.length && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1;
    if (at < bytes.length) return at + 1;
    this.#at = bytes.length;
    return this.expected('"');
  }
}
