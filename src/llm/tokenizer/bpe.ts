/**
 * Byte pair encoding: the characters of a word become tokens by merging neighbours, always the pair of the lowest rank.
 *
 * @module
 */

import type { PairRanks } from "./merges.ts";
import type { UnknownCharacters } from "./unknown_characters.ts";
import { ALPHABET, type Vocabulary } from "./vocabulary.ts";

/** Turns words into ids. */
export interface TokenModel {
  /** Adds the ids of a word to `ids`. */
  encode(word: string, ids: number[]): void;
}

/** The queue holds rank * MAX_POSITIONS + position: the lowest rank comes first, and of equal ones the leftmost. */
const MAX_POSITIONS = 2 ** 28;
/** Words whose ids are kept, and the longest of them; a longer string may be a part that keeps all of its text. */
const MAX_KNOWN = 20_000;
const MAX_KNOWN_CHARS = 12;
/** Pairs whose merges are kept. */
const PAIRS = 1 << 12;
const NONE = -1;

/** How a vocabulary writes words. */
export interface BpeOptions {
  /** Which neighbours are merged. */
  readonly ranks: PairRanks;
  /** Takes a word that is a token for what it is, without merging. */
  readonly wholeWords: boolean;
  /** Whether tokens are of bytes, each spelled with a character of {@link ALPHABET}. */
  readonly byteLevel: boolean;
  /** Ids of characters that are no tokens; `undefined` leaves them out. */
  readonly unknown: UnknownCharacters | undefined;
}

/** Turns words into ids by merging pairs. */
export class Bpe implements TokenModel {
  readonly #vocabulary: Vocabulary;
  readonly #ranked: PairRanks;
  readonly #wholeWords: boolean;
  readonly #byteLevel: boolean;
  readonly #unknown: UnknownCharacters | undefined;
  /** The word at hand as the vocabulary spells it, in UTF-8. */
  #text = new Uint8Array(0);
  /** UTF-8 of the word of a byte-level vocabulary. */
  #plain = new Uint8Array(0);
  // Its symbols, characters at first; merges leave gaps. `#previous` and `#following` link the rest. A symbol reaches up to the next.
  #starts = new Int32Array(0);
  #ids = new Int32Array(0); // -1 if it is no token
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

  /** Over the tokens of a vocabulary. */
  constructor(vocabulary: Vocabulary, { ranks, wholeWords, byteLevel, unknown }: BpeOptions) {
    this.#vocabulary = vocabulary;
    this.#ranked = ranks;
    this.#wholeWords = wholeWords;
    this.#byteLevel = byteLevel;
    this.#unknown = unknown;
  }

  /** Adds the ids of a word to `ids`. */
  encode(word: string, ids: number[]): void {
    if (word.length > MAX_KNOWN_CHARS) return this.#encode(word, ids);
    let known = this.#known.get(word);
    if (known === undefined) {
      const made: number[] = [];
      this.#encode(word, made);
      known = made;
      if (this.#known.size === MAX_KNOWN) this.#known.clear();
      this.#known.set(word, known);
    }
    for (const id of known) ids.push(id);
  }

  #encode(word: string, ids: number[]): void {
    const bytes = this.#spell(word);
    if (this.#wholeWords) {
      const id = this.#vocabulary.find(this.#text, 0, bytes);
      if (id >= 0) {
        ids.push(id);
        return;
      }
    }
    const count = this.#cut(bytes);
    for (let at = 0; at < count; at++) this.#rankPair(at, count);
    for (let entry = this.#queue.pop(); entry !== undefined; entry = this.#queue.pop()) {
      const at = entry % MAX_POSITIONS;
      if (this.#ranks[at] === Math.floor(entry / MAX_POSITIONS)) this.#merge(at, count); // else it has changed since
    }
    for (let at = 0; at < count; at = this.#following[at]) {
      const id = this.#ids[at];
      if (id < 0) this.#unknown?.add(this.#text, this.#starts[at], this.#starts[this.#following[at]], ids);
      else {
        this.#unknown?.end(ids);
        ids.push(id);
      }
    }
    this.#unknown?.end(ids);
  }

  /** Spells the word; returns the bytes of its spelling. */
  #spell(word: string): number {
    this.#reserve(3 * word.length);
    if (!this.#byteLevel) return new TextEncoder().encodeInto(word, this.#text).written;
    const { written } = new TextEncoder().encodeInto(word, this.#plain);
    let to = 0;
    for (let at = 0; at < written; at++) {
      const byte = this.#plain[at];
      this.#text[to++] = FIRST_BYTE[byte];
      if (SECOND_BYTE[byte] > 0) this.#text[to++] = SECOND_BYTE[byte];
    }
    return to;
  }

  /** Cuts the spelling into characters and drops those that have no ids; returns how many there are. */
  #cut(bytes: number): number {
    const text = this.#text;
    let count = 0;
    let to = 0;
    for (let at = 0, end = 0; at < bytes; at = end) {
      end = at + charBytes(text[at]);
      const id = this.#vocabulary.find(text, at, end);
      if (id < 0 && (this.#unknown?.leavesOut(text, at, end) ?? true)) continue;
      if (to < at) text.copyWithin(to, at, end); // some were dropped before
      this.#starts[count] = to;
      this.#ids[count] = id;
      this.#previous[count] = count - 1;
      this.#following[count] = ++count;
      to += end - at;
    }
    this.#starts[count] = to;
    return count;
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
    const pair = this.#pairAt(at, right);
    const rank = this.#found[pair];
    if (rank < 0) return;
    this.#ranks[at] = rank;
    this.#makes[at] = this.#found[pair + 1];
    this.#queue.push(rank * MAX_POSITIONS + at);
  }

  /** Where rank and product of the pair of two symbols are in `#found`. */
  #pairAt(at: number, next: number): number {
    const [left, right] = [this.#ids[at], this.#ids[next]];
    const place = 2 * ((Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)) >>> 8 & (PAIRS - 1));
    const unknown = left < 0 || right < 0; // an id of -1 does not say what is spelled
    if (unknown || this.#pairs[place] !== left || this.#pairs[place + 1] !== right) {
      const makes = this.#vocabulary.find(this.#text, this.#starts[at], this.#starts[this.#following[next]]);
      this.#pairs[place] = left;
      this.#pairs[place + 1] = right;
      this.#found[place] = this.#ranked.rank(left, right, makes);
      this.#found[place + 1] = makes;
    }
    return place;
  }

  #reserve(count: number): void {
    if (count <= this.#plain.length) return;
    const capacity = Math.max(256, 2 * count);
    this.#plain = new Uint8Array(capacity);
    this.#text = new Uint8Array(2 * capacity); // a byte has a character of up to two bytes
    this.#starts = new Int32Array(capacity + 1);
    this.#ids = new Int32Array(capacity);
    this.#previous = new Int32Array(capacity);
    this.#following = new Int32Array(capacity);
    this.#ranks = new Int32Array(capacity);
    this.#makes = new Int32Array(capacity);
  }
}

const SPELLED: readonly Uint8Array[] = ALPHABET.map((char) => new TextEncoder().encode(char));
const FIRST_BYTE: Uint8Array = Uint8Array.from(SPELLED, ([first]) => first);
const SECOND_BYTE: Uint8Array = Uint8Array.from(SPELLED, ([, second = 0]) => second);

/** Bytes of the character whose UTF-8 begins with a byte. */
export function charBytes(first: number): number {
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
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
