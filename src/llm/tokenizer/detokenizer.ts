/**
 * Turns token ids into text as they arrive.
 *
 * A token may be a run of bytes that ends inside a character. The decoder keeps the bytes of an incomplete
 * character until the next token completes it. So text never changes after it was given out.
 *
 * @module
 */

/** Bytes of a token id; `undefined` for ids that the vocabulary does not have. */
export type TokenBytes = (id: number) => Uint8Array | undefined;

const SPACE = 0x20;
const REPLACEMENT = new TextEncoder().encode("\ufffd");

/** What is special about the beginning of a text. */
export interface TextStart {
  /** Bytes of the first token, if they are others. */
  readonly bytes?: TokenBytes;
  /** Whether these count for every token until one has any; default for the first token only. */
  readonly untilText?: boolean;
  /** Most spaces that are left out at the beginning; default none. */
  readonly leadingSpaces?: number;
}

/** Streaming decoder: what {@link StreamDecoder.push} returned so far plus {@link StreamDecoder.finish} is the whole text. */
export class StreamDecoder {
  readonly #bytes: TokenBytes;
  readonly #start: TextStart;
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true }); // keeps U+FEFF inside text
  /** Whether the first token was taken. */
  #begun = false;
  /** Spaces that may still be left out. */
  #spaces = 0;

  /** Starts an empty text. */
  constructor(bytes: TokenBytes, start: TextStart = {}) {
    this.#bytes = bytes;
    this.#start = start;
  }

  /** The text that this token completes; "" while a character is incomplete. Unknown ids show as U+FFFD. */
  push(id: number): string {
    if (!this.#begun) this.#spaces = this.#start.leadingSpaces ?? 0;
    const bytesOf = this.#begun ? this.#bytes : this.#start.bytes ?? this.#bytes;
    const bytes = bytesOf(id) ?? REPLACEMENT;
    this.#begun ||= !this.#start.untilText || bytes.length > 0;
    return this.#utf8.decode(this.#trim(bytes), { stream: true });
  }

  /** The rest; an incomplete character becomes U+FFFD. Starts over. */
  finish(): string {
    this.#begun = false;
    return this.#utf8.decode();
  }

  /** Bytes without the spaces that begin the text. */
  #trim(bytes: Uint8Array): Uint8Array {
    let from = 0;
    while (from < bytes.length && this.#spaces > 0) {
      if (bytes[from] === SPACE) from++, this.#spaces--;
      else this.#spaces = 0;
    }
    return bytes.subarray(from);
  }
}

/**
 * Cuts a stream of text at the first stop string. Text that may be the beginning of one is held back until it is clear.
 */
export class StopStrings {
  readonly #stops: readonly string[];
  #held = "";
  #found = false;

  /** Watches for any of `stops`; empty strings are left out. */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop.length > 0);
  }

  /** Whether a stop string was met: the stream is at its end. */
  get found(): boolean {
    return this.#found;
  }

  /** Adds text; returns the text that certainly comes before any stop string. */
  push(text: string): string {
    if (this.#found) return "";
    if (this.#stops.length === 0) return text;
    const all = this.#held + text;
    const starts = this.#stops.map((stop) => all.indexOf(stop)).filter((at) => at >= 0);
    if (starts.length > 0) {
      this.#found = true;
      this.#held = "";
      return all.slice(0, Math.min(...starts));
    }
    const held = Math.max(0, ...this.#stops.map((stop) => overlap(all, stop)));
    this.#held = all.slice(all.length - held);
    return all.slice(0, all.length - held);
  }

  /** The text held back, when the stream ends without a stop string. */
  finish(): string {
    const text = this.#held;
    this.#held = "";
    return text;
  }
}

/** Length of the longest end of `text` that begins `stop`. */
export function overlap(text: string, stop: string): number {
  for (let n = Math.min(text.length, stop.length - 1); n > 0; n--) {
    if (text.endsWith(stop.slice(0, n))) return n;
  }
  return 0;
}
