/**
 * Progress bars that change in place: in a cell of a notebook, or at the bottom of a terminal.
 *
 * @module
 */

import { inNotebook, isTerminal, terminalColumns, writeText } from "../../ffi/notebook.ts";
import { quoted, ValueError } from "../graph/error.ts";
import { CellDisplay } from "./display.ts";
import { BYTES, describeProgress, progressLine, STEPS, type Unit } from "./figures.ts";
import { escapeMarkup } from "../display/html.ts";

/** Milliseconds between two changes. */
const REDRAW_MS = 100;

/** Columns of a bar in a cell, if it is text. */
const CELL_COLUMNS = 100;

/** The unit of the count: steps without a unit, bytes in megabytes. */
export type ProgressUnit = "steps" | "bytes";

const UNITS: Readonly<Record<ProgressUnit, Unit>> = { steps: STEPS, bytes: BYTES };

/** A progress bar; see {@link progress}. */
export interface ProgressBar extends Disposable {
  /** Shows how much is done; ten times a second at most, and where all is done. */
  update(done: number, total?: number): void;
  /** Ends the bar: it stays in a cell and goes from a terminal. A second call does nothing. */
  finish(): void;
}

/** How a bar looks at one moment. */
interface Look {
  readonly label: string;
  readonly done: number;
  readonly total: number;
  readonly figures: string;
}

/** Where a bar is drawn. */
interface Surface {
  show(look: Look): void;
  finish(look: Look): void;
}

/** A bar in the output of the running cell. */
class CellSurface implements Surface {
  readonly #display = new CellDisplay();

  show({ label, done, total, figures }: Look): void {
    const name = escapeMarkup(label);
    const max = total > 0 ? total : 1;
    const value = total > 0 ? Math.min(done, total) : 1;
    this.#display.show({
      "text/plain": progressLine(label, done, total, figures, CELL_COLUMNS),
      "text/html": `<label>${name} <progress max="${max}" value="${value}" aria-label="${name}"></progress></label> ${
        escapeMarkup(figures)
      }`,
    });
  }

  finish(look: Look): void {
    this.show(look);
  }
}

/** A line of a terminal. */
const TERMINAL: Surface = {
  show: ({ label, done, total, figures }) =>
    writeText("stderr", `\r${progressLine(label, done, total, figures, terminalColumns())}\x1b[K`),
  finish: () => writeText("stderr", "\r\x1b[K"),
};

const NOWHERE: Surface = { show: () => {}, finish: () => {} };

class Bar implements ProgressBar {
  readonly #label: string;
  readonly #unit: Unit;
  readonly #surface: Surface;
  readonly #start = performance.now();
  #total: number;
  #done = 0;
  #drawn = -Infinity;
  #finished = false;

  constructor(label: string, total: number, unit: Unit, surface: Surface) {
    this.#label = label;
    this.#total = total;
    this.#unit = unit;
    this.#surface = surface;
  }

  update(done: number, total: number = this.#total): void {
    if (this.#finished) return;
    this.#done = done;
    this.#total = total;
    const now = performance.now();
    if (now - this.#drawn < REDRAW_MS && done < total) return;
    this.#drawn = now;
    this.#surface.show(this.#look());
  }

  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    if (this.#drawn > -Infinity) this.#surface.finish(this.#look());
  }

  [Symbol.dispose](): void {
    this.finish();
  }

  #look(): Look {
    const [done, total] = [this.#done, this.#total];
    const elapsed = (performance.now() - this.#start) / 1000;
    const rate = elapsed > 0 ? done / elapsed : 0;
    const left = rate > 0 && done < total ? (total - done) / rate : 0;
    return { label: this.#label, done, total, figures: describeProgress(this.#unit, done, total, rate, left) };
  }
}

/**
 * A progress bar for `total` steps or bytes, which changes in place in a notebook's cell or on a terminal; elsewhere nothing is written.
 * It goes to stderr. Available as `mx.progress`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * using bar = mx.progress("Adding", 100);
 * for (let i = 1; i <= 100; i++) bar.update(i);
 * ```
 */
export function progress(label: string, total: number, unit: ProgressUnit = "steps"): ProgressBar {
  if (typeof label !== "string") throw new ValueError(`progress() expected a label: found ${quoted(label)}`);
  if (!(total >= 0)) throw new ValueError(`progress() expected a total of at least 0: found ${quoted(total)}`);
  if (!Object.hasOwn(UNITS, unit)) {
    throw new ValueError(`progress() expected the unit "steps" or "bytes": found ${quoted(unit)}`);
  }
  const surface = inNotebook() ? new CellSurface() : isTerminal("stderr") ? TERMINAL : NOWHERE;
  return new Bar(label, total, UNITS[unit], surface);
}

/** A function that shows bytes done in a bar of the running cell; undefined outside of notebooks. */
export function cellProgress(label: string): ((done: number, total: number) => void) | undefined {
  if (!inNotebook()) return undefined;
  let bar: ProgressBar | undefined;
  return (done, total) => {
    bar ??= progress(label, total, "bytes");
    bar.update(done, total);
    if (done >= total) bar.finish();
  };
}
