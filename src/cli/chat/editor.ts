/**
 * The text that is being typed: keys in, what to do with it out. Knows nothing of the screen; screen.ts draws it.
 *
 * The text may have several lines. The cursor moves by graphemes, so one press passes or deletes one character of the screen.
 *
 * @module
 */

import type { Key } from "./keys.ts";
import { graphemes, typed } from "./width.ts";

/** A request of a key to the terminal's owner. */
export type Action = "send" | "interrupt" | "end" | "suspend" | "clear" | { readonly list: readonly string[] };

/** Completions of the text from `start` to the cursor. */
export interface Completion {
  readonly start: number;
  readonly candidates: readonly string[];
}

/** The services that an editor needs. */
export interface EditorOptions {
  /** Lines that were sent, the oldest first. */
  readonly history: readonly string[];
  /** Texts that could follow a text. */
  readonly complete: (text: string) => Completion;
  /** Whether Enter begins another line of a text and does not send it. */
  readonly isOpen: (text: string) => boolean;
}

const WORD_BEFORE = /[\p{L}\p{N}\p{M}_]*[^\p{L}\p{N}\p{M}_]*$/u;
const WORD_BEHIND = /^[^\p{L}\p{N}\p{M}_]*[\p{L}\p{N}\p{M}_]*/u;

/** A text under edit. */
export class Editor {
  readonly #options: EditorOptions;
  /** Where in the history the text is from; its length for one that is new, which `#draft` keeps meanwhile. */
  #at: number;
  #draft = "";
  #killed = "";

  /** The text. */
  text = "";
  /** Where in the text the next character goes, in UTF-16 units. */
  cursor = 0;

  constructor(options: EditorOptions) {
    this.#options = options;
    this.#at = options.history.length;
  }

  /** Handles a key; returns the action that the caller must take, if any. */
  press(key: Key): Action | undefined {
    if ("name" in key) return KEYS[key.name]?.(this) ?? undefined;
    this.#insert(typed(key.text));
  }

  /** Begins an empty text. */
  reset(): void {
    this.text = this.#draft = "";
    this.cursor = 0;
    this.#at = this.#options.history.length;
  }

  /** Enter: another line where the text is open, else it is sent. */
  enter(): Action | undefined {
    if (!this.#options.isOpen(this.text)) return "send";
    this.#insert("\n");
  }

  /** Ctrl-D: ends if there is no text, else deletes the character after the cursor. */
  endOrDelete(): Action | undefined {
    if (this.text === "") return "end";
    this.remove(this.right);
  }

  /** Puts a text at the cursor. */
  #insert(text: string): void {
    this.text = this.text.slice(0, this.cursor) + text + this.text.slice(this.cursor);
    this.cursor += text.length;
  }

  insertLine(): void {
    this.#insert("\n");
  }

  /** Where the line of the cursor begins. */
  get lineStart(): number {
    return this.text.lastIndexOf("\n", this.cursor - 1) + 1;
  }

  /** Where it ends. */
  get lineEnd(): number {
    const end = this.text.indexOf("\n", this.cursor);
    return end < 0 ? this.text.length : end;
  }

  /** One character back. */
  get left(): number {
    const before = this.text.slice(this.lineStart, this.cursor);
    return Math.max(0, this.cursor - (graphemes(before).at(-1)?.length ?? 1));
  }

  /** One character on. */
  get right(): number {
    const behind = this.text.slice(this.cursor, this.lineEnd);
    return Math.min(this.text.length, this.cursor + (graphemes(behind)[0]?.length ?? 1));
  }

  /** One word back. */
  get wordLeft(): number {
    return WORD_BEFORE.exec(this.text.slice(0, this.cursor))!.index;
  }

  /** One word on. */
  get wordRight(): number {
    return this.cursor + WORD_BEHIND.exec(this.text.slice(this.cursor))![0].length;
  }

  /** Deletes the text between the cursor and a place. */
  remove(to: number): string {
    const [start, end] = [Math.min(to, this.cursor), Math.max(to, this.cursor)];
    const removed = this.text.slice(start, end);
    this.text = this.text.slice(0, start) + this.text.slice(end);
    this.cursor = start;
    return removed;
  }

  /** The same, to be put back by {@link yank}. */
  kill(to: number): void {
    const removed = this.remove(to);
    if (removed !== "") this.#killed = removed;
  }

