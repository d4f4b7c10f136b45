/**
 * Measurements of the reliability tasks, kept under .tools/results/NAME.json: one file for each task, the newest run. `deno task
 * reliability` writes docs/reliability.md from them.
 *
 * @module
 */

import { TOOLS } from "../tools.ts";

/** Folder of the results; git ignores it. */
export const RESULTS: string = `${TOOLS}/results`;

/** The result of one run for one row of the table. */
export interface ResultRow {
  /** Number of the row in docs/reliability.md, from 1. */
  readonly check: number;
  /** The figures measured, in words: "100,000 calls, 0 reports". One line. */
  readonly measured: string;
  /** Whether they are within what the row asks. */
  readonly ok: boolean;
}

/** One run of a task. */
export interface Result {
  /** Name of the task without colons, as the file is called: "test-sanitize". */
  readonly name: string;
  /** When it ran: YYYY-MM-DD. */
  readonly date: string;
  /** The command that runs it again: "deno task test:sanitize". */
  readonly command: string;
  /** Its results for the table. */
  readonly rows: readonly ResultRow[];
}

/** Writes the result of a run, in place of an earlier one of the same name. `folder` is another one in tests only. */
export async function writeResult(
  name: string,
  command: string,
  rows: readonly ResultRow[],
  folder: string = RESULTS,
): Promise<void> {
  if (!/^[\w-]+$/.test(name)) throw new Error(`writeResult(): "${name}" is no name of letters, digits and hyphens`);
  const result: Result = { name, date: new Date().toISOString().slice(0, 10), command, rows };
  await Deno.mkdir(folder, { recursive: true });
  await Deno.writeTextFile(`${folder}/${name}.json`, `${JSON.stringify(result, null, 2)}\n`);
}

/** All results that were kept, by name; none if nothing has run. */
export async function readResults(folder: string = RESULTS): Promise<Result[]> {
  const names: string[] = [];
  try {
    for await (const { name } of Deno.readDir(folder)) if (name.endsWith(".json")) names.push(name);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  return await Promise.all(names.sort().map(async (name) => JSON.parse(await Deno.readTextFile(`${folder}/${name}`))));
}
