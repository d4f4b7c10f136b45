/**
 * `deno task mutants`: plants mistakes, one at a time, and sees whether the tests of every change catch what a full run catches.
 *
 *     deno task mutants                             all of them: takes hours
 *     deno task mutants --area arrays,wasm --jobs 2
 *     deno task mutants --name "one stride"
 *     deno task mutants --resume                    goes on with a run that was interrupted
 *
 * Each is planted in a copy of the project, which is built. Then the test files that its row names run with `--tier
 * gate` until one fails. A mistake that passes these runs is tried with `--tier full`. A file that fails where no mistake is planted
 * catches nothing, and fails the run. Outcomes are kept in .tools/mutants.jsonl as they come.
 *
 * @module
 */

import { checkOneOf, type Flags, UsageError } from "../src/cli/flags.ts";
import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { MUTANTS, type PlacedMutant } from "./mutants/all.ts";
import { Copy, stopTests, type Tier, TIERS } from "./mutants/copy.ts";
import { AREAS } from "./mutants/mutant.ts";
import { describe, type Line, LOG, type Outcome, readLines, summarize } from "./mutants/outcomes.ts";
import { CHECKS } from "./reliability/checks.ts";
import { writeResult } from "./reliability/results.ts";
import { exists, TOOLS } from "./tools.ts";

const FLAGS = {
  "area": { value: "NAMES", help: `areas, separated by commas: ${AREAS.join(", ")} (all)` },
  "name": { value: "TEXT", help: "those whose names have this text in them" },
  "jobs": { value: "N", help: "copies of the project that work at once (1)", range: [1, 64], whole: true },
  "tier": { value: "NAME", help: `only this tier: ${TIERS.join(" or ")} (both)` },
  "seed": { value: "N", help: "draws the cases of tests that rotate (1)", range: [0, 2 ** 31], whole: true },
  "resume": { help: "leave out what an interrupted run did" },
  "list": { help: "print the names and end" },
} as const satisfies Flags;

const PROGRAM = { name: "mutants", about: "Plants mistakes and sees which tests catch them.", flags: FLAGS };

/** Runs mistakes with some tiers and keeps what became of them. */
class MutantRun {
  readonly #tiers: readonly Tier[];
  readonly #seed: number;
  /** Outcomes so far, by name. */
  readonly outcomes = new Map<string, Outcome>();
  /** Tiers and test files that fail where no mistake is planted. */
  readonly broken = new Set<string>();
  /** Whether test files pass where no mistake is planted, by tier and file. */
  readonly #passes = new Map<string, Promise<boolean>>();

  constructor(tiers: readonly Tier[], seed: number, before: readonly Line[]) {
    this.#tiers = tiers;
    this.#seed = seed;
    for (const line of before) {
      if ("passes" in line) this.#passes.set(`${line.tier} ${line.passes}`, Promise.resolve(true));
      else if (line.tiers.join() === tiers.join()) this.outcomes.set(line.name, line);
    }
  }

  /** Takes mistakes from the list, in copy `number`, until none is left. */
  async work(number: number, left: PlacedMutant[]): Promise<void> {
    const copy = await Copy.make(number);
    for (let mutant = left.shift(); mutant; mutant = left.shift()) {
      const start = performance.now();
      const { name, area, file } = mutant;
      const built = await copy.plant(mutant);
      const found = built ? await this.#catcher(copy, mutant) : { caught: "build" as const };
      await copy.restore();
      const seconds = (performance.now() - start) / 1000;
      const outcome: Outcome = { name, area, file, tiers: this.#tiers, ...found, seconds: Math.round(seconds) };
      this.outcomes.set(name, outcome);
      await keep(outcome);
      print(`${describe(outcome)}\n`);
    }
  }

  /** The first test file that fails, of the first tier in which one does, among those that pass where no mistake is planted. */
  async #catcher(
    copy: Copy,
    mutant: PlacedMutant,
  ): Promise<{ readonly caught: Tier; readonly test: string } | { readonly caught: null }> {
    for (const tier of this.#tiers) {
      for (const test of mutant.tests) {
        if (this.broken.has(`${tier} ${test}`) || (await copy.test(test, tier, this.#seed)).ok) continue;
        await copy.restore();
        if (await this.#passesUnchanged(copy, test, tier)) return { caught: tier, test };
        await copy.plant(mutant);
      }
    }
    return { caught: null };
  }

  /** Whether a test file passes where no mistake is planted. */
  #passesUnchanged(copy: Copy, test: string, tier: Tier): Promise<boolean> {
    const key = `${tier} ${test}`;
    const known = this.#passes.get(key) ?? this.#passesIn(copy, test, tier);
    this.#passes.set(key, known);
    return known;
  }

  async #passesIn(copy: Copy, test: string, tier: Tier): Promise<boolean> {
    const { ok, output } = await copy.test(test, tier, this.#seed);
    if (ok) await keep({ passes: test, tier });
    else {
      this.broken.add(`${tier} ${test}`);
      print(`${output}\n${test} fails where no mistake is planted (--tier ${tier})\n`);
    }
    return ok;
  }
}

/** Adds a line to the log. */
async function keep(line: Line): Promise<void> {
  await Deno.writeTextFile(LOG, `${JSON.stringify(line)}\n`, { append: true });
}

/** The mistakes that the flags choose. */
function chosen(areas: string | undefined, name: string): readonly PlacedMutant[] {
  const wanted = areas?.split(",").map((area) => checkOneOf("--area", area, AREAS)) ?? AREAS;
  const found = MUTANTS.filter((mutant) => wanted.includes(mutant.area) && mutant.name.includes(name));
  if (found.length === 0) throw new UsageError("No mistake has such an area and name (--list shows all)");
  return found;
}

if (import.meta.main) {
  await runMain(PROGRAM, async ({ area, name, jobs = 1, tier, seed = 1, resume = false, list = false }) => {
    const mutants = chosen(area, name ?? "");
    if (list) {
      for (const mutant of mutants) print(`${mutant.area}: ${mutant.name} (${mutant.file})\n`);
      return 0;
    }
    if (Deno.build.os === "windows") throw new Error("Mistakes are planted on Linux and macOS only");
    const tiers = tier === undefined ? TIERS : [checkOneOf("--tier", tier, TIERS)];
    await Deno.mkdir(TOOLS, { recursive: true });
    // A run of all begins another log, and the one before stays beside it; a run of some adds to it.
    const whole = mutants.length === MUTANTS.length;
    if (whole && !resume && await exists(LOG)) await Deno.rename(LOG, `${LOG}.before`);
    const before = resume && await exists(LOG) ? readLines(await Deno.readTextFile(LOG)) : [];
    const work = new MutantRun(tiers, seed, before);
    const left = mutants.filter((mutant) => !work.outcomes.has(mutant.name));
    const stop = (): void => {
      stopTests();
      Deno.exit(130);
    };
    for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, stop);
    try {
      const copies = Math.min(jobs, left.length);
      await Promise.all(Array.from({ length: copies }, (_, number) => work.work(number, left)));
    } finally {
      stopTests();
      for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.removeSignalListener(signal, stop);
    }
    const { text, ok } = summarize(mutants.map((mutant) => work.outcomes.get(mutant.name)!), tiers);
    print(`${text}\n`);
    if (whole && tiers === TIERS) {
      const check = 1 + CHECKS.findIndex(({ task }) => task?.results === "mutants");
      await writeResult("mutants", "deno task mutants", [{ check, measured: text, ok }]);
    }
    return ok && work.broken.size === 0 ? 0 : 1;
  });
}
