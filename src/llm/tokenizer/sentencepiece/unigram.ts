/**
 * The Unigram model: of all ways to cut a word into tokens the one whose scores have the largest sum.
 *
 * The best way up to each place follows from those before it. So work grows with the text, times the length of the longest token.
 *
 * @module
 */

import { charBytes, type TokenModel } from "../bpe.ts";
import type { Fail } from "../pipeline.ts";
import type { UnknownCharacters } from "../unknown_characters.ts";
import { ByteTrie, ROOT } from "./byte_trie.ts";

/** Longest token, in bytes: a text of a megabyte takes as many steps for each place. */
const MAX_BYTES = 512;
/** How much less an unknown character scores than the worst token. */
const UNKNOWN_PENALTY = 10;
/** What stands for an id where there is no way, and where a way ends with an unknown character. */
const NONE = -1;
const UNKNOWN = -2;

/** A vocabulary with scores. */
export interface UnigramOptions {
  /** Tokens by id. */
  readonly tokens: readonly string[];
  /** Logarithms of their probabilities. */
  readonly scores: ArrayLike<number>;
  /** Whether a token may be chosen; default yes. */
  readonly chooses?: (id: number) => boolean;
  /** Whether a token is to be chosen wherever it occurs; default no. */
  readonly prefers?: (id: number) => boolean;
  /** Which tokens have the least and the largest score; default all. */
  readonly counts?: (id: number) => boolean;
  /** Ids of characters that are no tokens. */
  readonly unknown: UnknownCharacters;
}

/** Turns words into ids by scores. */
export class Unigram implements TokenModel {
  readonly #trie: ByteTrie;
  readonly #scores: Float64Array;
  readonly #prefers: (id: number) => boolean;
  readonly #unknown: UnknownCharacters;
  readonly #unknownScore: number;
  readonly #largest: number;
  #text = new Uint8Array(0);
  // Of the best way that ends at a place: its score, and its last token and where that begins; -1 if there is no way.
  #best = new Float64Array(0);
  #ids = new Int32Array(0);
  #starts = new Int32Array(0);

  /** `fail` throws an error about the file of the tokens. */
  constructor({ tokens, scores, chooses, prefers, counts, unknown }: UnigramOptions, fail: Fail) {
    this.#scores = Float64Array.from(scores);
    this.#prefers = prefers ?? (() => false);
    this.#unknown = unknown;
    const wrong = this.#scores.findIndex((score) => !Number.isFinite(score));
    if (wrong >= 0) fail(`the score of token ${wrong} is ${this.#scores[wrong]}`);
    const counted = this.#scores.filter((_, id) => counts?.(id) ?? true);
    const least = counted.reduce((low, score) => Math.min(low, score), Infinity);
    this.#largest = counted.reduce((high, score) => Math.max(high, score), -Infinity);
    this.#unknownScore = least - UNKNOWN_PENALTY;
    const encoder = new TextEncoder();
    this.#trie = new ByteTrie(tokens.reduce((sum, token) => sum + 3 * token.length, 0));
    tokens.forEach((token, id) => {
      if (token === "" || chooses?.(id) === false) return;
      const bytes = encoder.encode(token);
      if (bytes.length > MAX_BYTES) {
        fail(`token ${id} has ${bytes.length} bytes, at most ${MAX_BYTES} in a Unigram model`);
      }
      this.#trie.add(bytes, id);
    });
  }

  /** Adds the ids of a word to `ids`. */
  encode(word: string, ids: number[]): void {
    this.#reserve(3 * word.length);
    const count = new TextEncoder().encodeInto(word, this.#text).written;
    this.#ids.fill(NONE, 0, count + 1);
    this.#best[0] = 0;
    for (let at = 0; at < count;) at = this.#extend(at, count);
    const ends: number[] = [];
    for (let end = count; end > 0; end = this.#starts[end]) ends.push(end);
    for (let i = ends.length - 1; i >= 0; i--) {
      const id = this.#ids[ends[i]];
      if (id < 0) this.#unknown.add(this.#text, this.#starts[ends[i]], ends[i], ids);
      else {
        this.#unknown.end(ids);
        ids.push(id);
      }
    }
    this.#unknown.end(ids);
  }

  /** Tries all tokens that begin at a place; returns the place of the next character. */
  #extend(at: number, count: number): number {
    const [text, trie] = [this.#text, this.#trie];
    const next = Math.min(count, at + charBytes(text[at]));
    let known = false;
    let node = ROOT;
    for (let end = at; end < count;) {
      node = trie.next(node, text[end++]);
      if (node < 0) break;
      const id = trie.valueAt(node);
      if (id < 0) continue;
      const score = this.#prefers(id) ? (end - at) * this.#largest - 0.1 : this.#scores[id];
      this.#offer(at, end, id, score + this.#best[at]);
      if (end === next) known = true;
    }
    if (!known) this.#offer(at, next, UNKNOWN, this.#unknownScore + this.#best[at]);
    return next;
  }

  /** Keeps a way to a place if it is better than the one before. */
  #offer(start: number, end: number, id: number, score: number): void {
    if (this.#ids[end] !== NONE && score <= this.#best[end]) return;
    this.#best[end] = score;
    this.#ids[end] = id;
    this.#starts[end] = start;
  }

  #reserve(count: number): void {
    if (count <= this.#text.length) return;
    const capacity = Math.max(256, 2 * count);
    this.#text = new Uint8Array(capacity);
    this.#best = new Float64Array(capacity + 1);
    this.#ids = new Int32Array(capacity + 1);
    this.#starts = new Int32Array(capacity + 1);
  }
}
