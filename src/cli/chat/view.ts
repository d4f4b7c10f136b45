/**
 * How an answer is shown: its text on stdout as it comes, thoughts dimmed, hidden, or in their tags where nothing can be dimmed.
 *
 * On a terminal no control character of a model is obeyed, whatever the bytes of its text.
 *
 * @module
 */

import { print, status } from "../output.ts";
import type { Piece } from "./thoughts.ts";
import { harmless } from "./width.ts";

const DIM = "\x1b[2m";
const PLAIN = "\x1b[0m";

/** Shows the pieces of one answer. */
export class AnswerView {
  readonly #hide: boolean;
  readonly #terminal = Deno.stdout.isTerminal();
  readonly #dims = this.#terminal && !Deno.env.get("NO_COLOR") && Deno.env.get("TERM") !== "dumb";
  #part: Piece["part"] | undefined;
  /** Whether something of the part is on the screen. */
  #begun = false;
  /** White space at the end of thoughts so far, shown when more of them comes. */
  #space = "";

  /** `hide` leaves thoughts out. */
  constructor(hide: boolean) {
    this.#hide = hide;
  }

  /** Shows a piece. */
  show({ part, text }: Piece): void {
    const before = this.#part;
    if (part !== before) {
      if (before === "reasoning") this.#endThoughts();
      this.#part = part;
      this.#begun = before === undefined && part === "text";
      if (part === "reasoning" && this.#hide) status("[thinking…]");
      else if (part === "reasoning" && !this.#dims) print("<think>");
    }
    if (part === "reasoning" && this.#hide) return;
    // Blank lines around thoughts are the template's; without the tags they have nothing to part.
    const shown = !this.#begun && (this.#dims || this.#hide) ? text.trimStart() : text;
    if (shown === "") return;
    this.#begun = true;
    const safe = this.#terminal ? harmless(shown) : shown;
    if (part === "reasoning" && this.#dims) this.#dim(safe);
    else print(safe);
  }

  #dim(text: string): void {
    const whole = this.#space + text;
    const visible = whole.trimEnd();
    this.#space = whole.slice(visible.length);
    if (visible !== "") print(`${DIM}${visible}${PLAIN}`);
  }

  /** Ends the answer and its line. */
  end(): void {
    if (this.#part === "reasoning") this.#endThoughts();
    print("\n");
  }

  #endThoughts(): void {
    if (this.#hide) status("");
    else if (!this.#dims) print("</think>");
    else if (this.#begun) print("\n\n");
  }
}
