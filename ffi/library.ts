/**
 * Finds libvk_runtime and opens it: VKMX_LIBRARY, then the project's own build, then the released library of this version.
 *
 * Nothing is opened at import. Paths given to the system are absolute, so its search path has no say. A library of another build than
 * this source is refused by its ABI hash. Only a path-scoped --allow-ffi is needed.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { isAbsolute, resolve } from "node:path";
import { environment, granted } from "./environment.ts";
import { RuntimeError } from "./error.ts";
import { gpuPresent } from "./gpu_present.ts";
import {
  fetchLibrary,
  forgetTemporary,
  hasRelease,
  releasedPath,
  releasedSum,
  verifiedLibrary,
  whyNoRelease,
} from "./released_library.ts";
import { ABI_HASH, SYMBOLS } from "./symbols.ts";
import { fileName, VERSION } from "./version.ts";

/** The functions as they are called: the generated table, and those that may take long once more on a thread of their own. */
const FUNCTIONS = {
  ...SYMBOLS,
  count_async: { ...SYMBOLS.vkrt_device_count, name: "vkrt_device_count", nonblocking: true },
  open_async: { ...SYMBOLS.vkrt_device_open, name: "vkrt_device_open", nonblocking: true },
  wait_async: { ...SYMBOLS.vkrt_wait, name: "vkrt_wait", nonblocking: true },
  save_async: { ...SYMBOLS.vkrt_pipelines_save, name: "vkrt_pipelines_save", nonblocking: true },
  prepare_async: { ...SYMBOLS.vkrt_plan_prepare, name: "vkrt_plan_prepare", nonblocking: true },
} as const satisfies Deno.ForeignLibraryInterface;

/** An open library and where it came from. */
export interface Library {
  readonly path: string;
  readonly symbols: Deno.DynamicLibrary<typeof FUNCTIONS>["symbols"];
}

/** The checkout that this module lies in, with a closing separator; undefined when it is that of a package. */
function projectFolder(): string | undefined {
  const root = new URL("../", import.meta.url);
  if (root.protocol !== "file:") return undefined;
  const path = fileURLToPath(root);
  return mayExist(`${path}build.zig`) ? path : undefined; // packages are published without it
}

/** Whether looking at a path is permitted. */
function mayLook(path: string): boolean {
  return granted({ name: "read", path });
}

/** False only where a file is known not to be there; where looking is not permitted, opening will tell. */
function mayExist(path: string): boolean {
  if (!mayLook(path)) return true;
  try {
    return Deno.statSync(path).isFile;
  } catch (error) {
    return !(error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory);
  }
}

/** Path of the library that {@link openLibrary} takes, undefined when there is none. */
export function findLibrary(): string | undefined {
  const chosen = environment("VKMX_LIBRARY");
  if (chosen) return isAbsolute(chosen) ? chosen : resolve(chosen);
  const project = projectFolder();
  const built = project && `${project}zig-out/${Deno.build.os === "windows" ? "bin" : "lib"}/${fileName()}`;
  return built !== undefined && mayExist(built) ? built : verifiedLibrary();
}

/** The identity of a build of the library, if Deno may read the file: kernels may differ where tables are the same. */
export function libraryBuild(): string | undefined {
  const path = opened?.path ?? findLibrary();
  if (path === undefined) return undefined;
  const sum = releasedSum(path);
  if (sum !== undefined || !mayLook(path)) return sum;
  try {
    const { size, mtime } = Deno.statSync(path);
    return `${size} ${mtime?.getTime()}`;
  } catch {
    return undefined; // it is being built anew
  }
}

/** Why {@link provideLibrary} did not provide it. */
let failure: string | undefined;

const OWN_LIBRARY = "set VKMX_LIBRARY to a library built from source";

/** How to come by the library, or by one that can be opened in place of `path`, for messages. */
function advice(path?: string): string {
  if (environment("VKMX_LIBRARY")) return "VKMX_LIBRARY names it";
  if (failure !== undefined) return failure;
  if (projectFolder() && !hasRelease()) return "run `deno task setup` in the project to build it";
  if (path !== undefined) return OWN_LIBRARY;
  if (!hasRelease()) return `${whyNoRelease()}; ${OWN_LIBRARY}`;
  return gpuPresent() !== false
    ? "`await mx.prepareDevices()` before all else fetches it"
    : 'no GPU was seen; `await mx.prepareDevices("vulkan:0")` fetches it all the same';
}

const hex = (hash: number): string => `0x${hash.toString(16).padStart(8, "0")}`;

/**
 * Throws unless Deno may open a library. The permission is never asked for: a program without it needs only the CPU, and no question
 * should stop it.
 */
