/**
 * Requests of a load that repeat themselves with their seed: how long they are and when they arrive.
 *
 * @module
 */

/** Numbers from 0 to below 1 that follow from a seed: a multiplicative congruential generator (Park and Miller, 1988). */
export function draws(seed: number): () => number {
  let state = 1 + seed % 2147483646;
  for (let i = 0; i < 4; i++) state = (state * 48271) % 2147483647; // small seeds begin alike
  return () => {
    state = (state * 48271) % 2147483647;
    return (state - 1) / 2147483646;
  };
}

/** Milliseconds at which so many requests arrive: a Poisson process of `rate` requests a second, which begins with the first one. */
export function poissonArrivals(count: number, rate: number, draw: () => number): readonly number[] {
  const times: number[] = [];
  for (let at = 0; times.length < count; at += -Math.log(1 - draw()) * 1000 / rate) times.push(at);
  return times;
}

/** The least of some values that is no less than `percent` in a hundred of them; NaN of none. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * percent / 100) - 1)] ?? NaN;
}
