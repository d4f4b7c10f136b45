/**
 * The parts of prompts that one step reads, while the scheduler chooses them in order.
 *
 * A step has room for so many tokens. Of several parts, each counts as a multiple of the tile that kernels take. A prompt that is longer
 * than the room is cut. It has half of the step at first, so that prompts after it can be read to their ends. What they leave is its own
 * too. So a short prompt does not wait for all of a long one. A prompt of a lower priority takes no room from one that is cut.
 *
 * @module
 */

import type { Sequence } from "./sequence.ts";
import type { PrefillRow } from "./step.ts";

/** Sizes of a step that reads prompts. */
export interface PrefillSizes {
  /** Most tokens. */
  readonly tokens: number;
  /** Most prompts. */
  readonly prompts: number;
  /** Most tokens of several prompts. A prompt with more to read has a step of its own. */
  readonly together: number;
  /** Of several parts, each counts as a multiple of so many tokens. */
  readonly tile: number;
  /** Positions of a page. */
  readonly pageSize: number;
}

/** Parts of prompts. */
export class PrefillParts {
  readonly #sizes: PrefillSizes;
  readonly #rows: PrefillRow[] = [];
  /** Pages that the parts write to. */
  readonly #written = new Set<number>();
  /** Place of the prompt that is cut; the first one, where others have too few pages. */
  #cut: number | undefined;

  /** No parts yet. */
  constructor(sizes: PrefillSizes) {
    this.#sizes = sizes;
  }

  /** The parts, in order. */
  get rows(): readonly PrefillRow[] {
    return this.#rows;
  }

  /** Tokens of the parts: of several, in whole tiles. */
  get tokens(): number {
    const counts = this.#rows.map(({ count }) => count);
    return counts.length === 1 ? counts[0] : counts.reduce((sum, count) => sum + this.#whole(count, Math.ceil), 0);
  }

  /** Whether a sequence has a part. */
  has(sequence: Sequence): boolean {
    return this.#rows.some((row) => row.sequence === sequence);
  }

  /** Whether the step writes to a page, of either kind of layers: a copy of it would come too early. */
  writes(page: number): boolean {
    return this.#written.has(page);
  }

  /** Tokens that there is room for, of a prompt with `rest` tokens to read: all of them, some, or 0. */
  roomFor({ priority }: Sequence, rest: number): number {
    const { prompts, tokens, together, tile } = this.#sizes;
    if (this.#rows.length >= prompts || (this.#rows.length > 0 && rest > together)) return 0;
    const left = this.#left(1);
    const cut = this.#cut === undefined ? undefined : this.#rows[this.#cut].sequence;
    if (rest <= left) return cut && priority < cut.priority ? 0 : rest;
    if (cut) return 0;
    return prompts === 1 ? left : Math.min(left, Math.max(tile, this.#whole(tokens / 2)));
  }

  /** Adds a part of {@link PrefillParts.roomFor} a prompt. */
  add(row: PrefillRow): void {
    if (!row.last) this.#cut ??= this.#rows.length;
    this.#rows.push(row);
    this.#noteWrites(row);
  }

  /** Gives the prompt that is cut what the others left, up to the end of its pages. Returns its longer part, if there is one. */
  fill(endOf: (sequence: Sequence) => number): PrefillRow | undefined {
    if (this.#cut === undefined || this.#sizes.prompts === 1) return undefined;
    const row = this.#rows[this.#cut];
    const more = Math.min(this.#left(0), endOf(row.sequence) - row.from - row.count);
    if (more <= 0) return undefined;
    const longer = { ...row, count: row.count + more };
    this.#rows[this.#cut] = longer;
    this.#noteWrites(longer);
    return longer;
  }

  /** Tokens that are left, for the parts that there are or for another one beside them. */
  #left(others: 0 | 1): number {
    const { tokens, together } = this.#sizes;
    if (this.#rows.length + others <= 1) return tokens - this.tokens;
    return this.#whole(
      Math.min(tokens, together) - this.#rows.reduce((sum, { count }) => sum + this.#whole(count, Math.ceil), 0),
    );
  }

  /** As many tokens in whole tiles. */
  #whole(tokens: number, round: (tiles: number) => number = Math.floor): number {
    const { tile } = this.#sizes;
    return Math.max(0, round(tokens / tile)) * tile;
  }

  #noteWrites({ sequence: { pages, windows }, from, count }: PrefillRow): void {
    const { pageSize } = this.#sizes;
    const [begin, end] = [Math.floor(from / pageSize), Math.ceil((from + count) / pageSize)];
    for (const page of [...pages.slice(begin, end), ...windows.slice(begin, end)]) this.#written.add(page);
  }
}
