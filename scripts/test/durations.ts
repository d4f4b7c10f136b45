/**
 * How long each test file took, for the order of the next run. Longest files run first, so that none of them runs on
 * alone at the end.
 *
 * @module
 */

import { exists, TOOLS } from "../tools.ts";

/** Seconds by pass and file: "vulkan tests/ops/ops_test.ts". */
export type Durations = Readonly<Record<string, number>>;

/** Those of this machine. Until it has some, those that are committed serve. */
const OWN = `${TOOLS}/durations.json`;
const COMMITTED = new URL("durations.json", import.meta.url);

/** Durations of earlier runs; files that are not in it are new. */
export async function readDurations(): Promise<Durations> {
  return JSON.parse(await Deno.readTextFile(await exists(OWN) ? OWN : COMMITTED));
}

/** Keeps durations beside those of files that did not run this time. `path` is another one in tests only. */
export async function writeDurations(found: Durations, before: Durations, path: string = OWN): Promise<void> {
  const all = Object.entries({ ...before, ...found }).sort(([a], [b]) => a < b ? -1 : 1);
  await Deno.writeTextFile(path, `${JSON.stringify(Object.fromEntries(all), null, 2)}\n`);
}

/** Items with the longest first, new ones before all others. */
export function longestFirst<T>(items: readonly T[], keyOf: (item: T) => string, durations: Durations): T[] {
  const secondsOf = (item: T): number => durations[keyOf(item)] ?? Infinity;
  return items.toSorted((a, b) => {
    const [x, y] = [secondsOf(a), secondsOf(b)];
    return x === y ? 0 : y - x;
  });
}
