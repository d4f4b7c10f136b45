/**
 * How far something is, in place at the bottom of a terminal: a bar, the amounts, the rate and the time left. Where stderr is no terminal,
 * work that takes long tells so in plain lines, a few seconds apart.
 *
 * @module
 */

import { terminalColumns } from "../../ffi/notebook.ts";
import { describeProgress, progressLine, type Unit } from "../notebook/figures.ts";
import { canRedraw, note, status } from "./output.ts";

export { BYTES, describeSeconds, TOKENS, type Unit } from "../notebook/figures.ts";

/** How a {@link Progress} is shown. */
export interface ProgressOptions {
  readonly unit: Unit;
  /** Milliseconds before it shows; default 0 on a terminal and {@link LINE_MS} elsewhere. */
  readonly delay?: number;
  /** Whether it shows and counts down between two calls too: then {@link Progress.clear} must end it, also after an error. */
  readonly live?: boolean;
  /** A clock in milliseconds. */
  readonly now?: () => number;
}

/** Milliseconds between two changes on a terminal, and between two lines elsewhere. */
const REDRAW_MS = 100;
const LINE_MS = 5000;

/** The measured speed. */
interface Speed {
  readonly rate: number;
  readonly secondsLeft: number | undefined;
}

/** Progress of one piece of work on stderr. The next text that is written takes it off a terminal. */
export class Progress {
  readonly #label: string;
  readonly #options: Required<ProgressOptions>;
  readonly #terminal = canRedraw();
  #start: { readonly at: number; readonly done: number } | undefined;
  #last: { readonly done: number; readonly total: number; readonly at: number; readonly speed?: Speed } | undefined;
  #drawn = -Infinity;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** `label` stands before the figures. */
  constructor(label: string, { unit, delay = 0, live = false, now = () => performance.now() }: ProgressOptions) {
    this.#label = label;
    this.#options = { unit, delay, live, now };
  }

  /** Notes how much is done; all of it ends the line. The rate is that since the first call, unless the caller knows a better one. */
  update(done: number, total: number, speed?: Speed): void {
    const at = this.#options.now();
    this.#start ??= { at, done };
    this.#last = { done, total, at, ...(speed && { speed }) };
    if (done >= total) return this.clear();
    if (this.#options.live && this.#timer === undefined) {
      this.#timer = setInterval(() => this.#show(), this.#terminal ? REDRAW_MS : LINE_MS);
      Deno.unrefTimer(this.#timer);
    }
    this.#show();
  }

  /** Ends it and takes the line off a terminal. */
  clear(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    status("");
  }

  #show(): void {
    const { unit, delay, now } = this.#options;
    const at = now();
    const { done, total, at: noted, speed } = this.#last!;
    const wait = this.#terminal ? REDRAW_MS : LINE_MS;
    if (at - this.#start!.at < Math.max(delay, this.#terminal ? 0 : LINE_MS) || at - this.#drawn < wait) return;
    this.#drawn = at;
    const elapsed = (noted - this.#start!.at) / 1000;
    const rate = speed?.rate ?? (elapsed > 0 ? (done - this.#start!.done) / elapsed : 0);
    const atRate = rate > 0 ? (total - done) / rate - (at - noted) / 1000 : 0;
    const left = speed === undefined ? atRate : speed.secondsLeft ?? 0;
    const figures = describeProgress(unit, done, total, rate, left);
    if (this.#terminal) status(progressLine(this.#label, done, total, figures, terminalColumns()));
    else note(`${this.#label}: ${figures}\n`);
  }
}
