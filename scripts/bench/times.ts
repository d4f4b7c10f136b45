/**
 * The common part of every process of a benchmark. It imports nothing, so that those of peers run in folders of their own.
 *
 * @module
 */

import type { Case } from "./compare.ts";

/** Milliseconds of each case by its name, in as many repeats as it asks for. */
export async function timesOf(
  cases: readonly Case[],
  time: (c: Case) => Promise<number>,
): Promise<Record<string, number[]>> {
  const times: Record<string, number[]> = {};
  for (const c of cases) {
    for (let i = 0; i < c.warmUps; i++) await time(c);
    times[c.name] = [];
    for (let i = 0; i < c.repeats; i++) times[c.name].push(await time(c));
  }
  return times;
}

/** Highest resident bytes of this process so far, as far as the system tells. */
export function peakMemory(): number {
  try {
    return 1024 * Number(/VmHWM:\s*(\d+)/.exec(Deno.readTextFileSync("/proc/self/status"))![1]);
  } catch {
    return Deno.memoryUsage().rss;
  }
}
