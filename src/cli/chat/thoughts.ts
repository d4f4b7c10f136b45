/**
 * The two parts of an answer: what a model thought in `<think>…</think>`, and what it says.
 *
 * @module
 */

/** A run of an answer. */
export interface Piece {
  readonly part: "reasoning" | "text";
  readonly text: string;
}

const OPEN = "<think>";
const CLOSE = "</think>";

/** Splits an answer as it comes. Thoughts stand at its beginning only; later tags are text. */
export class ThoughtSplitter {
  /** What ends the state: thoughts may begin, they go on, there are no more. */
  #state: "start" | "reasoning" | "text";
  #rest = "";

  /** `open` says that the prompt has begun the thoughts. */
  constructor(open: boolean) {
    this.#state = open ? "reasoning" : "start";
  }

  /** Takes text and gives what is certain. */
  push(text: string): Piece[] {
    this.#rest += text;
    const pieces: Piece[] = [];
    if (this.#state === "start") {
      const start = this.#rest.trimStart();
      if (start.length < OPEN.length && OPEN.startsWith(start)) return pieces;
      if (start.startsWith(OPEN)) this.#enter("reasoning", start, OPEN);
      else this.#state = "text";
    }
    if (this.#state === "reasoning") {
      const end = this.#rest.indexOf(CLOSE);
      const certain = end >= 0 ? end : this.#rest.length - tagAtEnd(this.#rest, CLOSE);
      if (certain > 0) pieces.push({ part: "reasoning", text: this.#rest.slice(0, certain) });
      this.#rest = this.#rest.slice(certain);
      if (end < 0) return pieces;
      this.#enter("text", this.#rest, CLOSE);
    }
    if (this.#rest !== "") pieces.push({ part: "text", text: this.#rest });
    this.#rest = "";
    return pieces;
  }

  /** The end: what was held back is text of its part. */
  finish(): Piece[] {
    const text = this.#rest;
    this.#rest = "";
    return text === "" ? [] : [{ part: this.#state === "reasoning" ? "reasoning" : "text", text }];
  }

  #enter(state: "reasoning" | "text", from: string, tag: string): void {
    this.#state = state;
    this.#rest = from.slice(tag.length);
  }
}

/** How many characters at the end of a text may begin a tag. */
function tagAtEnd(text: string, tag: string): number {
  for (let count = Math.min(tag.length - 1, text.length); count > 0; count--) {
    if (text.endsWith(tag.slice(0, count))) return count;
  }
  return 0;
}
