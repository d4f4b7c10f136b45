/**
 * The prose of programs: their comments, and string literals that are sentences (messages and help texts).
 *
 * @module
 */

import { markdownBlocks } from "./markdown.ts";
import type { Block } from "./text.ts";

/** A comment or a string literal. */
interface Piece {
  readonly kind: "comment" | "string";
  readonly line: number;
  readonly text: string;
  /** Whether nothing but spaces stands before it on its line. */
  readonly alone: boolean;
}

/** How a language writes what matters here. */
interface Language {
  readonly regex: boolean;
  readonly template: boolean;
}

const LANGUAGES: Readonly<Record<string, Language>> = {
  ts: { regex: true, template: true },
  ...Object.fromEntries(
    ["c", "h", "glsl", "comp", "zig", "zon"].map((end) => [end, { regex: false, template: false }]),
  ),
};

/** Whether a file is of a language that is known here. */
export function isSource(path: string): boolean {
  return path.split(".").at(-1)! in LANGUAGES;
}

/** After these a slash begins a regular expression. */
const BEFORE_REGEX = /(?:[([{,;:=!&|?+\-*%<>~^]|\b(?:return|typeof|case|of|in|await|yield))\s*$/;

/** A regular expression. */
const REGEX = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//y;

/** The end of a string that begins at `at`. */
function endOfString(code: string, at: number): number {
  const quote = code[at];
  let i = at + 1;
  while (i < code.length && code[i] !== quote) {
    if (code[i] === "\\") i++;
    else if (quote !== "`" && code[i] === "\n") return i;
    else if (quote === "`" && code.startsWith("${", i)) {
      i = endOfHole(code, i + 2);
      continue;
    }
    i++;
  }
  return i + 1;
}

/** The place after the brace that closes an expression in a template. */
function endOfHole(code: string, at: number): number {
  let depth = 1;
  let i = at;
  while (i < code.length && depth > 0) {
    if (code[i] === '"' || code[i] === "'" || code[i] === "`") {
      i = endOfString(code, i);
      continue;
    }
    if (code[i] === "{") depth++;
    if (code[i] === "}") depth--;
    i++;
  }
  return i;
}

/** The comments and strings of a program, in order. Strings that are added to one another are one. */
function piecesOf(code: string, { regex, template }: Language): Piece[] {
  const found: Piece[] = [];
  let between = 0; // since the last piece
  let line = 1;
  let counted = 0;
  const lineAt = (at: number): number => {
    for (; counted < at; counted++) if (code[counted] === "\n") line++;
    return line;
  };
  for (let i = 0; i < code.length;) {
    const opens = code.startsWith("//", i) ? "//" : code.startsWith("/*", i) ? "/*" : code[i];
    if (opens === "//" || opens === "/*") {
      const end = opens === "//" ? code.indexOf("\n", i) : code.indexOf("*/", i);
      const stop = end < 0 ? code.length : end;
      const alone = /(^|\n)[^\S\n]*$/.test(code.slice(Math.max(0, i - 200), i));
      found.push({ kind: "comment", line: lineAt(i), text: code.slice(i, stop), alone });
      between = i = opens === "//" ? stop : stop + 2;
    } else if (opens === '"' || (template && opens === "`")) {
      const end = endOfString(code, i);
      if (/^\s*\.split\(/.test(code.slice(end, end + 80))) { // a list of words
        i = end;
        continue;
      }
      const text = code.slice(i + 1, end - 1);
      const before = found.at(-1);
      if (before?.kind === "string" && /^\s*\+?\s*$/.test(code.slice(between, i)) && code.slice(between, i) !== "") {
        found[found.length - 1] = { ...before, text: before.text + text };
      } else found.push({ kind: "string", line: lineAt(i), text, alone: false });
      between = i = end;
    } else if (opens === "'") i = endOfString(code, i);
    else if (regex && opens === "/" && BEFORE_REGEX.test(code.slice(Math.max(0, i - 20), i))) {
      REGEX.lastIndex = i;
      i = REGEX.test(code) ? REGEX.lastIndex : i + 1;
    } else i++;
  }
  return found;
}

/** Lines of a comment that speak to tools. */
const DIRECTIVE = /^\s*(deno-|clang-format|@ts-|# sourceMappingURL|\/ <reference|NOLINT)/;

/** The text of a comment without what makes it one. */
function uncommented(text: string): string {
  if (text.startsWith("//")) return text.replace(/^\/\/[/!]? ?/, "");
  return text.replace(/^\/\*+ ?/, "").replace(/^[^\S\n]*\*(?!\*)[^\S\n]?/gm, "").replace(/^ {3}(?=\S)/gm, "");
}

/** Spaces before a line of a comment that is part of a table or a formula. */
const INDENTED = 2;

/** Comments as blocks; line comments below one another are one text. */
function commentBlocks(pieces: readonly Piece[]): Block[] {
  const blocks: Block[] = [];
  const comments = pieces.filter(({ kind }) => kind === "comment");
  for (let i = 0; i < comments.length;) {
    const lines = [uncommented(comments[i].text)];
    const { line, alone, text } = comments[i];
    i++;
    while (alone && text.startsWith("//") && comments[i]?.alone && comments[i].line === line + lines.length) {
      if (!comments[i].text.startsWith("//")) break;
      lines.push(uncommented(comments[i].text));
      i++;
    }
    const whole = lines.join("\n").split("\n").map((one) => DIRECTIVE.test(one) ? "" : one).join("\n");
    blocks.push(...markdownBlocks(whole, line, INDENTED));
  }
  return blocks;
}

/** Fewest words of a literal that is a sentence. */
const MIN_MESSAGE_WORDS = 5;

/** Whether a literal is text for people: most of what stands between its spaces are words. */
function isMessage(text: string): boolean {
  if (/[{};]\s*$|[;{}]\s*\n|^\s*(#version|import |function |layout)|=>|\\x1b/m.test(text)) return false;
  const parts = text.split(/\s+/).filter((part) => part !== "");
  const words = parts.filter((part) => /^["'(]?\p{L}[\p{L}'’-]*[)"']?[.,:;!?]?$/u.test(part));
  return words.length >= MIN_MESSAGE_WORDS && words.length >= 0.6 * parts.length;
}

/** Messages as blocks: holes of templates are a word, and `\n` ends a paragraph. */
function messageBlocks(pieces: readonly Piece[]): Block[] {
  return pieces.filter(({ kind }) => kind === "string").flatMap(({ text, line }) => {
    let whole = "";
    for (let i = 0; i < text.length;) {
      if (text.startsWith("${", i)) {
        whole += "X";
        i = endOfHole(text, i + 2);
      } else if (text.startsWith("\\n", i)) {
        whole += " \u0001";
        i += 2;
      } else whole += text[i++];
    }
    return whole.replaceAll("\\`", "`").split("\u0001").filter(isMessage).map((part) => ({ line, text: part }));
  });
}

/** The prose of a program. Literals are of interest in what runs, not in tests. */
export function sourceBlocks(code: string, path: string, messages: boolean): Block[] {
  const pieces = piecesOf(code, LANGUAGES[path.split(".").at(-1)!]);
  return [...commentBlocks(pieces), ...messages ? messageBlocks(pieces) : []].sort((a, b) => a.line - b.line);
}
