/** docs/reliability.md: every check is in it, results reach their rows, and what has not run says so. */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { page } from "../scripts/reliability.ts";
import { casesOf, CHECKS, resultsOf } from "../scripts/reliability/checks.ts";
import { readResults, writeResult } from "../scripts/reliability/results.ts";
import { ROOT } from "../scripts/tools.ts";

const rowOf = (text: string, check: number): string =>
  text.split("\n").find((line) => line.startsWith(`| ${check} `)) ?? "";

Deno.test("a page without results has a row for each check, and later work says so", () => {
  const text = page([]);
  CHECKS.forEach(({ later }, i) => assertStringIncludes(rowOf(text, i + 1), later ?? "not run"));
  assertEquals(CHECKS.length, 25);
});

Deno.test("results reach the rows that they are about, failures in bold", async () => {
  const folder = await Deno.makeTempDir();
  try {
    assertEquals(await readResults(`${folder}/none`), []);
    await writeResult("soak", "deno task soak", [{ check: 11, measured: "grew | by 1 MB", ok: false }], folder);
    await writeResult(
      "test",
      "deno task test",
      [{ check: 16, measured: "9 tests passed, 0 failed", ok: true }],
      folder,
    );
    const text = page(await readResults(folder));
    assertStringIncludes(rowOf(text, 11), "**failed:** grew \\| by 1 MB (");
    assertStringIncludes(rowOf(text, 16), "| 9 tests passed, 0 failed (");
    assertStringIncludes(rowOf(text, 12), "| not run | `deno task soak` |");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("tests count for the checks that name them", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${folder}/tests/cli`, { recursive: true });
    const tests =
      `Deno.test("seed: a <b> & 'c' \\"d\\"", () => {}); Deno.test("seed fails", () => { throw new Error("x"); });
      Deno.test({ name: "a seed", ignore: true, fn: () => {} });`;
    await Deno.writeTextFile(`${folder}/tests/cli/generate_test.ts`, tests);
    const args = ["test", "--no-config", "--no-check", "--junit-path=report.xml", "tests/cli/generate_test.ts"];
    await new Deno.Command(Deno.execPath(), { args, cwd: folder }).output();
    const cases = casesOf(await Deno.readTextFile(`${folder}/report.xml`));
    assertEquals(cases, [
      { file: "cli/generate_test.ts", name: `seed: a <b> & 'c' "d"`, outcome: "passed" },
      { file: "cli/generate_test.ts", name: "seed fails", outcome: "failed", message: "Uncaught Error: x" },
      { file: "cli/generate_test.ts", name: "a seed", outcome: "skipped" },
    ]);
    assertEquals(resultsOf(cases), [{ check: 21, measured: "1 tests passed, 1 failed, 1 skipped", ok: false }]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("the tests that checks name are there", async () => {
  for (const { file, name } of CHECKS.flatMap(({ tests = [] }) => tests)) {
    const text = await Deno.readTextFile(`${ROOT}tests/${file}`);
    assert(
      name === undefined || text.split("\n").some((line) => /^\s*(Deno\.test\(|name: )/.test(line) && name.test(line)),
      file,
    );
  }
});

Deno.test("the committed page has every check as it is asked today", async () => {
  const text = await Deno.readTextFile(`${ROOT}docs/reliability.md`);
  const plain = (line: string): string => line.replaceAll(/\s+/g, " ");
  for (const [i, { what, asked }] of CHECKS.entries()) {
    assert(plain(rowOf(text, i + 1)).includes(`${what} | ${asked}`), what);
  }
});
