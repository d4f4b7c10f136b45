/**
 * The released library of this machine: fetched once, kept in the cache folder, and verified each time before it is opened.
 *
 * It comes from the package itself, which has one module for each target, else from the project's releases. Neither is trusted:
 * bytes count only where their SHA-256 is that of the table in this source. Where the cache folder cannot be written, the library lies
 * in a temporary folder until it is open.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { Buffer } from "node:buffer";
import { dirname, join } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { granted } from "./environment.ts";
import { readFile } from "./file.ts";
import {
  firstLine,
  hostOf,
  isKept,
  isPublished,
  keep,
  keepForNow,
  keptPath,
  makeTemporaryFolder,
  refusedNetwork,
  removeTemporaryFolder,
  watched,
} from "./published_files.ts";
import { type ReleasedLibrary, RELEASES } from "./releases.ts";
import { fileName, target, VERSION } from "./version.ts";

/** The host of the releases, and those that it redirects downloads to. */
const RELEASE_HOSTS = ["github.com", "objects.githubusercontent.com", "release-assets.githubusercontent.com"];

/** Whether there is a released library for this machine. */
export function hasRelease(): boolean {
  return RELEASES[target()] !== undefined;
}

/** Why there is no released library for this machine, for messages. */
export function whyNoRelease(): string {
  return Object.keys(RELEASES).length === 0
    ? `vkmx ${VERSION} was not released with libraries`
    : `vkmx ${VERSION} has no library for ${target()}`;
}

/** The temporary folder of a library that could not be kept. */
let temporaryFolder: string | undefined;

/** Where the library is kept; undefined if there is no cache folder. */
export function releasedPath(): string | undefined {
  return keptPath(target(), fileName());
}

/**
 * Path of the released library, whose every byte was compared just now; undefined if it is not here. A file that is not the
 * released one is deleted.
 */
export function verifiedLibrary(): string | undefined {
  const release = RELEASES[target()];
  const path = temporaryFolder ? join(temporaryFolder, fileName()) : releasedPath();
  return release !== undefined && path !== undefined && isKept(path, release) ? path : undefined;
}

/** SHA-256 of the released library at that path; undefined for any other file. */
export function releasedSum(path: string): string | undefined {
  return path === releasedPath() || dirname(path) === temporaryFolder ? RELEASES[target()]?.sha256 : undefined;
}

/** Removes the temporary folder, where the system lets go of a file that is open. */
export function forgetTemporary(): void {
  if (temporaryFolder === undefined || Deno.build.os === "windows") return;
  removeTemporaryFolder(temporaryFolder);
  temporaryFolder = undefined;
}

/** A place that the library comes from. */
interface Source {
  readonly url: string;
  /** Why it is not asked. */
  readonly refused?: string;
  readonly read: (release: ReleasedLibrary) => Promise<Uint8Array>;
}

/** The module of the package that holds the library. A variable, so that no other program than this loads it. */
function packagedModule(): Source {
  const specifier = `./packaged/${target()}.ts`;
  const url = new URL(specifier, import.meta.url);
  const local = url.protocol === "file:";
  const refused = local
    ? granted({ name: "read", path: url }) ? undefined : "Requires read access, run again with the --allow-read flag"
    : refusedNetwork("import", [hostOf(url)]);
  const read = async ({ bytes }: ReleasedLibrary): Promise<Uint8Array> => {
    const { LIBRARY }: { LIBRARY: string } = await import(specifier);
    return brotliDecompressSync(Buffer.from(LIBRARY, "base64"), { maxOutputLength: bytes });
  };
  return { url: url.href, refused, read };
}

/** The file among those of the release, by plug. */
function releaseDownload({ asset }: ReleasedLibrary): Source {
  const url = `https://github.com/vkmx/vkmx/releases/download/v${VERSION}/${asset}`;
  const read = async ({ bytes }: ReleasedLibrary): Promise<Uint8Array> => {
    const specifier = "jsr:@denosaurs/plug@1.1.0"; // a variable: the registry is asked only when this line runs
    const { download } = await import(specifier);
    const location = makeTemporaryFolder();
    try {
      return readFile(await quietly(() => download({ url, cache: "reloadAll", location })), bytes);
    } finally {
      Deno.removeSync(location, { recursive: true });
    }
  };
  return { url, refused: refusedNetwork("net", RELEASE_HOSTS), read };
}

/** Runs what speaks on stdout, which belongs to the program, without a word. Others that run meanwhile speak as before. */
async function quietly<T>(work: () => Promise<T>): Promise<T> {
  const silent = new AsyncLocalStorage<true>();
  const { log } = console;
  const filter = (...args: unknown[]): void => silent.getStore() ? undefined : log.apply(console, args);
  console.log = filter;
  try {
    return await silent.run(true, work);
  } finally {
    if (console.log === filter) console.log = log;
  }
}

/** Writes verified bytes where they are found again, else to a temporary folder; throws if neither can be. */
function keepLibrary(bytes: Uint8Array, release: ReleasedLibrary): void {
  const path = releasedPath();
  const reason = path === undefined ? undefined : keep(path, bytes, release);
  if (path === undefined || reason !== undefined) temporaryFolder = keepForNow([[fileName(), bytes]], reason);
}

/** Fetches the released library, so that {@link verifiedLibrary} finds it. Returns one line where it cannot, with every place asked. */
export async function fetchLibrary(): Promise<string | undefined> {
  const release = RELEASES[target()];
  if (release === undefined) return whyNoRelease();
  const reasons: string[] = [];
  for (const { url, refused, read } of [packagedModule(), releaseDownload(release)]) {
    let bytes: Uint8Array;
    try {
      if (refused !== undefined) throw new Error(refused);
      bytes = await watched("the Vulkan library", url, read(release));
      if (!isPublished(bytes, release)) throw new Error("it is damaged: its SHA-256 is not that of the release");
    } catch (error) {
      reasons.push(`${url}: ${firstLine(error)}`);
      continue;
    }
    try {
      keepLibrary(bytes, release);
      return undefined;
    } catch (error) {
      return firstLine(error);
    }
  }
  return `the library of vkmx ${VERSION} was not found: ${reasons.join("; ")}`;
}
