/**
 * `deno task reliability`: adds what the tests, fuzz, soak, mutants, test:sanitize and test:validate measured here to the committed
 * results, and writes docs/reliability.md from them. A check that has never run says so.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { CHECKS } from "./reliability/checks.ts";
import { COMMITTED, readResults, type Result, writeRows } from "./reliability/results.ts";
import { ROOT } from "./tools.ts";

const INTRODUCTION = `# Reliability

What is asked of vkmx, what was measured, and the command that measures it again. \`deno task reliability\` writes this page from the
results that these commands leave in \`.tools/results\`, the newest of each row. What has never run says "not run". "Software Vulkan"
is Mesa's lavapipe, on which everything that needs Vulkan runs without a GPU.

`;

/** Text in a cell: no column may end in it. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll(/\s+/g, " ");

/** The page, from the results of runs. */
export function page(results: readonly Result[]): string {
  const rows = CHECKS.map(({ what, asked, task, tests, later }, i) => {
    const found = (name: string): Result | undefined => results.find((one) => one.task === name && one.check === i + 1);
    const measured = [task && found(task.results), tests && found("test")].filter((row) => row !== undefined);
    const figure = later ??
      (measured.length === 0
        ? "not run"
        : measured.map((row) => `${row.ok ? "" : "**failed:** "}${row.measured} (${row.date})`).join("; "));
    const commands = new Set(measured.map(({ command }) => command));
    if (task && !measured.some(({ command }) => command.startsWith(task.command))) commands.add(task.command);
    if (tests && measured.length === 0 && !task) commands.add("deno task test");
    const command = later === undefined ? [...commands].map((text) => `\`${text}\``).join(", ") : "later work";
    return `| ${[String(i + 1), what, asked, figure, command].map(cell).join(" | ")} |`;
  });
  return [
    INTRODUCTION.trimEnd(),
    "",
    "| # | check | asked | measured | command |",
    "| - | ----- | ----- | -------- | ------- |",
    ...rows,
    "",
  ].join("\n");
}

if (import.meta.main) {
  const path = `${ROOT}docs/reliability.md`;
  const results = await readResults();
  await writeRows(COMMITTED, results);
  await Deno.writeTextFile(path, page(results));
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["fmt", "--quiet", path, fileURLToPath(COMMITTED)],
    cwd: ROOT,
  })
    .output();
  if (!success) throw new Error(`deno fmt: ${new TextDecoder().decode(stderr)}`);
  const text = await Deno.readTextFile(path);
  const missing = text.match(/\| not run +\|/g)?.length ?? 0;
  console.log(`docs/reliability.md: ${CHECKS.length} checks, ${missing} not run`);
}
