/** docs/reliability.md: every check is in it, results reach their rows, and what has not run says so. */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { page } from "../scripts/reliability.ts";
import { casesOf, CHECKS, resultsOf } from "../scripts/reliability/checks.ts";
import { COMMITTED, mergeResults, readResults, type Result, writeResult } from "../scripts/reliability/results.ts";
import { runTests } from "../scripts/test/process.ts";
import { ROOT } from "../scripts/tools.ts";

const rowOf = (text: string, check: number): string =>
  text.split("\n").find((line) => line.startsWith(`| ${check} `)) ?? "";

Deno.test("a page without results has a row for each check, and later work says so", () => {
  const text = page([]);
  CHECKS.forEach(({ later }, i) => assertStringIncludes(rowOf(text, i + 1), later ?? "not run"));
  assertEquals(CHECKS.length, 25);
});

Deno.test("results reach the rows that they are about, failures in bold, and stay until newer ones come", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const committed = `${folder}/committed/rows.json`;
    const results = (): Promise<Result[]> => readResults(`${folder}/own`, committed);
    assertEquals(await results(), []);
    const write = (task: string, check: number, measured: string, ok = true): Promise<void> =>
      writeResult(task, `deno task ${task}`, [{ check, measured, ok }], `${folder}/own`);
    await Deno.mkdir(`${folder}/own`);
    await Deno.writeTextFile(`${folder}/own/soak.json`, '{"date": "2026-01-01", "rows": []}'); // as earlier ones wrote it
    await write("soak", 11, "grew | by 1 MB", false);
    await write("soak", 25, "5,000 requests");
    await write("test", 16, "8 tests passed");
    await write("test", 16, "9 tests passed");
    const row = { ok: true, task: "test", command: "deno task test" };
    await Deno.mkdir(`${folder}/committed`);
    await Deno.writeTextFile(
      committed,
      JSON.stringify([
        { ...row, check: 15, measured: "33 tests passed", date: "2026-11-22" },
        { ...row, check: 16, measured: "7 tests passed", date: "2026-11-22" },
        { ...row, check: 14, measured: "newer", date: "9999-01-01" },
      ]),
    );
    await write("test", 14, "older");
    const text = page(await results());
    assertStringIncludes(rowOf(text, 11), "**failed:** grew \\| by 1 MB (");
    assertStringIncludes(rowOf(text, 25), "| 5,000 requests (");
    assertStringIncludes(rowOf(text, 16), "| 9 tests passed (");
    assertStringIncludes(rowOf(text, 15), "| 33 tests passed (2026-11-22) | `deno task test` |");
    assertStringIncludes(rowOf(text, 14), "| newer (9999-01-01) |");
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
    // Registered by a preload, as tests that are shared out are, they count for their file too.
    const env = { VKMX_TEST_SHARE: "1", VKMX_TEST_SHARE_FROM: "0", VKMX_TEST_SHARE_OF: "all" };
    const flags = ["--no-config", "--no-check", `--preload=${ROOT}tests/support/share_tests.ts`, "--filter=/^a seed/"];
    const file = `${folder}/tests/cli/generate_test.ts`;
    const shared = await runTests({ name: "reliability-test", file, flags, env, show: false });
    assertEquals(shared.cases.filter(({ name }) => name === "a seed"), [cases[2]]);
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

Deno.test("the committed page shows the committed results and asks what is asked today", async () => {
  const rows: Result[] = JSON.parse(await Deno.readTextFile(COMMITTED));
  assertEquals(mergeResults(rows, []), rows);
  for (const { check, task } of rows) {
    const { task: own, tests } = CHECKS[check - 1];
    assert(task === own?.results || (task === "test" && tests !== undefined), `row ${check} of ${task}`);
  }
  const plain = (line: string): string => line.replaceAll(/\s+/g, " ");
  const [found, expected] = [await Deno.readTextFile(`${ROOT}docs/reliability.md`), page(rows)];
  for (const i of CHECKS.keys()) assertEquals(plain(rowOf(found, i + 1)), plain(rowOf(expected, i + 1)));
});
