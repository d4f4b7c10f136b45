/** The planted mistakes of `deno task mutants`: each still fits its file, and the tests that it names are there. */

import { assert, assertEquals } from "@std/assert";
import { MUTANTS } from "../scripts/mutants/all.ts";
import { AREAS } from "../scripts/mutants/mutant.ts";
import { ROOT, testFiles } from "../scripts/tools.ts";

/** Fewer would say little about a suite of thousands of tests. */
const LEAST_MUTANTS = 80;
const LEAST_OF_AREA = 5;
const MOST_FILES = 4;

Deno.test("what a mutant replaces occurs once in its file, and is replaced by something else", async () => {
  for (const { name, file, find, replace } of MUTANTS) {
    const text = await Deno.readTextFile(ROOT + file);
    assertEquals(text.split(find).length - 1, 1, `${name}: times that ${JSON.stringify(find)} is in ${file}`);
    assert(find !== replace, name);
  }
});

Deno.test("every mutant names one to four test files that are there, each once", () => {
  const all = new Set(testFiles());
  for (const { name, tests } of MUTANTS) {
    assert(tests.length >= 1 && tests.length <= MOST_FILES, name);
    assertEquals(new Set(tests).size, tests.length, name);
    for (const test of tests) assert(all.has(test), `${name}: ${test} is not there`);
  }
});

Deno.test("there are enough mutants, some of every area, and no two of one name", () => {
  assert(MUTANTS.length >= LEAST_MUTANTS, `${MUTANTS.length} mutants`);
  for (const area of AREAS) {
    const count = MUTANTS.filter((mutant) => mutant.area === area).length;
    assert(count >= LEAST_OF_AREA, `${count} mutants of ${area}`);
  }
  assertEquals(new Set(MUTANTS.map(({ name }) => name)).size, MUTANTS.length);
});
