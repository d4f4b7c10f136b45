/**
 * Values from an engine to a caller, who takes them when it likes.
 *
 * @module
 */

/** Values that one side puts in and the other takes out, in their order. */
export class Channel<T> {
  #values: T[] = [];
  #ended = false;
  #error: unknown;
  /** The taker's wait for a value, and the other side's for the taker. */
  #wake: (() => void) | undefined;
  #asked: (() => void) | undefined;

  /** Puts a value in; after the end it does nothing. */
  push(value: T): void {
    if (this.#ended) return;
    this.#values.push(value);
    this.#wake?.();
  }

  /** No more values come; the taker gets an error after the last one, where there is one. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake?.();
    this.#asked?.();
  }

  /** The values that came since the last call, one or more; undefined after the last one. */
  async next(): Promise<readonly T[] | undefined> {
    if (this.#values.length === 0 && !this.#ended) {
      this.#asked?.();
      await new Promise<void>((resolve) => this.#wake = resolve);
      this.#wake = undefined;
    }
    const values = this.#values;
    this.#values = [];
    if (values.length > 0) return values;
    if (this.#error !== undefined) throw this.#error;
    return undefined;
  }

  /** The values one by one, until the end. */
  async *take(): AsyncGenerator<T, void, void> {
    for (let values = await this.next(); values; values = await this.next()) {
      for (const value of values) yield value;
    }
  }

  /** Resolves when the taker has all values and waits for others, or at the end. */
  async drained(): Promise<void> {
    while (!this.#ended && (this.#values.length > 0 || !this.#wake)) {
      await new Promise<void>((resolve) => this.#asked = resolve);
      this.#asked = undefined;
    }
  }
}
