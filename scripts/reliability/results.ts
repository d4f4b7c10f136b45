/**
 * Measurements of the reliability tasks: the newest of each task for each row of docs/reliability.md, which `deno task reliability`
 * writes from them. A task keeps its own under .tools/results/NAME.json. The committed ones are in results.json beside this file, so
 * that a clone that runs one task loses nothing of the others.
 *
 * @module
 */

import { TOOLS } from "../tools.ts";

/** Folder of the results; git ignores it. */
export const RESULTS: string = `${TOOLS}/results`;
/** The committed rows. */
export const COMMITTED: URL = new URL("results.json", import.meta.url);

/** The result of one run for one row of the table. */
export interface ResultRow {
  /** Number of the row in docs/reliability.md, from 1. */
  readonly check: number;
  /** The figures measured, in words: "100,000 calls, 0 reports". One line. */
  readonly measured: string;
  /** Whether they are within what the row asks. */
  readonly ok: boolean;
}

/** A result and where it comes from. */
export interface Result extends ResultRow {
  /** Name of the task without colons, as its file is called: "test-sanitize". */
  readonly task: string;
  /** When it ran: YYYY-MM-DD. */
  readonly date: string;
  /** The command that runs it again: "deno task test:sanitize". */
  readonly command: string;
}

/** The newest result of each task for each check, by check; of one day, that of `later`. */
export function mergeResults(earlier: readonly Result[], later: readonly Result[]): Result[] {
  const newest = new Map<string, Result>();
  for (const row of [...earlier, ...later]) {
    const key = `${row.check} ${row.task}`;
    if ((newest.get(key)?.date ?? "") <= row.date) newest.set(key, row);
  }
  return [...newest.values()].sort((a, b) => a.check - b.check || (a.task < b.task ? -1 : 1));
}

/** Rows of a file; none if it is not there, or was written when a file held one result. */
async function readRows(path: string | URL): Promise<Result[]> {
  try {
    const rows = JSON.parse(await Deno.readTextFile(path));
    return Array.isArray(rows) ? rows : [];
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

/** Writes rows as JSON. */
export async function writeRows(path: string | URL, rows: readonly Result[]): Promise<void> {
  await Deno.writeTextFile(path, `${JSON.stringify(rows, null, 2)}\n`);
}

/** Keeps the results of a run, beside those of the task's earlier runs for other checks. `folder` is another one in tests only. */
export async function writeResult(
  task: string,
  command: string,
  rows: readonly ResultRow[],
  folder: string = RESULTS,
): Promise<void> {
  if (!/^[\w-]+$/.test(task)) throw new Error(`writeResult(): "${task}" is no name of letters, digits and hyphens`);
  const date = new Date().toISOString().slice(0, 10);
  const path = `${folder}/${task}.json`;
  await Deno.mkdir(folder, { recursive: true });
  await writeRows(path, mergeResults(await readRows(path), rows.map((row) => ({ ...row, task, date, command }))));
}

/** The newest committed results and those of this checkout; none if nothing has run. */
export async function readResults(folder: string = RESULTS, committed: string | URL = COMMITTED): Promise<Result[]> {
  let rows = await readRows(committed);
  const names: string[] = [];
  try {
    for await (const { name } of Deno.readDir(folder)) if (name.endsWith(".json")) names.push(name);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  for (const name of names.sort()) rows = mergeResults(rows, await readRows(`${folder}/${name}`));
  return rows;
}
