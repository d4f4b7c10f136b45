/**
 * The pages of a paged cache of keys and values: which are free, and how many owners each of the others has.
 *
 * A page has room for a fixed number of positions in all layers. This file counts pages by number; their memory belongs to the runner.
 * Owners are sequences and the prefix tree. A page with several owners has its known positions read by all of them; at most one sequence
 * writes further positions to it. Page 0 is never given out: inactive rows and padding write to it.
 *
 * @module
 */

/** Numbers of pages with a count of references for each. */
export class PagePool {
  /** Pages in all, page 0 among them. */
  readonly count: number;
  readonly #references: Uint32Array;
  readonly #free: number[] = [];

  /** Makes a pool of `count` pages, 2 or more. All but page 0 are free. */
  constructor(count: number) {
    if (!Number.isSafeInteger(count) || count < 2) throw new Error(`a pool of ${count} pages: expected 2 or more`);
    this.count = count;
    this.#references = new Uint32Array(count);
    for (let page = count - 1; page > 0; page--) this.#free.push(page);
  }

  /** Pages without an owner. */
  get free(): number {
    return this.#free.length;
  }

  /** Pages that can be given out at most. */
  get capacity(): number {
    return this.count - 1;
  }

  /** Takes a free page with one reference. Throws where none is free: the caller makes room before. */
  allocate(): number {
    const page = this.#free.pop();
    if (page === undefined) throw new Error(`all ${this.capacity} pages are in use`);
    this.#references[page] = 1;
    return page;
  }

  /** References to a page; 0 for a free one. */
  references(page: number): number {
    return this.#references[page];
  }

  /** Adds a reference to a page that somebody has. */
  retain(page: number): void {
    this.#references[this.#used(page)]++;
  }

  /** Gives a reference back. The last one makes the page free. */
  release(page: number): void {
    if (--this.#references[this.#used(page)] === 0) this.#free.push(page);
  }

  /** Throws unless each page has as many references as `owners` has mentions of it, and the others are free once. */
  checkIntegrity(owners: Iterable<number>): void {
    const expected = new Uint32Array(this.count);
    for (const page of owners) expected[page]++;
    if (expected[0] > 0) throw new Error("page 0 has an owner");
    for (let page = 1; page < this.count; page++) {
      if (expected[page] === this.#references[page]) continue;
      throw new Error(`page ${page} has ${this.#references[page]} references and ${expected[page]} owners`);
    }
    const free = new Set(this.#free);
    const unused = expected.filter((references) => references === 0).length - 1;
    const wrong = this.#free.find((page) => page < 1 || page >= this.count || expected[page] > 0);
    if (wrong !== undefined) throw new Error(`page ${wrong} is in the free list`);
    if (free.size !== this.#free.length || free.size !== unused) {
      throw new Error(`${this.#free.length} pages are in the free list and ${unused} are unused`);
    }
  }

  /** The page, if somebody has it. */
  #used(page: number): number {
    if (!(this.#references[page] > 0)) throw new Error(`page ${page} is not in use`);
    return page;
  }
}
