/**
 * Calls as Gemma writes them: names without quotes, and texts between marks of their own.
 *
 *     call:weather{city:<|"|>Paris<|"|>,days:[1,2]}
 *
 * @module
 */

import { parseJson } from "./literal.ts";
import type { ParsedToolCall } from "./tool_calls.ts";

/** Deepest nesting of lists and objects. */
const MAX_DEPTH = 100;

const HEAD = /\s*call:([\w.-]+)\s*/y;
const SPACE = /\s*/y;
const KEY = /[^\s:{}[\],"]+/y;
const QUOTED = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"/y;
const BARE = /[^{}[\],]+/y;

/** The calls of a block; undefined if it has none or something else. `quote` stands around texts. */
export function parseGemmaCalls(block: string, quote: string): readonly ParsedToolCall[] | undefined {
  const reader = new GemmaReader(block, quote);
  try {
    return reader.calls();
  } catch (fault) {
    if (fault instanceof SyntaxError) return undefined;
    throw fault;
  }
}

/** Reads calls from left to right; throws a SyntaxError at what is none. */
class GemmaReader {
  readonly #text: string;
  readonly #quote: string;
  #at = 0;

  constructor(text: string, quote: string) {
    this.#text = text;
    this.#quote = quote;
  }

  calls(): ParsedToolCall[] {
    const calls: ParsedToolCall[] = [];
    do {
      const name = this.#match(HEAD)?.[1];
      if (name === undefined || !this.#take("{")) throw new SyntaxError("no call");
      calls.push({ function: { name, arguments: this.#members(0) } });
      this.#match(SPACE);
    } while (this.#at < this.#text.length);
    return calls;
  }

  /** The members of an object whose brace was taken. */
  #members(depth: number): Record<string, unknown> {
    const pairs: [string, unknown][] = [];
    this.#items("}", () => {
      const key = this.#string() ?? this.#match(KEY)?.[0];
      this.#match(SPACE);
      if (key === undefined || !this.#take(":")) throw new SyntaxError("no name");
      pairs.push([key, this.#value(depth + 1)]);
    });
    return Object.fromEntries(pairs);
  }

  /** Items with commas between them, up to `close`. */
  #items(close: string, item: () => void): void {
    this.#match(SPACE);
    if (this.#take(close)) return;
    for (;;) {
      item();
      this.#match(SPACE);
      if (this.#take(close)) return;
      if (!this.#take(",")) throw new SyntaxError("a comma is missing");
      this.#match(SPACE);
    }
  }

  #value(depth: number): unknown {
    if (depth > MAX_DEPTH) throw new SyntaxError("too deep");
    this.#match(SPACE);
    const text = this.#string();
    if (text !== undefined) return text;
    if (this.#take("{")) return this.#members(depth);
    if (this.#take("[")) {
      const items: unknown[] = [];
      this.#items("]", () => items.push(this.#value(depth + 1)));
      return items;
    }
    const bare = this.#match(BARE)?.[0].trim();
    if (!bare) throw new SyntaxError("no value");
    const value = parseJson(bare);
    return value === undefined ? bare : value;
  }

  /** A text between Gemma's marks, or a string of JSON. */
  #string(): string | undefined {
    if (!this.#take(this.#quote)) {
      const [quoted] = this.#match(QUOTED) ?? [];
      if (quoted === undefined) return undefined;
      const text = parseJson(quoted);
      if (typeof text !== "string") throw new SyntaxError("no string");
      return text;
    }
    const end = this.#text.indexOf(this.#quote, this.#at);
    if (end < 0) throw new SyntaxError("a text without its end");
    const text = this.#text.slice(this.#at, end);
    this.#at = end + this.#quote.length;
    return text;
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
