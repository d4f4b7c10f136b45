/**
 * The memory of a paged cache of keys and values, in units of one size: which are free.
 *
 * A unit has room for a fixed number of positions, in all layers or in some, see src/llm/kv/page_groups.ts. This file counts units by
 * number; their memory belongs to the runner. Unit 0 is never given out: inactive rows and padding write to it.
 *
 * @module
 */

/** Numbers of units. */
export class PagePool {
  /** Units in all, unit 0 among them. */
  readonly count: number;
  readonly #used: Uint8Array;
  readonly #free: number[] = [];

  /** Makes a pool of `count` units, 2 or more. All but unit 0 are free. */
  constructor(count: number) {
    if (!Number.isSafeInteger(count) || count < 2) throw new Error(`a pool of ${count} pages: expected 2 or more`);
    this.count = count;
    this.#used = new Uint8Array(count);
    for (let unit = count - 1; unit > 0; unit--) this.#free.push(unit);
  }

  /** Free units. */
  get free(): number {
    return this.#free.length;
  }

  /** Units that can be given out at most. */
  get capacity(): number {
    return this.count - 1;
  }

  /** Takes a free unit. Throws where none is free: the caller makes room before. */
  allocate(): number {
    const unit = this.#free.pop();
    if (unit === undefined) throw new Error(`all ${this.capacity} pages are in use`);
    this.#used[unit] = 1;
    return unit;
  }

  /** Gives a unit back. */
  release(unit: number): void {
    if (this.#used[unit] !== 1) throw new Error(`page ${unit} is not in use`);
    this.#used[unit] = 0;
    this.#free.push(unit);
  }

  /** Throws unless `used` are the units in use, each once, and the others are free once. */
  checkIntegrity(used: readonly number[]): void {
    const all = [...used, ...this.#free].sort((a, b) => a - b);
    const isWhole = all.length === this.capacity && all.every((unit, i) => unit === i + 1);
    if (!isWhole) throw new Error(`pages ${all} are free or in use, expected 1 to ${this.capacity} once each`);
    const wrong = used.find((unit) => this.#used[unit] !== 1);
    if (wrong !== undefined) throw new Error(`page ${wrong} has an owner and is free`);
  }
}
