/** The planted mistakes of `deno task mutants`: each still fits its file, and the tests that it names are there. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { MUTANTS } from "../scripts/mutants/all.ts";
import { planted, stepsOf } from "../scripts/mutants/copy.ts";
import { AREAS, type Mutant } from "../scripts/mutants/mutant.ts";
import { describe, type Outcome, readLines, summarize } from "../scripts/mutants/outcomes.ts";
import { ROOT, testFiles } from "../scripts/tools.ts";

/** Fewer would say little about a suite of thousands of tests. */
const MIN_MUTANTS = 80;
const MIN_OF_AREA = 5;
const MAX_FILES = 4;

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
    assert(tests.length >= 1 && tests.length <= MAX_FILES, name);
    assertEquals(new Set(tests).size, tests.length, name);
    for (const test of tests) assert(all.has(test), `${name}: ${test} is not there`);
  }
});

Deno.test("there are enough mutants, some of every area, and no two of one name", () => {
  assert(MUTANTS.length >= MIN_MUTANTS, `${MUTANTS.length} mutants`);
  for (const area of AREAS) {
    const count = MUTANTS.filter((mutant) => mutant.area === area).length;
    assert(count >= MIN_OF_AREA, `${count} mutants of ${area}`);
  }
  assertEquals(new Set(MUTANTS.map(({ name }) => name)).size, MUTANTS.length);
});

Deno.test("a mistake is planted in its one place, and refused where it has none or several", () => {
  const mutant: Mutant = { name: "a", file: "b.ts", find: "x < y", replace: "x <= $& y", tests: [] };
  assertEquals(planted("if (x < y) {}", mutant), "if (x <= $& y) {}");
  assertThrows(() => planted("if (x > y) {}", mutant), Error, '"a" fits b.ts in 0 places');
  assertThrows(() => planted("x < y || x < y", mutant), Error, '"a" fits b.ts in 2 places');
});

Deno.test("what is built after a change follows from the file", () => {
  assertEquals(stepsOf("src/array/ops/sort.ts"), []);
  assertEquals(stepsOf("runtime-c/plan/plan.c"), ["install"]);
  assertEquals(stepsOf("shaders/ops/reduce/reduce.comp"), ["install"]);
  assertEquals(stepsOf("shaders/include/quad.glsl"), ["install"]);
  for (const file of ["runtime-c/wasm/reduce.c", "shaders/include/push.h", "shaders/kernels.zon"]) {
    assertEquals(stepsOf(file), ["gen", "install"], file);
  }
});

Deno.test("outcomes are summed up by tiers, and the gate has to catch 95 of 100", () => {
  const outcome = (name: string, caught: Outcome["caught"]): Outcome => (
    { name, area: "arrays", file: "src/a.ts", tiers: ["gate", "full"], caught, seconds: 12 }
  );
  const many = Array.from({ length: 19 }, (_, i) => outcome(`${i}`, i === 0 ? "build" : "gate"));
  const all = [...many, outcome("hidden", "full"), outcome("nobody's", null)];
  assertEquals(summarize(all, ["gate", "full"]), {
    text: "21 mutants; full catches 20; the gate catches 19, 95.0 % of 20; by full only: hidden; survivors: nobody's",
    ok: true,
  });
  assertEquals(summarize(all.slice(1), ["gate", "full"]).ok, false); // 18 of 19
  assertEquals(summarize(many.slice(1), ["gate"]).text, "18 mutants; the gate catches 18; survivors: none");
  assertEquals(describe(all[19]), "caught by full         12 s  arrays: hidden (src/a.ts)");
  const lines = all.map((line) => JSON.stringify(line)).join("\n");
  assertEquals(readLines(`${lines}\n{"name": "cut of`), all);
});
