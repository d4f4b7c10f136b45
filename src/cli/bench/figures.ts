/**
 * Numbers of benchmarks: the values of flags, and the summary of several runs.
 *
 * @module
 */

import { UsageError } from "../flags.ts";

/** The whole numbers of a flag, separated by commas. */
export function readCounts(flag: string, text: string, least: number): readonly number[] {
  const counts = text.split(",").map(Number);
  if (counts.every((count) => Number.isInteger(count) && count >= least)) return counts;
  throw new UsageError(`--${flag} is "${text}", expected whole numbers of at least ${least} with commas between them`);
}

/** The middle of several values; null of none. */
export function median(values: readonly number[] | undefined): number | null {
  return values?.length ? values.toSorted((a, b) => a - b)[values.length >> 1] : null;
}

/** The standard deviation of a sample; null of fewer than two values. */
export function deviation(values: readonly number[]): number | null {
  if (values.length < 2) return null;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
}
