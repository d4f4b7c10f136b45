/**
 * Compares model files with their published checksums.
 *
 * Checksums come from the caller, from a SHA256SUMS file beside the model, or from the traces of Hugging Face's tools. Those leave
 * a line in `.cache/huggingface`, or a link in their cache to a file that is named after its checksum. For files outside of Git LFS
 * this is git's own checksum, SHA-1 over a header and the bytes.
 *
 * @module
 */

import type { Hash } from "node:crypto";
import { join } from "node:path";
import { checkVersion, FileError, InputFile, readFile } from "../../../ffi/file.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { listed, LlmError } from "../error.ts";
import { algorithmOf, beginHash, HASH_TITLES, type HashAlgorithm } from "../hub/hash.ts";
import { yieldToEventLoop } from "../../../ffi/turn.ts";

/** True takes the sums that lie beside the model; an object gives the SHA-256 of files by name, in hexadecimal digits. */
export type Verify = boolean | Readonly<Record<string, string>>;

/** The checksum that a file must have. */
interface Sum {
  readonly algorithm: HashAlgorithm;
  readonly hex: string;
  /** Where it comes from, for messages. */
  readonly from: string;
}

/** Names of files with lines as sha256sum writes them. */
const SUM_FILES = ["SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt"];
const MAX_SUM_FILE = 2 ** 20;
const MAX_METADATA = 2 ** 12;
/** A line of sha256sum, and one with --tag as BSD writes it. */
const LINES = [
  /^(?<hex>[0-9a-f]{64}) [ *](?:\.\/)?(?<name>.+)$/i,
  /^SHA256 \((?:\.\/)?(?<name>.+)\) = (?<hex>[0-9a-f]{64})$/i,
];
const SHA256 = /^[0-9a-f]{64}$/i;

const READ_BYTES = 2 ** 22;
/** After so many bytes the event loop runs and an abort is seen. */
const TURN_BYTES = 2 ** 26;

/** Bytes of a file of at most `most` bytes; undefined if there is none. */
function optional(path: string, most: number): string | undefined {
  try {
    return new TextDecoder().decode(readFile(path, most));
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    if (cause.code === "missing") return undefined;
    throw new LlmError("checksum", `${shownPath(path)} ${cause.message}`);
  }
}

function sumOf(hex: string | undefined, from: string): Sum | undefined {
  const algorithm = algorithmOf(hex);
  return algorithm && { algorithm, hex: hex!, from };
}

/** The sums of a model directory. */
export class Checksums {
  readonly #dir: string;
  readonly #given: ReadonlyMap<string, Sum>;
  readonly #search: boolean;
  /** Versions of the files that were read in pieces. */
  readonly #versions = new Map<string, string>();

  private constructor(dir: string, given: ReadonlyMap<string, Sum>, search: boolean) {
    this.#dir = dir;
    this.#given = given;
    this.#search = search;
  }

  /** The sums that `verify` asks for, undefined for none; `names` are the files that are read. Throws if it names others. */
  static of(dir: string, verify: Verify | undefined, names: readonly string[]): Checksums | undefined {
    if (verify === undefined || verify === false) return undefined;
    if (verify === true) return new Checksums(dir, readSumFiles(dir), true);
    const given = new Map<string, Sum>();
    if (typeof verify !== "object" || verify === null || Array.isArray(verify)) {
      throw new LlmError("option", `load() expected verify: true or sums by name: found ${quoted(verify)}`);
    }
    for (const [name, hex] of Object.entries(verify)) {
      if (!names.includes(name)) {
        throw new LlmError(
          "checksum",
          `${shownPath(dir)}: verify names ${quoted(name)}, which is not a file that load() reads here`,
        );
      }
      if (typeof hex !== "string" || !SHA256.test(hex)) {
        throw new LlmError(
          "option",
          `load() expected a SHA-256 of 64 hexadecimal digits for ${quoted(name)}: found ${quoted(hex)}`,
        );
      }
      given.set(name, { algorithm: "sha256", hex: hex.toLowerCase(), from: "verify" });
    }
    return new Checksums(dir, given, false);
  }

