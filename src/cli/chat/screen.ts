/**
 * Draws a text under edit at the bottom of a terminal, over as many rows as it takes, and takes it off again.
 *
 * Rows are broken here and end with a line feed, so nothing depends on how a terminal wraps. Only a change of its width moves the text,
 * on terminals that wrap anew.
 *
 * @module
 */

import { graphemes, graphemeWidth, TAB, width } from "./width.ts";

/** A text as rows of a terminal. */
export interface Layout {
  readonly rows: readonly string[];
  /** Where the cursor stands. */
  readonly row: number;
  readonly column: number;
}

/** The prompts before the first row and before all others. */
export interface Prompt {
  readonly first: string;
  readonly others: string;
}

/** Breaks a text into rows of at most `columns`. */
export function layout({ first, others }: Prompt, text: string, cursor: number, columns: number): Layout {
  const rows: string[] = [];
  let [row, used, at] = [first, width(first), 0];
  let place: Omit<Layout, "rows"> | undefined;
  const wrap = (start: string): void => {
    rows.push(row);
    [row, used] = [start, width(start)];
  };
  const reach = (): void => {
    if (place !== undefined || at < cursor) return;
    if (used >= columns) wrap(""); // the cursor has no place after a full row
    place = { row: rows.length, column: used };
  };
  for (const [i, line] of text.split("\n").entries()) {
    if (i > 0) {
      reach();
      wrap(others);
      at++;
    }
    for (const grapheme of graphemes(line)) {
      const shown = grapheme === "\t" ? TAB : grapheme;
      const columnsOf = grapheme === "\t" ? TAB.length : graphemeWidth(grapheme);
      if (used + columnsOf > columns && used > 0) wrap("");
      reach();
      row += shown;
      used += columnsOf;
      at += grapheme.length;
    }
  }
  reach();
  rows.push(row);
  return { rows, ...place! };
}

/** Size of a terminal in characters. */
export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** The rows of a text under edit on a terminal. */
export class Screen {
  readonly #write: (text: string) => void;
  /** The drawn rows. */
  #drawn: Layout | undefined;

  constructor(write: (text: string) => void) {
    this.#write = write;
  }

  /** Draws a layout in place of the one before; of one higher than the terminal, the part around the cursor. */
  draw({ rows, row, column }: Layout, size: Size): void {
    const top = Math.max(0, Math.min(rows.length - size.rows, row - (size.rows >> 1)));
    const visible = rows.slice(top, top + size.rows);
    const below = visible.length - 1 - (row - top);
    const up = below > 0 ? `\x1b[${below}A` : "";
    const right = column > 0 ? `\x1b[${column}C` : "";
    this.#write(`${this.#erasure(size)}${visible.join("\r\n")}${up}\r${right}`);
    this.#drawn = { rows: visible, row: row - top, column };
  }

  /** Leaves a layout on the screen as a whole, with the cursor on the row below. */
  leave({ rows }: Layout, size: Size): void {
    this.#write(`${this.#erasure(size)}${rows.join("\r\n")}\r\n`);
    this.#drawn = undefined;
  }

  /** Erases the drawn text. */
  clear(size: Size): void {
    this.#write(this.#erasure(size));
    this.#drawn = undefined;
  }

  /** Forgets the drawn text: something else has cleared the screen. */
  forget(): void {
    this.#drawn = undefined;
  }

  /** The text that removes the drawn rows. The terminal may be narrower than when they were drawn, and they take more rows then. */
  #erasure({ columns }: Size): string {
    if (this.#drawn === undefined) return "";
    const { rows, row, column } = this.#drawn;
    const taken = rows.slice(0, row).map((text) => Math.max(1, Math.ceil(width(text) / columns)));
    const up = taken.reduce((sum, count) => sum + count, 0) + Math.floor(column / columns);
    return `${up > 0 ? `\x1b[${up}A` : ""}\r\x1b[J`;
  }
}
