/**
 * The pages of one sequence and its tables of them, which name what kernels find.
 *
 * A sequence has a page of each kind of layers for its positions. Those of layers with a window it gives back when it has passed them.
 *
 * @module
 */

import { entryOf, firstPageSeen, type PageGroups, pagesOfWindow } from "../../kv/page_groups.ts";
import type { PageKind } from "./page_kind.ts";

/** What pages depend on of a sequence. */
export interface PagedSequence {
  readonly id: number;
  readonly tokens: readonly number[];
  readonly status: "waiting" | "running" | "ended";
  /** Most tokens. The last one needs no position. */
  readonly limit: number;
  /** Tokens that are read as a prompt. */
  readonly readLength: number;
  /** Positions whose keys and values are in pages once the steps on their way have run. */
  readonly computed: number;
  /** Positions of steps that are committed: the oldest step on its way begins there. */
  committed: number;
  /** Page i holds the positions from i * pageSize on. */
  pages: number[];
  /** The same of the layers with a window: 0 for pages that it has passed. Empty where no layer has one. */
  windows: number[];
  /** How many of those it has passed. */
  passed: number;
  /** What each of `PageGroups.tables` names of its pages. */
  tables: number[][];
  /** Its slot of recurrent states; 0 for none. */
  slot: number;
  /** The position after the pages that it has in common with an earlier one. */
  fork: number;
}

/** Positions to copy from the beginning of a page to that of another, in all layers. */
export interface PageCopy {
  /** The page to copy from. */
  readonly page: number;
  /** What each table names for it, and for the page to copy to. */
  readonly from: readonly number[];
  readonly to: readonly number[];
  readonly count: number;
}

/** The lists of pages of a sequence. */
type List = "pages" | "windows";

/** Gives pages to sequences. */
export class SequencePages {
  readonly #groups: PageGroups;
  readonly #kinds: Readonly<Record<List, PageKind>>;
  readonly #pageSize: number;
  /** Most pages that a sequence sees of those of layers with a window. */
  readonly #seen: number;

  /** `kinds` are the pages of the layers that see all and of those with a window. */
  constructor(groups: PageGroups, kinds: Readonly<Record<List, PageKind>>, pageSize: number) {
    this.#groups = groups;
    this.#kinds = kinds;
    this.#pageSize = pageSize;
    this.#seen = groups.windowed > 0 ? pagesOfWindow(groups.window, pageSize) : 0;
  }

