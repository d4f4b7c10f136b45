/**
 * The pages of sequences: found in the prefix tree, allocated, grown and given back.
 *
 * What is kept in the tree is as of the last step that was scheduled, not of the last that ran. That is right where steps run in the order in which they were scheduled. A page that is found is read by a later step than the one that
 * fills it. For the same reason
 * a page may be given to another sequence as soon as its last owner has no step on its way.
 *
 * Pages of layers with a window come with the part of a prompt that writes them. They go when the steps that see them are committed.
 *
 * @module
 */

import { ONE_GROUP, type PageGroups, pagesIn } from "../../kv/page_groups.ts";
import { PageKind } from "./page_kind.ts";
import { PagePool } from "./page_pool.ts";
import type { Match, PartialPage } from "./prefix_node.ts";
import { PrefixTree } from "./prefix_tree.ts";
import { type PageCopy, type PagedSequence, SequencePages } from "./sequence_pages.ts";
import { SlotPool } from "./slot_pool.ts";

/** Sizes of the memory for keys and values. */
export interface PageOptions {
  /** Units of memory in all, unit 0 among them. Without groups a page is a unit. */
  readonly pages: number;
  /** Positions of a page. */
  readonly pageSize: number;
  /** How layers with and without a window share them. Default: all layers have the same pages. */
  readonly groups?: PageGroups;
  /** Most units that are kept for later requests while no sequence uses them. Default all. */
  readonly maxPrefixPages?: number;
  /** Slots for recurrent states, slot 0 among them. Default none: layers have no state. */
  readonly slots?: number;
}

/** Pages after which states of a long prompt are kept again. */
const KEPT_PAGES = 32;

/** Pages of running sequences and of kept prefixes. */
export class PageManager {
  readonly #pool: PagePool;
  readonly #groups: PageGroups;
  readonly #pages: PageKind;
  /** Pages of the layers with a window. */
  readonly #windows: PageKind;
  readonly #sequences: SequencePages;
  readonly #slots: SlotPool;
  readonly #tree: PrefixTree;
  /** Positions of a page. */
  readonly pageSize: number;
  readonly #maxPrefixPages: number;

