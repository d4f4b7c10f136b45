/**
 * Patience with a network: what may pass is tried again, later each time; a server that says when is believed.
 *
 * @module
 */

import { setTimeout } from "node:timers/promises";
import { LlmError } from "../error.ts";

/** How long a network is given. Times in milliseconds. */
export interface RetryPolicy {
  /** Failures in a row that are borne. */
  readonly tries: number;
  /** Time before the second try; it doubles with each one. */
  readonly delay: number;
  /** The longest wait, also if a server asks for more. */
  readonly longest: number;
  /** Time without a byte after which a connection counts as dead. */
  readonly idle: number;
}

/** The default policy. */
export const RETRY_POLICY: RetryPolicy = { tries: 5, delay: 500, longest: 120_000, idle: 30_000 };

/** A failure that may pass. The message is a sentence without its end. */
export class PassingError extends Error {
  /** The class's name. */
  override readonly name = "PassingError";
  /** Milliseconds that the server asks to wait, if it does. */
  readonly after: number | undefined;

  /** Makes an error with a one-line message. */
  constructor(message: string, after?: number) {
    super(message);
    this.after = after;
  }
}

/** Counts failures in a row and waits between them. */
export class Retries {
  readonly #policy: RetryPolicy;
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  /** Starts without any failure; `signal` ends a wait. */
  constructor(policy: RetryPolicy, signal: AbortSignal | undefined) {
    this.#policy = policy;
    this.#signal = signal;
  }

  /** Forgets failures: something came through. */
  reset(): void {
    this.#failures = 0;
  }

  /** Waits before the next try. Throws what cannot pass as it is, and an {@link LlmError} after too many tries. */
  async wait(failure: unknown): Promise<void> {
    this.#signal?.throwIfAborted();
    if (!(failure instanceof PassingError)) throw failure;
    const { tries, delay, longest } = this.#policy;
    const { message, after } = failure;
    this.#failures++;
    if (after !== undefined && after > longest) {
      const seconds = Math.ceil(after / 1000);
      throw new LlmError("hub", `${message}: try again in ${seconds} seconds`);
    }
    if (this.#failures > tries) {
      throw new LlmError("hub", `${message}, ${tries + 1} times: check the network and try again`);
    }
    const wait = after ?? Math.min(longest, delay * 2 ** (this.#failures - 1));
    await setTimeout(wait, undefined, { signal: this.#signal }).catch(() => {});
    this.#signal?.throwIfAborted();
  }
}

/** Milliseconds that a Retry-After header asks for: seconds or a date; undefined if there is none that can be read. */
export function retryAfter(header: string | null, now: number = Date.now()): number | undefined {
  if (header === null) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
