/**
 * Outcomes of planted mistakes: kept line by line while they run, and summed up at the end.
 *
 * @module
 */

import { TOOLS } from "../tools.ts";
import type { Tier } from "./copy.ts";
import type { Area } from "./mutant.ts";

/** The outcome of one mistake. */
export interface Outcome {
  readonly name: string;
  readonly area: Area;
  readonly file: string;
  /** The tiers that it was run with, in their order. */
  readonly tiers: readonly Tier[];
  /** The test that caught it; null if none did. */
  readonly caught: "build" | Tier | null;
  /** The test file that failed. */
  readonly test?: string;
  /** How long it took, builds included. */
  readonly seconds: number;
}

/** A test file that passes where no mistake is planted. */
export interface Passed {
  readonly passes: string;
  readonly tier: Tier;
}

/** A line of the log. */
export type Line = Outcome | Passed;

/** Where lines are kept; git ignores it. */
export const LOG: string = `${TOOLS}/mutants.jsonl`;

/** Share of what a full run catches that the gate has to catch. */
const MIN_SHARE = 0.95;

/** The lines of a log; one that was cut off is left out. */
export function readLines(text: string): Line[] {
  return text.split("\n").flatMap((line) => {
    try {
      return [JSON.parse(line) as Line];
    } catch {
      return [];
    }
  });
}

/** One line for people. */
export function describe({ name, area, file, caught, test, seconds }: Outcome): string {
  const how = caught === null ? "survived" : caught === "build" ? "caught by the build" : `caught by ${caught}`;
  return `${how.padEnd(19)} ${seconds.toFixed(0).padStart(5)} s  ${area}: ${name} (${file}${test ? `; ${test}` : ""})`;
}

/** The summary of a run. */
export interface Summary {
  /** One line. */
  readonly text: string;
  /** Whether the gate catches its share; true if only one tier was run. */
  readonly ok: boolean;
}

/** Sums up outcomes of runs with the same tiers. A full run catches whatever the gate does: it has all tests of it. */
export function summarize(outcomes: readonly Outcome[], tiers: readonly Tier[]): Summary {
  const names = (of: (outcome: Outcome) => boolean): string[] => outcomes.filter(of).map(({ name }) => name);
  const all = outcomes.length - names(({ caught }) => caught === null).length;
  const survivors = listed("survivors", names(({ caught }) => caught === null));
  if (tiers.length === 1) {
    const who = tiers[0] === "gate" ? "the gate" : "full";
    return { text: `${outcomes.length} mutants; ${who} catches ${all}; ${survivors}`, ok: true };
  }
  const missed = names(({ caught }) => caught === "full");
  const gate = all - missed.length;
  const percent = all === 0 ? 100 : 100 * gate / all;
  const figures = `full catches ${all}; the gate catches ${gate}, ${percent.toFixed(1)} % of ${all}`;
  return {
    text: `${outcomes.length} mutants; ${figures}; ${listed("by full only", missed)}; ${survivors}`,
    ok: gate >= MIN_SHARE * all,
  };
}

function listed(what: string, names: readonly string[]): string {
  return `${what}: ${names.length === 0 ? "none" : names.join(", ")}`;
}
