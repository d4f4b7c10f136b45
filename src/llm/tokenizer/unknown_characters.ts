/**
 * Ids of characters that are no tokens: those of their bytes, such as "<0x0A>", or that of the token for what is unknown.
 *
 * @module
 */

import type { Vocabulary } from "./vocabulary.ts";

/** Spellings of the tokens of bytes. */
const BYTE_TOKENS: readonly string[] = Array.from(
  { length: 256 },
  (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
);
const BYTE_OF: ReadonlyMap<string, number> = new Map(BYTE_TOKENS.map((token, byte) => [token, byte]));

/** The byte that a token stands for; `undefined` if it is none of a byte. Digits of either case count. */
export function byteOf(spelling: string): number | undefined {
  if (!spelling.startsWith("<0x") || spelling.length !== 6) return undefined;
  return BYTE_OF.get(`<0x${spelling.slice(3).toUpperCase()}`);
}

/** What a vocabulary says about unknown characters. */
export interface UnknownOptions {
  /** Write their bytes, if each has a token. */
  readonly byteFallback: boolean;
  /** Id of the token for what is unknown; without one, unknown characters are left out. */
  readonly unknown: number | undefined;
  /** Whether unknown characters in a row are one token. */
  readonly fuse: boolean;
}

/** Writes ids of unknown characters. */
export class UnknownCharacters {
  readonly #bytes: Int32Array | undefined;
  readonly #unknown: number | undefined;
  readonly #fuse: boolean;
  /** Whether a token for what is unknown is due: it comes before the next known token. */
  #due = false;

  /** For the tokens of a vocabulary. */
  constructor(vocabulary: Vocabulary, { byteFallback, unknown, fuse }: UnknownOptions) {
    this.#unknown = unknown;
    this.#fuse = fuse;
    if (byteFallback) this.#bytes = Int32Array.from(BYTE_TOKENS, (token) => vocabulary.idOf(token) ?? -1);
  }

  /** Whether unknown characters have no ids at all: they are left out before anything is merged. */
  leavesOut(text: Uint8Array, from: number, to: number): boolean {
    return this.#unknown === undefined && !this.#hasBytes(text, from, to);
  }

  /** Adds unknown characters, whose UTF-8 is in `text` from byte `from` to `to`. */
  add(text: Uint8Array, from: number, to: number, ids: number[]): void {
    if (this.#hasBytes(text, from, to)) {
      for (let at = from; at < to; at++) ids.push(this.#bytes![text[at]]);
      return;
    }
    if (this.#unknown === undefined) return;
    if (this.#due && !this.#fuse) ids.push(this.#unknown);
    this.#due = true;
  }

  /** Must be called before a known token is added, and after the last one. */
  end(ids: number[]): void {
    if (this.#due) ids.push(this.#unknown!);
    this.#due = false;
  }

  #hasBytes(text: Uint8Array, from: number, to: number): boolean {
    const bytes = this.#bytes;
    if (bytes === undefined) return false;
    for (let at = from; at < to; at++) if (bytes[text[at]] < 0) return false;
    return true;
  }
}
