/**
 * The pages of one kind of layers, those that see all or those with a window. A page takes several units of the pool that all kinds share.
 *
 * A page has a count of references, as its owners are sequences and the prefix tree. Its number is that of its first unit. A kind without layers has pages too, so that the tokens in them have a place in the tree. They take no unit and have numbers below 0.
 *
 * @module
 */

import type { PagePool } from "./page_pool.ts";

/** A page that has owners. */
interface Held {
  readonly units: readonly number[];
  references: number;
}

/** Pages with a count of references for each. */
export class PageKind {
  readonly #pool: PagePool;
  readonly #pages = new Map<number, Held>();
  #named = 0;
  /** Units of a page. */
  readonly units: number;

  /** Pages of so many units of a pool. */
  constructor(pool: PagePool, units: number) {
    this.#pool = pool;
    this.units = units;
  }

  /** Takes a page with one reference. Throws where too few units are free: the caller makes room before. */
  allocate(): number {
    const units = Array.from({ length: this.units }, () => this.#pool.allocate());
    const page = units[0] ?? -++this.#named;
    this.#pages.set(page, { units, references: 1 });
    return page;
  }

  /** The units of a page. */
  unitsOf(page: number): readonly number[] {
    return this.#held(page).units;
  }

  /** References to a page; 0 for one without owners. */
  references(page: number): number {
    return this.#pages.get(page)?.references ?? 0;
  }

  /** Adds a reference to a page that has an owner. */
  retain(page: number): void {
    this.#held(page).references++;
  }

  /** Gives a reference back. The last one makes the units free. */
  release(page: number): void {
    const held = this.#held(page);
    if (--held.references > 0) return;
    this.#pages.delete(page);
    for (const unit of held.units) this.#pool.release(unit);
  }

  /** The units of all pages that have an owner. Throws unless each has as many references as `owners` has mentions of it. */
  checkedUnits(owners: Iterable<number>): readonly number[] {
    const counts = new Map<number, number>();
    for (const page of owners) counts.set(page, (counts.get(page) ?? 0) + 1);
    for (const page of new Set([...counts.keys(), ...this.#pages.keys()])) {
      const [found, expected] = [this.references(page), counts.get(page) ?? 0];
      if (found !== expected) throw new Error(`page ${page} has ${found} references and ${expected} owners`);
    }
    return Array.from(this.#pages.values(), ({ units }) => units).flat();
  }

  #held(page: number): Held {
    const held = this.#pages.get(page);
    if (!held) throw new Error(`page ${page} is not in use`);
    return held;
  }
}
