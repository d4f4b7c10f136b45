/**
 * `deno task prose [PATHS]`: prints the sentences of documents, comments and messages that CONTRIBUTING.md's rules forbid, and how long
 * sentences are by area.
 *
 * @module
 */

import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import type { Flags } from "../src/cli/flags.ts";
import { PLACES, proseFiles, sentencesIn } from "./prose/files.ts";
import { type Check, rulesOf } from "./prose/rules.ts";
import { ROOT } from "./tools.ts";

const FLAGS = { "counts": { help: "print only the table of areas" } } as const satisfies Flags;
const PROGRAM = {
  name: "prose",
  about:
    "Prints sentences that CONTRIBUTING.md forbids in documents, comments and messages, and how long sentences are.",
  flags: FLAGS,
  operand: "[PATHS]",
  examples: ["docs", "--counts src"],
};

/** Fewest words of a sentence in the table of areas: cells and headings of a word or two say nothing about how people write. */
const MIN_COUNTED = 4;

/** A sentence that breaks a rule. */
export interface Violation {
  readonly path: string;
  readonly line: number;
  readonly reason: string;
  readonly sentence: string;
}

/** The violations in a text. */
export function violationsIn(path: string, text: string, check: Check): Violation[] {
  return sentencesIn(path, text).flatMap((sentence) =>
    check(sentence).map((reason) => ({ path, line: sentence.line, reason, sentence: sentence.text }))
  );
}

/** The rules of this repository. */
export function rules(): Check {
  return rulesOf(Deno.readTextFileSync(`${ROOT}CONTRIBUTING.md`));
}

/** The area of a file: its folder, two deep, or the document itself. */
function areaOf(path: string): string {
  return path.includes("/") ? path.split("/").slice(0, -1).slice(0, 2).join("/") : path;
}

/** The lines of the table of areas. */
function areaTable(areas: ReadonlyMap<string, { lengths: number[]; wrong: number }>): string[] {
  const rows = Array.from(areas, ([area, { lengths, wrong }]) => {
    const sorted = lengths.toSorted((a, b) => a - b);
    const median = sorted[sorted.length >> 1] ?? 0;
    return [area, sorted.length, median, sorted.at(-1) ?? 0, wrong];
  });
  const cells = [["area", "sentences", "median", "longest", "wrong"], ...rows].map((row) => row.map(String));
  const widths = cells[0].map((_, i) => Math.max(...cells.map((row) => row[i].length)));
  return cells.map((row) =>
    row.map((cell, i) => i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])).join("  ")
  );
}

if (import.meta.main) {
  await runMain(PROGRAM, (values, operands) => {
    const check = rules();
    const areas = new Map<string, { lengths: number[]; wrong: number }>();
    const lines: string[] = [];
    for (const path of (operands.length > 0 ? operands : PLACES).flatMap(proseFiles)) {
      const text = Deno.readTextFileSync(ROOT + path);
      const found = violationsIn(path, text, check);
      lines.push(...found.map(({ line, reason, sentence }) => `${path}:${line}: ${reason}: ${sentence}`));
      const lengths = sentencesIn(path, text).map(({ words }) => words).filter((words) => words >= MIN_COUNTED);
      for (const area of [areaOf(path), "all"]) {
        const at = areas.get(area) ?? { lengths: [], wrong: 0 };
        areas.set(area, { lengths: at.lengths.concat(lengths), wrong: at.wrong + found.length });
      }
    }
    const all = areas.get("all");
    if (all) {
      areas.delete("all");
      areas.set("all", all);
    }
    print([...values.counts ? [] : lines, "", ...areaTable(areas), ""].join("\n"));
    return Promise.resolve(lines.length > 0 && !values.counts ? 1 : 0);
  });
}