function checkPermission(path: string): void {
  if (granted({ name: "ffi", path })) return;
  const reason = !mayLook(path)
    ? "Deno may not look whether it is there, run again with the --allow-read and --allow-ffi flags"
    : mayExist(path)
    ? `Requires ffi access to ${JSON.stringify(path)}, run again with the --allow-ffi flag`
    : `it is not there; ${advice(path)}`;
  throw new RuntimeError("missing", "openLibrary", `cannot open ${path}: ${reason}`);
}

/** Opens one function first: a library of another build may lack the others. */
function checkAbi(path: string): void {
  let probe: Deno.DynamicLibrary<{ vkrt_abi: typeof SYMBOLS.vkrt_abi }>;
  try {
    probe = Deno.dlopen(path, { vkrt_abi: SYMBOLS.vkrt_abi });
  } catch (cause) {
    const reason = (cause as Error).message.split("\n")[0];
    const code = mayExist(path) ? "unavailable" : "missing";
    throw new RuntimeError(code, "openLibrary", `cannot open ${path}: ${reason}; ${advice(path)}`, { cause });
  }
  const found = probe.symbols.vkrt_abi();
  probe.close();
  if (found === ABI_HASH) return;
  const remedy = projectFolder() ? "run `deno task build`" : `build it from the sources of vkmx ${VERSION}`;
  const detail = `${path} has the ABI ${hex(found)}, this version of vkmx needs ${hex(ABI_HASH)}: ${remedy}`;
  throw new RuntimeError("abi", "openLibrary", detail);
}

let opened: Library | undefined;

/**
 * The library, opened at the first call and kept until the process ends: drivers do not like to be unloaded.
 *
 * Throws a RuntimeError with code "missing" when there is none, "abi" when it is of another build, "unavailable" when the
 * system cannot load it.
 */
export function openLibrary(): Library {
  if (opened) return opened;
  const path = findLibrary();
  if (path === undefined) {
    throw new RuntimeError("missing", "openLibrary", `there is no Vulkan library (${fileName()}); ${advice()}`);
  }
  checkPermission(path);
  checkAbi(path);
  for (const name of ["VKMX_STAGING", "VKMX_QUEUE_IDLE", "VKMX_FAULT"]) environment(name); // the library reads them; this reports wrong values
  opened = { path, symbols: Deno.dlopen(path, FUNCTIONS).symbols };
  forgetTemporary();
  return opened;
}

let providing: Promise<void> | undefined;

/**
 * Provides the library if there is none: in a checkout it is built by scripts/setup.ts, in a package fetched and opened. Does so
 * only where a GPU is seen; a package fetches it also if `asked`, for a software driver, or Deno may not look. Tries once in a process; why it failed
 * is in what {@link openLibrary} throws. True for the call that tried.
 */
export function provideLibrary(asked: boolean): Promise<boolean> {
  if (providing !== undefined) return providing.then(() => false);
  if (opened || findLibrary() !== undefined) return Promise.resolve(false);
  const project = hasRelease() ? undefined : projectFolder();
  const wanted = gpuPresent() ?? !project; // fetching takes little, a build installs tools
  if (!wanted && (project || !asked)) return Promise.resolve(false);
  const work = project ? buildLibrary(project) : fetchAndOpen();
  providing = work;
  return work.then(() => true);
}

async function buildLibrary(project: string): Promise<void> {
  console.error("vkmx: there is a GPU: setting up the Vulkan library, once");
  const setup = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `${project}scripts/setup.ts`],
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  });
  try {
    const { success, stderr } = await setup.output();
    if (success && findLibrary() !== undefined) return;
    failure = new TextDecoder().decode(stderr).trimEnd().split("\n").at(-1) || "it was not built";
  } catch (error) {
    failure = (error as Error).message.split("\n")[0];
  }
  failure += "; `deno task setup` tries again";
}

/** Fetches the library and opens it at once, so that no other process takes it for damaged and deletes it in between. */
async function fetchAndOpen(): Promise<void> {
  const path = releasedPath();
  if (path !== undefined && !granted({ name: "ffi", path })) {
    failure = "it is not fetched, since Deno may not open it: run again with the --allow-ffi flag";
    return;
  }
  for (let attempt = 0; attempt < 3; attempt++) {
    failure = await fetchLibrary();
    if (failure !== undefined) return;
    try {
      openLibrary();
      return;
    } catch (error) {
      if (!(error instanceof RuntimeError)) throw error;
      if (error.code !== "missing") return; // the next call that opens it throws the error
    }
  }
  failure = `${path ?? "the library"} goes away as soon as it is written`;
}
