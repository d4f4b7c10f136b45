/**
 * Strict JSON from a file, piece by piece, by a caller that knows what must come next.
 *
 * `JSON.parse` hides the tricks of a malicious file. The last of two equal keys wins, 1.0 is a whole number, and a million entries are
 * objects before the first one can be refused. This reader keeps one window of the file and stops at the first byte that does not fit.
 * It takes what RFC 8259 allows, without half surrogate pairs.
 *
 * @module
 */

/** Bytes of a file that may be asked for in ranges. */
export interface ByteSource {
  /** Bytes `offset` to `offset + length`. */
  read(offset: number, length: number): Uint8Array;
}

const WINDOW = 2 ** 18;
/** Objects and lists inside of each other; as many as the format's own library takes. */
const MAX_DEPTH = 120;
const IDLE = { space: "white space", skipped: "unknown fields" };
/** Longest number in digits and signs. */
const MAX_NUMBER = 1024;
/** Most white space of a whole text, and most bytes of values that are skipped. */
const MAX_IDLE = { space: 2 ** 23, skipped: 2 ** 20 };
/** Strings up to this length are put together by hand, which is faster than asking a decoder. */
const SHORT = 64;

const code = (char: string): number => char.charCodeAt(0);
const [TAB, LINE, RETURN, SPACE, QUOTE, BACKSLASH] = Array.from('\t\n\r "\\', code);
const [ZERO, NINE, MINUS, COMMA, COLON] = Array.from("09-,:", code);
/** Bytes that open an object or a list, and those that close it. */
const [OBJECT, LIST] = [Array.from("{}", code), Array.from("[]", code)];
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;
/** The bytes that a number is made of. */
const NUMERIC = new Set(Array.from("+-.0123456789Ee", code));
const WORDS = ["true", "false", "null"];

/** Throws an error. `what` continues a sentence about the text, `at` is its place in the file, in bytes. */
export type JsonFail = (what: string, at: number) => never;

/** A place in JSON text that moves forward over one value after the other. */
export class JsonReader {
  readonly #source: ByteSource;
  readonly #end: number;
  readonly #fail: JsonFail;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  #window: Uint8Array = new Uint8Array(0);
  /** Offset of the window in the file. */
  #start: number;
  /** The next byte, in the window. */
  #at = 0;
  /** Bytes that were passed and mean nothing. */
  readonly #idle = { space: 0, skipped: 0 };

  /** Reads bytes `start` to `end` of a source; `fail` throws. */
  constructor(source: ByteSource, start: number, end: number, fail: JsonFail) {
    this.#source = source;
    this.#start = start;
    this.#end = end;
    this.#fail = fail;
  }

  /** Throws an error that says what was expected here. */
  expected(what: string): never {
    return this.#fail(`is not valid JSON: expected ${what}`, this.#start + this.#at);
  }

  /** Whether a value comes next that begins with this character. */
  begins(char: '"' | "{" | "[" | "n"): boolean {
    return this.#next() === code(char);
  }

