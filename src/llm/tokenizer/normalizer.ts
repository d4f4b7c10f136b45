/**
 * The "normalizer" of a tokenizer.json: normal forms of Unicode.
 *
 * Engines put combining marks into their order one by one, which takes hours for a megabyte of them. Where a text has many
 * marks in a row, they are put into order here before.
 *
 * @module
 */

import { CharSet, matching } from "./char_set.ts";

/** The normal forms that a normalizer may ask for. */
export const FORMS = ["NFC", "NFD", "NFKC", "NFKD"] as const;

/** One of {@link FORMS}. */
export type Form = typeof FORMS[number];

/** More marks in a row than an engine should order. */
const MANY_MARKS = /\p{M}{64}/gu;
const MARKS = new CharSet(matching("\\p{M}"));

/** Text in a normal form, in time that grows with its length. */
export function normalize(text: string, form: Form): string {
  let out = "";
  let at = 0;
  for (const { index } of text.matchAll(MANY_MARKS)) {
    if (index < at) continue;
    let end = index;
    for (let code = text.codePointAt(end); code !== undefined && MARKS.has(code); code = text.codePointAt(end)) {
      end += code > 0xffff ? 2 : 1;
    }
    out += text.slice(at, index) + ordered(text.slice(index, end));
    at = end;
  }
  return (out + text.slice(at)).normalize(form);
}

/** Marks in canonical order, which is another spelling of the same text. */
function ordered(marks: string): string {
  const chars = Array.from(marks, (mark) => mark.normalize("NFD")).join("");
  let out = "";
  let run: string[] = [];
  for (const char of chars) {
    if (moves(char)) {
      run.push(char);
      continue;
    }
    out += sorted(run) + char; // marks do not pass this one
    run = [];
  }
  return out + sorted(run);
}

const MOVES = new Map<string, boolean>();

/** Whether a mark may change places with others: with one of the lowest or of the highest class. */
function moves(mark: string): boolean {
  const known = MOVES.get(mark) ?? (swaps(mark, "\u0334") || swaps("\u0345", mark));
  MOVES.set(mark, known);
  return known;
}

function swaps(first: string, second: string): boolean {
  return (first + second).normalize("NFD") !== first + second;
}

/** Marks by class, those of one class in the order in which they are. */
function sorted(marks: readonly string[]): string {
  const groups = new Map<string, string[]>();
  for (const mark of marks) {
    const group = groups.get(mark) ?? [];
    groups.set(mark, group);
    group.push(mark);
  }
  const kinds = [...groups.keys()].sort((a, b) => swaps(a, b) ? 1 : swaps(b, a) ? -1 : 0);
  const rank = new Map<string, number>();
  kinds.forEach((mark, i) => rank.set(mark, i > 0 && !swaps(mark, kinds[i - 1]) ? rank.get(kinds[i - 1])! : i));
  const classes: string[][] = kinds.map(() => []);
  for (const mark of marks) classes[rank.get(mark)!].push(mark);
  return classes.map((some) => some.join("")).join("");
}
