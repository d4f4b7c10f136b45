/**
 * Random choices that a seed repeats: every input of a fuzzing run is made again from its format, seed and number.
 *
 * @module
 */

/** splitmix32 with the choices that mutators need. */
export class Random {
  #state: number;

  /** Equal parts give equal choices. */
  constructor(...parts: readonly (string | number)[]) {
    let hash = 2166136261; // FNV-1a
    for (const char of parts.join("/")) hash = Math.imul(hash ^ char.codePointAt(0)!, 16777619);
    this.#state = hash >>> 0;
  }

  /** A whole number of 32 bits. */
  bits(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  /** A whole number from 0 to `end` - 1; 0 if there is none. */
  below(end: number): number {
    return end > 0 ? this.bits() % end : 0;
  }

  /** A whole number from 0 on, small ones more often: each power of two below `end` is as likely as the next. */
  small(end: number): number {
    return this.below(Math.min(end, 2 ** this.below(Math.ceil(Math.log2(Math.max(2, end))) + 1)));
  }

  /** True once in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0;
  }

  /** One of a list. */
  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)];
  }
}
