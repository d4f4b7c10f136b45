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
import { createHash } from "node:crypto";
import { dirname, join } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { cacheFolder, tellNotKept } from "./cache_folder.ts";
import { environment, granted } from "./environment.ts";
import { readFile, writeWhole } from "./file.ts";
import { type ReleasedLibrary, RELEASES } from "./releases.ts";
import { fileName, target, VERSION } from "./version.ts";

/** A source that has not answered for so long is given up. */
const LIMIT_MS = 120_000;
/** What takes less is not told. */
const TELL_AFTER_MS = 1000;
const TELL_EVERY_MS = 10_000;

/** The folder for temporary files where no variable names one. */
const TEMPORARY = Deno.build.os === "windows" ? "C:\\Windows\\Temp" : "/tmp";

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

/** Where the library is kept; undefined where there is no cache folder. */
export function releasedPath(): string | undefined {
  const cache = cacheFolder();
  return cache ? join(cache, VERSION, target(), fileName()) : undefined;
}

/** Whether bytes are the released ones. */
function isReleased(bytes: Uint8Array, release: ReleasedLibrary): boolean {
  return bytes.length === release.bytes && createHash("sha256").update(bytes).digest("hex") === release.sha256;
}

/**
 * Path of the released library, whose every byte was compared just now; undefined where it is not here. A file that is not the
 * released one is deleted.
 */
export function verifiedLibrary(): string | undefined {
  const release = RELEASES[target()];
  const path = temporaryFolder ? join(temporaryFolder, fileName()) : releasedPath();
  if (release === undefined || path === undefined || !granted({ name: "read", path })) return undefined;
  return verifies(path, release) ? path : undefined;
}

function verifies(path: string, release: ReleasedLibrary): boolean {
  try {
    const before = Deno.statSync(path);
    const whole = before.size === release.bytes && isReleased(readFile(path, release.bytes), release);
    // Another process may have put a whole file there meanwhile.
    const now = Deno.statSync(path);
    if (!whole && before.ino === now.ino && before.mtime?.getTime() === now.mtime?.getTime()) Deno.removeSync(path);
    return whole;
  } catch {
    return false; // it is not there, or cannot be read, or not be deleted: it is not opened
  }
}

/** SHA-256 of the released library at that path; undefined for any other file. */
export function releasedSum(path: string): string | undefined {
  return path === releasedPath() || dirname(path) === temporaryFolder ? RELEASES[target()]?.sha256 : undefined;
}

/** Removes the temporary folder, where the system lets go of a file that is open. */
export function forgetTemporary(): void {
  if (temporaryFolder === undefined || Deno.build.os === "windows") return;
  try {
    Deno.removeSync(temporaryFolder, { recursive: true });
  } catch { /* the system cleans up */ }
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
    : refusedNetwork("import", [`${url.hostname}:${url.port || (url.protocol === "http:" ? 80 : 443)}`]);
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

/** Why the network is not used; Deno's question on the terminal is never asked. */
function refusedNetwork(name: "import" | "net", hosts: readonly string[]): string | undefined {
  if (environment("VKMX_OFFLINE") === "1") return "VKMX_OFFLINE=1 forbids the network";
  if (hosts.every((host) => granted({ name, host }))) return undefined;
  return `Requires ${name} access to ${hosts.join(",")}, run again with the --allow-${name} flag`;
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

/** Tells on stderr what takes long, and ends what takes too long. */
async function watched<T>(url: string, work: Promise<T>): Promise<T> {
  const start = performance.now();
  const seconds = (): string => `${Math.round((performance.now() - start) / 1000)} s`;
  let told = 0;
  const tell = (): void => {
    console.error(
      told++ === 0
        ? `vkmx: fetching the Vulkan library, once: ${url}`
        : `vkmx: still fetching the Vulkan library (${seconds()}); VKMX_OFFLINE=1 leaves it out`,
    );
    timer = setTimeout(tell, TELL_EVERY_MS);
  };
  let timer = setTimeout(tell, TELL_AFTER_MS);
  const { promise: late, reject } = Promise.withResolvers<never>();
  const limit = setTimeout(() => reject(new Error(`no answer within ${LIMIT_MS / 1000} s`)), LIMIT_MS);
  try {
    const result = await Promise.race([work, late]);
    if (told > 0) console.error(`vkmx: the Vulkan library is here (${seconds()})`);
    return result;
  } finally {
    clearTimeout(timer);
    clearTimeout(limit);
  }
}

/** A folder of this process alone, where Deno may write; throws where there can be none. */
function makeTemporaryFolder(): string {
  const dir = environment("TMPDIR") ?? environment("TEMP") ?? TEMPORARY;
  if (!granted({ name: "read", path: dir }) || !granted({ name: "write", path: dir })) {
    throw new Error(`cannot write ${dir}: Requires read and write access`);
  }
  try {
    return Deno.makeTempDirSync({ dir, prefix: "vkmx_" });
  } catch (error) {
    throw new Error(`cannot write ${dir}: ${firstLine(error)}`);
  }
}

/** Writes verified bytes where they are found again, else to a temporary folder; throws where neither can be. */
function keep(bytes: Uint8Array): void {
  const path = releasedPath();
  const reason = path === undefined ? undefined : writeInto(path, bytes);
  if (path !== undefined && reason === undefined) return;
  try {
    const folder = makeTemporaryFolder();
    writeWhole(join(folder, fileName()), [bytes]);
    temporaryFolder = folder;
  } catch (error) {
    throw new Error([reason, firstLine(error)].filter((text) => text !== undefined).join("; "));
  }
  tellNotKept(reason);
}

/** Writes a file and the folders that it lies in; returns why it cannot be written. */
function writeInto(path: string, bytes: Uint8Array): string | undefined {
  const folder = dirname(path);
  // Deno answers what is not granted with a question, this function with a reason.
  if (![folder, cacheFolder()].every((path) => granted({ name: "write", path }) && granted({ name: "read", path }))) {
    return `cannot write ${path}: Requires read and write access`;
  }
  let reason = "";
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      Deno.mkdirSync(folder, { recursive: true });
      writeWhole(path, [bytes]);
      return undefined;
    } catch (error) {
      if (verifiedLibrary() !== undefined) return undefined; // another process was faster, and Windows has its file open
      reason = `cannot write ${path}: ${firstLine(error)}`;
    }
  }
  return reason;
}

/** What an error says, and what its cause does: "fetch failed" alone says little. */
function firstLine(error: unknown): string {
  if (!(error instanceof Error)) return String(error).split("\n")[0];
  const own = error.message.split("\n")[0].replace(/\.$/, "");
  return error.cause instanceof Error ? `${own}: ${firstLine(error.cause)}` : own;
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
      bytes = await watched(url, read(release));
      if (!isReleased(bytes, release)) throw new Error("it is damaged: its SHA-256 is not that of the release");
    } catch (error) {
      reasons.push(`${url}: ${firstLine(error)}`);
      continue;
    }
    try {
      keep(bytes);
      return undefined;
    } catch (error) {
      return firstLine(error);
    }
  }
  return `the library of vkmx ${VERSION} was not found: ${reasons.join("; ")}`;
}