  /** Compares the bytes of a whole file, if there is a sum of it. Throws an {@link LlmError} with code "checksum". */
  check(name: string, bytes: Uint8Array): void {
    const sum = this.#find(name);
    if (sum !== undefined) this.#compare(name, sum, beginHash(sum.algorithm, bytes.length).update(bytes));
  }

  /** Compares files, which must all have a sum, while the event loop runs. */
  async checkFiles(names: readonly string[], signal?: AbortSignal): Promise<void> {
    const without = names.filter((name) => this.#find(name) === undefined);
    if (without.length > 0) {
      const places = this.#search ? `no ${SUM_FILES[0]} and no download of Hugging Face tells` : "verify does not name";
      const which = listed(without.map(shownPath));
      throw new LlmError("checksum", `${shownPath(this.#dir)}: ${places} the SHA-256 of ${which}`);
    }
    for (const name of names) await this.#checkFile(name, this.#find(name)!, signal);
  }

  /** Throws if a file changed since it was compared. */
  finish(): void {
    for (const [name, version] of this.#versions) {
      this.#reading(name, () => checkVersion(join(this.#dir, name), version));
    }
  }

  async #checkFile(name: string, sum: Sum, signal: AbortSignal | undefined): Promise<void> {
    using file = this.#reading(name, () => new InputFile(join(this.#dir, name)));
    const hash = beginHash(sum.algorithm, file.size);
    const bytes = new Uint8Array(Math.min(READ_BYTES, file.size));
    for (let at = 0; at < file.size; at += READ_BYTES) {
      const piece = bytes.subarray(0, Math.min(READ_BYTES, file.size - at));
      this.#reading(name, () => file.readInto(piece, at));
      hash.update(piece);
      if (at % TURN_BYTES !== 0) continue;
      await yieldToEventLoop();
      signal?.throwIfAborted();
    }
    this.#compare(name, sum, hash);
    this.#versions.set(name, file.version);
  }

  #compare(name: string, { algorithm, hex, from }: Sum, hash: Hash): void {
    const found = hash.digest("hex");
    if (found === hex) return;
    const path = shownPath(join(this.#dir, name));
    const title = HASH_TITLES[algorithm];
    throw new LlmError(
      "checksum",
      `${path} is not the file that was published: its ${title} is ${found}, expected ${hex} (${from}): download it again`,
    );
  }

  #find(name: string): Sum | undefined {
    return this.#given.get(name) ?? (this.#search ? downloaded(this.#dir, name) : undefined);
  }

  #reading<T>(name: string, read: () => T): T {
    try {
      return read();
    } catch (cause) {
      if (!(cause instanceof FileError)) throw cause;
      throw new LlmError("weights", `${shownPath(join(this.#dir, name))} ${cause.message}`);
    }
  }
}

/** The sums in files beside the model. */
function readSumFiles(dir: string): Map<string, Sum> {
  const found = new Map<string, Sum>();
  for (const from of SUM_FILES) {
    for (const line of optional(join(dir, from), MAX_SUM_FILE)?.split(/\r?\n/) ?? []) {
      const { name, hex } = LINES.map((pattern) => pattern.exec(line)).find(Boolean)?.groups ?? {};
      if (name !== undefined && !found.has(name)) {
        found.set(name, { algorithm: "sha256", hex: hex.toLowerCase(), from });
      }
    }
  }
  return found;
}

/** The sum that Hugging Face's tools kept of a file when they downloaded it. */
function downloaded(dir: string, name: string): Sum | undefined {
  const path = join(dir, ".cache", "huggingface", "download", `${name}.metadata`);
  const [, tag] = optional(path, MAX_METADATA)?.split("\n") ?? [];
  const kept = sumOf(tag?.trim(), `${name}.metadata`);
  if (kept) return kept;
  try {
    using file = new InputFile(join(dir, name));
    return sumOf(/[\\/]blobs[\\/]([0-9a-f]+)$/.exec(file.resolve())?.[1], "the cache of Hugging Face");
  } catch (cause) {
    if (cause instanceof FileError) return undefined; // reading it says why
    throw cause;
  }
}
