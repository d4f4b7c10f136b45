/**
 * Byte pair encoding: the bytes of a word become tokens by merging neighbours, always the pair that was learned first.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import type { JsonBytes } from "./json_bytes.ts";
import { ALPHABET, MAX_BYTES, type Vocabulary } from "./vocabulary.ts";

/** The queue holds rank * MAX_POSITIONS + position: the lowest rank comes first, and of equal ones the leftmost. */
const MAX_POSITIONS = 2 ** 28;
/** Most pairs of a file: twice as many as the largest published vocabularies have, which list every way to make a token. */
const MAX_MERGES = 1_000_000;
/** Words whose ids are kept, and the longest of them; a longer string may be a part that keeps all of its text. */
const MAX_KNOWN = 20_000;
const MAX_KNOWN_CHARS = 12;
/** Pairs whose merges are kept. */
const PAIRS = 1 << 12;
const NONE = -1;
const SPACE = 0x20;

/**
 * The pairs of "model.merges". A pair is kept as the token that it makes and the length of its left half: reading it takes
 * one look-up instead of three.
 */
export class Merges {
  readonly #vocabulary: Vocabulary;
  /** Rank of a pair that makes a token, by id. */
  readonly #rank: Int32Array;
  /** Rank of another pair that makes the same token, by rank. */
  readonly #other: number[] = [];
  /** Bytes of the left half, by rank. */
  readonly #left: number[] = [];

