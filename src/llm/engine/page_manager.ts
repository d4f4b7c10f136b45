/**
 * The pages of sequences: found in the prefix tree, allocated, grown and given back.
 *
 * What is kept in the tree is as of the last step that was scheduled, not of the last that ran. That is right where steps run in the order in which they were scheduled. A page that is found is read by a later step than the one that
 * fills it. For the same reason
 * a page may be given to another sequence as soon as its last owner has no step on its way.
 *
 * @module
 */

import { PagePool } from "./page_pool.ts";
import { type Match, PrefixTree } from "./prefix_tree.ts";
import type { Sequence } from "./sequence.ts";
import { SlotPool } from "./slot_pool.ts";
import type { PageCopy } from "./step.ts";

/** Sizes of the memory for keys and values. */
export interface PageOptions {
  /** Pages in all, page 0 among them. */
  readonly pages: number;
  /** Positions of a page. */
  readonly pageSize: number;
  /** Most pages that are kept for later requests while no sequence uses them. Default all. */
  readonly maxPrefixPages?: number;
  /** Slots for recurrent states, slot 0 among them. Default none: layers have no state. */
  readonly slots?: number;
}

/** Pages after which states of a long prompt are kept again. */
const KEPT_PAGES = 32;

/** The positions that a sequence will have at `end` at most: its last token is never read. */
function clipToLimit({ limit }: Sequence, end: number): number {
  return Math.min(end, limit - 1);
}

/** Pages of running sequences and of kept prefixes. */
export class PageManager {
  readonly #pool: PagePool;
  readonly #slots: SlotPool;
  readonly #tree: PrefixTree;
  /** Positions of a page. */
  readonly pageSize: number;
  readonly #maxPrefixPages: number;

  /** Makes a manager of pages that are all free. */
  constructor({ pages, pageSize, maxPrefixPages = pages, slots = 0 }: PageOptions) {
    this.#pool = new PagePool(pages);
    this.#slots = new SlotPool(slots);
    this.pageSize = pageSize;
    this.#maxPrefixPages = maxPrefixPages;
    this.#tree = new PrefixTree({ pool: this.#pool, slots: this.#slots, pageSize });
  }

  /** Whether sequences have recurrent states. */
  get hasStates(): boolean {
    return this.#slots.count > 0;
  }

  /** Positions of all pages together: the most that one sequence can have. */
  get capacity(): number {
    return this.#pool.capacity * this.pageSize;
  }

  /** Pages in use by sequences or the prefix tree. */
  get used(): number {
    return this.#pool.capacity - this.#pool.free;
  }

  /** Pages that a sequence lacks for the positions before `end`. */
  countMissing(sequence: Sequence, end: number): number {
    return Math.max(0, Math.ceil(clipToLimit(sequence, end) / this.pageSize) - sequence.pages.length);
  }

