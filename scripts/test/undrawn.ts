/**
 * Files none of whose tests is drawn. To start one takes 0.8 s of a processor, which finds out that all its tests are ignored. A child
 * imports many of them at once, with a Deno.test() that lists tests.
 *
 * @module
 */

import { importArguments } from "../imports.ts";
import { ROOT, run } from "../tools.ts";
import { definitionOf, isOtherSeeds, type Share, type TestArguments } from "./share.ts";
import type { Run } from "./tiers.ts";

/** A file that the child imports. */
interface Listed extends Share {
  readonly file: string;
  /** Matches names of tests that the run chooses. */
  readonly chosen: string;
}

/** Names of ignored tests by file: files without another test. */
export type Undrawn = ReadonlyMap<string, readonly string[]>;

/**
 * The files of runs that have no test to run. `env` is what those runs have too, and `from` the seed's first test. A file that cannot
 * be imported is none: its own run says why.
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
  const command = [Deno.execPath(), "run", "-A", "--no-check", ...await importArguments(), import.meta.url];
  const { ok, stdout } = await run([...command, JSON.stringify(files)], { env });
  const list: Record<string, readonly string[]> = ok ? JSON.parse(stdout.trimEnd().split("\n").at(-1)!) : {};
  return new Map(Object.entries(list));
}

/** Imports files, each with a Deno.test() that lists its tests. */
async function listUndrawn(files: readonly Listed[]): Promise<Record<string, readonly string[]>> {
  const found: Record<string, readonly string[]> = {};
  const test = Deno.test;
  for (const { file, chosen, ...share } of files) {
    const isOther = isOtherSeeds(share);
    const ignored: string[] = [];
    let drawn = 0;
    const list = (...args: TestArguments): void => {
      const definition = definitionOf(...args);
      const left = isOther(definition) || definition.ignore;
      if (!new RegExp(chosen).test(definition.name)) return;
      if (left) ignored.push(definition.name);
      else drawn++;
    };
    Object.defineProperty(Deno, "test", { value: Object.assign(list, test), configurable: true, writable: true });
    try {
      await import(new URL(file, `file://${ROOT}`).href);
    } catch {
      continue;
    }
    if (drawn === 0) found[file] = ignored;
  }
  return found;
}

if (import.meta.main) {
  const list = await listUndrawn(JSON.parse(Deno.args[0]));
  console.log(`\n${JSON.stringify(list)}`);
  Deno.exit(0); // devices that files opened would keep the process alive
}
