/**
 * Questions whether a tool may be called, which the page shows and another request answers.
 *
 * @module
 */

/** Milliseconds after which a question that has no answer counts as refused. */
const WAIT_MS = 5 * 60_000;

/** The open questions of a server. */
export class Questions {
  readonly #open = new Map<string, (allowed: boolean) => void>();
  #closed = false;

  /** The answer to the question of an id: false after some minutes, when the client goes, or when the server ends. */
  ask(id: string, signal: AbortSignal): Promise<boolean> {
    if (this.#closed || signal.aborted) return Promise.resolve(false);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const refuse = (): void => resolve(false);
    const timer = setTimeout(refuse, WAIT_MS);
    signal.addEventListener("abort", refuse);
    this.#open.set(id, resolve);
    return promise.finally(() => {
      clearTimeout(timer);
      signal.removeEventListener("abort", refuse);
      this.#open.delete(id);
    });
  }

  /** Answers a question; false if it is not open. */
  answer(id: string, allowed: boolean): boolean {
    const resolve = this.#open.get(id);
    resolve?.(allowed);
    this.#open.delete(id);
    return resolve !== undefined;
  }

  /** Refuses all questions, and those that come later. */
  close(): void {
    this.#closed = true;
    for (const resolve of this.#open.values()) resolve(false);
  }
}
