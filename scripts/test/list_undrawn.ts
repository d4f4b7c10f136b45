/**
 * The child of undrawn.ts: imports test files and prints those that have no test to run, as one line of JSON. It is a file of its own,
 * since test files import undrawn.ts: the program cannot wait for a file that waits for the program.
 *
 * @module
 */

import { ROOT } from "../tools.ts";
import { definitionOf, isOtherSeeds, type TestArguments } from "./share.ts";
import type { Listed } from "./undrawn.ts";

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

const list = await listUndrawn(JSON.parse(Deno.args[0]));
console.log(`\n${JSON.stringify(list)}`);
Deno.exit(0); // devices that files opened would keep the process alive
