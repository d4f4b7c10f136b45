/**
 * Words in rows of a terminal: a word that does not fit begins the next row, below the text of a list.
 *
 * @module
 */

import { width } from "./width.ts";

/** A piece of text with the parameters of its SGR sequence, such as "1" for bold; "" has none. */
export interface Piece {
  readonly text: string;
  readonly style: string;
}

/** A text in its style. */
export function styled({ text, style }: Piece): string {
  return style === "" || text === "" ? text : `\x1b[${style}m${text}\x1b[0m`;
}

/** Both styles. */
export function joinStyles(one: string, other: string): string {
  return [one, other].filter((style) => style !== "").join(";");
}

/** Where the next word goes. */
export class Flow {
  readonly #columns: () => number;
  #column = 0;
  /** Columns before the next rows of the same line. */
  indent = 0;

  /** `columns` tells the width of the terminal, which may change. */
  constructor(columns: () => number) {
    this.#columns = columns;
  }

  /** A word of one or more pieces after some spaces, in this row or the next one. */
  word(spaces: string, pieces: readonly Piece[]): string {
    const columns = this.#columns();
    const taken = pieces.reduce((sum, { text }) => sum + width(text), 0);
    const fits = this.#column + spaces.length + taken <= columns;
    const wraps = !fits && this.#column > this.indent && this.indent + taken <= columns;
    const before = wraps ? `\n${" ".repeat(this.indent)}` : spaces;
    const at = (wraps ? this.indent : this.#column + spaces.length) + taken;
    this.#column = at > columns ? at % columns : at; // the terminal breaks a word that is wider
    return before + pieces.map(styled).join("");
  }

  /** Text that stays as it is, such as a bullet. */
  literal(piece: Piece): string {
    this.#column += width(piece.text);
    return styled(piece);
  }

  /** Begins a line. */
  newline(): string {
    this.#column = this.indent = 0;
    return "\n";
  }
}