  /** Pages that a sequence lacks beside those of a list, for the positions before `end`. */
  countLacking(list: readonly number[], { limit }: PagedSequence, end: number): number {
    return Math.max(0, Math.ceil(Math.min(end, limit - 1) / this.#pageSize) - list.length);
  }

  /** Units that a sequence lacks for the positions before `end`. */
  countMissing(sequence: PagedSequence, end: number): number {
    const { full, windowed } = this.#groups;
    const { pages, windows } = sequence;
    return this.countLacking(pages, sequence, end) * full + this.countLacking(windows, sequence, end) * windowed;
  }

  /** Units for so many pages that are read one after the other, of a sequence that has `held` pages of its window. */
  countRead(pages: number, held: number): number {
    const { full, windowed } = this.#groups;
    return pages * full + Math.max(0, Math.min(pages, this.#seen - held)) * windowed;
  }

  /** Units that a running sequence is likely to want next: a page, and where its prompt is read those of a window. */
  countWanted(sequence: PagedSequence): number {
    const { limit, readLength, computed, windows, passed } = sequence;
    const { full, windowed } = this.#groups;
    const next = this.countMissing(sequence, limit) > 0 ? full + windowed : 0;
    if (computed >= readLength) return next;
    const lacking = this.countLacking(windows, sequence, readLength + 1);
    return next + Math.max(0, Math.min(lacking, this.#seen - (windows.length - passed))) * windowed;
  }

  /** Gives a sequence without pages those of a match. */
  begin(sequence: PagedSequence, pages: readonly number[], windows: readonly number[]): void {
    sequence.tables = this.#groups.tables.map(() => []);
    for (const page of pages) this.#append(sequence, "pages", page);
    for (const page of windows) this.#append(sequence, "windows", page);
    sequence.passed = windows.lastIndexOf(0) + 1;
  }

  /** Gives a sequence so many more pages, whose units are free. */
  allocate(sequence: PagedSequence, list: List, count: number): void {
    if (list === "windows" && this.#groups.windowed === 0) return;
    for (let i = 0; i < count; i++) this.#append(sequence, list, this.#kinds[list].allocate());
  }

  /** The copy of the first `count` positions of a page to page `index` of a sequence. */
  copyOf(page: number, window: number, sequence: PagedSequence, index: number, count: number): PageCopy {
    return { page, from: this.#entries(page, window), to: sequence.tables.map((table) => table[index]), count };
  }

  /** Takes the pages that a sequence has passed. Returns whether there were some. */
  takePassed(sequence: PagedSequence): boolean {
    if (this.#groups.windowed === 0) return false;
    const { committed, windows, passed, tables } = sequence;
    const first = Math.min(firstPageSeen(this.#groups.window, committed, this.#pageSize), windows.length);
    for (let at = passed; at < first; at++) {
      this.#kinds.windows.release(windows[at]);
      windows[at] = 0;
      for (const [i, { windowed }] of this.#groups.tables.entries()) if (windowed) tables[i][at] = 0;
    }
    sequence.passed = Math.max(first, passed);
    return first > passed;
  }

  /** Takes all pages of a sequence. */
  release(sequence: PagedSequence): void {
    for (const page of sequence.pages) this.#kinds.pages.release(page);
    for (const page of sequence.windows.slice(sequence.passed)) this.#kinds.windows.release(page);
    sequence.pages = [];
    sequence.windows = [];
    sequence.tables = [];
    sequence.passed = sequence.committed = 0;
  }

  /** Throws unless sequences have the pages that they need, and no page that one writes to is that of another one too. */
  checkIntegrity(sequences: readonly PagedSequence[]): void {
    this.#checkList(sequences, "pages");
    if (this.#groups.windowed === 0) return;
    this.#checkList(sequences, "windows");
    for (const { id, windows, passed, committed, status } of sequences) {
      const first = Math.min(windows.length, firstPageSeen(this.#groups.window, committed, this.#pageSize));
      const isWhole = windows.every((page, i) => (page === 0) === (i < passed)) && passed <= first;
      if (!isWhole) throw new Error(`sequence ${id} lacks a page of its window`);
      if (status === "running" && passed < first) throw new Error(`sequence ${id} has pages before its window`);
    }
  }

  #checkList(sequences: readonly PagedSequence[], list: List): void {
    const shared = new Map<number, number>();
    for (const page of sequences.flatMap((sequence) => sequence[list])) shared.set(page, (shared.get(page) ?? 0) + 1);
    for (const { id, computed, ...sequence } of sequences) {
      const pages = sequence[list];
      if (pages.length * this.#pageSize < computed) throw new Error(`sequence ${id} lacks ${list}`);
      const wrong = pages.slice(Math.floor(computed / this.#pageSize)).find((page) => shared.get(page)! > 1);
      if (wrong !== undefined) throw new Error(`page ${wrong}, which sequence ${id} writes to, has another owner`);
    }
  }

  /** Adds a page to a list and to its tables; 0 for one that the sequence does not see. */
  #append(sequence: PagedSequence, list: List, page: number): void {
    sequence[list].push(page);
    const entries = list === "pages" ? this.#entries(page, 0) : this.#entries(0, page);
    for (const [i, { windowed }] of this.#groups.tables.entries()) {
      if (windowed === (list === "windows")) sequence.tables[i].push(entries[i]);
    }
  }

  /** What the tables name for a page and for that of the layers with a window, 0 for none. */
  #entries(page: number, window: number): number[] {
    const unitsOf = (kind: PageKind, held: number): readonly number[] => held === 0 ? [] : kind.unitsOf(held);
    const units = [unitsOf(this.#kinds.pages, page), unitsOf(this.#kinds.windows, window)];
    return this.#groups.tables.map((table) => {
      const own = units[table.windowed ? 1 : 0];
      return own.length === 0 ? 0 : entryOf(table, own);
    });
  }
}
