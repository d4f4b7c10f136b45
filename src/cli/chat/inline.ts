/**
 * Bold, italic and code within a line of Markdown, while its text arrives.
 *
 * A mark counts if its partner is there too; a text that may still get it waits. So no mark of a product such as 2*3*4 is lost.
 *
 * @module
 */

import { joinStyles, type Piece } from "./flow.ts";
import { graphemes, graphemeWidth } from "./width.ts";

const BOLD = "1";
const ITALIC = "3";
/** Cyan. */
export const CODE = "36";
/** By the number of asterisks. */
const EMPHASIS: Readonly<Record<number, string>> = { 1: ITALIC, 2: BOLD, 3: `${BOLD};${ITALIC}` };

/** Characters that wait for the end of a span or a word. */
const MAX_WAIT = 400;

/** The inline Markdown that a text begins with. */
export interface Taken {
  readonly pieces: readonly Piece[];
  /** How many characters that is. */
  readonly length: number;
}

/** How text is read. */
export interface ReadOptions {
  /** The style around it. */
  readonly style: string;
  /** Whether marks count. */
  readonly marks: boolean;
  /** Whether no more comes. */
  readonly all: boolean;
}

/** The word that a text begins with; undefined if more may belong to it. A wide character is a word of its own. */
export function takeWord(text: string, options: ReadOptions): Taken | undefined {
  const pieces: Piece[] = [];
  const complete = options.all || text.length > MAX_WAIT;
  let at = 0;
  while (at < text.length && !/\s/.test(text[at])) {
    const span = options.marks ? takeSpan(text, at, options) : undefined;
    if (span === "open") return undefined;
    if (span !== undefined) {
      pieces.push(...span.pieces);
      at += span.length;
      continue;
    }
    const [grapheme] = graphemes(text.slice(at, at + MAX_WAIT));
    if (at + grapheme.length === text.length && !complete) return undefined;
    const wide = graphemeWidth(grapheme) > 1;
    if (wide && at > 0) return { pieces, length: at };
    add(pieces, { text: grapheme, style: options.style });
    at += grapheme.length;
    if (wide) return { pieces, length: at };
  }
  return at < text.length || complete ? { pieces, length: at } : undefined;
}

/** The words of pieces that may hold spaces. */
export function wordsOf(pieces: readonly Piece[]): Piece[][] {
  const words: Piece[][] = [[]];
  for (const { text, style } of pieces) {
    text.split(/ +/).forEach((part, i) => {
      if (i > 0) words.push([]);
      if (part !== "") words.at(-1)!.push({ text: part, style });
    });
  }
  return words.filter((word) => word.length > 0);
}

/** A whole text with its spans. */
function takeAll(text: string, style: string): Piece[] {
  const pieces: Piece[] = [];
  for (let at = 0; at < text.length;) {
    const span = takeSpan(text, at, { style, marks: true, all: true }) as Taken | undefined;
    if (span !== undefined) pieces.push(...span.pieces);
    else add(pieces, { text: text[at], style });
    at += span?.length ?? 1;
  }
  return pieces;
}

/** Adds a piece, to the last one if that has its style. */
function add(pieces: Piece[], { text, style }: Piece): void {
  const last = pieces.at(-1);
  if (last?.style === style) pieces[pieces.length - 1] = { text: last.text + text, style };
  else pieces.push({ text, style });
}

/** The span that begins at a place, or marks that are none; "open" if that is not known yet, undefined if there is no mark. */
function takeSpan(text: string, at: number, { style, all }: ReadOptions): Taken | "open" | undefined {
  const [run] = /^(?:`+|\*+)/.exec(text.slice(at)) ?? [];
  if (run === undefined) return undefined;
  const begin = at + run.length;
  const literal: Taken = { pieces: [{ text: run, style }], length: run.length };
  if (begin === text.length && !all) return "open";
  const code = run[0] === "`";
  if (!code && !mayOpen(text, at, run)) return literal;
  const lineEnd = text.indexOf("\n", at);
  const line = lineEnd < 0 ? text : text.slice(0, lineEnd);
  const close = code ? closingCode(line, begin, run) : closingEmphasis(line, begin, run);
  const undecided = lineEnd < 0 && !all && text.length - at < MAX_WAIT;
  if (close < 0) return undecided ? "open" : literal;
  if (undecided && close + run.length === text.length) return "open"; // the run of marks may go on
  const inner = text.slice(begin, close);
  const length = close + run.length - at;
  if (code) return { pieces: [{ text: trimmedCode(inner), style: joinStyles(style, CODE) }], length };
  return { pieces: takeAll(inner, joinStyles(style, EMPHASIS[run.length])), length };
}

function mayOpen(text: string, at: number, run: string): boolean {
  const [before = " ", after = " "] = [text[at - 1], text[at + run.length]];
  return run.length in EMPHASIS && !/[\p{L}\p{N}]/u.test(before) && !/\s/.test(after);
}

/** Where a run of as many backticks is. */
function closingCode(line: string, begin: number, run: string): number {
  for (const { index, 0: found } of line.slice(begin).matchAll(/`+/g)) if (found === run) return begin + index;
  return -1;
}

/** Where a run of as many asterisks is that no space precedes and no letter follows. */
function closingEmphasis(line: string, begin: number, run: string): number {
  for (const { index, 0: found } of line.slice(begin).matchAll(/\*+/g)) {
    const close = begin + index;
    const ends = index > 0 && !/\s/.test(line[close - 1]) && !/[\p{L}\p{N}]/u.test(line[close + found.length] ?? " ");
    if (found === run && ends) return close;
  }
  return -1;
}

/** One space at each end keeps backticks apart from the marks. */
function trimmedCode(text: string): string {
  return text.startsWith(" ") && text.endsWith(" ") && text.trim() !== "" ? text.slice(1, -1) : text;
}
