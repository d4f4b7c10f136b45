/**
 * The folder of one model in the cache that Python's `huggingface_hub` made up and others share:
 *
 *     models--org--name/blobs/HASH                     the bytes, once for all commits
 *                       snapshots/COMMIT/FILE          links to them
 *                       refs/REVISION                  which commit a branch or tag was last seen at
 *                       trees/COMMIT.json              names, sizes and hashes of a commit's files
 *     .locks/models--org--name/HASH.lock               held while a blob is downloaded
 *
 * A snapshot is complete when all requested files of its list exist. A blob gets its name when it is complete. Links are made after
 * blobs, and a ref after the last link.
 *
 * @module
 */

import { basename, dirname, join } from "node:path";
import { FileError, readFile, writeWhole } from "../../../ffi/file.ts";
import { find, link, linkTarget, makeFolder, names } from "../../../ffi/store.ts";
import { shownPath } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { missingShards, weightFiles } from "../checkpoint/shards.ts";
import { TOKENIZER_FILES } from "../tokenizer/formats.ts";
import { readListing, type RepoFile, writeListing } from "./listing.ts";
import { isCommit, isRevision } from "./name.ts";
import { LOADED_PATTERNS, select } from "./patterns.ts";

const MAX_REF = 256;
const MAX_TREE = 2 ** 26;
/** Says to programs that make backups that this folder need not be in one; byte for byte Python's. */
const TAG = "Signature: 8a477f597d28d172789f06886806bc55\n" +
  "# This file is a cache directory tag created by huggingface_hub.\n" +
  "# For information about cache directory tags, see:\n" +
  "#\thttps://bford.info/cachedir/\n";
const PREFIX = "models--";

/** Calls `fn`; an error of the system becomes an {@link LlmError} that names the path and says what to do. */
export function inCache<T>(path: string, fn: () => T): T {
  try {
    return fn();
  } catch (cause) {
    throw cacheError(path, cause);
  }
}

/** The error of a failed call of the system; other errors stay what they are. */
export function cacheError(path: string, cause: unknown): unknown {
  if (!(cause instanceof FileError)) return cause;
  const fix = /space|quota/i.test(cause.message)
    ? ": make room or set HF_HUB_CACHE to a folder on another disk"
    : /written/.test(cause.message) && !/--allow/.test(cause.message)
    ? ": set HF_HUB_CACHE to a folder that can be written"
    : "";
  return new LlmError("hub", `${shownPath(path)} ${cause.message}${fix}`);
}

/** The folder of a model. */
export class RepoCache {
  /** "org/name". */
  readonly repo: string;
  /** The cache that it lies in. */
  readonly cache: string;
  /** The folder. */
  readonly folder: string;
  readonly #locks: string;

  /** Names the folder; nothing is made yet. */
  constructor(cache: string, repo: string) {
    this.repo = repo;
    this.cache = cache;
    const name = PREFIX + repo.replace("/", "--");
    this.folder = join(cache, name);
    this.#locks = join(cache, ".locks", name);
  }

  /** The models of a cache that have a folder. */
  static all(cache: string): RepoCache[] {
    const repos = inCache(cache, () => names(cache)).filter((name) => name.startsWith(PREFIX)).map((name) =>
      name.slice(PREFIX.length).replace("--", "/")
    );
    return repos.map((repo) => new RepoCache(cache, repo));
  }

  /** Path of the bytes of a hash. */
  blob(hash: string): string {
    return join(this.folder, "blobs", hash);
  }

  /** Path of those bytes while they are downloaded, called as in Python. */
  partial(hash: string): string {
    return `${this.blob(hash)}.incomplete`;
  }

  /** How many of a file's bytes an earlier download left. */
  partialBytes({ hash }: RepoFile): number {
    const path = this.partial(hash);
    return inCache(path, () => find(path))?.size ?? 0;
  }

  /** Path of the lock of those bytes. */
  lock(hash: string): string {
    return join(this.#locks, `${hash}.lock`);
  }

  /** Folder of the locks. */
  get locks(): string {
    return this.#locks;
  }

  /** Folder of a commit. */
  snapshot(commit: string): string {
    return join(this.folder, "snapshots", commit);
  }

  /** Path of the list of a commit's files. */
  tree(commit: string): string {
    return join(this.folder, "trees", `${commit}.json`);
  }

  /** Path of a revision's note. */
  ref(revision: string): string {
    return join(this.folder, "refs", ...revision.split("/"));
  }

  /** The commits that have a snapshot. */
  commits(): string[] {
    const folder = join(this.folder, "snapshots");
    return inCache(folder, () => names(folder)).filter(isCommit);
  }

  /** The commit that a revision was last seen at, or that it is; undefined if it was never seen. */
  commitOf(revision: string): string | undefined {
    if (isCommit(revision)) return revision;
    const text = this.#text(this.ref(revision), MAX_REF)?.trim();
    return isCommit(text) ? text : undefined;
  }

  /** The revisions that were seen, with their commits. */
  refs(): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    const look = (folder: string, start: string): void => {
      for (const name of inCache(folder, () => names(folder))) {
        const path = join(folder, name);
        if (inCache(path, () => find(path))?.kind === "folder") look(path, `${start}${name}/`);
        else {
          const commit = isRevision(start + name) ? this.commitOf(start + name) : undefined;
          if (commit !== undefined) found.set(start + name, commit);
        }
      }
    };
    look(join(this.folder, "refs"), "");
    return found;
  }

