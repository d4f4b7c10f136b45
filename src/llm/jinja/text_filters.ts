/**
 * Filters that break and shorten text.
 *
 * @module
 */

import { type Filter, table } from "./functions.ts";
import { checkItems, checkLength, step, TemplateFault, touch } from "./limits.ts";
import { escape, markedAs } from "./markup.ts";
import { splitLines, strip, textOf } from "./strings.ts";
import { indexOf } from "./numbers.ts";
import { str } from "./print.ts";
import { join, SPACE, Str } from "./text.ts";
import { lengthOf, truthy, typeName, type Value } from "./values.ts";

const NEWLINE = Str.template("\n");

function indent(self: Value, width: Value = 4, first: Value = false, blank: Value = false): Value {
  if (!(self instanceof Str)) throw new TemplateFault(`indent() needs a string, not ${typeName(self)}`);
  const count = width instanceof Str ? 0 : Math.max(0, indexOf(width, "indent()'s width"));
  checkLength(count);
  const indention = width instanceof Str ? width : Str.template(" ".repeat(count));
  const lines = splitLines(self.plus(NEWLINE));
  const indented = lines.map((line, i) => i > 0 && (truthy(blank) || line.length > 0) ? indention.plus(line) : line);
  const text = join(indented, NEWLINE);
  return markedAs(self, truthy(first) ? indention.plus(text) : text);
}

function truncate(
  self: Value,
  length: Value = 255,
  killWords: Value = false,
  end: Value = Str.template("..."),
  leeway: Value = 5,
): Value {
  const tail = textOf(end, "truncate()'s end");
  const [most, slack] = [
    indexOf(length, "truncate()'s length"),
    leeway === null ? 5 : indexOf(leeway, "truncate()'s leeway"),
  ];
  if (most < tail.points) throw new TemplateFault(`expected length >= ${tail.points}, got ${most}`);
  if (slack < 0) throw new TemplateFault(`expected leeway >= 0, got ${slack}`);
  if ((lengthOf(self) ?? Infinity) <= most + slack) return self;
  const text = textOf(self, "what truncate() shortens");
  const kept = text.part(0, most - tail.points);
  const space = truthy(killWords) ? -1 : kept.text.lastIndexOf(" ");
  return markedAs(self, (space < 0 ? kept : kept.slice(0, space)).plus(text.markup ? escape(tail) : tail));
}

/** The chunks that textwrap.wrap() cuts a line into: runs of white space and words. Words are cut after hyphens too. */
const CHUNKS = new RegExp(
  `[${SPACE}]+|(?:[^${SPACE}-]|-(?=[^${SPACE}-])(?<![\\p{L}\\p{N}_][^${SPACE}]-))+?(?:(?<=[\\p{L}_]{2})-(?=[\\p{L}_]{2})|(?=[${SPACE}]|$))|-+|[^${SPACE}]+`,
  "gu",
);
const WORDS = new RegExp(`[${SPACE}]+|[^${SPACE}]+`, "g");

function wordWrap(
  self: Value,
  width: Value = 79,
  breakLong: Value = true,
  by: Value = null,
  hyphens: Value = true,
): Value {
  const text = textOf(self, "what wordwrap() breaks");
  const columns = indexOf(width, "wordwrap()'s width");
  if (columns <= 0) throw new TemplateFault("wordwrap() needs a width above zero");
  const separator = by === null ? NEWLINE : textOf(by, "wordwrap()'s wrapstring");
  const lines = splitLines(text).map((line) =>
    join(wrapLine(line, columns, truthy(breakLong), truthy(hyphens)), separator)
  );
  return join(lines, separator);
}

function wrapLine(line: Str, width: number, breakLong: boolean, hyphens: boolean): Str[] {
  touch(line.length);
  const chunks: Str[] = [];
  for (const { 0: chunk, index } of line.text.matchAll(hyphens ? CHUNKS : WORDS)) {
    chunks.push(line.slice(index, index + chunk.length));
    checkItems(chunks.length);
  }
  chunks.reverse();
  const isBlank = (chunk: Str | undefined): boolean => chunk !== undefined && strip(chunk, undefined).length === 0;
  const lines: Str[] = [];
  while (chunks.length > 0) {
    const current: Str[] = [];
    let length = 0;
    if (lines.length > 0 && isBlank(chunks.at(-1))) chunks.pop();
    for (let chunk = chunks.at(-1); chunk !== undefined && length + chunk.points <= width; chunk = chunks.at(-1)) {
      current.push(chunk);
      length += chunk.points;
      chunks.pop();
    }
    const next = chunks.at(-1);
    if (next !== undefined && next.points > width) {
      const room = breakLong ? width - length : current.length === 0 ? next.points : 0;
      if (room > 0) {
        current.push(next.part(0, room));
        chunks[chunks.length - 1] = next.part(room, next.points);
        if (room >= next.points) chunks.pop();
      }
    }
    if (isBlank(current.at(-1))) current.pop();
    if (current.length > 0) lines.push(current.reduce((all, chunk) => all.plus(chunk)));
  }
  return lines;
}

/** Filters of text by name. */
export const TEXT_FILTERS: Readonly<Record<string, Filter>> = table({
  indent: ["width? first? blank?", indent],
  title: ["", (self) =>
    str(self).withMarkup(false).rewrite(new RegExp(`[^${SPACE}({[<-]+`, "gu"), (word) => {
      const head = String.fromCodePoint(word.codePointAt(0)!);
      return head.toUpperCase() + word.slice(head.length).toLowerCase();
    })],
  truncate: ["length? killwords? end? leeway?", truncate],
  wordcount: ["", (self) => {
    const text = str(self);
    touch(text.length);
    let words = 0;
    for (const _ of text.text.matchAll(/[\p{L}\p{N}_]+/gu)) step(words++ & 1);
    return words;
  }],
  wordwrap: ["width? break_long_words? wrapstring? break_on_hyphens?", wordWrap],
});
