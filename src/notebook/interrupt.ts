/**
 * Work that an interrupt of a notebook's cell ends.
 *
 * @module
 */

import { interrupts } from "../../ffi/notebook.ts";

/** Options with a signal, as functions that take long have. */
interface Abortable {
  readonly signal?: AbortSignal;
}

/** The same options with a signal that an interrupt aborts too. What is no options or no signal stays, for the callee to refuse. */
function heeding<O extends Abortable>(options: O, stop: AbortSignal): O {
  if (typeof options !== "object" || options === null) return options;
  const { signal } = options;
  if (signal === undefined) return { ...options, signal: stop };
  return signal instanceof AbortSignal ? { ...options, signal: AbortSignal.any([signal, stop]) } : options;
}

/** Does `work`, whose signal an interrupt aborts; then throws its reason, so that the cell ends. */
export async function interruptible<O extends Abortable, T>(options: O, work: (options: O) => Promise<T>): Promise<T> {
  const hook = interrupts();
  if (hook === undefined) return await work(options);
  const stop = hook.controller.signal;
  hook.running++;
  try {
    const result = await work(heeding(options, stop));
    stop.throwIfAborted();
    return result;
  } finally {
    hook.running--;
  }
}

/** Yields what `work` yields, whose signal an interrupt aborts; then throws its reason, so that the cell ends. */
export function interruptibleStream<O extends Abortable, T>(
  options: O,
  work: (options: O) => AsyncGenerator<T, void, void>,
): AsyncGenerator<T, void, void> {
  const hook = interrupts();
  if (hook === undefined) return work(options);
  const { signal: stop } = hook.controller;
  return (async function* () {
    hook.running++;
    try {
      yield* work(heeding(options, stop));
      stop.throwIfAborted();
    } finally {
      hook.running--;
    }
  })();
}