  /** Passes the array of pairs in `json`: each an array of two strings, or one string with a space between them. */
  constructor(json: JsonBytes, vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#rank = new Int32Array(vocabulary.size).fill(NONE);
    const text = new Uint8Array(2 * MAX_BYTES);
    let id = NONE; // most vocabularies number tokens in the order in which they are merged
    json.array(() => {
      let [parts, left, end] = [0, 0, 0];
      const part = (): void => {
        left = end;
        end = json.copyString(text, end);
        parts++;
      };
      if (json.opens("[")) json.array(part);
      else {
        part();
        left = text.subarray(0, end).indexOf(SPACE);
        if (left > 0) parts = 2, text.copyWithin(left, left + 1, end--);
      }
      id = parts === 2 ? vocabulary.find(text, 0, end, id + 1) : NONE;
      if (id < 0) {
        const pair = quoted(new TextDecoder().decode(text.subarray(0, end)));
        json.fail(`merge ${this.#left.length} gives ${pair}, which is no token`);
      }
      if (this.#left.length === MAX_MERGES) json.fail(`there are more than ${MAX_MERGES} merges`);
      if (this.#rank[id] >= 0) this.#forget(id, left);
      this.#other.push(this.#rank[id]);
      this.#rank[id] = this.#left.length;
      this.#left.push(left);
    });
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
  rank(left: number, joined: number): number {
    const bytes = this.#vocabulary.lengthOf(left);
    let rank = joined < 0 ? NONE : this.#rank[joined];
    while (rank >= 0 && this.#left[rank] !== bytes) rank = this.#other[rank];
    return rank;
  }
}

/** Turns words into ids. */
export class Bpe {
  readonly #vocabulary: Vocabulary;
  readonly #merges: Merges;
  /** Take a word that is a token for what it is, without merging. */
  readonly #wholeWords: boolean;
  readonly #idOfByte: Int32Array;
  // The word at hand, by position; merges leave gaps. `#previous` and `#following` link the rest.
  #bytes = new Uint8Array(0);
  #ids = new Int32Array(0);
  #previous = new Int32Array(0);
  #following = new Int32Array(0);
  /** Rank of the pair that begins here and what it makes; -1 if it is not merged. */
  #ranks = new Int32Array(0);
  #makes = new Int32Array(0);
  readonly #queue = new MinHeap();
  readonly #known = new Map<string, readonly number[]>();
  // The merges of pairs of ids, at places that pairs share.
  readonly #pairs = new Int32Array(2 * PAIRS).fill(NONE);
  readonly #found = new Int32Array(2 * PAIRS);

  /** Throws an {@link LlmError} when a byte has no token; `file` is what the message names. */
  constructor(vocabulary: Vocabulary, merges: Merges, wholeWords: boolean, file: string) {
    this.#vocabulary = vocabulary;
    this.#merges = merges;
    this.#wholeWords = wholeWords;
    this.#idOfByte = Int32Array.from(ALPHABET, (char, byte) => {
      const id = vocabulary.idOf(char);
      if (id !== undefined) return id;
      throw new LlmError("tokenizer", `${file}: the vocabulary has no token for the byte ${byte}`);
    });
  }

  /** Adds the ids of a word to `ids`. */
  encode(word: string, ids: number[]): void {
    if (word.length > MAX_KNOWN_CHARS) return this.#encode(word, ids);
    let known = this.#known.get(word);
    if (known === undefined) {
      this.#encode(word, known = []);
      if (this.#known.size === MAX_KNOWN) this.#known.clear();
      this.#known.set(word, known);
    }
    for (const id of known) ids.push(id);
  }

  #encode(word: string, ids: number[]): void {
    this.#reserve(3 * word.length);
    const count = new TextEncoder().encodeInto(word, this.#bytes).written;
    if (this.#wholeWords) {
      const id = this.#vocabulary.idOf(Array.from(this.#bytes.subarray(0, count), (b) => ALPHABET[b]).join(""));
      if (id !== undefined) {
        ids.push(id);
        return;
      }
    }
    for (let at = 0; at < count; at++) {
      this.#ids[at] = this.#idOfByte[this.#bytes[at]];
      this.#previous[at] = at - 1;
      this.#following[at] = at + 1;
    }
    for (let at = 0; at < count; at++) this.#rankPair(at, count);
    for (let entry = this.#queue.pop(); entry !== undefined; entry = this.#queue.pop()) {
      const at = entry % MAX_POSITIONS;
      if (this.#ranks[at] === Math.floor(entry / MAX_POSITIONS)) this.#merge(at, count); // else it has changed since
    }
    for (let at = 0; at < count; at = this.#following[at]) ids.push(this.#ids[at]);
  }

  /** Merges the pair at `at`; the pairs that it was a half of are other ones now. */
  #merge(at: number, count: number): void {
    const right = this.#following[at];
    const after = this.#following[right];
    this.#ids[at] = this.#makes[at];
    this.#following[at] = after;
    this.#ranks[right] = NONE;
    if (after < count) this.#previous[after] = at;
    this.#rankPair(at, count);
    if (at > 0) this.#rankPair(this.#previous[at], count);
  }

  /** Looks up the pair at `at` and queues it. */
  #rankPair(at: number, count: number): void {
    const right = this.#following[at];
    this.#ranks[at] = NONE;
    if (right >= count) return;
    const pair = this.#pairAt(this.#ids[at], this.#ids[right]);
    const rank = this.#found[pair];
    if (rank < 0) return;
    this.#ranks[at] = rank;
    this.#makes[at] = this.#found[pair + 1];
    this.#queue.push(rank * MAX_POSITIONS + at);
  }

  /** Where rank and product of a pair of ids lie in `#found`. */
  #pairAt(left: number, right: number): number {
    const at = 2 * ((Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)) >>> 8 & (PAIRS - 1));
    if (this.#pairs[at] !== left || this.#pairs[at + 1] !== right) {
      const makes = this.#vocabulary.findJoined(left, right);
      this.#pairs[at] = left;
      this.#pairs[at + 1] = right;
      this.#found[at] = this.#merges.rank(left, makes);
      this.#found[at + 1] = makes;
    }
    return at;
  }

  #reserve(count: number): void {
    if (count <= this.#bytes.length) return;
    const capacity = Math.max(256, 2 * count);
    this.#bytes = new Uint8Array(capacity);
    this.#ids = new Int32Array(capacity);
    this.#previous = new Int32Array(capacity);
    this.#following = new Int32Array(capacity);
    this.#ranks = new Int32Array(capacity);
    this.#makes = new Int32Array(capacity);
  }
}

/** Numbers of which the lowest comes out first. */
class MinHeap {
  readonly #numbers: number[] = [];

  push(number: number): void {
    const heap = this.#numbers;
    let at = heap.push(number) - 1;
    for (let up = (at - 1) >> 1; at > 0 && heap[up] > number; up = (at - 1) >> 1) {
      heap[at] = heap[up];
      at = up;
    }
    heap[at] = number;
  }

  pop(): number | undefined {
    const heap = this.#numbers;
    const lowest = heap[0];
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return last;
    let at = 0;
    for (let down = 1; down < heap.length; down = 2 * at + 1) {
      if (down + 1 < heap.length && heap[down + 1] < heap[down]) down++;
      if (heap[down] >= last) break;
      heap[at] = heap[down];
      at = down;
    }
    heap[at] = last;
    return lowest;
  }
}
