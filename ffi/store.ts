/**
 * Folders that several processes write to at once: locks that die with their process, files that are filled from where they end, links.
 *
 * Everything throws a {@link FileError} whose message goes after the path. Paths are the caller's: names from a network must have been
 * checked before.
 *
 * @module
 */

import { statfsSync } from "node:fs";
import { dirname, relative } from "node:path";
import { FileError, lock, refused } from "./file.ts";

/** The kind of a path's target. */
export interface Found {
  /** Whether it is a regular file or a folder. */
  readonly kind: "file" | "folder" | "other";
  /** Bytes of a file. */
  readonly size: number;
  /** When it was read or written last, in milliseconds since 1970. */
  readonly used: number;
}

/** The kind of a path's target, through links; undefined if there is none. */
export function find(path: string): Found | undefined {
  try {
    const { isFile, isDirectory, size, atime, mtime } = Deno.statSync(path);
    const used = Math.max(atime?.getTime() ?? 0, mtime?.getTime() ?? 0);
    return { kind: isFile ? "file" : isDirectory ? "folder" : "other", size, used };
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    refused(cause);
  }
}

/** Names in a folder, in order; none if there is no such folder. */
export function names(folder: string): string[] {
  try {
    return Array.from(Deno.readDirSync(folder), (entry) => entry.name).sort();
  } catch (cause) {
    if (isMissing(cause)) return [];
    refused(cause);
  }
}

/** The text of a link as it is written; undefined if the path is no link. */
export function linkTarget(path: string): string | undefined {
  try {
    return Deno.lstatSync(path).isSymlink ? Deno.readLinkSync(path) : undefined;
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    refused(cause);
  }
}

/** Makes a folder and those that it lies in. */
export function makeFolder(path: string): void {
  try {
    Deno.mkdirSync(path, { recursive: true });
  } catch (cause) {
    refused(cause, "written");
  }
}

/** Removes a file, a link or a folder with all that is in it; nothing happens if there is none. */
export function remove(path: string): void {
  try {
    Deno.removeSync(path, { recursive: true });
  } catch (cause) {
    if (!isMissing(cause)) refused(cause, "written");
  }
}

/** Bytes that may still be written to the file system of a folder; undefined if that is not told. */
export function freeBytes(folder: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

/**
 * Makes `path` lead to a file by a relative link, so that the folder above both can be moved. If links are not allowed, as on Windows,
 * it becomes a second name of the same bytes. If that is not possible either, it becomes a copy. An old `path` is replaced in one step.
 */
export function link(file: string, path: string): void {
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`;
  const ways = [
    () => Deno.symlinkSync(relative(dirname(path), file), temporary, { type: "file" }),
    () => Deno.linkSync(file, temporary),
    () => Deno.copyFileSync(file, temporary),
  ];
  try {
    const failed = ways.findIndex((way) => succeeds(way));
    if (failed < 0) ways[2](); // throws the reason
    Deno.renameSync(temporary, path);
  } catch (cause) {
    succeeds(() => Deno.removeSync(temporary));
    refused(cause, "written");
  }
}

/** A lock that one process at a time holds, or none if the file system has no locks. It goes with the process. */
export class Lock implements Disposable {
  readonly #file: Deno.FsFile | undefined;

  private constructor(file: Deno.FsFile | undefined) {
    this.#file = file;
  }

  /** Takes the lock of a path, a file that stays empty; undefined if another process, or another part of this one, has it. */
  static take(path: string): Lock | undefined {
    try {
      const file = Deno.openSync(path, { write: true, create: true });
      const got = lock(file);
      if (got === undefined) {
        file.close();
        return new Lock(undefined);
      }
      // The former holder may have removed the file: then the lock of another one counts.
      if (got && file.statSync().nlink !== 0) return new Lock(file);
      file.close();
      return undefined;
    } catch (cause) {
      refused(cause, "written");
    }
  }

  /** Lets go. */
  [Symbol.dispose](): void {
    this.#file?.close();
  }
}

/** A file that is filled from where it ends, and becomes another one when it is whole. */
export class PartialFile implements Disposable {
  /** Where it lies. */
  readonly path: string;
  readonly #file: Deno.FsFile;
  #size: number;
  #open = true;

  /** Opens a path; makes an empty file where there is none. */
  constructor(path: string) {
    try {
      this.path = path;
      this.#file = Deno.openSync(path, { read: true, write: true, create: true });
      this.#size = this.#file.statSync().size;
    } catch (cause) {
      refused(cause, "written");
    }
  }

  /** Bytes that it has. */
  get size(): number {
    return this.#size;
  }

  /** The bytes that are there, piece by piece. */
  async *pieces(): AsyncGenerator<Uint8Array> {
    const buffer = new Uint8Array(2 ** 22);
    try {
      await this.#file.seek(0, Deno.SeekMode.Start);
      for (let at = 0; at < this.#size;) {
        const got = await this.#file.read(buffer);
        if (got === null) throw new FileError("changed", "became shorter while it was read");
        at += got;
        yield buffer.subarray(0, got);
      }
    } catch (cause) {
      refused(cause);
    }
  }

  /** Appends bytes to the file. */
  async append(bytes: Uint8Array): Promise<void> {
    try {
      await this.#file.seek(this.#size, Deno.SeekMode.Start);
      for (let at = 0; at < bytes.length;) {
        const count = await this.#file.write(bytes.subarray(at));
        at += count;
        this.#size += count;
      }
    } catch (cause) {
      refused(cause, "written");
    }
  }

  /** Lets go of all bytes. */
  clear(): void {
    if (this.#size === 0) return;
    try {
      this.#file.truncateSync(0);
      this.#size = 0;
    } catch (cause) {
      refused(cause, "written");
    }
  }

  /** Gives the file its name, when all bytes are on the disk. It is closed then. */
  async finish(path: string): Promise<void> {
    try {
      await this.#file.syncData();
      this[Symbol.dispose](); // Windows renames no open file
      Deno.renameSync(this.path, path);
    } catch (cause) {
      refused(cause, "written");
    }
  }

  /** Closes it. */
  [Symbol.dispose](): void {
    if (this.#open) this.#file.close();
    this.#open = false;
  }
}

function isMissing(cause: unknown): boolean {
  return cause instanceof Deno.errors.NotFound || cause instanceof Deno.errors.NotADirectory;
}

function succeeds(call: () => void): boolean {
  try {
    call();
    return true;
  } catch {
    return false;
  }
}
