/**
 * The text of an answer on a terminal, as it comes: words in rows, and simple Markdown: headings, lists, quotes, code, bold and italic.
 *
 * Other Markdown stays as it was written. Tables and code are not wrapped.
 *
 * @module
 */

import { Flow, joinStyles, type Piece } from "./flow.ts";
import { CODE, takeWord, wordsOf } from "./inline.ts";
import { TAB } from "./width.ts";

const BOLD = "1";
/** Dimmed, as thoughts and marks of blocks are. */
export const DIM = "2";

/** How text is shown. */
export interface AnswerTextOptions {
  /** The width of the terminal. */
  readonly columns: () => number;
  /** Whether Markdown is shown as formatted text. */
  readonly marks: boolean;
  /** The style of all of it: parameters of an SGR sequence, or "". */
  readonly style: string;
}

/** The begin of a line whose kind is not known yet. */
const UNDECIDED =
  /^ *(?:#{1,6} *|[-*+_](?: *[-*+_])* *|\d{1,9}[.)]? *|> ?|\|[^\n]*|`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^\n]*)?$/;

/** Beginnings of a line, and the style that each gives to the text. The first row that fits holds. */
const BLOCKS: readonly (readonly [pattern: RegExp, open: (text: AnswerText, found: RegExpExecArray) => string])[] = [
  [/^ {0,3}(`{3,}|~{3,})[^\n]*/, (text, [line, fence]) => text.openCode(line, fence)],
  [/^ {0,3}([-*_])(?: *\1){2,} *(?=\n|$)/, (text, [line]) => text.open(line, DIM)],
  [/^ *\|[^\n]*/, (text, [line]) => text.open(line, "")],
  [/^ {0,3}#{1,6} +/, (text) => text.openHeading()],
  [/^( *)[-*+] +/, (text, [, indent]) => text.open(`${indent}• `, "")],
  [/^ *\d{1,9}[.)] +/, (text, [mark]) => text.open(mark, "")],
  [/^ {0,3}> ?/, (text) => text.open("│ ", DIM)],
  [/^ +/, (text, [indent]) => text.open(indent, "")],
];

/** Shows one text. */
export class AnswerText {
  readonly #options: AnswerTextOptions;
  readonly #flow: Flow;
  /** Text that waits for more. */
  #held = "";
  #lineBegins = true;
  /** The marks that began a block of code. */
  #fence: string | undefined;
  /** The style of the line. */
  #style: string;

  constructor(options: AnswerTextOptions) {
    this.#options = options;
    this.#flow = new Flow(options.columns);
    this.#style = options.style;
  }

  /** The next piece as a terminal gets it. */
  push(text: string): string {
    this.#held += text.replaceAll("\t", TAB);
    return this.#take(false);
  }

  /** The rest, when no more comes. */
  end(): string {
    return this.#take(true);
  }

  #take(all: boolean): string {
    let out = "";
    const next = (): string | undefined => {
      if (this.#held === "") return undefined;
      if (this.#fence !== undefined) return this.#takeCode(this.#fence, all);
      return this.#lineBegins && this.#options.marks ? this.#beginLine(all) : this.#takeWords(all);
    };
    for (let part = next(); part !== undefined; part = next()) out += part;
    return out;
  }

  #beginLine(all: boolean): string | undefined {
    if (!all && UNDECIDED.test(this.#held)) return undefined;
    this.#lineBegins = false;
    for (const [pattern, open] of BLOCKS) {
      const found = pattern.exec(this.#held);
      if (found === null) continue;
      this.#held = this.#held.slice(found[0].length);
      return open(this, found);
    }
    return "";
  }

  /** Begins a line with a text as it is. Its next rows begin below the end of that text. */
  open(text: string, style: string): string {
    this.#flow.indent = text.length;
    return this.#flow.literal({ text, style: joinStyles(this.#options.style, style) });
  }

  /** Begins a heading. */
  openHeading(): string {
    this.#style = joinStyles(this.#options.style, BOLD);
    return "";
  }

  /** Begins a block of code. */
  openCode(line: string, fence: string): string {
    this.#fence = fence;
    return this.#flow.literal({ text: line, style: DIM });
  }

  #takeCode(fence: string, all: boolean): string | undefined {
    if (this.#lineBegins) {
      if (!all && /^ {0,3}(?:`+|~+)? *$/.test(this.#held)) return undefined;
      this.#lineBegins = false;
      const [line] = new RegExp(`^ {0,3}${fence}${fence[0]}* *(?=\n|$)`).exec(this.#held) ?? [];
      if (line !== undefined) {
        this.#held = this.#held.slice(line.length);
        this.#fence = undefined;
        return this.#flow.literal({ text: line, style: DIM });
      }
    }
    const [text] = /^[^\n]*/.exec(this.#held)!;
    this.#held = this.#held.slice(text.length);
    return this.#flow.literal({ text, style: CODE }) + this.#endLine();
  }

  #takeWords(all: boolean): string | undefined {
    const [spaces] = /^ */.exec(this.#held)!;
    const rest = this.#held.slice(spaces.length);
    if (rest === "" && !all) return undefined;
    if (rest === "" || rest.startsWith("\n")) {
      this.#held = rest;
      return this.#endLine();
    }
    const word = takeWord(rest, { style: this.#style, marks: this.#options.marks, all });
    if (word === undefined) return undefined;
    this.#held = rest.slice(word.length);
    return wordsOf(word.pieces).map((pieces: Piece[], i) => this.#flow.word(i > 0 ? " " : spaces, pieces)).join("");
  }

  /** Ends the line if the held text begins with its end. */
  #endLine(): string {
    if (!this.#held.startsWith("\n")) return "";
    this.#held = this.#held.slice(1);
    this.#lineBegins = true;
    this.#style = this.#options.style;
    return this.#flow.newline();
  }
}
