/**
 * N-grams of answers, for the drafts of later requests: many answers of a server have parts in common.
 *
 * @module
 */

import type { Drafter } from "./drafter.ts";
import { NgramDrafter } from "./ngrams.ts";

/** Tokens that have to be alike before a draft. */
const LENGTH = 4;
/** Tokens that are kept, and entries of the table that finds them; both powers of two. They take 6 MiB. */
const TOKENS = 2 ** 19;
const ENTRIES = 2 ** 20;
/** Between two answers. */
const END = -1;
/** An odd factor for hashes of 32 bits. */
const FACTOR = 0x9e3779b1;
/** Most tokens of a prompt that its own n-grams are of: the last ones. Each takes about 100 bytes. */
const MAX_PROMPT = 2 ** 15;

/** Answers that have ended, the last ones as far as there is room. */
export class NgramPool {
  /** A ring. */
  #tokens: Int32Array = new Int32Array();
  /** By hash of an n-gram, one more than where the token after it is; 0 for none. */
  #after: Int32Array = new Int32Array();
  readonly #size: number;
  #end = 0;

  /** With room for so many tokens, a power of two. Takes its memory with the first answer. */
  constructor(tokens: number = TOKENS) {
    this.#size = tokens;
  }

  /** Bytes that it takes. */
  get bytes(): number {
    return this.#tokens.byteLength + this.#after.byteLength;
  }

  /** Keeps an answer with the end of its prompt, after which n-grams find its begin. */
  addAnswer(prompt: readonly number[], answer: readonly number[]): void {
    if (answer.length > 0) this.add([...prompt.slice(-LENGTH), ...answer]);
  }

  /** Adds an answer, with the last tokens of its prompt before it. */
  add(tokens: readonly number[]): void {
    if (this.#tokens.length === 0) {
      this.#tokens = new Int32Array(this.#size).fill(END);
      this.#after = new Int32Array(Math.min(ENTRIES, 2 * this.#size));
    }
    const kept = tokens.slice(-this.#tokens.length + 1);
    for (const [i, token] of kept.entries()) {
      if (i >= LENGTH) this.#after[this.#hash(kept, i)] = this.#end + 1;
      this.#put(token);
    }
    this.#put(END);
  }

  /** Up to `count` tokens that followed the last ones of `tokens`. */
  draft(tokens: readonly number[], count: number): number[] {
    const at = this.find(tokens);
    const drafted: number[] = [];
    for (let i = 0; at !== undefined && i < count; i++) {
      const token = this.#tokens[(at + i) % this.#tokens.length];
      if (token === END) break;
      drafted.push(token);
    }
    return drafted;
  }

  /** Where the token after an occurrence of the last ones of `tokens` is; undefined where there is none. */
  find(tokens: readonly number[]): number | undefined {
    if (tokens.length < LENGTH || this.#tokens.length === 0) return undefined;
    const at = this.#after[this.#hash(tokens, tokens.length)] - 1;
    if (at < 0 || this.#tokens[at] === END) return undefined;
    // The ring may have other tokens there by now, and other n-grams the same hash.
    for (let back = 1; back <= LENGTH; back++) {
      if (this.#tokens[(at - back + this.#tokens.length) % this.#tokens.length] !== tokens.at(-back)) return undefined;
    }
    return at;
  }

  #put(token: number): void {
    this.#tokens[this.#end] = token;
    this.#end = (this.#end + 1) % this.#tokens.length;
  }

  /** Of the {@link LENGTH} tokens before `end`. */
  #hash(tokens: readonly number[], end: number): number {
    let hash = 0;
    for (let i = end - LENGTH; i < end; i++) {
      hash = Math.imul(hash ^ tokens[i], FACTOR);
      hash ^= hash >>> 15;
    }
    return (hash >>> 0) % this.#after.length;
  }
}

/** Drafts by the n-grams of a sequence, or of the answers in a pool where it has none. */
export class PoolDrafter implements Drafter {
  /** See {@link Drafter.instant}. */
  readonly instant: boolean = true;
  readonly #own = new NgramDrafter();
  readonly #pool: NgramPool;
  /** The last tokens. */
  #last: readonly number[] = [];

  constructor(pool: NgramPool) {
    this.#pool = pool;
  }

  /** See {@link Drafter.extend}. */
  extend(tokens: readonly number[]): void {
    this.#own.extend(tokens.slice(-MAX_PROMPT));
    this.#last = [...this.#last, ...tokens.slice(-LENGTH)].slice(-LENGTH);
  }

  /** See {@link Drafter.matches}. */
  matches(): boolean {
    return this.#own.matches() || this.#pool.find(this.#last) !== undefined;
  }

  /** See {@link Drafter.draft}. */
  draft(count: number): readonly number[] {
    return this.#own.matches() ? this.#own.draft(count) : this.#pool.draft(this.#last, count);
  }
}
