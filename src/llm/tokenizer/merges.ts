/**
 * Which pairs of neighbours byte pair encoding merges, and in which order: as lists of pairs and as scores of tokens say it.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { JsonBytes } from "./json_bytes.ts";
import { MAX_BYTES, type Vocabulary } from "./vocabulary.ts";

/** Ranks pairs of neighbours: the pair of the lowest rank is merged first. */
export interface PairRanks {
  /**
   * Rank of the pair of `left` and `right`, whose spellings together are those of the token `joined`; -1 if it is not merged. An id is -1
   * where a spelling is no token.
   */
  rank(left: number, right: number, joined: number): number;
}

/** Most pairs of a file: twice as many as the largest published vocabularies have, which list every way to make a token. */
const MAX_MERGES = 1_000_000;
const NONE = -1;
const SPACE = 0x20;

/**
 * The pairs that a file lists. A pair is kept as the token that it makes and the length of its left half: reading it takes one look-up
 * instead of three.
 */
export class Merges implements PairRanks {
  readonly #vocabulary: Vocabulary;
  /** Rank of a pair that makes a token, by id. */
  readonly #rank: Int32Array;
  /** Rank of another pair that makes the same token, by rank. */
  readonly #other: number[] = [];
  /** Bytes of the left half, by rank. */
  readonly #left: number[] = [];
  readonly #text = new Uint8Array(2 * MAX_BYTES);
  /** The last token: most vocabularies number tokens in the order in which they are merged. */
  #last = NONE;

  private constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#rank = new Int32Array(vocabulary.size).fill(NONE);
  }

  /** Passes the array of pairs in `json`: each an array of two strings, or one string with a space between them. */
  static read(json: JsonBytes, vocabulary: Vocabulary): Merges {
    const merges = new Merges(vocabulary);
    const text = merges.#text;
    const fail = (what: string): never => json.fail(what);
    json.array(() => {
      let [parts, left, end] = [0, 0, 0];
      const part = (): void => {
        left = end;
        end = json.copyString(text, end);
        parts++;
      };
      if (!json.opens("[")) {
        part();
        return merges.#addSpaced(end, fail);
      }
      json.array(part);
      merges.#add(parts === 2 ? left : NONE, end, fail);
    });
    return merges;
  }

  /** The pairs of a list, each one string with a space between its halves. `fail` throws an error about their file. */
  static of(pairs: readonly string[], vocabulary: Vocabulary, fail: (what: string) => never): Merges {
    const merges = new Merges(vocabulary);
    const encoder = new TextEncoder();
    for (const pair of pairs) {
      const { read, written } = encoder.encodeInto(pair, merges.#text);
      if (read < pair.length) fail(`merge ${merges.#left.length} has more than ${merges.#text.length} bytes`);
      merges.#addSpaced(written, fail);
    }
    return merges;
  }

  /** Adds the pair in the first `end` bytes of the text, with a space between its halves. */
  #addSpaced(end: number, fail: (what: string) => never): void {
    const left = this.#text.subarray(0, end).indexOf(SPACE);
    if (left <= 0) return this.#add(NONE, end, fail);
    this.#text.copyWithin(left, left + 1, end);
    this.#add(left, end - 1, fail);
  }

  /** Adds the pair in the first `end` bytes of the text, whose left half has `left` bytes; -1 if that is no pair. */
  #add(left: number, end: number, fail: (what: string) => never): void {
    const id = left < 0 ? NONE : this.#vocabulary.find(this.#text, 0, end, this.#last + 1);
    if (id < 0) {
      const pair = quoted(new TextDecoder().decode(this.#text.subarray(0, end)));
      fail(`merge ${this.#left.length} gives ${pair}, which is no token`);
    }
    if (this.#left.length === MAX_MERGES) fail(`there are more than ${MAX_MERGES} merges`);
    this.#last = id;
    if (this.#rank[id] >= 0) this.#forget(id, left);
    this.#other.push(this.#rank[id]);
    this.#rank[id] = this.#left.length;
    this.#left.push(left);
  }

  /** Drops an earlier entry of the same pair: the last one counts, and no token has more entries than ways to cut it. */
  #forget(id: number, left: number): void {
    let later = NONE;
    for (let rank = this.#rank[id]; rank >= 0; later = rank, rank = this.#other[rank]) {
      if (this.#left[rank] !== left) continue;
      if (later < 0) this.#rank[id] = this.#other[rank];
      else this.#other[later] = this.#other[rank];
      return;
    }
  }

  /** Rank of the pair of two tokens that make up the token `joined`; -1 if they are not merged. */
  rank(left: number, right: number, joined: number): number {
    if (left < 0 || right < 0 || joined < 0) return NONE;
    const bytes = this.#vocabulary.lengthOf(left);
    let rank = this.#rank[joined];
    while (rank >= 0 && this.#left[rank] !== bytes) rank = this.#other[rank];
    return rank;
  }
}

/** Merges any two neighbours that make a token: the tokens of the highest score first. */
export class ScoreRanks implements PairRanks {
  /** Rank by id; -1 for tokens that no merge makes. */
  readonly #ranks: Int32Array;

  /** For the scores of tokens by id; a score of NaN means that no merge makes the token. */
  constructor(scores: ArrayLike<number>) {
    this.#ranks = new Int32Array(scores.length).fill(NONE);
    const ids = Array.from(scores, (_, id) => id).filter((id) => !Number.isNaN(scores[id]));
    ids.sort((a, b) => scores[b] - scores[a]);
    ids.forEach((id, place) => {
      const above = ids[place - 1];
      this.#ranks[id] = place > 0 && scores[above] === scores[id] ? this.#ranks[above] : place; // equal scores, equal ranks
    });
  }

  /** Rank of the token that two neighbours make up. */
  rank(_left: number, _right: number, joined: number): number {
    return joined < 0 ? NONE : this.#ranks[joined];
  }
}