  /** Passes an object; `read` is called with every key and must pass the value. Keys have at most `most` bytes. */
  object(most: number, read: (key: string) => void): void {
    this.#items(OBJECT, () => {
      const key = this.string(most);
      this.#pass(COLON);
      read(key);
    });
  }

  /** Passes a list; `read` is called at every element and must pass it. */
  list(read: () => void): void {
    this.#items(LIST, read);
  }

  /** Passes a whole number from 0 to 2^53 - 1. Any other value gives undefined, and the place of the reader is then undefined too. */
  whole(): number | undefined {
    if (this.#next() === MINUS) return undefined;
    const { value, whole } = this.#number();
    return whole && Number.isSafeInteger(value) ? value : undefined;
  }

  /** Passes a number. */
  number(): number {
    this.#next();
    return this.#number().value;
  }

  /** Passes `true` or `false`; undefined if neither comes next. */
  boolean(): boolean | undefined {
    this.#next();
    return this.#word("true") || (this.#word("false") ? false : undefined);
  }

  /** Passes a string of at most `most` bytes as it is written. */
  string(most: number): string {
    if (this.#next() !== QUOTE) this.expected("a string");
    let length = 1;
    let escaped = false;
    let ascii = true;
    for (;; length++) {
      if (this.#at + length >= this.#window.length && !this.#grow(length + 1)) this.expected("the end of a string");
      const byte = this.#window[this.#at + length];
      if (byte === QUOTE) break;
      if (byte < SPACE) this.expected("a string without control characters");
      if (byte > 0x7f) ascii = false;
      if (byte === BACKSLASH) {
        escaped = true;
        length++;
      }
      if (length > most) this.#above(most, "a string of too many bytes");
    }
    const start = this.#at + 1;
    const end = this.#at + length;
    let text = "";
    if (ascii && !escaped && length <= SHORT) {
      for (let at = start; at < end; at++) text += String.fromCharCode(this.#window[at]);
    } else text = this.#decode(start, end, escaped);
    this.#at = end + 1;
    return text;
  }

  /** Passes any value; strings in it have at most `most` bytes. */
  skip(most: number, depth = 0): void {
    if (depth > MAX_DEPTH) this.#above(MAX_DEPTH, "too many objects and lists inside of each other");
    const byte = this.#next();
    const start = this.#start + this.#at;
    const inner = (key = ""): void => {
      this.#rests("skipped", key.length + 4);
      this.skip(most, depth + 1);
    };
    if (byte === OBJECT[0]) return this.object(most, inner);
    if (byte === LIST[0]) return this.list(inner);
    if (byte === QUOTE) this.string(most);
    else if (byte === MINUS || (byte >= ZERO && byte <= NINE)) this.#number();
    else if (!WORDS.some((word) => this.#word(word))) this.expected("a value");
    this.#rests("skipped", this.#start + this.#at - start);
  }

  /** Passes `null` if it comes next. */
  null(): boolean {
    return this.begins("n") && this.#word("null");
  }

  /** Throws if anything but white space is left. */
  finish(): void {
    if (this.#next() >= 0) this.expected("the end of the text");
  }

  #above(most: number, what: string): never {
    return this.#fail(`has ${what}: at most ${most} are allowed`, this.#start + this.#at);
  }

  /** Counts bytes that mean nothing. */
  #rests(kind: "space" | "skipped", bytes: number): void {
    this.#idle[kind] += bytes;
    if (this.#idle[kind] > MAX_IDLE[kind]) this.#above(MAX_IDLE[kind], `too many bytes of ${IDLE[kind]}`);
  }

  #items([open, close]: readonly number[], read: () => void): void {
    this.#pass(open);
    if (this.#next() === close) return this.#pass(close);
    for (;;) {
      read();
      if (this.#next() === close) return this.#pass(close);
      this.#pass(COMMA, close);
    }
  }

  #pass(byte: number, or = byte): void {
    if (this.#next() === byte) return void this.#at++;
    this.expected([...new Set([byte, or])].map((byte) => `"${String.fromCharCode(byte)}"`).join(" or "));
  }

  #word(word: string): boolean {
    this.#grow(word.length);
    for (let i = 0; i < word.length; i++) if (this.#window[this.#at + i] !== word.charCodeAt(i)) return false;
    this.#at += word.length;
    return true;
  }

  /** Passes a number; `whole` where it is written in digits alone. */
  #number(): { readonly value: number; readonly whole: boolean } {
    let length = 0;
    let value = 0;
    let whole = true;
    while (this.#at + length < this.#window.length || this.#grow(length + 1)) {
      const byte = this.#window[this.#at + length];
      if (byte >= ZERO && byte <= NINE) value = value * 10 + byte - ZERO;
      else if (NUMERIC.has(byte)) whole = false;
      else break;
      if (++length > MAX_NUMBER) this.#above(MAX_NUMBER, "a number of too many characters");
    }
    // A zero in front, no digit at all, a fraction: the rare cases are left to the grammar.
    if (!whole || length === 0 || (length > 1 && this.#window[this.#at] === ZERO) || value === Infinity) {
      const text = this.#decode(this.#at, this.#at + length, false);
      value = Number(text);
      if (!NUMBER.test(text) || !Number.isFinite(value)) this.expected("a number");
    }
    this.#at += length;
    return { value, whole };
  }

  /** The text of a range of the window. */
  #decode(start: number, end: number, escaped: boolean): string {
    let text: string;
    try {
      text = this.#decoder.decode(this.#window.subarray(start, end));
    } catch {
      return this.expected("a string of valid UTF-8");
    }
    if (!escaped) return text;
    try {
      text = JSON.parse(`"${text}"`);
    } catch {
      return this.expected("a string with valid escapes");
    }
    return text.isWellFormed() ? text : this.expected("a string without half a surrogate pair");
  }

  /** The next byte that is no white space; -1 at the end. */
  #next(): number {
    for (;;) {
      const start = this.#at;
      for (; this.#at < this.#window.length; this.#at++) {
        const byte = this.#window[this.#at];
        if (byte > SPACE) break;
        if (byte !== SPACE && byte !== LINE && byte !== RETURN && byte !== TAB) break;
      }
      if (this.#at > start) this.#rests("space", this.#at - start);
      if (this.#at < this.#window.length) return this.#window[this.#at];
      if (!this.#grow(1)) return -1;
    }
  }

  /** Moves the window so that `bytes` bytes from here on are in it; false if the text ends before. */
  #grow(bytes: number): boolean {
    if (this.#at + bytes <= this.#window.length) return true;
    const from = this.#start + this.#at;
    const left = this.#end - from;
    if (left < bytes) return false;
    this.#window = this.#source.read(from, Math.min(left, Math.max(WINDOW, bytes * 2)));
    this.#start = from;
    this.#at = 0;
    return true;
  }
}

/**
 * Whether bytes `start` to `end` of a source hold more than `most` objects, were they JSON. Far quicker than reading them: what has
 * too many is known by its first megabytes.
 */
export function exceedsObjects(source: ByteSource, start: number, end: number, most: number): boolean {
  let count = 0;
  let inString = false;
  let escaped = false;
  for (let at = start; at < end; at += WINDOW) {
    const bytes = source.read(at, Math.min(WINDOW, end - at));
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes[i];
      if (escaped) escaped = false;
      else if (byte === QUOTE) inString = !inString;
      else if (byte === BACKSLASH) escaped = inString;
      else if (byte === OBJECT[0] && !inString && ++count > most) return true;
    }
  }
  return false;
}
