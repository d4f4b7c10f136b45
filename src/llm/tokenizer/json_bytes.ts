/**
 * Reads JSON where it lies, in bytes.
 *
 * A tokenizer.json holds 150,000 tokens and as many merges. As JavaScript objects they would take ten times the memory of the file
 * and most of the time of loading. Typed arrays that are read from bytes take neither. Files are not trusted: invalid UTF-8, deeply
 * nested values and long strings are errors, and nothing is parsed before its size is known.
 *
 * @module
 */

import { isUtf8 } from "node:buffer";
import { LlmError } from "../error.ts";

const [SPACE, QUOTE, COMMA, COLON, BACKSLASH, LETTER_U] = Array.from(' ",:\\u', (char) => char.charCodeAt(0));
const [BRACKET, BRACKET_END, BRACE, BRACE_END] = Array.from("[]{}", (char) => char.charCodeAt(0));

/** Deepest nesting of a value. */
const MAX_DEPTH = 64;
/** Longest string, and longest value that is parsed whole, in bytes. */
const MAX_VALUE_BYTES = 2 ** 20;

/** The byte order mark that editors on Windows write before UTF-8. */
const MARK = [0xef, 0xbb, 0xbf];

/** Meanings of the characters after a backslash, except \\u. */
const ESCAPED = new Uint8Array(256);
Array.from('"\\/bfnrt', (char, i) => ESCAPED[char.charCodeAt(0)] = '"\\/\b\f\n\r\t'.charCodeAt(i));

const UTF8 = new TextDecoder();
const IS_SPACE = new Uint8Array(256);
for (const char of " \t\n\r") IS_SPACE[char.charCodeAt(0)] = 1;

/** Bytes that end a number or a word; also those of white space. */
const ENDS_SCALAR: Uint8Array = IS_SPACE.slice();
for (const char of ',:[]{}"') ENDS_SCALAR[char.charCodeAt(0)] = 1;

/** A place in the bytes of a JSON file, which moves forward over one value after the other. */
export class JsonBytes {
  /** The name of the bytes in messages. */
  readonly file: string;
  readonly #bytes: Uint8Array;
  #at: number;

  /** Starts at byte `at`; default the first after a byte order mark. */
  constructor(
    bytes: Uint8Array,
    file: string,
    at: number = MARK.every((byte, i) => bytes[i] === byte) ? MARK.length : 0,
  ) {
    this.#bytes = bytes;
    this.file = file;
    this.#at = at;
    if (!isUtf8(bytes)) this.fail("its text is not valid UTF-8");
  }

  /** Another reader of the same bytes, at byte `at`. */
  readerAt(at: number): JsonBytes {
    return new JsonBytes(this.#bytes, this.file, at);
  }

  /** Offset of the next byte that is no white space. */
  get at(): number {
    const bytes = this.#bytes;
    let at = this.#at;
    while (bytes[at] <= SPACE && IS_SPACE[bytes[at]]) at++;
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

  /** Throws an error about the file. */
  fail(what: string): never {
    throw new LlmError("tokenizer", `${this.file}: ${what}`);
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
    if (at === start || !ENDS_SCALAR[bytes[at]] || !Number.isSafeInteger(value)) this.expected("a whole number");
    this.#at = at;
    return value;
  }

  /** Passes a string. */
  string(): string {
    const start = this.at;
    this.#at = this.#stringEnd(start);
    const text: unknown = this.#parse(start, this.#at);
    if (typeof text !== "string" || !text.isWellFormed()) {
      this.#at = start, this.expected("a string of whole characters");
    }
    return text as string;
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
        if (end > out.length) break; // the rest was not written
        this.#at = at + 1;
        return end;
      }
      if (byte === BACKSLASH) {
        byte = ESCAPED[bytes[++at]];
        if (!byte) break;
      } else if (byte < SPACE) break;
      out[end++] = byte;
    }
    const text = new TextEncoder().encode(this.string()); // a character by its number, or no end
    if (to + text.length > out.length) this.expected(`a string of at most ${out.length - to} bytes`);
    out.set(text, to);
    return to + text.length;
  }

  /** Passes any value and returns it. */
  value(): unknown {
    const start = this.at;
    this.skip();
    return this.#parse(start, this.#at);
  }

  /** Passes any value. */
  skip(depth = 0): void {
    if (depth > MAX_DEPTH) this.fail(`values are nested deeper than ${MAX_DEPTH} levels at byte ${this.at}`);
    const byte = this.#bytes[this.at];
    if (byte === BRACE) {
      return this.object(() => {
        this.#at = this.#stringEnd(this.at);
        this.colon();
        this.skip(depth + 1);
      });
    }
    if (byte === BRACKET) return this.array(() => this.skip(depth + 1));
    const start = this.#at;
    if (byte === QUOTE) this.#at = this.#stringEnd(start);
    else {
      while (this.#at < this.#bytes.length && !ENDS_SCALAR[this.#bytes[this.#at]]) this.#at++;
      this.#parse(start, this.#at);
    }
  }

  /** Throws unless nothing but white space is left. */
  end(): void {
    if (this.at < this.#bytes.length) this.expected("the end");
  }

  #parse(from: number, to: number): unknown {
    if (to - from > MAX_VALUE_BYTES) {
      this.fail(`the value at byte ${from} has ${to - from} bytes, at most ${MAX_VALUE_BYTES}`);
    }
    try {
      return JSON.parse(UTF8.decode(this.#bytes.subarray(from, to)));
    } catch {
      this.#at = from;
      return this.expected("a value");
    }
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

  /** Offset after the string that starts at a quote. */
  #stringEnd(start: number): number {
    const bytes = this.#bytes;
    if (bytes[start] !== QUOTE) this.expected("a string");
    const last = Math.min(bytes.length, start + MAX_VALUE_BYTES);
    let at = start + 1;
    for (; at < last && bytes[at] !== QUOTE; at++) {
      if (bytes[at] < SPACE) break;
      if (bytes[at] === BACKSLASH && !ESCAPED[bytes[++at]] && bytes[at] !== LETTER_U) break;
    }
    if (bytes[at] === QUOTE) return at + 1;
    this.#at = at;
    if (at < last) this.expected("a character or an escape in a string");
    if (at < bytes.length) this.fail(`the string at byte ${start} has more than ${MAX_VALUE_BYTES} bytes`);
    return this.expected('"');
  }
}
