/**
 * The files of a model's commit: name, size and hash of each. The list comes from the hub, or from the cache of Python's
 * `huggingface_hub`. Neither is trusted.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { algorithmOf } from "./hash.ts";
import { isFileName } from "./name.ts";

/** A file of a commit. */
export interface RepoFile {
  /** Path below the model's folder, with "/". */
  readonly name: string;
  /** Bytes. */
  readonly size: number;
  /** The hash of its bytes, which is also the name of its blob: SHA-256 of a file in Git LFS, else git's object id. */
  readonly hash: string;
  /** Git's object id: for a file in Git LFS that of its pointer. */
  readonly gitId: string;
  /** Hash of the hub's store of chunks, if it tells one; only passed on. */
  readonly xetHash?: string;
}

/** Most files of a commit. */
export const MAX_FILES = 100_000;

type Json = Readonly<Record<string, unknown>>;

/** The value as an object; an empty one if it is something else. */
export function jsonObject(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value as Json : {};
}

/** The file of an entry that the hub lists; undefined for a folder. Throws an {@link LlmError} if it cannot be one. */
export function listedFile(repo: string, entry: unknown): RepoFile | undefined {
  const { type, path, size, oid, lfs, xetHash } = jsonObject(entry);
  if (type === "directory") return undefined;
  const large = lfs === undefined || lfs === null ? undefined : jsonObject(lfs);
  return checkFile(repo, {
    name: path,
    size: large?.size ?? size,
    hash: large === undefined ? oid : large.oid,
    gitId: oid,
    xetHash,
  });
}

/** The files of a list in the cache of Python's `huggingface_hub`; undefined if it is of another version or damaged. */
export function readListing(repo: string, text: string): RepoFile[] | undefined {
  try {
    const { format_version, files } = jsonObject(JSON.parse(text));
    if (format_version !== 1 || typeof files !== "object") return undefined;
    const entries = Object.entries(jsonObject(files));
    if (entries.length > MAX_FILES) return undefined;
    return entries.map(([name, entry]) => {
      const { size, blob_id, lfs_sha256, lfs_size, xet_hash } = jsonObject(entry);
      return checkFile(repo, {
        name,
        size: lfs_size ?? size,
        hash: lfs_sha256 ?? blob_id,
        gitId: blob_id,
        xetHash: xet_hash,
      });
    });
  } catch {
    return undefined;
  }
}

/** The text of that list. */
export function writeListing(files: readonly RepoFile[]): string {
  const entries = files.toSorted((a, b) => a.name < b.name ? -1 : 1).map(({ name, size, hash, gitId, xetHash }) =>
    [
      name,
      {
        size,
        blob_id: gitId,
        ...(hash !== gitId && { lfs_sha256: hash, lfs_size: size }),
        ...(xetHash !== undefined && { xet_hash: xetHash }),
      },
    ] as const
  );
  return JSON.stringify({ format_version: 1, files: Object.fromEntries(entries) }, null, 1);
}

/** A file with valid fields. */
function checkFile(
  repo: string,
  { name, size, hash, gitId, xetHash }: { readonly [K in keyof RepoFile]: unknown },
): RepoFile {
  const refuse = (what: string): never => {
    throw new LlmError("hub", `The list of files of ${repo} ${what}: nothing is downloaded`);
  };
  if (typeof name !== "string" || !isFileName(name)) return refuse(`names ${quoted(name)}, which is no name of a file`);
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) {
    return refuse(`says that ${quoted(name)} has ${quoted(size)} bytes`);
  }
  if (algorithmOf(hash) === undefined || algorithmOf(gitId) !== "git") {
    return refuse(`has no hash of ${quoted(name)}`);
  }
  const xet = algorithmOf(xetHash) === "sha256" ? { xetHash: xetHash as string } : {}; // 64 digits, as SHA-256
  return { name, size, hash: hash as string, gitId: gitId as string, ...xet };
}