  /** The list of a commit's files, if one is kept. */
  listing(commit: string): RepoFile[] | undefined {
    const text = this.#text(this.tree(commit), MAX_TREE);
    return text === undefined ? undefined : readListing(this.repo, text);
  }

  /** Makes the folders of a commit and keeps the list of its files. */
  prepare(commit: string, files: readonly RepoFile[]): void {
    for (const folder of [join(this.folder, "blobs"), this.snapshot(commit), this.#locks, dirname(this.tree(commit))]) {
      inCache(folder, () => makeFolder(folder));
    }
    const tag = join(this.cache, "CACHEDIR.TAG");
    if (inCache(tag, () => find(tag)) === undefined) this.#write(tag, TAG);
    if (this.listing(commit) === undefined) this.#write(this.tree(commit), writeListing(files));
  }

  /** Notes which commit a revision is. */
  note(revision: string, commit: string): void {
    if (revision === commit || this.commitOf(revision) === commit) return;
    const path = this.ref(revision);
    inCache(path, () => makeFolder(dirname(path)));
    this.#write(path, commit);
  }

  /** Whether a file of a commit is there with all its bytes. */
  has(commit: string, { name, size }: RepoFile): boolean {
    return this.#isWhole(this.#path(commit, name), size);
  }

  /** Whether the bytes of a file are there. */
  hasBlob({ hash, size }: RepoFile): boolean {
    return this.#isWhole(this.blob(hash), size);
  }

  /** Gives the bytes of a file its name in a commit. */
  link(commit: string, { name, hash }: RepoFile): void {
    const path = this.#path(commit, name);
    inCache(path, () => {
      makeFolder(dirname(path));
      link(this.blob(hash), path);
    });
  }

  /** Names of the files that loading a commit's model needs and that are not there. */
  missing(commit: string): string[] {
    const snapshot = this.snapshot(commit);
    const there = [...this.files(commit).keys()];
    const weights = weightFiles(snapshot, there);
    const shards = weights.length === 0 ? ["model.safetensors"] : missingShards(weights, there);
    // Other tools may keep no list, or have downloaded a part; a model has at least these.
    const listing = this.listing(commit);
    const lacks = listing === undefined
      ? ["config.json", tokenizerOf(there) ?? TOKENIZER_FILES[0]].filter((name) => !there.includes(name))
      : filesLoaded(listing).filter((file) => !this.has(commit, file)).map((file) => file.name);
    return [...new Set([...lacks, ...shards])];
  }

  /** Names of all files of a commit that are there, and the paths of the blobs that their links lead to. */
  files(commit: string): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    const look = (folder: string, start: string): void => {
      for (const name of inCache(folder, () => names(folder))) {
        const path = join(folder, name);
        if (inCache(path, () => find(path))?.kind === "folder") {
          look(path, `${start}${name}/`);
          continue;
        }
        const target = inCache(path, () => linkTarget(path));
        found.set(start + name, target === undefined ? path : join(folder, target));
      }
    };
    look(this.snapshot(commit), "");
    return found;
  }

  /** The hash that a file of a commit is published with, by the name of its blob or the list; undefined if neither tells. */
  hashOf(commit: string, name: string, path: string): string | undefined {
    if (dirname(path) === join(this.folder, "blobs")) return basename(path);
    return this.listing(commit)?.find((file) => file.name === name)?.hash;
  }

  #path(commit: string, name: string): string {
    return join(this.snapshot(commit), ...name.split("/"));
  }

  #isWhole(path: string, size: number): boolean {
    const found = inCache(path, () => find(path));
    return found?.kind === "file" && found.size === size;
  }

  #text(path: string, most: number): string | undefined {
    try {
      return new TextDecoder().decode(readFile(path, most));
    } catch (cause) {
      if (cause instanceof FileError && cause.code !== "io") return undefined; // asked again of the hub
      throw cacheError(path, cause);
    }
  }

  #write(path: string, text: string): void {
    try {
      writeWhole(path, [new TextEncoder().encode(text)]);
    } catch (cause) {
      const reason = String((cause as Error).message ?? cause).split("\n")[0].replace(/: \w+ '.*$/, "");
      throw cacheError(path, new FileError("io", `cannot be written: ${reason}`));
    }
  }
}

/** The file of a model's tokenizer, if it has one. */
function tokenizerOf(names: readonly string[]): string | undefined {
  return TOKENIZER_FILES.find((name) => names.includes(name));
}

/** The files of a listing that loading reads: of several tokenizers the first. */
function filesLoaded(listing: readonly RepoFile[]): readonly RepoFile[] {
  const others: readonly string[] = TOKENIZER_FILES.filter((name) =>
    name !== tokenizerOf(listing.map((file) => file.name))
  );
  return select(listing, LOADED_PATTERNS).filter(({ name }) => !others.includes(name));
}
