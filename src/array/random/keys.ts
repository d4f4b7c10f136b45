/**
 * Keys of the random number generator, on the host: two words that are split once per draw, as MLX splits its global state.
 *
 * @module
 */

import { quoted, ValueError } from "../../graph/error.ts";

/** Two words of 32 bits. */
export type Key = readonly [number, number];

const ROTATIONS = [[13, 15, 26, 6], [17, 29, 16, 24]];

/** One block of Threefry 2x32 with 20 rounds. */
function threefry(key: Key, counter: Key): [number, number] {
  const schedule = [key[0], key[1], (key[0] ^ key[1] ^ 0x1bd11bda) >>> 0];
  let [a, b] = [(counter[0] + key[0]) >>> 0, (counter[1] + key[1]) >>> 0];
  for (let round = 0; round < 5; round++) {
    for (const by of ROTATIONS[round % 2]) {
      a = (a + b) >>> 0;
      b = (((b << by) | (b >>> (32 - by))) ^ a) >>> 0;
    }
    a = (a + schedule[(round + 1) % 3]) >>> 0;
    b = (b + schedule[(round + 2) % 3] + round + 1) >>> 0;
  }
  return [a, b];
}

/** The key of a seed; seeds of more than 32 bits fill both words. */
export function keyOf(seed: number | bigint): Key {
  if (typeof seed === "bigint" ? seed < 0n || seed >= 1n << 64n : !Number.isSafeInteger(seed) || seed < 0) {
    throw new ValueError(
      `key() expected a whole number from 0 to 2^53 - 1, or a bigint to 2^64 - 1: found ${quoted(seed)}`,
    );
  }
  const all = BigInt(seed);
  return [Number(all >> 32n), Number(all & 0xffffffffn)];
}

/** The state that is left of a key after a number of draws. */
export function keyAfter(key: Key, draws: number): Key {
  let state = key;
  for (let i = 0; i < draws; i++) state = [threefry(state, [0, 2])[0], threefry(state, [1, 3])[0]];
  return state;
}

/** The states before each of `count` draws, of which the first one begins with `key`. */
export function keysBefore(key: Key, count: number): Key[] {
  const keys = [key];
  while (keys.length < count) keys.push(keyAfter(keys.at(-1)!, 1));
  return keys;
}

/** The keys that MLX's global state hands out after `mx.random.seed(seed)`. */
export class KeySequence {
  #state: Key;

  /** Starts at a seed; default a random one. */
  constructor(seed: number | bigint = crypto.getRandomValues(new Uint32Array(1))[0]) {
    this.#state = keyOf(seed);
  }

  /** The key that the next draw splits. */
  get key(): Key {
    return this.#state;
  }

  set key(key: Key) {
    this.#state = key;
  }

  /** Splits the state: one half stays, the other is for the draw. */
  next(): Key {
    // Four words: counters 0 and 1 with 2 and 3 at their sides.
    const [a, c] = threefry(this.#state, [0, 2]);
    const [b, d] = threefry(this.#state, [1, 3]);
    this.#state = [a, b];
    return [c, d];
  }
}