  /** Makes a manager of pages that are all free. */
  constructor({ pages, pageSize, groups = ONE_GROUP, maxPrefixPages = pages, slots = 0 }: PageOptions) {
    const pool = this.#pool = new PagePool(pages);
    this.#groups = groups;
    this.#pages = new PageKind(pool, groups.full);
    this.#windows = new PageKind(pool, groups.windowed);
    this.#sequences = new SequencePages(groups, { pages: this.#pages, windows: this.#windows }, pageSize);
    this.#slots = new SlotPool(slots);
    this.pageSize = pageSize;
    this.#maxPrefixPages = maxPrefixPages;
    const kinds = { pages: this.#pages, windows: this.#windows, window: groups.window };
    this.#tree = new PrefixTree({ ...kinds, slots: this.#slots, pageSize });
  }

  /** Whether sequences have recurrent states. */
  get hasStates(): boolean {
    return this.#slots.count > 0;
  }

  /** The most positions that one sequence can have. */
  get capacity(): number {
    return pagesIn(this.#groups, this.#pool.capacity, this.pageSize) * this.pageSize;
  }

  /** Units in use by sequences or the prefix tree. */
  get used(): number {
    return this.#pool.capacity - this.#pool.free;
  }

  /** Units that neither sequences nor the prefix tree use. */
  get free(): number {
    return this.#pool.free;
  }

  /** Units that a sequence lacks for the positions before `end`. */
  countMissing(sequence: PagedSequence, end: number): number {
    return this.#sequences.countMissing(sequence, end);
  }

  /** Units that a running sequence is likely to want next. */
  countWanted(sequence: PagedSequence): number {
    return this.#sequences.countWanted(sequence);
  }

  /**
   * Finds the beginning of a sequence in the tree. Units for the rest of its tokens and one more must be there, and `spare` others. Of
   * layers with a window that is what the window takes at most. The caller gives the result to {@link PageManager.place} or
   * {@link PageManager.drop}. A page that `avoids` names is copied where no other one serves.
   */
  find(sequence: PagedSequence, spare: number, avoids?: (page: number) => boolean): Match | undefined {
    if (this.hasStates && this.#slots.free === 0 && this.#tree.slots.length === 0) return undefined;
    const match = this.#tree.match(sequence.tokens, { avoids });
    if (this.#hasRoom(this.#missingBeside(match, sequence) + spare)) return match;
    this.drop(match);
    if (!match.partial) return undefined;
    // The page to copy from cannot be evicted while it is held: perhaps that is the page which is missing.
    const whole = this.#tree.match(sequence.tokens, { whole: true });
    if (this.#hasRoom(this.#missingBeside(whole, sequence) + spare)) return whole;
    this.drop(whole);
    return undefined;
  }

  /** Units that a waiting sequence lacks beside those of a match. */
  #missingBeside({ pages, windows }: Match, sequence: PagedSequence): number {
    const missing = this.#sequences.countLacking(pages, sequence, sequence.tokens.length + 1);
    return this.#sequences.countRead(missing, windows.filter((page) => page !== 0).length);
  }

  /** Gives the pages of a match back. */
  drop({ pages, windows, partial }: Match): void {
    for (const page of pages) this.#pages.release(page);
    for (const page of windows) if (page !== 0) this.#windows.release(page);
    if (partial) this.#dropPartial(partial);
  }

  #dropPartial({ page, window }: PartialPage): void {
    this.#pages.release(page);
    if (window !== 0) this.#windows.release(window);
  }

  /** How many positions a match has. */
  countMatched({ pages, partial }: Match): number {
    return pages.length * this.pageSize + (partial?.count ?? 0);
  }

  /**
   * Gives a sequence the pages of a match and those that it lacks for its tokens and one more. Of layers with a window it gets one page.
   * Returns the copies to make.
   */
  place(sequence: PagedSequence, match: Match): readonly PageCopy[] {
    const { pages, windows, partial } = match;
    this.#sequences.begin(sequence, pages, windows);
    const missing = this.#sequences.countLacking(pages, sequence, sequence.tokens.length + 1);
    const { full, windowed } = this.#groups;
    const isRoom = this.makeRoom(missing * full + windowed);
    if (!isRoom) throw new Error(`sequence ${sequence.id} was found room that is not there`);
    this.#sequences.allocate(sequence, "pages", missing);
    this.#sequences.allocate(sequence, "windows", 1);
    if (this.hasStates) {
      this.#makeSlot(); // a step that writes to it comes after the one that copies from it
      sequence.slot = this.#slots.allocate();
      sequence.fork = (match.shared ?? 0) * this.pageSize;
    }
    if (!partial) return [];
    const copy = this.#sequences.copyOf(partial.page, partial.window, sequence, pages.length, partial.count);
    this.#dropPartial(partial); // a step that writes to it anew comes after the copy
    return [copy];
  }

  /** Evicts from the tree until `count` units are free. Returns false, with nothing evicted, where that many cannot be had. */
  makeRoom(count: number): boolean {
    if (!this.#hasRoom(count)) return false;
    this.#tree.evict(count - this.#pool.free);
    return true;
  }

  /** Gives a sequence pages for the positions before `end`, which are free. */
  grow(sequence: PagedSequence, end: number): void {
    for (const list of ["pages", "windows"] as const) {
      this.#sequences.allocate(sequence, list, this.#sequences.countLacking(sequence[list], sequence, end));
    }
  }

  /** Gives a sequence that is read pages of the layers with a window, for positions before `end` as far as there is room. */
  growWindow(sequence: PagedSequence, end: number): void {
    const { windowed } = this.#groups;
    if (windowed === 0) return;
    const lacking = Math.max(0, Math.ceil(end / this.pageSize) - sequence.windows.length);
    const free = this.#pool.free + (lacking * windowed > this.#pool.free ? this.#tree.countEvictable() : 0);
    const count = Math.min(lacking, Math.floor(free / windowed));
    this.makeRoom(count * windowed);
    this.#sequences.allocate(sequence, "windows", count);
  }

  /** The position after those that a sequence has pages for. */
  endOf({ pages, windows }: PagedSequence): number {
    return Math.min(pages.length, this.#groups.windowed > 0 ? windows.length : Infinity) * this.pageSize;
  }

  /** Takes the pages that a running sequence has passed: no step on its way sees them, nor a later one. */
  takePassed(sequence: PagedSequence): void {
    if (this.#sequences.takePassed(sequence)) this.#trim();
  }

  /** The end of the next part of a prompt that is read from `from` to `end`: where states are kept, the part ends there. */
  clipPart({ readLength, fork }: PagedSequence, from: number, end: number): number {
    if (!this.hasStates) return end;
    const ends = [fork, this.#lastWhole(readLength), this.#nextKept(from)].filter((at) => at > from);
    return Math.min(end, ...ends);
  }

  /** A slot for the states of a sequence after a part of its prompt that ends at `end`; undefined if they are not kept. */
  slotFor({ readLength, fork }: PagedSequence, end: number): number | undefined {
    if (!this.hasStates) return undefined;
    const isKept = end === fork || end === this.#lastWhole(readLength) || end % (KEPT_PAGES * this.pageSize) === 0;
    if (!isKept || !this.#makeSlot()) return undefined;
    return this.#slots.allocate();
  }

  /** Lets others find the positions of a sequence that goes on. If layers have states, those are in the slot `kept`, or none are. */
  share(sequence: PagedSequence, kept: number | undefined): void {
    if (this.hasStates) {
      if (kept !== undefined) this.#shareKept(sequence, kept);
      return;
    }
    this.#insert(sequence, true);
  }

  /** Adds the pages of a sequence to the tree. */
  #insert({ tokens, computed, readLength, pages, windows }: PagedSequence, inUse: boolean): void {
    this.#tree.insert(tokens.slice(0, computed), { pages, windows, inUse, ends: !inUse || computed >= readLength });
  }

  /** Takes the pages of a sequence that is in no step on its way. The tree keeps what is computed. */
  release(sequence: PagedSequence): void {
    // Where layers have states, those after the prompt's last whole page were not kept: no sequence could go on from there.
    if (!this.hasStates) this.#insert(sequence, false);
    if (sequence.slot > 0) this.#slots.release(sequence.slot);
    sequence.slot = 0;
    this.#sequences.release(sequence);
    this.#trim();
  }

  /** Evicts from the tree what is more than may be kept. */
  #trim(): void {
    this.#tree.evict(this.#tree.countEvictable() - this.#maxPrefixPages);
  }

  /** Throws unless pool and tree are sound and `sequences` are all that have pages. */
  checkIntegrity(sequences: readonly PagedSequence[]): void {
    const held = this.#pages.checkedUnits([...this.#tree.pages, ...sequences.flatMap(({ pages }) => pages)]);
    const ofWindows = sequences.flatMap(({ windows, passed }) => windows.slice(passed));
    this.#pool.checkIntegrity([...held, ...this.#windows.checkedUnits([...this.#tree.windows, ...ofWindows])]);
    this.#tree.checkIntegrity();
    if (this.hasStates) this.#slots.checkIntegrity([...this.#tree.slots, ...sequences.map(({ slot }) => slot)]);
    const kept = this.#tree.countEvictable();
    if (kept > this.#maxPrefixPages) {
      throw new Error(`${kept} unused pages are kept, more than ${this.#maxPrefixPages}`);
    }
    this.#sequences.checkIntegrity(sequences);
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

  #shareKept(sequence: PagedSequence, kept: number): void {
    const tokens = sequence.tokens.slice(0, sequence.computed);
    this.#insert(sequence, true);
    if (!this.#tree.keep(tokens, kept)) this.#slots.release(kept);
  }

  /** Whether `count` units are free or can be evicted. */
  #hasRoom(count: number): boolean {
    return count <= this.#pool.free || count <= this.#pool.free + this.#tree.countEvictable();
  }
}
