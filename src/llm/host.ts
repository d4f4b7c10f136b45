/**
 * The host of long work, such as a notebook: it shows progress and interrupts. Language models import no host; one installs
 * itself by {@link setHost}.
 *
 * @module
 */

/** Aborts work that runs now. */
export interface Interrupt {
  /** Aborted by the interrupt. */
  readonly signal: AbortSignal;
  /** Notes that work which heeds the signal runs, until the result is disposed. */
  begin(): Disposable;
}

/** An output that changes in place. */
export interface Output {
  /** Shows the forms of something by their MIME types, in place of the earlier forms. */
  show(forms: Readonly<Record<string, unknown>>): void;
}

/** A program that others run in. */
export interface Host {
  /** The next interrupt; undefined if there is none. */
  interrupt(): Interrupt | undefined;
  /** The value of a promise, or the reason of an interrupt if that comes first. The work goes on then. */
  untilInterrupted<T>(promise: Promise<T>): Promise<T>;
  /** Shows bytes done in a progress bar; undefined if there is no place for one. */
  progress(label: string): ((done: number, total: number) => void) | undefined;
  /** A new output; undefined if there is no place for one. */
  output(): Output | undefined;
}

/** A program by itself, as Deno runs it on a terminal. */
const ALONE: Host = {
  interrupt: () => undefined,
  untilInterrupted: (promise) => promise,
  progress: () => undefined,
  output: () => undefined,
};

let current: Host = ALONE;

/** Has a host interrupt and show what takes long from now on. */
export function setHost(host: Host): void {
  current = host;
}

/** The host that was installed last. */
export function host(): Host {
  return current;
}

/** Options with a signal, as functions that take long have. */
interface Abortable {
  readonly signal?: AbortSignal;
}

/** The same options with a signal that an interrupt aborts too. Other values stay, for the callee to refuse. */
function heeding<O extends Abortable>(options: O, stop: AbortSignal): O {
  if (typeof options !== "object" || options === null) return options;
  const { signal } = options;
  if (signal === undefined) return { ...options, signal: stop };
  return signal instanceof AbortSignal ? { ...options, signal: AbortSignal.any([signal, stop]) } : options;
}

/** Does `work`, whose signal an interrupt aborts; then throws its reason, so that the notebook's cell ends. */
export async function interruptible<O extends Abortable, T>(options: O, work: (options: O) => Promise<T>): Promise<T> {
  const interrupt = current.interrupt();
  if (interrupt === undefined) return await work(options);
  using _running = interrupt.begin();
  const result = await work(heeding(options, interrupt.signal));
  interrupt.signal.throwIfAborted();
  return result;
}

/** Yields what `work` yields, whose signal an interrupt aborts; then throws its reason, so that the notebook's cell ends. */
export function interruptibleStream<O extends Abortable, T>(
  options: O,
  work: (options: O) => AsyncGenerator<T, void, void>,
): AsyncGenerator<T, void, void> {
  const interrupt = current.interrupt();
  if (interrupt === undefined) return work(options);
  return (async function* () {
    using _running = interrupt.begin();
    yield* work(heeding(options, interrupt.signal));
    interrupt.signal.throwIfAborted();
  })();
}
