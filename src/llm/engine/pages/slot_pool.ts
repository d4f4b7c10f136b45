/**
 * The slots of recurrent states: which are free. A slot has room for the states of one sequence, of all layers. Its memory belongs to the
 * runner.
 *
 * Sequences that run have a slot each. The prefix tree has others, for copies of states at the ends of pages. Slot 0 is never given out:
 * inactive rows write to it.
 *
 * @module
 */

/** Numbers of slots. */
export class SlotPool {
  /** Slots in all, slot 0 among them; 0 where layers have no state. */
  readonly count: number;
  readonly #free: number[] = [];

  /** Makes a pool of `count` slots, all but slot 0 free. */
  constructor(count: number) {
    this.count = count;
    for (let slot = count - 1; slot > 0; slot--) this.#free.push(slot);
  }

  /** Free slots. */
  get free(): number {
    return this.#free.length;
  }

  /** Takes a free slot. Throws where none is free: the caller makes room before. */
  allocate(): number {
    const slot = this.#free.pop();
    if (slot === undefined) throw new Error(`all ${this.count - 1} slots are in use`);
    return slot;
  }

  /** Gives a slot back. */
  release(slot: number): void {
    this.#free.push(slot);
  }

  /** Throws unless each slot but slot 0 is free or is one of `used`, once. */
  checkIntegrity(used: readonly number[]): void {
    const all = [...this.#free, ...used].sort((a, b) => a - b);
    const expected = Array.from({ length: Math.max(0, this.count - 1) }, (_, i) => i + 1);
    if (all.join() !== expected.join()) throw new Error(`slots ${all} are free or in use, expected ${expected}`);
  }
}
