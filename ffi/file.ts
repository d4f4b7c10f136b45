/**
 * The file operations of the layers above: model files are read, and results written, through here only.
 *
 * Reading ends soon and takes no more memory than was allowed, whatever lies under a name. A path is opened once, must lead to a
 * regular file, and its size is known before the first byte is read. A FIFO, a device or a sparse file of a terabyte is an error like
 * any other.
 *
 * @module
 */

import { basename, dirname, join } from "node:path";
import { constants as zlib, crc32, inflateRawSync, type ZlibOptions } from "node:zlib";
import { closeSync, constants, fstatSync, openSync, readSync, type Stats, statSync } from "node:fs";

/**
 * Codes of a {@link FileError}.
 *
 * - "missing": there is no file of that name
 * - "kind": it is no regular file
 * - "size": it is larger than allowed
 * - "changed": it is not the file that it was a moment ago
 * - "content": it holds what cannot be
 * - "io": the system refuses
 */
export type FileErrorCode = "missing" | "kind" | "size" | "changed" | "content" | "io";

/** A file that is not read. The message tells why, in a form that goes after its name. */
export class FileError extends Error {
  /** The class's name. */
  override readonly name = "FileError";
  /** The kind of error. */
  readonly code: FileErrorCode;

  /** Makes an error with a one-line message. */
  constructor(code: FileErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The system's names of things that are no regular files. */
const KINDS = [
  ["isDirectory", "a directory"],
  ["isFIFO", "a FIFO"],
  ["isSocket", "a socket"],
  ["isCharacterDevice", "a device"],
  ["isBlockDevice", "a device"],
] as const satisfies readonly (readonly [keyof Stats, string])[];

/** Opening a FIFO waits for a writer unless this is set; for regular files it means nothing. Windows has no such thing. */
const NO_WAIT = constants.O_NONBLOCK ?? 0;

/** Files that are only looked through are read in pieces of this size. */
const CHUNK_BYTES = 2 ** 22;

/** Most bytes that are asked of the system at once. */
const READ_BYTES = 2 ** 30;

/** Throws the error of a failed call of the system; its text would repeat the path. */
export function refused(cause: unknown, how: "read" | "written" = "read"): never {
  if (cause instanceof FileError) throw cause;
  const { code, message } = cause as { code?: string; message?: string };
  if (how === "read" && (code === "ENOENT" || code === "ENOTDIR")) {
    throw new FileError("missing", "does not exist", { cause });
  }
  if (cause instanceof Deno.errors.NotCapable) {
    const flag = { read: "--allow-read", written: "--allow-write" }[how];
    throw new FileError("io", `cannot be ${how}: run again with the ${flag} flag`, { cause });
  }
  const text = String(message ?? cause).split("\n")[0].replace(/, \w+ '.*$|: \w+ '.*$/, "");
  throw new FileError("io", `cannot be ${how}: ${text}`, { cause });
}

function checkRegular(found: Stats): void {
  if (found.isFile()) return;
  const kind = KINDS.find(([is]) => found[is]())?.[1] ?? "no regular file";
  throw new FileError("kind", `is ${kind}, expected a regular file`);
}

/** A regular file that is open for reading. */
export class InputFile implements Disposable {
  /** The path that was opened. */
  readonly path: string;
  /** Bytes that it had when it was opened. */
  readonly size: number;
  /** Tells this version of the file from others: its size, and when it was written. */
  readonly version: string;
  readonly #fd: number;

  /** Opens a path. Throws a {@link FileError} if that leads to no regular file. */
  constructor(path: string) {
    let fd: number | undefined;
    try {
      this.path = path;
      checkRegular(statSync(path)); // something that is no file is not even opened
      this.#fd = fd = openSync(path, constants.O_RDONLY | NO_WAIT);
      const found = fstatSync(fd);
      checkRegular(found); // it may have taken the place of the other since
      this.size = found.size;
      this.version = versionOf(found);
    } catch (error) {
      if (fd !== undefined) closeSync(fd);
      refused(error);
    }
  }

  /** The absolute path, links resolved. */
  resolve(): string {
    try {
      return Deno.realPathSync(this.path);
    } catch (error) {
      refused(error);
    }
  }

  /** Bytes `offset` to `offset + length`. Throws a {@link FileError} if the file ends before. */
  read(offset: number, length: number): Uint8Array {
    // Checked first: memory for bytes that are not there must not be asked for.
    if (offset + length > this.size) {
      throw new FileError("size", `ends at byte ${this.size}, before byte ${offset + length}`);
    }
    const out = new Uint8Array(length);
    this.readInto(out, offset);
    return out;
  }

  /** Fills `out` with the bytes from `offset` on. Throws a {@link FileError} if the file ends before. */
  readInto(out: Uint8Array, offset: number): void {
    for (let done = 0; done < out.length;) {
      let got: number;
      try {
        got = readSync(this.#fd, out, done, Math.min(out.length - done, READ_BYTES), offset + done);
      } catch (error) {
        refused(error);
      }
      if (got === 0) {
        throw new FileError("changed", `became shorter while it was read: it ends at byte ${offset + done}`);
      }
      done += got;
    }
  }

  /** Closes it. */
  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }
}

/** Not the inode: some network file systems make up new ones. */
function versionOf({ size, mtimeMs }: Stats): string {
  return `${size} ${mtimeMs}`;
}

/**
 * Throws a {@link FileError} if a path no longer leads to a version of a file ("changed"), or that ends before byte `end`
 * ("size").
 */
export function checkVersion(path: string, version: string, end = 0): void {
  let found: Stats | undefined;
  try {
    found = statSync(path);
    checkRegular(found);
  } catch (error) {
    refused(error);
  }
  if (versionOf(found) !== version) throw new FileError("changed", "changed since it was opened: load it again");
  if (end > found.size) throw new FileError("size", `is cut off: it ends at byte ${found.size}, before byte ${end}`);
}

/** A range of a file that holds a deflate stream, and the expected size and CRC of its content. */
export interface Deflated {
  readonly offset: number;
  readonly length: number;
  /** Bytes of the content. */
  readonly expected: number;
  /** Its CRC-32. */
  readonly crc: number;
}

/** The content of a deflate stream in a file. Throws a {@link FileError} if that is not what was expected. */
export function inflateRange(path: string, { offset, length, expected, crc }: Deflated): Uint8Array {
  using file = new InputFile(path);
  const out = inflated(file.read(offset, length), { maxOutputLength: Math.max(1, expected) });
  if (out?.length !== expected) {
    const found = out === undefined ? "more" : out.length;
    throw new FileError("content", `holds ${found} bytes where ${expected} belong, at byte ${offset}`);
  }
  if (crc32(out) !== crc) throw new FileError("content", `is damaged: a checksum differs, at byte ${offset}`);
  return out;
}

/** Most bytes that the beginning of a deflate stream may grow to. */
const MAX_BEGINNING = 2 ** 26;

/** The beginning of a deflate stream's content. Throws a {@link FileError}. */
export function inflateBeginning(bytes: Uint8Array): Uint8Array {
  const out = inflated(bytes, { maxOutputLength: MAX_BEGINNING, finishFlush: zlib.Z_SYNC_FLUSH });
  if (out) return out;
  throw new FileError("content", "holds a deflate stream that grows without end");
}

/** The content of a deflate stream; undefined if it is more than `maxOutputLength`. */
function inflated(bytes: Uint8Array, options: ZlibOptions): Uint8Array | undefined {
  try {
    return inflateRawSync(bytes, options);
  } catch (cause) {
    if ((cause as { code?: string }).code === "ERR_BUFFER_TOO_LARGE") return undefined;
    throw new FileError("content", "holds a damaged deflate stream", { cause });
  }
}

/** Throws a {@link FileError} unless all bytes of a range of a file are 0 or 1. */
export function checkBooleans(path: string, offset: number, length: number): void {
  using file = new InputFile(path);
  for (let at = 0; at < length; at += CHUNK_BYTES) {
    checkBooleanBytes(file.read(offset + at, Math.min(CHUNK_BYTES, length - at)), offset + at);
  }
}

/** Throws a {@link FileError} unless all bytes are 0 or 1; `offset` is where in the file they lie. */
export function checkBooleanBytes(bytes: Uint8Array, offset: number): void {
  let bits = 0;
  for (let i = 0; i < bytes.length; i++) bits |= bytes[i];
  if (bits <= 1) return;
  const wrong = bytes.findIndex((byte) => byte > 1);
  throw new FileError("content", `has ${bytes[wrong]} in place of true or false at byte ${offset + wrong}`);
}

/** All bytes of a regular file of at most `most` bytes. Throws a {@link FileError}, before anything is read if it is larger. */
export function readFile(path: string, most: number): Uint8Array {
  using file = new InputFile(path);
  if (file.size > most) throw new FileError("size", `has ${file.size} bytes, at most ${most} are allowed`);
  return file.read(0, file.size);
}

/** The suffix of a file's name while the file is written. */
const TEMPORARY = /^[0-9a-f]{8}\.tmp$/;

/**
 * Writes a file piece by piece under a temporary name beside it and renames it, so that no half of it is ever seen. Files that killed
 * writers left beside it are removed.
 */
export function writeWhole(path: string, pieces: Iterable<Uint8Array>): void {
  sweep(path);
  const { file, temporary } = openTemporary(path);
  try {
    try {
      for (const piece of pieces) {
        for (let at = 0; at < piece.length;) at += file.writeSync(piece.subarray(at));
      }
      file.syncDataSync();
    } finally {
      file.close();
    }
    Deno.renameSync(temporary, path);
  } catch (error) {
    remove(temporary);
    throw error;
  }
}

/** Makes a temporary file for a path, locked for as long as it is open. */
function openTemporary(path: string): { readonly file: Deno.FsFile; readonly temporary: string } {
  for (;;) {
    const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`;
    const file = Deno.openSync(temporary, { write: true, createNew: true });
    if (lock(file) !== false && file.statSync().nlink !== 0) return { file, temporary };
    file.close(); // another writer swept it before it was locked
  }
}

/**
 * Removes temporary files of a path whose writer is gone. The system holds a writer's lock exactly as long as the process lives, so a
 * living writer's file is never taken.
 */
function sweep(path: string): void {
  const folder = dirname(path);
  const start = `${basename(path)}.`;
  let names: string[];
  try {
    names = fileNames(folder);
  } catch {
    return; // writing says what is wrong with the folder; one that may only be written to is not swept
  }
  for (const name of names) {
    if (!name.startsWith(start) || !TEMPORARY.test(name.slice(start.length))) continue;
    const temporary = join(folder, name);
    try {
      if (!Deno.lstatSync(temporary).isFile) continue;
      using file = Deno.openSync(temporary, { write: true });
      if (lock(file) === true) remove(temporary);
    } catch { /* it is gone, or another user's */ }
  }
}

/** Takes the lock of a file: true if this process has it now, undefined if the file system knows no locks. */
export function lock(file: Deno.FsFile): boolean | undefined {
  try {
    return file.tryLockSync(true);
  } catch {
    return undefined;
  }
}

function remove(path: string): void {
  try {
    Deno.removeSync(path);
  } catch { /* it is gone */ }
}

/** Names of all entries of a folder that are no folders. Throws a {@link FileError}; "kind" if it is no folder. */
export function fileNames(folder: string): string[] {
  try {
    return Array.from(Deno.readDirSync(folder)).filter((entry) => !entry.isDirectory).map((entry) => entry.name);
  } catch (error) {
    if (error instanceof Deno.errors.NotADirectory) throw new FileError("kind", "is a file", { cause: error });
    refused(error);
  }
}
