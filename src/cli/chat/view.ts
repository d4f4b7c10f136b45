/**
 * How an answer is shown: its text on stdout as it comes, thoughts dimmed, hidden, or in their tags where nothing can be dimmed.
 *
 * On a terminal no control character of a model is obeyed, whatever the bytes of its text.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import type { lm } from "../../../mod.ts";
import { print, status } from "../output.ts";
import { harmless } from "./width.ts";

const DIM = "\x1b[2m";
const PLAIN = "\x1b[0m";

/** Shows one answer. */
export class AnswerView {
  readonly #hide: boolean;
  readonly #terminal = Deno.stdout.isTerminal();
  readonly #dims = this.#terminal && !environment("NO_COLOR") && environment("TERM") !== "dumb";
  /** What was shown last. */
  #part: "none" | "reasoning" | "text" = "none";

  /** `hide` leaves thoughts out. */
  constructor(hide: boolean) {
    this.#hide = hide;
  }

  /** Shows what came with a token. */
  show({ reasoning, text, raw }: Pick<lm.GenerationResponse, "reasoning" | "text" | "raw">): void {
    if (!this.#hide && !this.#dims) return this.#print(raw);
    if (reasoning !== "") {
      if (this.#hide && this.#part === "none") status("[thinking…]");
      this.#part = "reasoning";
      if (!this.#hide) print(`${DIM}${harmless(reasoning)}${PLAIN}`);
    }
    if (text !== "") {
      if (this.#part === "reasoning" && !this.#hide) print("\n\n");
      this.#part = "text";
      this.#print(text);
    }
  }

  /** Ends the answer and its line. */
  end(): void {
    print("\n");
  }

  #print(text: string): void {
    if (text !== "") print(this.#terminal ? harmless(text) : text);
  }
}
