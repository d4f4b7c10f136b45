/**
 * Estimates the time of a product by the cost of its kernel.
 *
 * @module
 */

import type { Cost } from "./tuning.ts";

/**
 * Waves of workgroups on a device that runs `residentWorkgroups` on each of its compute units at once. Of the last wave a unit may have
 * fewer, which are done sooner: a part of a wave.
 */
export function countWaves(residentWorkgroups: number, computeUnits: number, workgroups: number): number {
  const waves = Math.floor(workgroups / (computeUnits * residentWorkgroups));
  const rest = Math.ceil(workgroups / computeUnits) - waves * residentWorkgroups;
  return waves + (rest > 0 ? (rest + 1) / (residentWorkgroups + 1) : 0);
}

/** Microseconds of so many tiles whose depth of `steps` times 64 numbers `splits` workgroups share, without those of a dispatch. */
export function estimateUs(cost: Cost, computeUnits: number, tiles: number, steps: number, splits: number): number {
  const { residentWorkgroups, usPerKStep, usFixed } = cost;
  return countWaves(residentWorkgroups, computeUnits, tiles * splits) * (steps / splits * usPerKStep + usFixed);
}
