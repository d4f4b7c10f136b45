/**
 * Finds libvk_runtime and opens it: VKMX_LIBRARY, then the project's own build, then the cache of downloaded releases.
 *
 * Nothing is opened at import. Paths given to the system are absolute, so that its search path has no say; a library of
 * another build than this source is refused by its ABI hash. Only a path-scoped --allow-ffi is needed.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { isAbsolute, resolve } from "node:path";
import { cacheFolder } from "./cache.ts";
import { environment, granted } from "./environment.ts";
import { RuntimeError } from "./error.ts";
import { ABI_HASH, SYMBOLS } from "./symbols.ts";

/** Version of the package; the same as in deno.json. */
export const VERSION = "0.1.0";

/** SHA-256 of the released libraries by target. A target that is not here has no release. */
const RELEASES: Readonly<Record<string, string>> = {};
const RELEASE_URL = `https://github.com/vkmx/vkmx/releases/download/v${VERSION}/`;

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

/** File name of the library on this system. */
function fileName(): string {
  if (Deno.build.os === "windows") return "vk_runtime.dll";
  return Deno.build.os === "darwin" ? "libvk_runtime.dylib" : "libvk_runtime.so";
}

/** Name of this system in the list of releases, such as "x86_64-linux". */
export function target(): string {
  return `${Deno.build.arch}-${Deno.build.os}`;
}

/** The checkout that this module lies in, with a closing separator; undefined when it was loaded from a registry. */
function projectFolder(): string | undefined {
  const root = new URL("../", import.meta.url);
  return root.protocol === "file:" ? fileURLToPath(root) : undefined;
}

/** Where a downloaded library is kept. */
function downloadedPath(): string | undefined {
  const cache = cacheFolder();
  return cache ? resolve(cache, VERSION, target(), fileName()) : undefined;
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
  return [built, downloadedPath()].find((path): path is string => path !== undefined && mayExist(path));
}

/** How to come by the library, for messages. */
function advice(): string {
  if (environment("VKMX_LIBRARY")) return "VKMX_LIBRARY names it";
  if (projectFolder()) return "run `deno task setup` in the project to build it";
  if (RELEASES[target()]) return "call prepareDevices(), or set VKMX_LIBRARY to a library built from source";
  return `there is no release of ${VERSION} for ${target()}; set VKMX_LIBRARY to a library built from source`;
}

const hex = (hash: number): string => `0x${hash.toString(16).padStart(8, "0")}`;

/**
 * Throws unless Deno may open a library. It is never asked for: where arrays need no more than the CPU, a program that was not
 * given the permission is not stopped by a question.
 */
function checkPermission(path: string): void {
  if (granted({ name: "ffi", path })) return;
  const detail = `cannot open ${path}: Requires ffi access to ${
    JSON.stringify(path)
  }, run again with the --allow-ffi flag`;
  throw new RuntimeError("missing", "openLibrary", detail);
}

/** Opens one function first: a library of another build may lack the others. */
function checkAbi(path: string): void {
  let probe: Deno.DynamicLibrary<{ vkrt_abi: typeof SYMBOLS.vkrt_abi }>;
  try {
    probe = Deno.dlopen(path, { vkrt_abi: SYMBOLS.vkrt_abi });
  } catch (cause) {
    const reason = (cause as Error).message.split("\n")[0];
    const code = mayExist(path) ? "unavailable" : "missing";
    throw new RuntimeError(code, "openLibrary", `cannot open ${path}: ${reason}; ${advice()}`, { cause });
  }
  const found = probe.symbols.vkrt_abi();
  probe.close();
  if (found === ABI_HASH) return;
  throw new RuntimeError(
    "abi",
    "openLibrary",
    `${path} has the ABI ${hex(found)}, this version of vkmx needs ${hex(ABI_HASH)}: run \`deno task build\``,
  );
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
  for (const name of ["VKMX_STAGING", "VKMX_QUEUE_IDLE", "VKMX_FAULT"]) environment(name); // the library reads them; here wrong values are told
  return opened = { path, symbols: Deno.dlopen(path, FUNCTIONS).symbols };
}

/**
 * Downloads the release for this machine into the cache and returns its path.
 *
 * Throws a RuntimeError with code "missing" where there is no release, and refuses a file whose SHA-256 is not the
 * published one. Needs network and write access.
 */
async function downloadLibrary(): Promise<string> {
  const sha256 = RELEASES[target()];
  const path = downloadedPath();
  if (sha256 === undefined || path === undefined) {
    const reason = path ? `there is no release of ${VERSION} for ${target()}` : "there is no cache folder";
    throw new RuntimeError(
      "missing",
      "downloadLibrary",
      `${reason}; build the library from source with \`deno task build\``,
    );
  }
  const specifier = "jsr:@denosaurs/plug@1.1.0"; // a variable: the registry is asked only when this line runs
  const { download } = await import(specifier);
  const temporary: string = await download({
    url: `${RELEASE_URL}${target()}-${fileName()}`,
    cache: "reloadAll",
    location: "tmp",
  });
  const bytes = await Deno.readFile(temporary);
  await Deno.remove(temporary);
  const found = createHash("sha256").update(bytes).digest("hex");
  if (found !== sha256) {
    throw new RuntimeError(
      "missing",
      "downloadLibrary",
      `the download has SHA-256 ${found} instead of ${sha256}; try again`,
    );
  }
  await Deno.mkdir(resolve(path, ".."), { recursive: true });
  await Deno.writeFile(`${path}.partial`, bytes);
  await Deno.rename(`${path}.partial`, path);
  return path;
}

/** Whether this machine shows signs of a GPU: a render node, an NVIDIA, AMD or WSL device; always on Apple silicon. */
export function gpuPresent(): boolean {
  if (Deno.build.os === "darwin") return Deno.build.arch === "aarch64";
  if (Deno.build.os === "windows") {
    return mayExist(`${environment("SystemRoot") ?? "C:\\Windows"}\\System32\\vulkan-1.dll`);
  }
  const present = (path: string): boolean => {
    try {
      return mayLook(path) && Deno.statSync(path) !== undefined;
    } catch {
      return false;
    }
  };
  if (["/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"].some(present)) return true;
  try {
    return mayLook("/dev/dri") &&
      Array.from(Deno.readDirSync("/dev/dri")).some((entry) => entry.name.startsWith("renderD"));
  } catch {
    return false;
  }
}

/**
 * Builds the library in a checkout by running scripts/setup.ts, or downloads it elsewhere. Returns undefined when it is there
 * afterwards, else one line that says why not.
 */
export async function provideLibrary(): Promise<string | undefined> {
  const project = projectFolder();
  try {
    if (!project) {
      await downloadLibrary();
      return undefined;
    }
    const setup = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", `${project}scripts/setup.ts`],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    });
    const { success, stderr } = await setup.output();
    if (success && findLibrary()) return undefined;
    return new TextDecoder().decode(stderr).trimEnd().split("\n").at(-1) || "deno task setup failed";
  } catch (error) {
    return error instanceof RuntimeError ? error.detail : (error as Error).message.split("\n")[0];
  }
}