  /** Inserts the text that was killed last. */
  yank(): void {
    this.#insert(this.#killed);
  }

  /** Swaps the two characters around the cursor, or those before it at the end of a line. */
  transpose(): void {
    if (this.cursor === this.lineEnd) this.cursor = this.left;
    if (this.cursor === this.lineStart) return;
    const one = this.remove(this.left);
    this.cursor = this.right;
    this.#insert(one);
  }

  /** A line up, or one back in the history from the first line. */
  up(): void {
    const start = this.lineStart;
    if (start === 0) return this.#recall(this.#at - 1);
    const column = graphemes(this.text.slice(start, this.cursor)).length;
    this.cursor = start - 1;
    this.#toColumn(column);
  }

  /** A line down, or one on in the history from the last line. */
  down(): void {
    const end = this.lineEnd;
    if (end === this.text.length) return this.#recall(this.#at + 1);
    const column = graphemes(this.text.slice(this.lineStart, this.cursor)).length;
    this.cursor = end + 1;
    this.#toColumn(column);
  }

  #toColumn(column: number): void {
    const start = this.lineStart;
    this.cursor = start + graphemes(this.text.slice(start, this.lineEnd)).slice(0, column).join("").length;
  }

  #recall(at: number): void {
    const { history } = this.#options;
    if (at < 0 || at > history.length) return;
    if (this.#at === history.length) this.#draft = this.text;
    this.#at = at;
    this.text = at === history.length ? this.#draft : history[at];
    this.cursor = this.text.length;
  }

  /** Completes the text before the cursor as far as it is certain; else lists the candidates. */
  complete(): Action | undefined {
    const before = this.text.slice(0, this.cursor);
    const { start, candidates } = this.#options.complete(before);
    if (candidates.length === 0) return;
    const common = candidates.reduce(commonStart);
    if (common.length <= before.length - start && candidates.length > 1) return { list: candidates };
    this.remove(start);
    this.#insert(common);
  }
}

/** The common beginning of two texts. */
function commonStart(one: string, other: string): string {
  let count = 0;
  while (count < one.length && one[count] === other[count]) count++;
  return one.slice(0, count);
}

type Stroke = (editor: Editor) => Action | void;

/** The action of each key. */
const KEYS: Readonly<Record<string, Stroke>> = named([
  [["return"], (e) => e.enter()],
  [["alt-return"], (e) => e.insertLine()],
  [["ctrl-c"], () => "interrupt"],
  [["ctrl-d"], (e) => e.endOrDelete()],
  [["ctrl-z"], () => "suspend"],
  [["ctrl-l"], () => "clear"],
  [["tab"], (e) => e.complete()],
  [["left", "ctrl-b"], (e) => void (e.cursor = e.left)],
  [["right", "ctrl-f"], (e) => void (e.cursor = e.right)],
  [["ctrl-left", "alt-left", "alt-b"], (e) => void (e.cursor = e.wordLeft)],
  [["ctrl-right", "alt-right", "alt-f"], (e) => void (e.cursor = e.wordRight)],
  [["home", "ctrl-a"], (e) => void (e.cursor = e.lineStart)],
  [["end", "ctrl-e"], (e) => void (e.cursor = e.lineEnd)],
  [["up", "ctrl-p"], (e) => e.up()],
  [["down", "ctrl-n"], (e) => e.down()],
  [["backspace", "ctrl-h", "shift-backspace"], (e) => void e.remove(e.left)],
  [["delete"], (e) => void e.remove(e.right)],
  [["ctrl-w", "alt-backspace", "ctrl-backspace"], (e) => e.kill(e.wordLeft)],
  [["alt-d", "ctrl-delete"], (e) => e.kill(e.wordRight)],
  [["ctrl-u"], (e) => e.kill(e.lineStart)],
  [["ctrl-k"], (e) => e.kill(e.lineEnd)],
  [["ctrl-y"], (e) => e.yank()],
  [["ctrl-t"], (e) => e.transpose()],
]);

function named(rows: readonly (readonly [names: readonly string[], stroke: Stroke])[]): Record<string, Stroke> {
  return Object.fromEntries(rows.flatMap(([names, stroke]) => names.map((name) => [name, stroke])));
}
