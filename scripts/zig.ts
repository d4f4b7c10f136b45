/**
 * Starts the Zig that this project builds with: `deno run -A scripts/zig.ts build spirv-val`.
 *
 * @module
 */

import { findZig, run, ZIG_VERSION } from "./tools.ts";

if (import.meta.main) {
  const zig = await findZig();
  if (!zig) {
    console.error(`Zig ${ZIG_VERSION} was not found: run \`deno task setup\`, or put it on the PATH`);
    Deno.exit(1);
  }
  const { ok } = await run([...zig, ...Deno.args], { show: true });
  Deno.exit(ok ? 0 : 1);
}
