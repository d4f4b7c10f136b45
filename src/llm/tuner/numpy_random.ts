/**
 * MT19937, the generator of `numpy.random.seed` and `numpy.random.permutation`. mlx-lm draws the order of batches from it, and the
 * same seed gives the same order here.
 *
 * @module
 */

const N = 624;
const M = 397;

/** A generator with the state of `numpy.random`. */
export class NumpyRandom {
  readonly #words = new Uint32Array(N);
  #at = N;

  /** Starts as `numpy.random.seed(seed)` does, for a seed of 32 bits. */
  constructor(seed: number) {
    const words = this.#words;
    words[0] = seed;
    for (let i = 1; i < N; i++) words[i] = Math.imul(1812433253, words[i - 1] ^ (words[i - 1] >>> 30)) + i;
  }

  /** The state: 624 words, and how many of them were used. */
  get state(): Uint32Array {
    return Uint32Array.from([...this.#words, this.#at]);
  }

  set state(state: Uint32Array) {
    this.#words.set(state.subarray(0, N));
    this.#at = state[N];
  }

  /** 32 random bits. */
  #next(): number {
    const words = this.#words;
    if (this.#at === N) {
      for (let i = 0; i < N; i++) {
        const y = (words[i] & 0x80000000) | (words[(i + 1) % N] & 0x7fffffff);
        words[i] = words[(i + M) % N] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      this.#at = 0;
    }
    let y = words[this.#at++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  /** The whole numbers below `n` in random order, as `numpy.random.permutation(n)` gives them. */
  permutation(n: number): Uint32Array {
    const order = Uint32Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const mask = 2 ** (32 - Math.clz32(i)) - 1;
      let j: number;
      do j = (this.#next() & mask) >>> 0; while (j > i);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}
