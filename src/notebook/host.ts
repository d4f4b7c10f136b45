/**
 * Progress and interrupts of long work, by the notebook in which the program runs.
 *
 * @module
 */

import { inNotebook, interrupts, untilInterrupted } from "../../ffi/notebook.ts";
import { CellDisplay } from "./display.ts";
import { cellProgress } from "./progress.ts";

/** An interrupt of the running cell; see the launcher of the notebook's kernel, src/cli/kernel/launch.ts. */
interface CellInterrupt {
  readonly signal: AbortSignal;
  begin(): Disposable;
}

function interrupt(): CellInterrupt | undefined {
  const hook = interrupts();
  if (hook === undefined) return undefined;
  const { signal } = hook.controller;
  const begin = (): Disposable => {
    hook.running++;
    return { [Symbol.dispose]: () => void hook.running-- };
  };
  return { signal, begin };
}

/** The notebook, as far as there is one: elsewhere it interrupts and shows nothing. */
export const NOTEBOOK = {
  interrupt,
  untilInterrupted,
  progress: cellProgress,
  output: (): CellDisplay | undefined => inNotebook() ? new CellDisplay() : undefined,
} as const;
