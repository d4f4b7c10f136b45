/**
 * Tells how much of a prompt's step is computed, twice a second while the step is waited for.
 *
 * @module
 */

/** Milliseconds between two calls. */
const TICK_MS = 500;

/** The clock of one step over `count` tokens. An error of the callback ends the calls; {@link ReadingClock.check} throws it. */
export class ReadingClock implements Disposable {
  readonly #onRead: ((share: number, count: number) => void) | undefined;
  readonly #count: number;
  #last: number = performance.now();
  #timer: ReturnType<typeof setInterval> | undefined;
  #error: { readonly cause: unknown } | undefined;

  /** Calls `onRead`, if there is one. */
  constructor(onRead: ((share: number, count: number) => void) | undefined, count: number) {
    this.#onRead = onRead;
    this.#count = count;
  }

  /** Calls with a share, unless the last call was a moment ago. Throws what the callback throws. */
  tick(share: number): void {
    const now = performance.now();
    if (now - this.#last < TICK_MS) return;
    this.#last = now;
    this.#tell(share);
  }

  #tell(share: number | undefined): void {
    if (share !== undefined && share < 1) this.#onRead?.(share, this.#count);
  }

  /** Calls by a timer from now on, with what `share` gives unless that is undefined. */
  start(share: () => number | undefined): void {
    if (this.#onRead === undefined) return;
    this.#timer = setInterval(() => {
      try {
        this.#tell(share());
      } catch (cause) {
        this.#error = { cause };
        this[Symbol.dispose]();
      }
    }, TICK_MS);
  }

  /** Throws what the callback threw in the timer. */
  check(): void {
    if (this.#error !== undefined) throw this.#error.cause;
  }

  /** Ends the timer. */
  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
