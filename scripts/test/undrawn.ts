/**
 * Files none of whose tests is drawn. To start one takes 0.7 s of a processor, which finds out that all its tests are ignored. A child
 * imports many of them at once, with a Deno.test() that lists tests (list_undrawn.ts).
 *
 * @module
 */

import { importArguments } from "../imports.ts";
import { type Finished, run } from "../tools.ts";
import type { Share } from "./share.ts";
import type { Run } from "./tiers.ts";

/** A file that the child imports. */
export interface Listed extends Share {
  readonly file: string;
  /** Matches names of tests that the run chooses. */
  readonly chosen: string;
}

const CHILD = new URL("list_undrawn.ts", import.meta.url).href;

/** Names of ignored tests by file: files without another test. */
export type Undrawn = ReadonlyMap<string, readonly string[]>;

/**
 * The files of runs that have no test to run. `env` is what those runs have too, and `from` the seed's first test. A file that cannot
 * be imported is none: its own run says why. If the child fails, a line says so and all files run.
 */
export async function undrawnOf(
  runs: readonly Run[],
  env: Readonly<Record<string, string>>,
  from: number,
): Promise<Undrawn> {
  const files = runs.map(({ file, filter, share, shareOf }): Listed => ({
    file,
    share,
    from,
    shareOf,
    chosen: filter.at(-1)?.replaceAll(/^\/|\/$/g, "") ?? "",
  }));
  const command = [Deno.execPath(), "run", "-A", "--no-check", ...await importArguments(), CHILD];
  return readUndrawn(await run([...command, JSON.stringify(files)], { env }));
}

/** What the child found; nothing where it failed, or where its last line is another program's. */
export function readUndrawn({ ok, stdout, stderr }: Finished): Undrawn {
  try {
    if (ok) return new Map(Object.entries<readonly string[]>(JSON.parse(stdout.trimEnd().split("\n").at(-1)!)));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const why = stderr.trim().split("\n").at(-1) || "no list in its output";
  console.log(`files without a test to run were not looked up: ${why}`);
  return new Map();
}
