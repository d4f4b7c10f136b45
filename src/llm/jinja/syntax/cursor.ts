/**
 * A place in the tokens of a template, and how far its constructs are nested there.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import type { Token } from "./lexer.ts";
import { step, TemplateFault } from "../limits.ts";

/** Levels of parentheses, brackets and blocks. */
const MAX_NESTING = 100;

/** Takes tokens one by one. */
export class Cursor {
  readonly #tokens: readonly Token[];
  #at = 0;
  #nesting = 0;

  /** Begins at the first token. */
  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  /** The token that is next. */
  get token(): Token {
    return this.#tokens[this.#at];
  }

  /** Takes a token. */
  take(): Token {
    step();
    const { token } = this;
    if (token.type !== "end") this.#at++;
    return token;
  }

  /** Whether the next token, or one after it, is this name or operator. */
  sees(text: string, ahead = 0): boolean {
    const token = this.#tokens[Math.min(this.#at + ahead, this.#tokens.length - 1)];
    return (token.type === "name" || token.type === "operator") && token.text === text;
  }

  /** Takes a name or operator if it is next. */
  skips(text: string): boolean {
    if (!this.sees(text)) return false;
    this.take();
    return true;
  }

  /** Takes a name or operator that has to be next. */
  expect(text: string): void {
    if (!this.skips(text)) this.fail(`expected ${quoted(text)}, found ${this.found()}`);
  }

  /** Takes a name. */
  name(): string {
    if (this.token.type !== "name") this.fail(`expected a name, found ${this.found()}`);
    return this.take().text;
  }

  /** The next token, for messages. */
  found(): string {
    const { type, text } = this.token;
    if (type === "end") return "the end of the template";
    return text === "" || type === "data" ? `${type === "data" ? "text" : type}` : quoted(text);
  }

  /** Throws at the next token. */
  fail(message: string, line: number = this.token.line): never {
    throw new TemplateFault(message, line);
  }

  /** Reads something one level deeper. */
  nested<T>(read: () => T): T {
    if (++this.#nesting > MAX_NESTING) this.fail(`more than ${MAX_NESTING} levels of parentheses and blocks`);
    const result = read();
    this.#nesting--;
    return result;
  }
}
