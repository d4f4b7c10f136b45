/**
 * Files that were published with this version: fetched once, kept in the cache folder, and verified each time before they are used.
 *
 * Neither the place that they come from nor the disk is trusted: bytes count only where their SHA-256 is the one in this source. A
 * file appears under its name when it is whole, so that any number of programs may start at once.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { dirname, join } from "node:path";
import { cacheFolder, tellNotKept } from "./cache_folder.ts";
import { environment, granted } from "./environment.ts";
import { readFile, writeWhole } from "./file.ts";
import { VERSION } from "./version.ts";

/** The size and hash of a published file. */
export interface PublishedFile {
  /** Its size in bytes. */
  readonly bytes: number;
  /** SHA-256 of these bytes in hexadecimal. */
  readonly sha256: string;
}

/** A source that has not answered for so long is given up. */
const LIMIT_MS = 120_000;
/** A shorter download is not announced. */
const TELL_AFTER_MS = 1000;
const TELL_EVERY_MS = 10_000;

/** The folder for temporary files where no variable names one. */
const TEMPORARY = Deno.build.os === "windows" ? "C:\\Windows\\Temp" : "/tmp";

/** Where files of this version are kept, by the parts of a path in the cache folder; undefined if there is no such folder. */
export function keptPath(...parts: readonly string[]): string | undefined {
  const cache = cacheFolder();
  return cache ? join(cache, VERSION, ...parts) : undefined;
}

/** Whether bytes are the published ones. */
export function isPublished(bytes: Uint8Array, file: PublishedFile): boolean {
  return bytes.length === file.bytes && createHash("sha256").update(bytes).digest("hex") === file.sha256;
}

/** Whether a path leads to the published file; every byte is compared. */
export function isWhole(path: string, file: PublishedFile): boolean {
  if (!granted({ name: "read", path })) return false;
  try {
    return Deno.statSync(path).size === file.bytes && isPublished(readFile(path, file.bytes), file);
  } catch {
    return false; // it is not there, or cannot be read
  }
}

/** The same; a file that is another one is deleted. */
export function isKept(path: string, file: PublishedFile): boolean {
  if (!granted({ name: "read", path })) return false;
  try {
    const before = Deno.statSync(path);
    const whole = isWhole(path, file);
    // Another process may have put a whole file there meanwhile.
    const now = Deno.statSync(path);
    if (!whole && before.ino === now.ino && before.mtime?.getTime() === now.mtime?.getTime()) Deno.removeSync(path);
    return whole;
  } catch {
    return false; // it is not there, or cannot be deleted: it is not used
  }
}

/** Writes a published file and the folders that it lies in; returns why it cannot be written. */
export function keep(path: string, bytes: Uint8Array, file: PublishedFile): string | undefined {
  const folder = dirname(path);
  // Deno answers a missing permission with a question, this function with a reason.
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
      if (isWhole(path, file)) return undefined; // another process was faster, and Windows has its file open
      reason = `cannot write ${path}: ${firstLine(error)}`;
    }
  }
  return reason;
}

/** Writes files to a temporary folder, which is returned. Throws if there can be none; `reason` is why they are not kept. */
export function keepForNow(files: Iterable<readonly [name: string, bytes: Uint8Array]>, reason?: string): string {
  try {
    const folder = makeTemporaryFolder();
    for (const [name, bytes] of files) writeWhole(join(folder, name), [bytes]);
    tellNotKept(reason);
    return folder;
  } catch (error) {
    throw new Error([reason, firstLine(error)].filter((text) => text !== undefined).join("; "));
  }
}

/** A folder of this process alone, if Deno may write; throws if there can be none. */
export function makeTemporaryFolder(): string {
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

/** Removes a temporary folder; the system cleans up what cannot be removed. */
export function removeTemporaryFolder(path: string): void {
  try {
    Deno.removeSync(path, { recursive: true });
  } catch { /* it is the system's then */ }
}

/** Why the network is not used; Deno's question on the terminal is never asked. */
export function refusedNetwork(name: "import" | "net", hosts: readonly string[]): string | undefined {
  if (environment("VKMX_OFFLINE") === "1") return "VKMX_OFFLINE=1 forbids the network";
  if (hosts.every((host) => granted({ name, host }))) return undefined;
  return `Requires ${name} access to ${hosts.join(",")}, run again with the --allow-${name} flag`;
}

/** Host and port of an address, as permissions name them. */
export function hostOf({ hostname, port, protocol }: URL): string {
  return `${hostname}:${port || (protocol === "http:" ? 80 : 443)}`;
}

/** Tells on stderr what takes long, and ends what takes too long. `what` has an article. */
export async function watched<T>(what: string, url: string, work: Promise<T>): Promise<T> {
  const start = performance.now();
  const seconds = (): string => `${Math.round((performance.now() - start) / 1000)} s`;
  let told = 0;
  const tell = (): void => {
    console.error(
      told++ === 0
        ? `vkmx: fetching ${what}, once: ${url}`
        : `vkmx: still fetching ${what} (${seconds()}); VKMX_OFFLINE=1 leaves it out`,
    );
    timer = setTimeout(tell, TELL_EVERY_MS);
  };
  let timer = setTimeout(tell, TELL_AFTER_MS);
  const { promise: late, reject } = Promise.withResolvers<never>();
  const limit = setTimeout(() => reject(new Error(`no answer within ${LIMIT_MS / 1000} s`)), LIMIT_MS);
  try {
    const result = await Promise.race([work, late]);
    if (told > 0) console.error(`vkmx: ${what} is here (${seconds()})`);
    return result;
  } finally {
    clearTimeout(timer);
    clearTimeout(limit);
  }
}

/** The messages of an error and of its cause: "fetch failed" alone says little. */
export function firstLine(error: unknown): string {
  if (!(error instanceof Error)) return String(error).split("\n")[0];
  const own = error.message.split("\n")[0].replace(/\.$/, "");
  return error.cause instanceof Error ? `${own}: ${firstLine(error.cause)}` : own;
}
