/**
 * Where a block of calls ends whose texts may have the mark that ends it.
 *
 * @module
 */

/** How a format writes texts, so that marks in them are found. */
export interface Quotes {
  /** A whole text with its quotes. */
  readonly whole: RegExp;
  /** What begins one. */
  readonly open: RegExp;
  /** Whether a text may have line feeds. */
  readonly lines: boolean;
}

/** Texts of JSON. */
export const JSON_QUOTES: Quotes = { whole: /"(?:[^"\\\n]|\\.)*"/, open: /"/, lines: false };
/** Texts of Python, also those of JSON. */
export const PYTHON_QUOTES: Quotes = { whole: /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/, open: /['"]/, lines: false };

/** Texts between marks of a format's own, which no escape can be in. */
export function markedQuotes(mark: string): Quotes {
  const escaped = escape(mark);
  return { whole: new RegExp(`${escaped}[^]*?${escaped}`), open: new RegExp(escaped), lines: true };
}

/**
 * The index of the first `close` from `from` on that is in no text. "more": the block has to go on before that is known. "none": a line
 * ends within a text, so the block is malformed.
 */
export function closeOutside(text: string, from: number, close: string, quotes: Quotes): number | "more" | "none" {
  const { whole, open, lines } = quotes;
  const part = new RegExp(`(?<whole>${whole.source})|(?<open>${open.source})|${escape(close)}`, "g");
  part.lastIndex = from;
  for (let found; (found = part.exec(text));) {
    if (found.groups!.whole !== undefined) continue;
    if (found.groups!.open === undefined) return found.index;
    return !lines && text.includes("\n", found.index) ? "none" : "more";
  }
  return "more";
}

function escape(text: string): string {
  return text.replaceAll(/[|\\{}()[\]^$+*?.]/g, "\\$&");
}
