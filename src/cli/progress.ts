/**
 * How far something is, in place at the bottom of a terminal: a bar, the amounts, the rate and the time left. Where stderr is no terminal,
 * work that takes long tells so in plain lines, a few seconds apart.
 *
 * @module
 */

import { note, status } from "./output.ts";

/** What is counted. */
export interface Unit {
  /** An amount of a total as people read it. */
  readonly amounts: (done: number, total: number) => string;
  /** An amount per second as people read it. */
  readonly rate: (perSecond: number) => string;
}

/** Bytes, in megabytes. */
export const BYTES: Unit = {
  amounts: (done, total) => `${(done / 1e6).toFixed(0)}/${(total / 1e6).toFixed(0)} MB`,
  rate: (perSecond) => `${(perSecond / 1e6).toFixed(1)} MB/s`,
};

/** Tokens. */
export const TOKENS: Unit = {
  amounts: (done, total) => `${done}/${total} tokens`,
  rate: (perSecond) => `${perSecond.toFixed(0)} tokens/s`,
};

/** How a {@link Progress} is shown. */
export interface ProgressOptions {
  readonly unit: Unit;
  /** Milliseconds before the first sign on a terminal; 0 unless given. */
  readonly delay?: number;
  /** A clock in milliseconds. */
  readonly now?: () => number;
}

const CELLS = 30;
/** Milliseconds between two changes on a terminal, and between two lines elsewhere. */
const REDRAW_MS = 100;
const LINE_MS = 5000;

/** Seconds as "12 s", "3 min 20 s" or "1 h 5 min". */
export function describeSeconds(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Progress of one piece of work on stderr. The next line that is written takes it off a terminal. */
export class Progress {
  readonly #label: string;
  readonly #options: Required<ProgressOptions>;
  #start: { readonly at: number; readonly done: number } | undefined;
  #drawn = -Infinity;

  /** `label` stands before the figures. */
  constructor(label: string, { unit, delay = 0, now = () => performance.now() }: ProgressOptions) {
    this.#label = label;
    this.#options = { unit, delay, now };
  }

  /** Shows how much is done. The rate is that since the first call, unless the caller knows a better one. */
  update(
    done: number,
    total: number,
    known?: { readonly rate: number; readonly secondsLeft: number | undefined },
  ): void {
    const { unit, delay, now } = this.#options;
    const at = now();
    this.#start ??= { at, done };
    const elapsed = at - this.#start.at;
    const terminal = Deno.stderr.isTerminal();
    if (done >= total) return status("");
    const wait = terminal ? REDRAW_MS : LINE_MS;
    if (elapsed < (terminal ? delay : LINE_MS) || at - this.#drawn < wait) return;
    this.#drawn = at;
    const rate = known?.rate ?? (elapsed > 0 ? (done - this.#start.done) * 1000 / elapsed : 0);
    const left = known === undefined ? (rate > 0 ? (total - done) / rate : undefined) : known.secondsLeft;
    const figures = [
      unit.amounts(done, total),
      ...(rate > 0 ? [unit.rate(rate)] : []),
      ...(left === undefined ? [] : [`${describeSeconds(left)} left`]),
    ].join(", ");
    if (!terminal) return note(`${this.#label}: ${figures}\n`);
    const filled = Math.floor(done / total * CELLS);
    status(`${this.#label} [${"#".repeat(filled)}${" ".repeat(CELLS - filled)}] ${figures}`);
  }

  /** Takes the line off a terminal. */
  clear(): void {
    status("");
  }
}
