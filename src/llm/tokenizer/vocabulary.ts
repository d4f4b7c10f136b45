/**
 * The tokens of a vocabulary, by id and by text, in typed arrays.
 *
 * Tokens are kept as their file spells them. Byte-level vocabularies spell them in GPT-2's alphabet, where every byte is a printable
 * character; others spell a space as "▁" and single bytes as "<0x0A>".
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import type { JsonBytes } from "./json_bytes.ts";

/** Longest token, in bytes of its spelling: work on a token grows with its length. */
export const MAX_BYTES = 1 << 12;
/** Most ids: four times as many as the largest published vocabularies have. */
export const MAX_IDS = 1_000_000;

/** Characters of the bytes: 33–126, 161–172 and 174–255 stand for themselves, the others follow from 256 on. */
export const ALPHABET: readonly string[] = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(printable ? byte : next++);
  });
})();

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });

/** Throws if an id of `file` has no row in the embedding. */
export function checkIds(largest: number, embeddings: number, file: string): void {
  if (largest < Math.min(embeddings, MAX_IDS)) return;
  const why = embeddings <= MAX_IDS
    ? `the model has only ${embeddings} embeddings: take the tokenizer files that belong to the model`
    : `at most ${MAX_IDS} ids are supported`;
  throw new LlmError("tokenizer", `${file} has ids up to ${largest} but ${why}`);
}

/** The tokens of a vocabulary. */
export class Vocabulary {
  /** One more than the highest id. */
  readonly size: number;
  readonly #text: Uint8Array; // UTF-8 of all tokens
  readonly #bounds: Uint32Array; // where the token of an id begins and ends in it
  readonly #slots: Int32Array; // hash table of ids, -1 where free

  private constructor(size: number, text: Uint8Array, bounds: Uint32Array, slots: Int32Array) {
    this.size = size;
    this.#text = text;
    this.#bounds = bounds;
    this.#slots = slots;
  }

  /**
   * Passes the object of ids by token in `json`, for a model of `embeddings` rows. Throws an {@link LlmError} if an id or a
   * token occurs twice, is too large or has no embedding.
   */
  static read(json: JsonBytes, embeddings: number): Vocabulary {
    const most = Math.min(embeddings, MAX_IDS);
    const text = new Uint8Array(json.length - json.at + 1); // spellings are no longer than their JSON
    const bounds = new Uint32Array(2 * most);
    const slots = freeSlots(most);
    const reading = new Vocabulary(0, text, bounds, slots);
    const spelling = (to: number): string => quoted(new TextDecoder().decode(text.subarray(from, to)));
    let largest = -1;
    let from = 1; // so that an end of 0 means that there is no such id
    json.object(() => {
      const to = json.copyString(text, from);
      json.colon();
      const id = json.count();
      if (to - from > MAX_BYTES) json.fail(`the token ${spelling(to)} has ${to - from} bytes, at most ${MAX_BYTES}`);
      largest = Math.max(largest, id);
      if (id >= most) return; // told below, with the largest one
      const slot = reading.#slot(text, from, to);
      if (slots[slot] >= 0) json.fail(`the token ${spelling(to)} occurs twice`);
      if (bounds[2 * id + 1] > 0) json.fail(`the id ${id} occurs twice, the second time for ${spelling(to)}`);
      bounds[2 * id] = from;
      bounds[2 * id + 1] = to;
      slots[slot] = id;
      from = to;
    });
    checkIds(largest, embeddings, json.file);
    return new Vocabulary(largest + 1, text.slice(0, from), bounds, slots);
  }

  /**
   * The vocabulary of the tokens of `file` by id, for a model of `embeddings` rows. An empty text is no token. Of equal texts the last
   * one is found. Throws an {@link LlmError} if there are too many or one is too long.
   */
  static of(tokens: readonly string[], file: string, embeddings: number): Vocabulary {
    checkIds(tokens.length - 1, embeddings, file);
    const text = new Uint8Array(1 + tokens.reduce((sum, token) => sum + 3 * token.length, 0));
    const bounds = new Uint32Array(2 * tokens.length);
    const made = new Vocabulary(tokens.length, text, bounds, freeSlots(tokens.length));
    let from = 1;
    tokens.forEach((token, id) => {
      const to = from + ENCODER.encodeInto(token, text.subarray(from)).written;
      if (to - from > MAX_BYTES) {
        throw new LlmError(
          "tokenizer",
          `${file}: the token ${quoted(token)} has ${to - from} bytes, at most ${MAX_BYTES}`,
        );
      }
      bounds[2 * id] = from;
      bounds[2 * id + 1] = to;
      if (to > from) made.#slots[made.#slot(text, from, to)] = id;
      from = to;
    });
    return made;
  }

  /**
   * The id of a token whose spelling lies in `text` from byte `from` to `to`; -1 if there is none. A `guess` that is right
   * saves the look-up.
   */
  find(text: Uint8Array, from: number, to: number, guess: number = -1): number {
    if (guess >= 0 && this.#equals(guess, text, from, to)) return guess;
    return this.#slots[this.#slot(text, from, to)];
  }

  /** The id of a token by its spelling. */
  idOf(token: string): number | undefined {
    const text = ENCODER.encode(token);
    const id = this.find(text, 0, text.length);
    return id < 0 ? undefined : id;
  }

  /** Bytes of the spelling of a token. */
  lengthOf(id: number): number {
    return this.#bounds[2 * id + 1] - this.#bounds[2 * id];
  }

  /** The spelling of a token; `undefined` if there is none. */
  spelling(id: number): string | undefined {
    const [from, to] = this.#bounds.subarray(2 * id, 2 * id + 2);
    return from < to ? DECODER.decode(this.#text.subarray(from, to)) : undefined; // an empty one is none
  }

  /** The slot where a spelling is or belongs. */
  #slot(text: Uint8Array, from: number, to: number): number {
    const slots = this.#slots;
    let hash = 0x811c9dc5; // FNV-1a
    for (let at = from; at < to; at++) hash = Math.imul(hash ^ text[at], 0x01000193);
    let slot = (hash ^ hash >>> 15) & (slots.length - 1);
    while (slots[slot] >= 0 && !this.#equals(slots[slot], text, from, to)) slot = (slot + 1) & (slots.length - 1);
    return slot;
  }

  #equals(id: number, text: Uint8Array, from: number, to: number): boolean {
    const start = this.#bounds[2 * id];
    if (this.#bounds[2 * id + 1] - start !== to - from) return false;
    const own = this.#text;
    for (let i = 0; i < to - from; i++) if (own[start + i] !== text[from + i]) return false;
    return true;
  }
}

/** A hash table for some tokens, at most half full. */
function freeSlots(tokens: number): Int32Array {
  return new Int32Array(2 ** Math.ceil(Math.log2(2 * tokens + 2))).fill(-1);
}
