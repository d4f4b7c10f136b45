/** The table of tiers, what it leaves out before the full tier, and that seeds bring everything in turn. */

import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { importArguments } from "../scripts/imports.ts";
import { casesOf } from "../scripts/reliability/checks.ts";
import { longestFirst } from "../scripts/test/durations.ts";
import { EACH_DEVICE, runsOf, TIERS, wholeRun } from "../scripts/test/tiers.ts";
import { readUndrawn, undrawnOf } from "../scripts/test/undrawn.ts";
import { ROOT, run, testFiles } from "../scripts/tools.ts";
import { devices } from "../src/backend/devices.ts";
import { drawCover } from "./support/draw_cases.ts";
import { isRowsTurn } from "./support/processes/table.ts";

Deno.test("every test file is in the table, and in each tier that follows its first", () => {
  for (const file of testFiles()) {
    const counts = TIERS.map((tier) => runsOf(file, tier, "0").length);
    assert(counts[2] > 0 && counts[0] <= counts[1] && counts[1] <= counts[2], `${file}: ${counts}`);
  }
  assertThrows(() => runsOf("elsewhere/a_test.ts", "full", "0"), Error, "no entry for elsewhere/a_test.ts");
});

Deno.test("files with tests on every device run on Vulkan in the full tier", async () => {
  const missing: string[] = [];
  for (const file of testFiles()) {
    const text = await Deno.readTextFile(ROOT + file);
    if (!EACH_DEVICE.test(text)) continue;
    if (!runsOf(file, "full", "0").some(({ pass }) => pass === "vulkan")) missing.push(file);
  }
  assertEquals(missing, []);
});

