/**
 * A folder that appears whole or not at all. Its files are written under another name beside it, which becomes its own when all are
 * there. If the program ends before, Ctrl-C included, nothing is left; only a killed process leaves the folder `NAME.xxxxxxxx.tmp`.
 *
 * Everything throws a {@link FileError} whose message goes after the path.
 *
 * @module
 */

import { basename, dirname, join, resolve } from "node:path";
import { onExit } from "./exit.ts";
import { FileError, refused } from "./file.ts";
import { find, freeBytes, makeFolder, names, remove } from "./store.ts";

/** A file whose bytes come in any order. */
export class OutputFile implements Disposable {
  readonly #file: Deno.FsFile;

  /** Makes a file, which must not exist. */
  constructor(path: string) {
    this.#file = writing(() => Deno.openSync(path, { write: true, createNew: true }));
  }

  /** Writes bytes from `offset` on. */
  write(bytes: Uint8Array, offset: number): void {
    writing(() => {
      this.#file.seekSync(offset, Deno.SeekMode.Start);
      for (let at = 0; at < bytes.length;) at += this.#file.writeSync(bytes.subarray(at));
    });
  }

  /** Returns when all bytes are on the disk. */
  sync(): void {
    writing(() => this.#file.syncDataSync());
  }

  /** Closes it. */
  [Symbol.dispose](): void {
    this.#file.close();
  }
}

/** The folder; disposing of it before {@link OutputFolder.finish} removes the written files. */
export class OutputFolder implements Disposable {
  readonly #path: string;
  readonly #temporary: string;
  /** The topmost folder that was made for it, which goes too. */
  readonly #made: string | undefined;
  readonly #onExit: Disposable;
  #open = true;

  private constructor(path: string, made: string | undefined) {
    this.#path = path;
    this.#made = made;
    this.#temporary = join(dirname(path), `${basename(path)}.${crypto.randomUUID().slice(0, 8)}.tmp`);
    this.#onExit = onExit(() => this[Symbol.dispose]());
    try {
      makeFolder(this.#temporary);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  /** Begins a folder. Throws if there is something of that name, other than an empty folder, or if the disk lacks `bytes`. */
  static make(given: string, bytes: number): OutputFolder {
    const path = resolve(given);
    checkFree(path);
    let [above, made]: [string, string | undefined] = [dirname(path), undefined];
    while (find(above) === undefined && dirname(above) !== above) [above, made] = [dirname(above), above];
    if (find(above)?.kind !== "folder") throw new FileError("kind", `cannot be written: ${above} is no folder`);
    const free = freeBytes(above);
    if (free !== undefined && free < bytes) {
      const [needed, there] = [bytes, free].map((count) => `${(count / 1e9).toFixed(2)} GB`);
      throw new FileError("size", `needs ${needed} and its disk has ${there} free: choose another disk, or make room`);
    }
    return new OutputFolder(path, made);
  }

  /** Makes a file of a name, which may be in a folder of this one. */
  file(name: string): OutputFile {
    const path = join(this.#temporary, name);
    makeFolder(dirname(path));
    return new OutputFile(path);
  }

  /** Writes a whole file. */
  write(name: string, bytes: Uint8Array): void {
    using file = this.file(name);
    file.write(bytes, 0);
    file.sync();
  }

  /** Gives the folder its name. Throws if something else has it by now. */
  finish(): void {
    checkFree(this.#path);
    writing(() => {
      if (find(this.#path) !== undefined) Deno.removeSync(this.#path); // an empty folder; Windows renames over none
      Deno.renameSync(this.#temporary, this.#path);
    });
    this.#open = false;
    this.#onExit[Symbol.dispose]();
  }

  /** Removes all that was written, unless it is finished. */
  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    this.#onExit[Symbol.dispose]();
    remove(this.#temporary);
    if (this.#made !== undefined) remove(this.#made);
  }
}

/** Throws if a path is taken. */
export function checkFree(path: string): void {
  const found = find(path);
  if (found === undefined || (found.kind === "folder" && names(path).length === 0)) return;
  throw new FileError("kind", "exists already: remove it or choose another name");
}

function writing<T>(write: () => T): T {
  try {
    return write();
  } catch (cause) {
    refused(cause, "written");
  }
}