  /**
   * Finds the beginning of a sequence in the tree. Pages for the rest of its tokens and one more must be there, and `spare` others. The
   * caller gives the result to {@link PageManager.place} or {@link PageManager.drop}. A page that `avoids` names is copied where no other
   * one serves.
   */
  find(sequence: Sequence, spare: number, avoids?: (page: number) => boolean): Match | undefined {
    if (this.hasStates && this.#slots.free === 0 && this.#tree.slots.length === 0) return undefined;
    const match = this.#tree.match(sequence.tokens, undefined, avoids);
    const { pages, partial } = match;
    const missing = this.countMissing(sequence, sequence.tokens.length + 1) - pages.length;
    if (this.#hasRoom(missing + spare)) return match;
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
    return pages.length * this.pageSize + (partial?.count ?? 0);
  }

  /** Gives a sequence the pages of a match and those that it lacks for its tokens and one more. Returns the copies to make. */
  place(sequence: Sequence, match: Match): readonly PageCopy[] {
    sequence.pages = match.pages.slice();
    const missing = this.countMissing(sequence, sequence.tokens.length + 1);
    if (!this.makeRoom(missing)) throw new Error(`sequence ${sequence.id} was found room that is not there`);
    this.#allocate(sequence, missing);
    if (this.hasStates) {
      this.#makeSlot(); // a step that writes to it comes after the one that copies from it
      sequence.slot = this.#slots.allocate();
      sequence.fork = (match.shared ?? 0) * this.pageSize;
    }
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

  /** The end of the next part of a prompt that is read from `from` to `end`: where states are kept, the part ends there. */
  clipPart({ readLength, fork }: Sequence, from: number, end: number): number {
    if (!this.hasStates) return end;
    const ends = [fork, this.#lastWhole(readLength), this.#nextKept(from)].filter((at) => at > from);
    return Math.min(end, ...ends);
  }

  /** A slot for the states of a sequence after a part of its prompt that ends at `end`; undefined if they are not kept. */
  slotFor({ readLength, fork }: Sequence, end: number): number | undefined {
    if (!this.hasStates) return undefined;
    const isKept = end === fork || end === this.#lastWhole(readLength) || end % (KEPT_PAGES * this.pageSize) === 0;
    if (!isKept || !this.#makeSlot()) return undefined;
    return this.#slots.allocate();
  }

  /** Lets others find the positions of a sequence that goes on. If layers have states, those are in the slot `kept`, or none are. */
  share(sequence: Sequence, kept: number | undefined): void {
    if (this.hasStates) {
      if (kept !== undefined) this.#shareKept(sequence, kept);
      return;
    }
    this.#tree.insert(sequence.tokens.slice(0, sequence.computed), sequence.pages, true);
  }

  /** Takes the pages of a sequence that is in no step on its way. The tree keeps what is computed. */
  release(sequence: Sequence): void {
    // Where layers have states, those after the prompt's last whole page were not kept: no sequence could go on from there.
    if (!this.hasStates) this.#tree.insert(sequence.tokens.slice(0, sequence.computed), sequence.pages);
    if (sequence.slot > 0) this.#slots.release(sequence.slot);
    sequence.slot = 0;
    for (const page of sequence.pages) this.#pool.release(page);
    sequence.pages = [];
    this.#tree.evict(this.#tree.countEvictable() - this.#maxPrefixPages);
  }

  /** Throws unless pool and tree are sound and `sequences` are all that have pages. */
  checkIntegrity(sequences: readonly Sequence[]): void {
    this.#pool.checkIntegrity([...this.#tree.pages, ...sequences.flatMap(({ pages }) => pages)]);
    this.#tree.checkIntegrity();
    if (this.hasStates) this.#slots.checkIntegrity([...this.#tree.slots, ...sequences.map(({ slot }) => slot)]);
    const kept = this.#tree.countEvictable();
    if (kept > this.#maxPrefixPages) {
      throw new Error(`${kept} unused pages are kept, more than ${this.#maxPrefixPages}`);
    }
    const shared = new Map<number, number>();
    for (const page of sequences.flatMap(({ pages }) => pages)) shared.set(page, (shared.get(page) ?? 0) + 1);
    for (const { id, pages, computed } of sequences) {
      if (pages.length * this.pageSize < computed) throw new Error(`sequence ${id} lacks pages`);
      const written = pages.slice(Math.floor(computed / this.pageSize));
      const wrong = written.find((page) => shared.get(page)! > 1);
      if (wrong !== undefined) throw new Error(`page ${wrong}, which sequence ${id} writes to, has another owner`);
    }
  }

  /** The last position before the end of a prompt at which a page ends: the last token is read in any case. */
  #lastWhole(readLength: number): number {
    return Math.floor((readLength - 1) / this.pageSize) * this.pageSize;
  }

  /** The next position after `from` at which states of a long prompt are kept. */
  #nextKept(from: number): number {
    const step = KEPT_PAGES * this.pageSize;
    return (Math.floor(from / step) + 1) * step;
  }

  /** Has a slot free, of the tree if it must be. Returns false if sequences have all. */
  #makeSlot(): boolean {
    return this.#slots.free > 0 || this.#tree.evictSlot();
  }

  #shareKept(sequence: Sequence, kept: number): void {
    const tokens = sequence.tokens.slice(0, sequence.computed);
    this.#tree.insert(tokens, sequence.pages, true);
    if (!this.#tree.keep(tokens, kept)) this.#slots.release(kept);
  }

  /** Whether `count` pages are free or can be evicted. */
  #hasRoom(count: number): boolean {
    return count <= this.#pool.free || count <= this.#pool.free + this.#tree.countEvictable();
  }

  #allocate(sequence: Sequence, count: number): void {
    for (let i = 0; i < count; i++) sequence.pages.push(this.#pool.allocate());
  }
}
