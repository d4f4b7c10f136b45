/**
 * The models of the cache: listing them with their sizes, comparing them with their published hashes, and removing them.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { FileError, InputFile } from "../../../ffi/file.ts";
import { find, linkTarget, Lock, names, remove } from "../../../ffi/store.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { inCache, RepoCache } from "./cache.ts";
import { algorithmOf, beginHash } from "./hash.ts";
import type { HubName } from "./name.ts";

/** A file of a model in the cache. */
export interface CachedFile {
  /** Its name in the model. */
  readonly name: string;
  /** Bytes. */
  readonly size: number;
  /** The published hash: SHA-256 of a file in Git LFS, else git's object id; undefined if unknown. */
  readonly hash: string | undefined;
}

/** One commit of a model in the cache. */
export interface CachedModel {
  /** "org/name". */
  readonly name: string;
  /** The commit. */
  readonly commit: string;
  /** The branches and tags that were last seen at this commit. */
  readonly revisions: readonly string[];
  /** Its folder. */
  readonly path: string;
  /** Bytes of its files; other commits of the model may share them. */
  readonly size: number;
  /** When one of its files was read or written last. */
  readonly lastUsed: Date;
  /** Its files by name. */
  readonly files: readonly CachedFile[];
  /** Files that loading it needs and that are not there. */
  readonly missing: readonly string[];
}

/** A file that was compared with the published hash. */
export interface VerifiedFile {
  /** Its name in the model. */
  readonly name: string;
  /** "unknown" where nothing tells its hash. */
  readonly state: "good" | "damaged" | "unknown";
}

