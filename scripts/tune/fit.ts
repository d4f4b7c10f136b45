/**
 * From measurements to the numbers of a record. Nothing here measures.
 *
 * @module
 */

import { countWaves, estimateUs } from "../../src/schedule/tuning/cost.ts";
import type { Cost, PerLaunchMode } from "../../src/schedule/tuning/tuning.ts";

/** One measured product: its tiles, steps of 64 numbers of the depth, workgroups that share it, and microseconds. */
export interface ProductSample {
  readonly tiles: number;
  readonly steps: number;
  readonly splits: number;
  readonly us: number;
}

/** Most workgroups that a compute unit is taken to run at once. */
const MAX_RESIDENT = 8;

/** Two numbers that solve a 2 x 2 system; undefined if it has no single solution. */
function solve([a, b, c]: readonly number[], [x, y]: readonly number[]): readonly [number, number] | undefined {
  const determinant = a * c - b * b;
  return Math.abs(determinant) <= 1e-9 * a * c
    ? undefined
    : [(c * x - b * y) / determinant, (a * y - b * x) / determinant];
}

/** The best cost for a number of resident workgroups: least squares of relative errors, neither time below zero. */
function fitTimes(
  samples: readonly ProductSample[],
  computeUnits: number,
  residentWorkgroups: number,
): Cost | undefined {
  const rows = samples.map(({ tiles, steps, splits, us }) => {
    const waves = countWaves(residentWorkgroups, computeUnits, tiles * splits);
    return [waves * steps / splits / us, waves / us];
  });
  const sum = (of: (row: readonly number[]) => number): number => rows.reduce((total, row) => total + of(row), 0);
  const squares = [sum(([s]) => s * s), sum(([s, f]) => s * f), sum(([, f]) => f * f)];
  const targets = [sum(([s]) => s), sum(([, f]) => f)];
  const found = solve(squares, targets);
  if (found && found[0] > 0 && found[1] >= 0) return { residentWorkgroups, usPerKStep: found[0], usFixed: found[1] };
  return squares[0] > 0 ? { residentWorkgroups, usPerKStep: targets[0] / squares[0], usFixed: 0 } : undefined;
}

/** Mean of the squares of relative errors. */
function errorOf(cost: Cost, computeUnits: number, samples: readonly ProductSample[]): number {
  const errors = samples.map(({ tiles, steps, splits, us }) =>
    estimateUs(cost, computeUnits, tiles, steps, splits) / us - 1
  );
  return errors.reduce((total, error) => total + error ** 2, 0) / errors.length;
}

/** The cost that explains measurements of a kernel best, and its relative error (RMS); undefined with fewer than three. */
export function fitCost(
  samples: readonly ProductSample[],
  computeUnits: number,
): { readonly cost: Cost; readonly error: number } | undefined {
  if (samples.length < 3) return undefined;
  let best: { readonly cost: Cost; readonly error: number } | undefined;
  for (let resident = 1; resident <= MAX_RESIDENT; resident++) {
    const cost = fitTimes(samples, computeUnits, resident);
    const error = cost ? Math.sqrt(errorOf(cost, computeUnits, samples)) : Infinity;
    if (cost && error < (best?.error ?? Infinity)) best = { cost, error };
  }
  return best;
}

/** Times of two ways of the same work at a size; undefined if a way was not measured. */
export interface Race {
  readonly size: number;
  readonly challenger: number | undefined;
  readonly champion: number | undefined;
}

/**
 * The smallest measured size from which on the challenger is faster at every size; Infinity if it is not at the largest one.
 * Undefined if no size has both times.
 */
export function crossoverOf(races: readonly Race[]): number | undefined {
  const both = races.filter(({ challenger, champion }) => challenger !== undefined && champion !== undefined)
    .toSorted((a, b) => b.size - a.size);
  if (both.length === 0) return undefined;
  let from = Infinity;
  for (const { size, challenger, champion } of both) {
    if (challenger! >= champion!) break;
    from = size;
  }
  return from;
}

/** Fewest sequences for batches by hidden features, the largest first; sizes that ask for the same are one entry. */
export function batchEntries(
  found: readonly ({ readonly hidden: number } & PerLaunchMode)[],
): readonly ({ readonly minHidden: number } & PerLaunchMode)[] {
  const ascending = found.toSorted((a, b) => a.hidden - b.hidden);
  const entries: ({ readonly minHidden: number } & PerLaunchMode)[] = [];
  for (const [i, { hidden, persistent, barriers }] of ascending.entries()) {
    const last = entries.at(-1);
    if (last?.persistent === persistent && last.barriers === barriers) continue;
    entries.push({ minHidden: i === 0 ? 0 : hidden, persistent, barriers });
  }
  return entries.toReversed();
}
