/**
 * The positions that a cache can go back to. Windows of layers that a file filled, and rings, lack earlier positions; recurrent layers have
 * copies of their states at some.
 *
 * @module
 */

import { LlmError } from "../error.ts";
import type { CacheBuffers } from "./cache_buffers.ts";
import type { LayerStates } from "./states.ts";

/** How far a cache goes back. */
export class Reach {
  readonly #buffers: CacheBuffers;
  /** Absent where no layer is recurrent. */
  readonly #states: LayerStates | undefined;
  /** The first position after 0 that has all that layers with a window see. */
  #earliest = 0;
  /** Most tokens that the cache held. */
  #highest = 0;

  /** Of a cache with these buffers and, if layers are recurrent, states. */
  constructor(buffers: CacheBuffers, states: LayerStates | undefined) {
    this.#buffers = buffers;
    this.#states = states;
  }

  /** Notes that the cache holds so many tokens. */
  note(tokens: number): void {
    this.#highest = Math.max(this.#highest, tokens);
  }

  /** Notes that no position before this one, but 0, has all that its token sees. */
  begin(position: number): void {
    this.#earliest = Math.max(this.#earliest, position);
  }

  /** Notes that the cache holds nothing. */
  reset(): void {
    this.#earliest = this.#highest = 0;
  }

  /** The first position after 0 that has all that a token there sees. */
  get #whole(): number {
    return Math.max(this.#earliest, this.#buffers.firstWhole(this.#highest));
  }

  /** The last position, `position` at most, that a cache of `held` tokens goes back to. */
  last(position: number, held: number): number {
    if (position === held) return position;
    const reachable = this.#states?.reachable(position) ?? position;
    return reachable < this.#whole ? 0 : reachable;
  }

  /** Throws an {@link LlmError} if a cache of `held` tokens cannot forget the last `count` of them. */
  check(count: number, held: number): void {
    const position = Math.max(held - count, 0);
    const reachable = this.last(position, held);
    if (reachable === position) return;
    const [what, advice] = position < this.#whole
      ? ["earlier positions that its tokens see are gone: it", ""]
      : ["the state of recurrent layers", ". Call checkpoint() there"];
    const why = `${what} goes back to ${reachable} and not to ${position}${advice}`;
    throw new LlmError("option", `A cache of ${held} tokens cannot forget ${count}: ${why}`);
  }
}
