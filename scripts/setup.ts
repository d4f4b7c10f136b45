/**
 * `deno task setup`: provides what the Vulkan library is built with, then builds it.
 *
 * Idempotent, and quiet when nothing is missing. As root on Debian and Ubuntu it installs the missing packages; elsewhere it
 * prints the command to type and goes on. Without the library everything still runs, on WASM.
 *
 * @module
 */

import { provideGlslc } from "./setup/glslc.ts";
import { providePackages } from "./setup/packages.ts";
import { say } from "./log.ts";
import { installFromPip } from "./setup/pip.ts";
import { exists, findZig, ROOT, run, ZIG_VERSION, zigJobs } from "./tools.ts";

/** Brings the machine up to a built library. False, after a line that says why, when the library could not be built. */
export async function setup(): Promise<boolean> {
  // Packages come from three registries, so one waits while another unpacks; glslc needs to know what apt-get installed.
  const [zig] = await Promise.all([
    findZig().then((found) => found ?? installZig()),
    providePackages().then(provideGlslc),
  ]);
  if (!zig) return false;
  return await buildLibrary(zig);
}

/** Zig from PyPI. */
async function installZig(): Promise<readonly string[] | undefined> {
  return await installFromPip(`Zig ${ZIG_VERSION}`, "zig.txt", "zig") ? await findZig() : undefined;
}

/** Seconds between two lines about a first build. */
const PROGRESS_S = 10;

/** Shaders that were compiled so far, in Zig's cache. */
async function compiledShaders(): Promise<number> {
  let count = 0;
  try {
    for await (const { name } of Deno.readDir(`${ROOT}.zig-cache/o`)) {
      if (await exists(`${ROOT}.zig-cache/o/${name}/shader.spv`)) count++;
    }
  } catch { /* no cache yet */ }
  return count;
}

/** Prints a line every few seconds until it is disposed, so that a build of a minute does not look like one that hangs. */
function tellProgress(): Disposable {
  const start = performance.now();
  const timer = setInterval(async () => {
    const seconds = Math.round((performance.now() - start) / 1000);
    say(`building: ${await compiledShaders()} shaders compiled, ${seconds} s`);
  }, PROGRESS_S * 1000);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Builds the library. */
async function buildLibrary(zig: readonly string[]): Promise<boolean> {
  const first = !await exists(`${ROOT}zig-out/lib`);
  if (first) say("building the Vulkan library");
  using _progress = first ? tellProgress() : undefined;
  const build = await run([...zig, "build", zigJobs()]);
  if (build.stderr.trim() !== "") console.error(build.stderr.trimEnd());
  if (!build.ok) say("the Vulkan library was not built; everything runs on WASM without it");
  return build.ok;
}

if (import.meta.main) Deno.exit(await setup() ? 0 : 1);
