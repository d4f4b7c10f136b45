/**
 * `deno task check`: everything that must hold besides the tests. One line a check, then "N passed, N failed".
 *
 * @module
 */

import { importArguments } from "./imports.ts";
import { findZig, run } from "./tools.ts";

const deno = Deno.execPath();
const zig = await findZig() ?? ["zig"];

/** Name and command, run in order; the quick ones first. */
const CHECKS: readonly (readonly [string, readonly string[]])[] = [
  ["formatting of TypeScript", [deno, "fmt", "--check"]],
  ["formatting of Zig", [...zig, "fmt", "--check", "build.zig", "runtime-c", "shaders/kernels.zon"]],
  ["formatting of C and GLSL", [deno, "run", "-A", "scripts/clang_format.ts", "--check"]],
  ["lint", [deno, "lint"]],
  ["types", [deno, "check", ...await importArguments(), "."]],
  ["documentation", [deno, "doc", "--lint", "mod.ts", "src/cli/mod.ts"]],
  ["publishing", [deno, "publish", "--dry-run", "--allow-dirty"]],
  ["SPIR-V modules", [...zig, "build", "spirv-val"]],
  ["other platforms", [...zig, "build", "cross"]],
];

if (import.meta.main) {
  let failed = 0;
  for (const [name, command] of CHECKS) {
    const result = await run(command, { env: { NO_COLOR: "1" } });
    console.log(`${result.ok ? "ok    " : "FAILED"} ${name}`);
    if (result.ok) continue;
    failed++;
    console.log(result.stdout + result.stderr);
  }
  console.log(`${CHECKS.length - failed} passed, ${failed} failed`);
  Deno.exit(failed > 0 ? 1 : 0);
}
