/**
 * How an answer is shown: its text on stdout as it comes, thoughts dimmed, hidden, or in their tags if nothing can be dimmed.
 *
 * A terminal wraps words and, with colours, shows Markdown as formatted text; a pipe gets the text as it is. Control characters in a model's text are never obeyed.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import type { lm } from "../../../mod.ts";
import { print, status } from "../output.ts";
import { AnswerText, DIM } from "./answer_text.ts";
import { sizeNow } from "./terminal.ts";
import { harmless } from "./width.ts";

/** Shows one answer. */
export class AnswerView {
  readonly #hide: boolean;
  readonly #terminal = Deno.stdout.isTerminal();
  readonly #dims = this.#terminal && !environment("NO_COLOR") && environment("TERM") !== "dumb";
  readonly #text = this.#part(this.#dims, "");
  readonly #thoughts = this.#part(false, DIM);
  /** The text that was shown last. */
  #shown: "none" | "reasoning" | "text" = "none";

  #printed = false;

  /** `hide` leaves thoughts out. */
  constructor(hide: boolean) {
    this.#hide = hide;
  }

  /** Shows what came with a token. */
  show({ reasoning, text, raw }: Pick<lm.GenerationResponse, "reasoning" | "text" | "raw">): void {
    if (!this.#hide && !this.#dims) return this.#print(this.#text.push(raw));
    if (reasoning !== "") {
      if (this.#hide && this.#shown === "none") status("[thinking…]");
      this.#shown = "reasoning";
      if (!this.#hide) this.#print(this.#thoughts.push(reasoning));
    }
    if (text !== "") {
      if (this.#shown === "reasoning" && !this.#hide) print(`${this.#thoughts.end()}\n\n`);
      this.#shown = "text";
      this.#print(this.#text.push(text));
    }
  }

  /** Ends the answer and its line, which an answer that is only calls does not have. */
  end(calls = false): void {
    const rest = `${this.#thoughts.end()}${this.#text.end()}`;
    if (!calls || this.#printed || rest !== "") print(`${rest}\n`);
  }

  #print(text: string): void {
    if (text === "") return;
    this.#printed = true;
    print(text);
  }

  /** A view of one part of the answer. */
  #part(marks: boolean, style: string): Pick<AnswerText, "push" | "end"> {
    if (!this.#terminal) return { push: (text) => text, end: () => "" };
    const shown = new AnswerText({ columns: () => sizeNow().columns, marks, style });
    return { push: (text) => shown.push(harmless(text)), end: () => shown.end() };
  }
}
