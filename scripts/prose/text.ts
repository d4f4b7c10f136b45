/**
 * Blocks of text and the sentences in them.
 *
 * Extractors replace text that is no prose by {@link FILLER}, character by character, so that places in a block stay places in the file.
 *
 * @module
 */

/** Stands for a character that is no text: markup, the inside of a link, the indentation of a comment. */
export const FILLER = "\u2400";

/** Stands for a space inside of a code span, which counts as one word. */
const JOINT = "\u2423";

/** A paragraph, a heading, an item of a list, a cell of a table, a message. */
export interface Block {
  /** The line of its first character, from 1. */
  readonly line: number;
  /** Its lines, with "\n" between them. */
  readonly text: string;
}

/** A sentence and where it begins. */
export interface Sentence {
  readonly line: number;
  readonly text: string;
  readonly words: number;
}

/** Abbreviations whose point ends no sentence. */
const ABBREVIATION = /\b(e\.g|i\.e|vs|cf|approx|resp|fig|no)\.$/i;

/** The end of a sentence: a stop, what closes with it, and a space. */
const END = /[.!?]["'”)\]*_]*(?=\s)/g;

/** Replaces every match by {@link FILLER}, but for line ends and what a group kept. */
export function blank(text: string, pattern: RegExp, keep = ""): string {
  return text.replace(pattern, (match, ...groups) => {
    const kept: string = keep === "" ? "" : groups[Number(keep.slice(1)) - 1] ?? "";
    const at = kept === "" ? match.length : match.indexOf(kept);
    const erased = (part: string) => part.replace(/[^\n]/g, FILLER);
    return erased(match.slice(0, at)) + kept + erased(match.slice(at + kept.length));
  });
}

/** Makes each code span and each `{@link}` one word. */
function joinSpans(text: string): string {
  return text.replace(/(`+)[^]*?\1|\{@\w+[^}]*\}/g, (span) => span.replace(/[^\S\n]/g, JOINT));
}

/** Words: what stands between spaces and has a letter or a digit. */
function countWords(text: string): number {
  return text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
}

/** The sentences of a block. */
export function sentencesOf(block: Block): Sentence[] {
  const text = joinSpans(block.text);
  const found: Sentence[] = [];
  let line = block.line;
  let start = 0;
  const add = (end: number): void => {
    const part = text.slice(start, end);
    const lead = /^[\s\u2400]*/.exec(part)![0];
    const words = part.replaceAll(FILLER, "").replaceAll(/\s+/g, " ").trim();
    const first = line + lead.split("\n").length - 1;
    if (/[\p{L}\p{N}]/u.test(words)) {
      found.push({ line: first, text: words.replaceAll(JOINT, " "), words: countWords(words) });
    }
    line += part.split("\n").length - 1;
    start = end;
  };
  for (const { index, 0: stop } of text.matchAll(END)) {
    if (!ABBREVIATION.test(text.slice(0, index + 1))) add(index + stop.length);
  }
  add(text.length);
  return found;
}

/** A sentence without its code spans, whose words are names. */
export function withoutSpans(sentence: string): string {
  return sentence.replace(/(`+)[^]*?\1|\{@\w+[^}]*\}/g, "`");
}
