/**
 * The prose of Markdown: paragraphs, headings, items of lists and cells of tables, each a block. Code, quotes and pictures are left out.
 *
 * @module
 */

import { blank, type Block } from "./text.ts";

/** Begins and ends code. */
const FENCE = /^\s*(```|~~~)/;
const ITEM = /^(\s*)([-*+]|\d+\.)\s+/;
/** A tag of a documentation comment, with the name of a parameter. */
const TAG = /^\s*@(param\s+\S+|\w+)/;
/** A drawing or columns of a diagram. */
const DRAWN = /[─│┌└├►▶→▼↓]{2}|\S {3,}\S/;

/** A line without links' addresses, pictures, HTML and emphasis. */
function plain(line: string): string {
  const shown = blank(blank(line, /!\[[^\]]*\]\([^)]*\)/g), /\[((?:[^\]]|`[^`]*`)*)\]\([^)]*\)/g, "$1");
  return blank(blank(shown, /<[/!]?[a-z][^>\s]*[^>]*>/g), /\*\*/g);
}

/** The cells of a row of a table. */
function cellsOf(line: string): string[] {
  const inside = line.replace(/`[^`]*`/g, (span) => span.replaceAll("|", "¦")).replaceAll("\\|", "¦¦");
  return inside.split("|").slice(1, -1);
}

/**
 * The blocks of Markdown text whose first line is `first`. Lines that are indented by `drawn` spaces and more are code or a drawing; those
 * of an item of a list are its own.
 */
export function markdownBlocks(text: string, first = 1, drawn = 4): Block[] {
  const blocks: Block[] = [];
  let open: { line: number; lines: string[] } | undefined;
  let fenced = false;
  let listed = false;
  const close = (): void => {
    if (open) blocks.push({ line: open.line, text: open.lines.join("\n") });
    open = undefined;
  };
  text.split("\n").forEach((line, index) => {
    const number = first + index;
    const begin = (content: string): void => {
      close();
      open = { line: number, lines: [plain(content)] };
    };
    if (FENCE.test(line)) {
      close();
      fenced = !fenced;
    } else if (fenced) return;
    else if (line.trim() === "") close();
    else if (!listed && (!open || drawn < 4) && line.search(/\S/) >= drawn) close();
    else if (/^\s*>/.test(line) || DRAWN.test(line) && !/^\s*\|/.test(line)) close();
    else if (/^\s*\|/.test(line)) {
      close();
      if (!/^[\s|:-]+$/.test(line)) {
        for (const cell of cellsOf(line)) blocks.push({ line: number, text: plain(cell) });
      }
    } else if (/^#+\s/.test(line)) {
      begin(line.replace(/^#+/, ""));
      close();
    } else if (ITEM.test(line) || TAG.test(line)) {
      begin(line.replace(ITEM, "").replace(TAG, ""));
    } else if (open) open.lines.push(plain(line));
    else begin(line);
    if (line.trim() !== "") listed = ITEM.test(line) || TAG.test(line) || listed && /^\s/.test(line);
  });
  close();
  return blocks;
}
