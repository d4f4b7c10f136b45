/**
 * Starts the Zig that this project builds with: `deno run -A scripts/zig.ts build spirv-val`.
 *
 * @module
 */

import { findZig, run, ZIG_VERSION, zigJobs } from "./tools.ts";

/** Runs Zig and shows what it prints. Gives whether it ended well; ends the program if there is no Zig. */
export async function runZig(args: readonly string[]): Promise<boolean> {
  const zig = await findZig();
  if (!zig) {
    console.error(`Zig ${ZIG_VERSION} was not found: run \`deno task setup\`, or put it on the PATH`);
    Deno.exit(1);
  }
  const jobs = args[0] === "build" ? [zigJobs()] : [];
  return (await run([...zig, ...args.slice(0, 1), ...jobs, ...args.slice(1)], { show: true })).ok;
}

if (import.meta.main) Deno.exit(await runZig(Deno.args) ? 0 : 1);
