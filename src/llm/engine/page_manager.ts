/**
 * The pages of sequences: found in the prefix tree, allocated, grown and given back.
 *
 * What is kept in the tree is as of the last step that was scheduled, not of the last that ran. That is right because steps run in the
 * order in which they were scheduled. The finder of a page reads it in a later step than the one that fills it. For the same reason
 * a page may be given to another sequence as soon as its last owner has no step on its way.
 *
 * @module
 */

import { PagePool } from "./page_pool.ts";
import { type Match, PrefixTree } from "./prefix_tree.ts";
import type { Sequence } from "./sequence.ts";
import type { PageCopy } from "./step.ts";

/** Sizes of the memory for keys and values. */
export interface PageOptions {
  /** Pages in all, page 0 among them. */
  readonly pages: number;
  /** Positions of a page. */
  readonly pageSize: number;
  /** Most pages that the prefix tree keeps. Default all. */
  readonly maxPrefixPages?: number;
}

/** The positions that a sequence will have at `end` at most: its last token is never read. */
function clipToLimit({ limit }: Sequence, end: number): number {
  return Math.min(end, limit - 1);
}

/** Pages of running sequences and of kept prefixes. */
export class PageManager {
  readonly #pool: PagePool;
  readonly #tree: PrefixTree;
  readonly #pageSize: number;

  /** Makes a manager of pages that are all free. */
  constructor({ pages, pageSize, maxPrefixPages = pages }: PageOptions) {
    this.#pool = new PagePool(pages);
    this.#pageSize = pageSize;
    this.#tree = new PrefixTree({ pool: this.#pool, pageSize, maxPages: maxPrefixPages });
  }

  /** Positions of all pages together: the most that one sequence can have. */
  get capacity(): number {
    return this.#pool.capacity * this.#pageSize;
  }

  /** Pages in use by sequences or the prefix tree. */
  get used(): number {
    return this.#pool.capacity - this.#pool.free;
  }

  /** Pages that a sequence lacks for the positions before `end`. */
  countMissing(sequence: Sequence, end: number): number {
    return Math.max(0, Math.ceil(clipToLimit(sequence, end) / this.#pageSize) - sequence.pages.length);
  }

  /**
   * Finds the beginning of a sequence in the tree, if there are pages for the rest of its tokens, one more, and `spare` others. The
   * caller gives the result to {@link PageManager.place} or {@link PageManager.drop}.
   */
  find(sequence: Sequence, spare: number): Match | undefined {
    const { pages, partial } = this.#tree.match(sequence.tokens);
    const missing = this.countMissing(sequence, sequence.tokens.length + 1) - pages.length;
    if (this.#hasRoom(missing + spare)) return { pages, partial };
    // The page to copy from cannot be evicted while it is held: perhaps that is the page which is missing.
    this.drop({ pages: [], partial });
    if (partial && this.#hasRoom(missing + spare)) return { pages, partial: undefined };
    this.drop({ pages, partial: undefined });
    return undefined;
  }

  /** Gives the pages of a match back. */
  drop({ pages, partial }: Match): void {
    for (const page of pages) this.#pool.release(page);
    if (partial) this.#pool.release(partial.page);
  }

  /** How many positions a match has. */
  countMatched({ pages, partial }: Match): number {
    return pages.length * this.#pageSize + (partial?.count ?? 0);
  }

  /** Gives a sequence the pages of a match and those that it lacks for its tokens and one more. Returns the copies to make. */
  place(sequence: Sequence, match: Match): readonly PageCopy[] {
    sequence.pages = match.pages.slice();
    const missing = this.countMissing(sequence, sequence.tokens.length + 1);
    if (!this.makeRoom(missing)) throw new Error(`sequence ${sequence.id} was found room that is not there`);
    this.#allocate(sequence, missing);
    if (!match.partial) return [];
    const { page, count } = match.partial;
    this.#pool.release(page); // a step that writes to it anew comes after the copy
    return [{ from: page, to: sequence.pages[match.pages.length], count }];
  }

  /** Evicts from the tree until `count` pages are free. Returns false, with nothing evicted, where that many cannot be had. */
  makeRoom(count: number): boolean {
    if (!this.#hasRoom(count)) return false;
    this.#tree.evict(count - this.#pool.free);
    return true;
  }

  /** Gives a sequence pages for the positions before `end`, which are free. */
  grow(sequence: Sequence, end: number): void {
    this.#allocate(sequence, this.countMissing(sequence, end));
  }

  /** Lets others find the positions of a sequence that steps on their way have, while it goes on. */
  share(sequence: Sequence): void {
    this.#tree.insert(sequence.tokens.slice(0, sequence.scheduled), sequence.pages, true);
  }

  /** Takes the pages of a sequence that is in no step on its way. The tree keeps what is computed. */
  release(sequence: Sequence): void {
    this.#tree.insert(sequence.tokens.slice(0, sequence.computed), sequence.pages);
    for (const page of sequence.pages) this.#pool.release(page);
    sequence.pages = [];
  }

  /** Throws unless pool and tree are sound and `sequences` are all that have pages. */
  checkIntegrity(sequences: readonly Sequence[]): void {
    this.#pool.checkIntegrity([...this.#tree.pages, ...sequences.flatMap(({ pages }) => pages)]);
    this.#tree.checkIntegrity();
    const shared = new Map<number, number>();
    for (const page of sequences.flatMap(({ pages }) => pages)) shared.set(page, (shared.get(page) ?? 0) + 1);
    for (const { id, pages, scheduled } of sequences) {
      if (pages.length * this.#pageSize < scheduled) throw new Error(`sequence ${id} lacks pages`);
      const written = pages.slice(Math.floor(scheduled / this.#pageSize));
      const wrong = written.find((page) => shared.get(page)! > 1);
      if (wrong !== undefined) throw new Error(`page ${wrong}, which sequence ${id} writes to, has another owner`);
    }
  }

  /** Whether `count` pages are free or can be evicted. */
  #hasRoom(count: number): boolean {
    return count <= this.#pool.free || count <= this.#pool.free + this.#tree.countEvictable();
  }

  #allocate(sequence: Sequence, count: number): void {
    for (let i = 0; i < count; i++) sequence.pages.push(this.#pool.allocate());
  }
}
