/**
 * Streams of text, in a cell of a notebook or on a terminal.
 *
 * @module
 */

import { broadcast, inNotebook, isTerminal, writeText } from "../../ffi/notebook.ts";
import { ValueError } from "../graph/error.ts";

/** Milliseconds for which text is gathered before a notebook gets it: each message costs as much as a hundred letters. */
const GATHER_MS = 40;

const EXPECTED = "print() expected a stream of texts or of responses with a text, such as streamGenerate() returns";

/** Argument of {@link print}: texts, or objects that have one. */
export type Printable = string | { readonly text: string };

/** The result of {@link print}: the last response of a stream, with all of the text. */
export type Printed<T extends Printable> = (T extends string ? unknown : Omit<T, "text">) & {
  /** All of the text. */
  readonly text: string;
};

/** A control character as a letter that shows it. */
function shownControl(char: string): string {
  const code = char.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
}

/** Text as it comes in pieces, without anything that a terminal or a notebook obeys but for ends of lines and tabs. */
class Harmless {
  #held = "";

  push(text: string): string {
    const all = this.#held + text;
    this.#held = all.endsWith("\r") ? "\r" : ""; // the rest of a line's end may follow
    const whole = this.#held === "" ? all : all.slice(0, -1);
    // deno-lint-ignore no-control-regex
    return whole.replaceAll("\r\n", "\n").replaceAll(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, shownControl);
  }
}

/** A place for text. */
interface Sink {
  write(text: string): void;
  /** Resolves when all text is there; throws what went wrong on the way. */
  end(): Promise<void>;
}

/** The output of the running cell; the first text goes at once, later ones gathered. */
class CellSink implements Sink {
  #text = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #sent: Promise<void> = Promise.resolve();

  write(text: string): void {
    this.#text += text;
    if (this.#timer !== undefined) return;
    this.#flush();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#flush();
    }, GATHER_MS);
  }

  #flush(): void {
    if (this.#text === "") return;
    const text = this.#text;
    this.#text = "";
    this.#sent = this.#sent.then(() => broadcast("stream", { name: "stdout", text }));
    this.#sent.catch(() => {}); // end() tells
  }

  async end(): Promise<void> {
    clearTimeout(this.#timer);
    this.#flush();
    await this.#sent;
  }
}

const STDOUT: Sink = { write: (text) => writeText("stdout", text), end: () => Promise.resolve() };

/** The figures of a last response, as a cell shows them; undefined if there are none. */
function figures(response: object): string | undefined {
  const { generationTokens, generationTps, finishReason } = response as Readonly<Record<string, unknown>>;
  if (typeof generationTokens !== "number" || typeof generationTps !== "number") return undefined;
  return `${generationTokens} tokens, ${generationTps.toFixed(1)} tokens/s, finishReason: ${finishReason}`;
}

/**
 * Writes a stream of text as it comes, to the output of a notebook's cell or to stdout, and ends it with a line end. Returns the last
 * response with the whole text. `stream` is the result of `streamGenerate`, or yields texts or objects with a `text`. Control
 * characters in it are shown, not obeyed; a file or a pipe as stdout gets them unchanged. Available as `mx.lm.print`.
 *
 * Throws what the stream throws, after the text that came before.
 *
 * @example
 * ```ts ignore
 * const { text, generationTps } = await mx.lm.print(mx.lm.streamGenerate(model, tokenizer, "Once upon a time"));
 * ```
 */
export async function print<T extends Printable>(stream: AsyncIterable<T> | Iterable<T>): Promise<Printed<T>> {
  if (typeof stream !== "object" || stream === null || !(Symbol.asyncIterator in stream || Symbol.iterator in stream)) {
    throw new ValueError(EXPECTED);
  }
  const cell = inNotebook();
  const sink = cell ? new CellSink() : STDOUT;
  const harmless = cell || isTerminal("stdout") ? new Harmless() : { push: (text: string): string => text };
  let text = "";
  let last: T | undefined;
  try {
    for await (const piece of stream) {
      const more = typeof piece === "string" ? piece : piece?.text;
      if (typeof more !== "string") {
        throw new ValueError(EXPECTED);
      }
      last = piece;
      text += more;
      if (more !== "") sink.write(harmless.push(more));
    }
  } finally {
    if (text !== "" && !text.endsWith("\n")) sink.write("\n");
    await sink.end();
  }
  const printed = { ...(typeof last === "object" ? last : {}), text };
  // The text stands in the cell already: where a call is the cell's last line, its value shows as figures.
  const shown = (): Record<string, string> => ({ "text/plain": figures(printed) ?? `${text.length} characters` });
  Object.defineProperty(printed, Symbol.for("Jupyter.display"), { value: shown });
  return printed as unknown as Printed<T>;
}
