/**
 * Waiting that an AbortSignal ends at once, whatever the device is still busy with.
 *
 * @module
 */

import { optionError } from "./error.ts";

/** Throws an {@link LlmError} unless something is an AbortSignal, or nothing. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw optionError("signal", signal, "the signal of an AbortController");
}

/**
 * Yields what `values` yields. Throws the signal's reason as soon as it is aborted, but only before the first value: later ones
 * come soon enough. `values` is left as it is then, to be closed by its owner.
 */
export async function* untilAborted<T>(
  values: AsyncGenerator<T, void, void>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, void> {
  let next = await orAborted(values.next(), signal);
  while (!next.done) {
    yield next.value;
    next = await values.next();
  }
}

/** The promise's result, or the signal's reason when that comes first. */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
