/**
 * Values of calls: JSON, and the literals that Python's repr() writes, such as `{'a': True}`. Integers beyond 2^53 are bigints.
 *
 * @module
 */

/** Deepest nesting of lists and dicts. */
const MAX_DEPTH = 100;

/** The value of a JSON text; undefined if it is none. */
export function parseJson(text: string): unknown {
  // The context is part of the language, but not yet of TypeScript's library.
  const exact = (_key: string, value: unknown, context?: { readonly source?: string }): unknown =>
    typeof value === "number" ? wholeNumber(context?.source ?? "") ?? value : value;
  try {
    return JSON.parse(text, exact);
  } catch {
    return undefined;
  }
}

/** A whole number as JSON and Python write it: a bigint if a number would not be exact; undefined if it is none. */
function wholeNumber(source: string): number | bigint | undefined {
  if (!/^-?\d+$/.test(source)) return undefined;
  const value = Number(source);
  return Number.isSafeInteger(value) ? value : BigInt(source);
}

/** The value of a Python literal of None, bools, numbers, strings, lists, tuples and dicts; undefined if it is none. */
export function parsePython(text: string): unknown {
  try {
    return new PythonReader(text).whole();
  } catch (fault) {
    if (fault instanceof SyntaxError) return undefined;
    throw fault;
  }
}

/** A call that Python writes: its name, which may have dots, and arguments by name. */
export interface PythonCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** Calls with literals as named arguments, `f(a=1)` or a list of them; undefined if the text is anything else. */
export function parsePythonCalls(text: string): readonly PythonCall[] | undefined {
  try {
    return new PythonReader(text).calls();
  } catch (fault) {
    if (fault instanceof SyntaxError) return undefined;
    throw fault;
  }
}

const NAMES: Readonly<Record<string, unknown>> = { None: null, True: true, False: false };
/** Names of JSON, which templates write in arguments of Python's calls. */
const JSON_NAMES: Readonly<Record<string, unknown>> = { ...NAMES, null: null, true: true, false: false };
const ESCAPES: Readonly<Record<string, string>> = {
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
const SPACE = /[ \t\r\n\f]*/y;
const NAME = /[A-Za-z_]\w*/y;
const FUNCTION = /[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*/y;
const WHOLE = /[-+]?(?:0+|[1-9]\d*)(?![\w.])/y;
const FLOAT = /[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?(?![\w.])/y;
const TEXT = /'((?:[^'\\\n]|\\[\s\S])*)'|"((?:[^"\\\n]|\\[\s\S])*)"/y;
const ESCAPE = /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|([\s\S]))/g;

/** Reads one literal from left to right; throws a SyntaxError at what is none. */
class PythonReader {
  readonly #text: string;
  #names = NAMES;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The literal, which is all of the text. */
  whole(): unknown {
    const value = this.#value(0);
    if (this.#at < this.#text.length) throw new SyntaxError("more follows");
    return value;
  }

  /** One call or a list of calls, which is all of the text. */
  calls(): readonly PythonCall[] {
    this.#names = JSON_NAMES;
    const calls: PythonCall[] = [];
    this.#match(SPACE);
    if (!this.#take("[")) calls.push(this.#call());
    else this.#items("]", () => calls.push(this.#call()));
    this.#match(SPACE);
    if (this.#at < this.#text.length || calls.length === 0) throw new SyntaxError("more follows, or no call");
    return calls;
  }

  #call(): PythonCall {
    this.#match(SPACE);
    const [name] = this.#match(FUNCTION) ?? [];
    if (name === undefined || !this.#take("(")) throw new SyntaxError("no call");
    const pairs: [string, unknown][] = [];
    this.#items(")", () => {
      const [key] = this.#match(NAME) ?? [];
      this.#match(SPACE);
      if (key === undefined || !this.#take("=")) throw new SyntaxError("an argument without a name");
      pairs.push([key, this.#value(0)]);
    });
    return { name, arguments: Object.fromEntries(pairs) };
  }

  #value(depth: number): unknown {
    if (depth > MAX_DEPTH) throw new SyntaxError("too deep");
    this.#match(SPACE);
    const value = this.#list("[", "]", depth) ?? this.#list("(", ")", depth) ?? this.#dict(depth) ?? this.#atom();
    this.#match(SPACE);
    return value;
  }

  #atom(): unknown {
    const text = this.#match(TEXT);
    if (text !== undefined) return unescaped(text[1] ?? text[2]);
    const [whole] = this.#match(WHOLE) ?? [];
    if (whole !== undefined) return wholeNumber(whole.replace("+", ""));
    const [float] = this.#match(FLOAT) ?? [];
    if (float !== undefined) return Number(float);
    const [name = ""] = this.#match(NAME) ?? [];
    if (!Object.hasOwn(this.#names, name)) throw new SyntaxError("no literal");
    return this.#names[name];
  }

  /** A list or a tuple. One value in parentheses without a comma is that value. */
  #list(open: string, close: string, depth: number): unknown {
    if (!this.#take(open)) return undefined;
    const items: unknown[] = [];
    const commas = this.#items(close, () => items.push(this.#value(depth + 1)));
    return open === "(" && items.length === 1 && commas === 0 ? items[0] : items;
  }

  /** A dict, whose keys are written as JSON writes them: texts. */
  #dict(depth: number): unknown {
    if (!this.#take("{")) return undefined;
    const pairs: [string, unknown][] = [];
    this.#items("}", () => {
      const key = this.#value(depth + 1);
      if (typeof key === "object" && key !== null || !this.#take(":")) throw new SyntaxError("no key");
      pairs.push([String(key), this.#value(depth + 1)]);
    });
    return Object.fromEntries(pairs);
  }

  /** Items with commas between them, up to `close`; gives the number of commas, of which one may follow the last item. */
  #items(close: string, item: () => void): number {
    let [count, commas] = [0, 0];
    this.#match(SPACE);
    while (!this.#take(close)) {
      if (count++ > commas) throw new SyntaxError("a comma is missing");
      item();
      this.#match(SPACE);
      if (this.#take(",")) commas++;
      this.#match(SPACE);
    }
    return commas;
  }

  #take(mark: string): boolean {
    const found = this.#text.startsWith(mark, this.#at);
    if (found) this.#at += mark.length;
    return found;
  }

  #match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text) ?? undefined;
    if (found) this.#at = pattern.lastIndex;
    return found;
  }
}

function unescaped(text: string): string {
  return text.replaceAll(ESCAPE, (whole, x, u, long, octal, letter) => {
    const hexadecimal = x ?? u ?? long;
    if (hexadecimal !== undefined) return codePoint(parseInt(hexadecimal, 16));
    if (octal !== undefined) return codePoint(parseInt(octal, 8));
    if (letter === "x" || letter === "u" || letter === "U" || letter === "N") throw new SyntaxError("no escape");
    return ESCAPES[letter] ?? whole;
  });
}

function codePoint(code: number): string {
  if (code > 0x10ffff) throw new SyntaxError("no character");
  return String.fromCodePoint(code);
}