/** Every commit of every model in a cache, by name. */
export function cachedModels(cache: string): CachedModel[] {
  return RepoCache.all(cache).flatMap((repo) => repo.commits().map((commit) => describe(repo, commit)))
    .toSorted((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : b.lastUsed.getTime() - a.lastUsed.getTime());
}

/** The commits of a model in a cache: that of a revision, or all. Throws an {@link LlmError} if there is none. */
export function cachedCommits(cache: string, { repo, revision }: HubName): readonly [RepoCache, readonly string[]] {
  const folder = new RepoCache(cache, repo);
  const all = folder.commits();
  const commit = revision === undefined ? undefined : folder.commitOf(revision);
  const commits = revision === undefined ? all : all.filter((one) => one === commit);
  if (commits.length > 0) return [folder, commits];
  const which = revision === undefined ? repo : `${repo} (${quoted(revision)})`;
  throw new LlmError("hub", `${which} is not in ${shownPath(cache)}`);
}

/** Files of a commit in the cache. */
export function describe(repo: RepoCache, commit: string): CachedModel {
  const paths = repo.files(commit);
  let used = 0;
  const bytes = new Map<string, number>();
  const files = Array.from(paths, ([name, path]): CachedFile => {
    const found = inCache(path, () => find(path));
    used = Math.max(used, found?.used ?? 0);
    bytes.set(path, found?.size ?? 0);
    return { name, size: found?.size ?? 0, hash: repo.hashOf(commit, name, path) };
  });
  return {
    name: repo.repo,
    commit,
    revisions: [...repo.refs()].filter(([, at]) => at === commit).map(([revision]) => revision),
    path: repo.snapshot(commit),
    size: bytes.values().reduce((sum, size) => sum + size, 0),
    lastUsed: new Date(used),
    files,
    missing: repo.missing(commit),
  };
}

/**
 * Removes commits of a model, and the bytes that no other commit needs. Returns how many bytes that gave back. Throws an
 * {@link LlmError} while the model is downloaded.
 */
export function removeCommits(repo: RepoCache, commits: readonly string[]): number {
  const locks = inCache(repo.locks, () => names(repo.locks)).map((name) => join(repo.locks, name)).map((path) => {
    using lock = inCache(path, () => Lock.take(path));
    return lock !== undefined;
  });
  if (locks.includes(false)) {
    throw new LlmError("hub", `${repo.repo} is being downloaded by another process: wait until that ends, or end it`);
  }
  const kept = repo.commits().filter((commit) => !commits.includes(commit));
  const needed = new Set(kept.flatMap((commit) => [...repo.files(commit).values()]));
  const partials = new Set(kept.flatMap((commit) => repo.listing(commit) ?? []).map(({ hash }) => hash));
  const blobs = join(repo.folder, "blobs");
  // Bytes that stand in a snapshot itself, where links are not possible, go with it.
  const copies = commits.flatMap((commit) => [...repo.files(commit).values()]).filter((path) =>
    dirname(path) !== blobs
  );
  const loose = inCache(blobs, () => names(blobs)).filter((name) =>
    name.endsWith(".incomplete") ? !partials.has(name.split(".")[0]) : !needed.has(join(blobs, name))
  ).map((name) => join(blobs, name));
  const bytes = [...copies, ...loose].reduce((sum, path) => sum + bytesOf(path), 0);
  // References are removed before the files that they point to.
  const refs = [...repo.refs()].filter(([, commit]) => !kept.includes(commit)).map(([revision]) => repo.ref(revision));
  const trees = commits.map((commit) => repo.tree(commit));
  const snapshots = commits.map((commit) => repo.snapshot(commit));
  const rest = kept.length === 0 ? [repo.folder, repo.locks] : [];
  for (const path of [...refs, ...snapshots, ...trees, ...loose, ...rest]) inCache(path, () => remove(path));
  return bytes;
}

/** Bytes that removing a path gives back. The target of a link is not removed and does not count. */
function bytesOf(path: string): number {
  if (inCache(path, () => linkTarget(path)) !== undefined) return 0;
  return inCache(path, () => find(path))?.size ?? 0;
}

/**
 * Compares the files of a commit with their published hashes. `onBytes` is called with the bytes that were read. With `removeDamaged`
 * damaged files are removed, so that the next download fetches them.
 */
export async function verifyCommit(
  repo: RepoCache,
  commit: string,
  { onBytes, removeDamaged = false, signal }: {
    readonly onBytes?: (bytes: number) => void;
    readonly removeDamaged?: boolean;
    readonly signal?: AbortSignal | undefined;
  },
): Promise<VerifiedFile[]> {
  const files: VerifiedFile[] = [];
  for (const [name, path] of repo.files(commit)) {
    const hash = repo.hashOf(commit, name, path);
    const good = hash === undefined ? undefined : await fits(path, hash, onBytes, signal);
    files.push({ name, state: good === undefined ? "unknown" : good ? "good" : "damaged" });
    if (good !== false || !removeDamaged) continue;
    const link = join(repo.snapshot(commit), ...name.split("/"));
    for (const gone of new Set([link, path])) inCache(gone, () => remove(gone));
  }
  return files;
}

const READ_BYTES = 2 ** 22;

/** Whether a file's bytes have the given hash; undefined if that is no hash. */
async function fits(
  path: string,
  expected: string,
  onBytes: ((bytes: number) => void) | undefined,
  signal: AbortSignal | undefined,
): Promise<boolean | undefined> {
  const algorithm = algorithmOf(expected);
  if (algorithm === undefined) return undefined;
  try {
    using file = new InputFile(path);
    const hash = beginHash(algorithm, file.size);
    const buffer = new Uint8Array(Math.min(READ_BYTES, file.size));
    for (let at = 0; at < file.size; at += READ_BYTES) {
      const piece = buffer.subarray(0, Math.min(READ_BYTES, file.size - at));
      file.readInto(piece, at);
      hash.update(piece);
      onBytes?.(piece.length);
      await setImmediate();
      signal?.throwIfAborted();
    }
    return hash.digest("hex") === expected;
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    if (cause.code === "missing") return false; // a link that leads nowhere
    throw new LlmError("hub", `${shownPath(path)} ${cause.message}`);
  }
}
