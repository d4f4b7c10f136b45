/**
 * The "precompiled_charsmap" of sentencepiece: rules that replace characters, in a double-array trie, and what they replace them with.
 *
 * @module
 */

import type { Fail } from "../pipeline.ts";

/** Most rules that sentencepiece finds at a place. */
const MAX_RULES = 32;

/** A rule that fits at a place. */
export interface CharRule {
  /** Bytes of the text that it replaces. */
  readonly length: number;
  /** What it replaces them with. */
  readonly text: string;
}

/** Finds rules for the UTF-8 of a text. */
export class Charsmap {
  readonly #units: Uint32Array;
  readonly #replacements: Uint8Array;
  readonly #texts = new Map<number, string>();

  /** Reads the bytes of the field. `fail` throws an error about their file. */
  constructor(bytes: Uint8Array, fail: Fail) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const size = bytes.length < 4 ? 0 : view.getUint32(0, true);
    if (size === 0 || size % 4 !== 0 || size > bytes.length - 4) {
      fail(`precompiled_charsmap has a trie of ${size} bytes in ${bytes.length}`);
    }
    this.#units = Uint32Array.from({ length: size / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.#replacements = bytes.slice(4 + size);
  }

  /** The rule for the longest text from byte `from` on, before byte `to`. */
  longest(text: Uint8Array, from: number, to: number): CharRule | undefined {
    let found: { length: number; at: number } | undefined;
    this.#search(text, from, to, (length, at) => {
      found = { length, at };
      return false;
    });
    return found && { length: found.length, text: this.#textAt(found.at) };
  }

  /** The rule for the shortest text from byte `from` on, before byte `to`. */
  shortest(text: Uint8Array, from: number, to: number): CharRule | undefined {
    let found: { length: number; at: number } | undefined;
    this.#search(text, from, to, (length, at) => {
      found = { length, at };
      return true;
    });
    return found && { length: found.length, text: this.#textAt(found.at) };
  }

  /** Calls `visit` for every rule, the shortest one first, until it returns true. */
  #search(text: Uint8Array, from: number, to: number, visit: (length: number, at: number) => boolean): void {
    const units = this.#units;
    let node = offsetOf(units[0]);
    let rules = 0;
    for (let at = from; at < to && rules < MAX_RULES; at++) {
      node ^= text[at];
      const unit = units[node];
      if (unit === undefined || (unit & 0x800000ff) >>> 0 !== text[at]) return;
      node ^= offsetOf(unit);
      if ((unit >>> 8 & 1) === 0) continue;
      rules++;
      if (visit(at + 1 - from, (units[node] ?? 0) & 0x7fffffff)) return;
    }
  }

  /** The replacement that begins at a byte; it ends with a zero. */
  #textAt(at: number): string {
    let text = this.#texts.get(at);
    if (text === undefined) {
      const end = this.#replacements.indexOf(0, at);
      text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(
        this.#replacements.subarray(at, end < 0 ? undefined : end),
      );
      this.#texts.set(at, text);
    }
    return text;
  }
}

/** Where the children of a unit of the double array are, relative to it. */
function offsetOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
