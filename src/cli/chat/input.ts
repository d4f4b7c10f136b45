/**
 * Where lines come from: the terminal's editor, or a pipe.
 *
 * @module
 */

import { inputLines } from "../output.ts";

/** A source of lines. */
export interface Input extends Disposable {
  /** Whether a person sits there. */
  readonly interactive: boolean;
  /** The next line, which may be a text of several; undefined at the end. Throws an AbortError if Ctrl-C asks for the end. */
  read(): Promise<string | undefined>;
  /**
   * The key of `keys` that is pressed after a question, during work; keys from before do not count. Undefined where no person can
   * answer. Throws the signal's reason if Ctrl-C stops the work.
   */
  choose(question: string, keys: string): Promise<string | undefined>;
  /** The work that Ctrl-C stops: loading at first, then the work on the line that was read last. */
  readonly signal: AbortSignal;
}

/** {@link Input.read} throws it when Ctrl-C ends the program. */
export function interrupted(): DOMException {
  return new DOMException("Interrupted", "AbortError");
}

/** Ends the program by its exit, so that what waits for that, such as the end of child processes, is done. */
const ENDED = (): never => Deno.exit(143);

/** Lines of a pipe, or of a terminal that knows no escape sequences. Those of a """ block come as one. */
export class PipedInput implements Input {
  readonly interactive = false;
  readonly #lines = inputLines();
  readonly #isOpen: (text: string) => boolean;
  readonly #prompt: () => void;
  readonly #onSignal = (): void => this.#interrupt();
  #work = new AbortController();
  #working = true;

  /** `isOpen` says whether a text goes on in the next line, `prompt` is called before one is read. */
  constructor(isOpen: (text: string) => boolean, prompt: () => void) {
    this.#isOpen = isOpen;
    this.#prompt = prompt;
    Deno.addSignalListener("SIGINT", this.#onSignal);
    if (Deno.build.os !== "windows") Deno.addSignalListener("SIGTERM", ENDED);
  }

  get signal(): AbortSignal {
    return this.#work.signal;
  }

  choose(): Promise<undefined> {
    return Promise.resolve(undefined); // what comes through the pipe are messages
  }

  async read(): Promise<string | undefined> {
    this.#working = false;
    this.#prompt();
    let text: string | undefined;
    do {
      const { value, done } = await this.#lines.next();
      if (done) break;
      text = text === undefined ? value : `${text}\n${value}`;
    } while (this.#isOpen(text));
    this.#work = new AbortController();
    this.#working = true;
    return text;
  }

  #interrupt(): void {
    if (!this.#working || this.signal.aborted) Deno.exit(130);
    this.#work.abort();
  }

  [Symbol.dispose](): void {
    Deno.removeSignalListener("SIGINT", this.#onSignal);
    if (Deno.build.os !== "windows") Deno.removeSignalListener("SIGTERM", ENDED);
  }
}
