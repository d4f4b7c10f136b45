/**
 * Where output goes: to a cell of a notebook through Deno's Jupyter kernel, or to the terminal.
 *
 * @module
 */

import { restIfDue } from "./turn.ts";

/** The part of `Deno.jupyter` that is used. */
interface Jupyter {
  broadcast(type: string, content: object): Promise<void>;
}

/** The state of interrupts that the launcher of the notebook's kernel (src/cli/kernel/launch.ts) keeps. */
export interface Interrupts {
  /** Aborted by the next interrupt, which puts another one in its place. */
  readonly controller: AbortController;
  /** How many generations, loads and the like listen. */
  running: number;
}

let jupyter: Jupyter | null | undefined;

function kernel(): Jupyter | null {
  if (jupyter !== undefined) return jupyter;
  try {
    jupyter = (Deno as unknown as { readonly jupyter?: Jupyter }).jupyter ?? null;
  } catch {
    jupyter = null; // reading it throws outside of notebooks
  }
  return jupyter;
}

/** Whether the program is the cells of a notebook. */
export function inNotebook(): boolean {
  return kernel() !== null;
}

/** Sends a message about the running cell to the notebook, such as "stream" or "display_data". */
export async function broadcast(type: string, content: object): Promise<void> {
  await kernel()?.broadcast(type, content);
}

/** The interrupts of the notebook; undefined elsewhere and in a kernel that has none. */
export function interrupts(): Interrupts | undefined {
  return (globalThis as Record<symbol, unknown>)[Symbol.for("vkmx.interrupts")] as Interrupts | undefined;
}

/**
 * The result of a promise, or the reason of an interrupt of the notebook's cell if that comes first: for work that takes no signal. The
 * work then goes on without a waiting caller. A reason that no caller waits for is no error.
 */
export function untilInterrupted<T>(promise: Promise<T>): Promise<T> {
  const hook = interrupts();
  if (hook === undefined) return promise;
  const { signal } = hook.controller;
  const { promise: result, resolve, reject } = Promise.withResolvers<T>();
  let waiting = true;
  const end = (): void => {
    if (waiting) hook.running--;
    waiting = false;
    signal.removeEventListener("abort", abort);
  };
  const abort = (): void => {
    end();
    result.catch(() => {});
    reject(signal.reason);
  };
  hook.running++;
  signal.addEventListener("abort", abort);
  promise.then(async (value) => {
    await restIfDue(); // a loop of such promises hears of no interrupt without
    return value;
  }).finally(end).then(resolve, reject);
  return result;
}

/** The streams of a program. */
export type StreamName = "stdout" | "stderr";

/** Whether a stream is a terminal. */
export function isTerminal(name: StreamName): boolean {
  return Deno[name].isTerminal();
}

/** Columns of the terminal; 80 if it does not say. */
export function terminalColumns(): number {
  try {
    return Deno.consoleSize().columns || 80;
  } catch {
    return 80;
  }
}

const UTF8 = new TextEncoder();

/** Writes all of a text to a stream. */
export function writeText(name: StreamName, text: string): void {
  for (let bytes = UTF8.encode(text); bytes.length > 0;) bytes = bytes.subarray(Deno[name].writeSync(bytes));
}
