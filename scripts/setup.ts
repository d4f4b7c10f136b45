/**
 * `deno task setup`: provides what the Vulkan library is built with, then builds it.
 *
 * Idempotent, and quiet when nothing is missing. As root on Debian and Ubuntu it installs the missing packages; elsewhere it
 * prints the command to type and goes on with what is there. Without the library everything still runs, on WASM.
 *
 * @module
 */

import { provideGlslc } from "./glslc.ts";
import { providePackages } from "./packages.ts";
import { say } from "./log.ts";
import { installFromPip } from "./pip.ts";
import { exists, findZig, ROOT, run, ZIG_VERSION } from "./tools.ts";

/** Brings the machine up to a built library. False, after a line that says why, when the library could not be built. */
export async function setup(): Promise<boolean> {
  await providePackages();
  await provideGlslc();
  const zig = await findZig() ?? await installZig();
  if (!zig) return false;
  return await buildLibrary(zig);
}

/** Zig from PyPI. */
async function installZig(): Promise<readonly string[] | undefined> {
  return await installFromPip(`Zig ${ZIG_VERSION}`, "zig.txt", "zig") ? await findZig() : undefined;
}

async function buildLibrary(zig: readonly string[]): Promise<boolean> {
  if (!await exists(`${ROOT}zig-out/lib`)) say("building the Vulkan library");
  const build = await run([...zig, "build"]);
  if (build.stderr.trim() !== "") console.error(build.stderr.trimEnd());
  if (!build.ok) say("the Vulkan library was not built; everything runs on WASM without it");
  return build.ok;
}

if (import.meta.main) Deno.exit(await setup() ? 0 : 1);
