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
import { lastLine, say } from "./log.ts";
import { exists, findZig, ROOT, run, TOOLS, ZIG_VERSION } from "./tools.ts";

/** What pip may install: one version, with the SHA-256 of its file for each platform. */
const ZIG_HASHES = `${ROOT}scripts/zig.txt`;

/** Brings the machine up to a built library. False, after a line that says why, when the library could not be built. */
export async function setup(): Promise<boolean> {
  await providePackages();
  await provideGlslc();
  const zig = await findZig() ?? await installZig();
  if (!zig) return false;
  return await buildLibrary(zig);
}

/** Zig from PyPI into {@link TOOLS}. */
async function installZig(): Promise<readonly string[] | undefined> {
  const python = await findPip();
  if (!python) {
    const pip = Deno.build.os === "linux" ? " (Debian, Ubuntu: apt-get install python3-pip)" : "";
    say(`Zig ${ZIG_VERSION} is missing: put it on the PATH, or install Python with pip${pip} and run this again`);
    return undefined;
  }
  say(`installing Zig ${ZIG_VERSION} into .tools/zig`);
  const partial = `${TOOLS}/zig.partial`;
  await Deno.remove(partial, { recursive: true }).catch(() => {});
  const flags = [
    "--quiet",
    "--disable-pip-version-check",
    "--root-user-action=ignore",
    "--no-deps",
    "--only-binary=:all:",
  ];
  const hashed = ["--require-hashes", "--requirement", ZIG_HASHES];
  const pip = await run([python, "-m", "pip", "install", ...flags, "--target", partial, ...hashed]);
  if (!pip.ok) {
    say(`Zig ${ZIG_VERSION} could not be installed: ${lastLine(pip.stderr)}`);
    return undefined;
  }
  await Deno.remove(`${TOOLS}/zig`, { recursive: true }).catch(() => {});
  await Deno.rename(partial, `${TOOLS}/zig`);
  return await findZig();
}

async function findPip(): Promise<string | undefined> {
  for (const python of ["python3", "python"]) if ((await run([python, "-m", "pip", "--version"])).ok) return python;
  return undefined;
}

async function buildLibrary(zig: readonly string[]): Promise<boolean> {
  if (!await exists(`${ROOT}zig-out/lib`)) say("building the Vulkan library");
  const build = await run([...zig, "build"]);
  if (build.stderr.trim() !== "") console.error(build.stderr.trimEnd());
  if (!build.ok) say("the Vulkan library was not built; everything runs on WASM without it");
  return build.ok;
}

if (import.meta.main) Deno.exit(await setup() ? 0 : 1);