Deno.test("the run of a file on Vulkan in the full tier has tests that are named for it", async () => {
  // The text of most files shows it; to import all takes half a minute.
  const shows = /\bkernelTest\(|(\bDeno\.test\(\s*|\bname: )`[^`]*(\$\{device\}|\bon \$\{name\})/;
  const files = testFiles().filter((file) => !shows.test(Deno.readTextFileSync(ROOT + file)));
  const runs = files.flatMap((file) => runsOf(file, "full", "0")).filter(({ filter }) => filter.length > 0);
  const names = devices().filter(({ usable, type }) => usable && type !== "wasm").map(({ name }) => name);
  if (names.length === 0) return;
  const env = { VKMX_TEST_DEVICES: names.join(), VKMX_TEST_TIER: "full", VKMX_TEST_SEED: "0" };
  const undrawn = await undrawnOf(runs, env, 0);
  // Others have tests that need what the device lacks.
  assertEquals([...undrawn].filter(([, ignored]) => ignored.length === 0).map(([file]) => file), []);
});

Deno.test("files that take turns on Vulkan have each had one after three days", () => {
  const onVulkan = (seed: string): string[] =>
    testFiles().filter((file) => runsOf(file, "gate", seed).some(({ pass }) => pass === "vulkan"));
  const days = ["2026-11-29", "2026-11-30", "2026-12-01"].map(onVulkan);
  const all = new Set(days.flat());
  for (const day of days) assert(day.length < all.size - 5, `${day.length} of ${all.size}`);
  assert(["2026-12-02", "2026-12-03", "2026-12-04"].flatMap(onVulkan).every((file) => all.has(file)));
  assert(all.has("tests/llm/engine/engine_life_test.ts"));
});

Deno.test("the turns of a file bring each of its shares", () => {
  const seeds = Array.from({ length: 60 }, (_, i) => i); // more than turns times shares of any file
  for (const file of testFiles()) {
    const runs = seeds.flatMap((seed) => runsOf(file, "gate", String(seed)).map((run) => ({ seed, ...run })));
    const onVulkan = runs.filter(({ pass }) => pass === "vulkan");
    const shares = new Set(onVulkan.map(({ seed, share }) => seed % share));
    assertEquals(shares.size, onVulkan[0]?.share ?? 0, file);
  }
});

Deno.test("a week brings each row of a table of command lines, whatever the turn of its test", () => {
  const days = Array.from({ length: 7 }, (_, i) => String(i));
  for (const file of testFiles()) {
    if (!/\btestTable\(/.test(Deno.readTextFileSync(ROOT + file))) continue;
    const [{ share }] = runsOf(file, "gate", "0").filter(({ pass }) => pass === "cpu");
    for (const test of Array(share).keys()) {
      const its = days.filter((day) => Number(day) % share === test);
      for (const row of [0, 1, 2]) assert(its.some((day) => isRowsTurn(row, day)), `row ${row} of ${file}`);
    }
  }
});

Deno.test("a draw repeats itself with its seed, has every feature, and differs with other seeds", () => {
  const list = [0, 1, 2, 3].flatMap((a) => ["x", "y", "z"].map((b) => ({ a, b })));
  const draw = (seed: string) => drawCover(list, ({ a, b }) => [`a${a}`, `b${b}`], "pairs", seed);
  const seeds = Array.from({ length: 20 }, (_, i) => String(i));
  const kinds = new Set(seeds.map((seed) => JSON.stringify(draw(seed))));
  assert(kinds.size > 5, `${kinds.size} draws`);
  for (const seed of seeds) {
    const drawn = draw(seed);
    assertEquals(drawn, draw(seed));
    assertEquals(new Set(drawn.map(({ a }) => a)).size, 4);
    assertEquals(new Set(drawn.map(({ b }) => b)).size, 3);
    assert(drawn.length <= 6, `${drawn.length} of ${list.length}`);
  }
  assertEquals(new Set(seeds.flatMap((seed) => draw(seed).map(({ a, b }) => a + b))).size, list.length);
});

/** Tests of a file that run with every third test, beginning with the one that is given. */
async function sharedTests(file: string, from: number, of: "vulkan" | "all" = "vulkan"): Promise<string[]> {
  const report = `${file}.xml`;
  const { ok, stderr } = await run(
    [
      ...[Deno.execPath(), "test", "--quiet", "--no-config", "--no-lock", "--no-check", `--junit-path=${report}`],
      ...["-A", `--preload=${ROOT}tests/support/share_tests.ts`, file],
    ],
    { env: { VKMX_TEST_SHARE: "3", VKMX_TEST_SHARE_FROM: String(from), VKMX_TEST_SHARE_OF: of } },
  );
  assert(ok, stderr);
  const cases = casesOf(await Deno.readTextFile(report));
  return cases.filter(({ outcome }) => outcome === "passed").map(({ name }) => name);
}

Deno.test("tests that are shared out run in turn, those of other devices always", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const file = `${folder}/shared_test.ts`;
    const body = "() => {}";
    await Deno.writeTextFile(
      file,
      [
        `Deno.test("a on vulkan:0", ${body});`,
        `Deno.test("b on wasm", ${body});`,
        `Deno.test({ name: "c on vulkan:0", fn: ${body} });`,
        `Deno.test({ name: "never on vulkan:0", ignore: true, fn: ${body} });`,
        `Deno.test("d on vulkan:0", { permissions: "none" }, ${body});`,
        `Deno.test({ name: "e on vulkan:0 in two parts" }, ${body});`,
        `Deno.test("f", ${body});`,
      ].join("\n"),
    );
    assertEquals(await sharedTests(file, 0), ["a on vulkan:0", "b on wasm", "e on vulkan:0 in two parts", "f"]);
    assertEquals(await sharedTests(file, 1), ["b on wasm", "c on vulkan:0", "f"]);
    assertEquals(await sharedTests(file, 5), ["b on wasm", "d on vulkan:0", "f"]);
    assertEquals(await sharedTests(file, 1, "all"), ["b on wasm", "e on vulkan:0 in two parts"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a test that leaves work in the background ends after it on a GPU", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const file = `${folder}/background_test.ts`;
    await Deno.writeTextFile(
      file,
      [
        `import { TracedSteps } from "${ROOT}src/array/compile/loop.ts";`,
        `const wait = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 100));`,
        `Deno.test("leaves a timer", () => new TracedSteps(() => []).improve({ improve: wait }));`,
        `Deno.test("fails, and leaves one", () => {`,
        `  new TracedSteps(() => []).improve({ improve: wait });`,
        `  throw new Error("as it should");`,
        `});`,
      ].join("\n"),
    );
    const command = [Deno.execPath(), "test", "--quiet", "--no-lock", "--no-check", ...await importArguments(), "-A"];
    const waiting = await run([...command, `--preload=${ROOT}tests/support/settle_tests.ts`, file]);
    assertStringIncludes(waiting.stdout, "1 passed | 1 failed");
    assertStringIncludes(waiting.stdout, "as it should");
    assert(!waiting.stdout.includes("Leaks detected"), waiting.stdout);
    const leaking = await run([...command, file]);
    assertStringIncludes(leaking.stdout, "0 passed | 2 failed");
    assertStringIncludes(leaking.stdout, "Leaks detected");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("files are left out that have no test to run, and no others", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const texts: Readonly<Record<string, string>> = {
      none: `Deno.stdout.write = () => Promise.resolve(0); console.log("a line of a file");`,
      ignored: `Deno.test({ name: "a on vulkan:0", ignore: true, fn: () => {} }); Deno.test("b on wasm", () => {});`,
      later: `Deno.test("a on vulkan:0", () => {}); Deno.test("b on vulkan:0", { ignore: true }, () => {});`,
      drawn: `for (const n of "abc") Deno.test(n + " on vulkan:0", () => {});`,
      byDevice: `if (Deno.env.get("VKMX_TEST_DEVICES") === "vulkan:0") Deno.test("a on vulkan:0", () => {});`,
      wrong: `throw new Error("not imported");`,
    };
    const list = async (devices: string, share: number, filter: readonly string[]): Promise<object> => {
      const runs = Object.keys(texts).map((name) => ({
        ...wholeRun(`${folder}/${name}_test.ts`),
        filter,
        share,
        shareOf: "vulkan" as const,
      }));
      const found = await undrawnOf(runs, { VKMX_TEST_DEVICES: devices }, 2);
      return Object.fromEntries([...found].map(([path, names]) => [path.slice(folder.length + 1, -8), names]));
    };
    for (const [name, text] of Object.entries(texts)) await Deno.writeTextFile(`${folder}/${name}_test.ts`, text);
    const vulkan = ["--filter", "/vulkan:\\d/"];
    assertEquals(await list("vulkan:0", 3, vulkan), {
      none: [],
      ignored: ["a on vulkan:0"],
      later: ["a on vulkan:0", "b on vulkan:0"],
      byDevice: ["a on vulkan:0"],
    });
    assertEquals(await list("wasm", 1, []), { none: [], byDevice: [] });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("output of a failed or another program leaves out no file", () => {
  const said: string[] = [];
  const { log } = console;
  console.log = (line: string) => said.push(line);
  try {
    assertEquals(readUndrawn({ ok: true, stdout: 'a\n{"b": ["c"]}\n', stderr: "" }), new Map([["b", ["c"]]]));
    assertEquals(said, []);
    assertEquals(readUndrawn({ ok: true, stdout: "a driver's last word", stderr: "" }), new Map());
    assertEquals(readUndrawn({ ok: false, stdout: "{}", stderr: "error\nat the end\n" }), new Map());
  } finally {
    console.log = log;
  }
  const line = "files without a test to run were not looked up: ";
  assertEquals(said, [`${line}no list in its output`, `${line}at the end`]);
});

Deno.test("no file beside the tests registers one, which would count for the first that imports it", () => {
  const files = (folder: string): string[] =>
    Array.from(Deno.readDirSync(ROOT + folder)).flatMap(({ name, isDirectory }) =>
      isDirectory ? files(`${folder}/${name}`) : [`${folder}/${name}`]
    );
  const beside = files("tests").filter((name) => name.endsWith(".ts") && !name.endsWith("_test.ts"));
  assert(beside.length > 50);
  assertEquals(beside.filter((name) => /^Deno\.test\(/m.test(Deno.readTextFileSync(ROOT + name))), []);
});

Deno.test("files are ordered by how long they took, new ones first", () => {
  const durations = { "cpu a": 1, "cpu b": 30, "cpu d": 2 };
  assertEquals(longestFirst(["a", "b", "c", "d"], (name) => `cpu ${name}`, durations), ["c", "b", "d", "a"]);
});
