/**
 * `deno task check`: everything that must hold besides the tests. One line a check, then "N passed, N failed".
 *
 * @module
 */

import { importArguments } from "./imports.ts";
import { findZig, run, zigJobs } from "./tools.ts";

const deno = Deno.execPath();
const zig = await findZig() ?? ["zig"];

/** Checks that run at once: most of them keep one processor busy. */
const AT_ONCE = 2;

const JOBS = zigJobs(AT_ONCE);

/**
 * Name and command, begun in this order; the longest first. What is published has its types checked by "types". Libraries of
 * other platforms are linked in `deno task test:full` and for a release.
 */
const CHECKS: readonly (readonly [string, readonly string[]])[] = [
  ["other platforms", [...zig, "build", "platforms", JOBS]],
  ["types", [deno, "check", ...await importArguments(), "."]],
  ["publishing", [deno, "publish", "--dry-run", "--allow-dirty", "--no-check"]],
  ["SPIR-V modules", [...zig, "build", "spirv-val", JOBS]],
  ["lint", [deno, "lint"]],
  ["documentation", [deno, "doc", "--lint", "mod.ts", "src/cli/mod.ts"]],
  ["formatting of C and GLSL", [deno, "run", "-A", "scripts/clang_format.ts", "--check"]],
  ["formatting of TypeScript", [deno, "fmt", "--check"]],
  ["formatting of Zig", [...zig, "fmt", "--check", "build.zig", "runtime-c", "shaders/kernels.zon"]],
];

if (import.meta.main) {
  let failed = 0;
  const left = CHECKS.values();
  const work = async (): Promise<void> => {
    for (const [name, command] of left) {
      const result = await run(command, { env: { NO_COLOR: "1" } });
      console.log(`${result.ok ? "ok    " : "FAILED"} ${name}`);
      if (result.ok) continue;
      failed++;
      console.log(result.stdout + result.stderr);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  console.log(`${CHECKS.length - failed} passed, ${failed} failed`);
  Deno.exit(failed > 0 ? 1 : 0);
}
