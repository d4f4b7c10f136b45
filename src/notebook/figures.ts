/**
 * How far something is, in words: amounts, the rate and the time left.
 *
 * @module
 */

/** The unit of the count. */
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

/** Steps of a loop. */
export const STEPS: Unit = {
  amounts: (done, total) => `${done}/${total}`,
  rate: (perSecond) => `${perSecond.toFixed(perSecond < 10 ? 1 : 0)}/s`,
};

/** Seconds as "12 s", "3 min 20 s" or "1 h 5 min". */
export function describeSeconds(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** The text after a bar; a rate of 0 and no time left are left out. */
export function describeProgress(unit: Unit, done: number, total: number, rate: number, secondsLeft: number): string {
  return [
    unit.amounts(done, total),
    ...(rate > 0 ? [unit.rate(rate)] : []),
    ...(secondsLeft > 0 ? [`${describeSeconds(secondsLeft)} left`] : []),
  ].join(", ");
}

const MAX_CELLS = 30;

/** A bar with what stands around it, in fewer than so many columns: a line that wraps would stay on a terminal. */
export function progressLine(label: string, done: number, total: number, figures: string, columns: number): string {
  const cells = Math.max(0, Math.min(MAX_CELLS, columns - label.length - figures.length - 5));
  const filled = total > 0 ? Math.floor(Math.min(1, done / total) * cells) : cells;
  const bar = cells > 0 ? ` [${"#".repeat(filled)}${" ".repeat(cells - filled)}]` : "";
  return `${label}${bar} ${figures}`.slice(0, Math.max(1, columns - 1));
}
