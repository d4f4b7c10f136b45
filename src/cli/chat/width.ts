/**
 * How text lies on a terminal: what a person counts as one character, and how many columns it takes.
 *
 * @module
 */

import { stripVTControlCharacters } from "node:util";

const SEGMENTER = new Intl.Segmenter("en", { granularity: "grapheme" });

/** East Asian wide and fullwidth characters. Emoji have a property of their own. */
const WIDE = new RegExp(
  "[\\u1100-\\u115f\\u2329\\u232a\\u2e80-\\u303e\\u3041-\\ua4cf\\ua960-\\ua97c\\uac00-\\ud7a3\\uf900-\\ufaff\\ufe10-\\ufe19" +
    "\\ufe30-\\ufe6f\\uff01-\\uff60\\uffe0-\\uffe6\\u{16fe0}-\\u{18dff}\\u{1aff0}-\\u{1b2ff}\\u{1d300}-\\u{1d376}" +
    "\\u{1f200}-\\u{1f265}\\u{20000}-\\u{3fffd}]",
  "u",
);
/** One emoji, however many code points make it up. */
const EMOJI = /\p{Emoji_Presentation}|\ufe0f/u;
/** Characters that combine with the one before; a soft hyphen shows. */
const NOTHING = /[\p{Mn}\p{Me}\u1160-\u11ff\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/u;
const ASCII = /^[\x20-\x7e]*$/;

/** The characters of a text as a person counts them: a letter with its accents is one, a family emoji is one. */
export function graphemes(text: string): string[] {
  return ASCII.test(text) ? [...text] : Array.from(SEGMENTER.segment(text), ({ segment }) => segment);
}

/** Columns that a text takes on a terminal. */
export function width(text: string): number {
  return ASCII.test(text) ? text.length : graphemes(text).reduce((sum, grapheme) => sum + graphemeWidth(grapheme), 0);
}

/** Columns of one of the {@link graphemes}. */
export function graphemeWidth(grapheme: string): number {
  if (grapheme.length === 1 && ASCII.test(grapheme)) return 1;
  if (EMOJI.test(grapheme)) return 2;
  let columns = 0;
  for (const char of grapheme) columns += WIDE.test(char) ? 2 : NOTHING.test(char) ? 0 : 1;
  return columns;
}

/** The display of a tab. */
export const TAB = "    ";

/** Control characters but for line feeds and tabs: C0, DEL, C1. */
// deno-lint-ignore no-control-regex
const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/g;

/**
 * Typed or pasted text in the form that a message may have. Lines end with a line feed. There are no escape sequences, and no control
 * characters but tabs.
 */
export function typed(text: string): string {
  return stripVTControlCharacters(text.replaceAll(/\r\n?/g, "\n")).replaceAll(CONTROL, "");
}

/** Text as a terminal may show it: control characters stand there as pictures, so none is obeyed. Carriage returns go. */
export function harmless(text: string): string {
  return text.replaceAll("\r", "").replaceAll(
    CONTROL,
    (char) => char === "\x7f" ? "\u2421" : char < " " ? String.fromCharCode(0x2400 + char.charCodeAt(0)) : "\ufffd",
  );
}
