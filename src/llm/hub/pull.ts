/**
 * Provides a commit of a model in the cache: finds the commit and its files, and downloads missing ones, several at once.
 *
 * @module
 */

import { join } from "node:path";
import { freeBytes } from "../../../ffi/store.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { partsOf } from "../checkpoint/shards.ts";
import { LlmError } from "../error.ts";
import { listFiles, resolveCommit } from "./api.ts";
import { RepoCache } from "./cache.ts";
import { Downloads } from "./download.ts";
import { HubClient } from "./http.ts";
import type { RepoFile } from "./listing.ts";
import { DEFAULT_REVISION, type HubFile, type HubName, isCommit } from "./name.ts";
import { isWeights, select } from "./patterns.ts";
import { hubCache, hubEndpoint, hubToken, isOffline } from "./places.ts";
import { INTERVAL_MS, Meter, type OnDownload } from "./progress.ts";
import type { RetryPolicy } from "./retry.ts";

/** Options of a download beside the name. */
export interface FetchOptions {
  /** The cache; default that of the environment. */
  readonly cache?: string | undefined;
  /** Files to fetch; default those that loading a model needs. */
  readonly files?: readonly string[] | undefined;
  /** Files of those that are left out. */
  readonly exclude?: readonly string[] | undefined;
  /** Called as bytes arrive. */
  readonly onProgress?: OnDownload | undefined;
  /** Called with the folder when all but the weights are there; what it throws ends the download. */
  readonly onSmallFiles?: ((folder: string) => void) | undefined;
  /** Ends the download. */
  readonly signal?: AbortSignal | undefined;
  /** How long the network is given. */
  readonly policy?: RetryPolicy;
}

/** A commit in the cache. */
export interface Snapshot {
  /** The commit. */
  readonly commit: string;
  /** Its folder. */
  readonly path: string;
}

/** Files that are downloaded at once. */
const AT_ONCE = 4;
/** Most bytes of a file of weights, and of any other, far above any that is published. */
const MAX_WEIGHTS = 2 ** 40;
const MAX_OTHERS = 2 ** 28;

/** The snapshot of a model that is whole in the cache; undefined if a part of it is not there. Connects to nothing. */
export function cachedSnapshot({ repo, revision = DEFAULT_REVISION }: HubName, cache?: string): Snapshot | undefined {
  const folder = new RepoCache(hubCache(cache), repo);
  const commit = folder.commitOf(revision);
  if (commit === undefined || folder.missing(commit).length > 0) return undefined;
  return { commit, path: folder.snapshot(commit) };
}

/**
 * The path of a GGUF file of a model of the hub, with the other parts of its model beside it. What the cache has needs no connection;
 * else they are downloaded.
 */
export async function ggufFile({ hub, file }: HubFile, options: FetchOptions): Promise<string> {
  const files = partsOf(file);
  const folder = new RepoCache(hubCache(options.cache), hub.repo);
  const commit = folder.commitOf(hub.revision ?? DEFAULT_REVISION);
  const there = commit === undefined ? undefined : folder.files(commit);
  if (files.every((name) => there?.has(name))) return join(folder.snapshot(commit!), file);
  const { path } = await fetchSnapshot(hub, { ...options, files });
  return join(path, file);
}

/** Asks the hub for a revision of a model and downloads what the cache lacks of it. */
export async function fetchSnapshot(name: HubName, options: FetchOptions): Promise<Snapshot> {
  const { repo, revision = DEFAULT_REVISION } = name;
  const cache = new RepoCache(hubCache(options.cache), repo);
  if (isOffline()) throw offlineError(name, cache);
  // The first failure ends the other downloads.
  const ends = new AbortController();
  const abort = (): void => ends.abort(options.signal?.reason);
  if (options.signal?.aborted) abort();
  options.signal?.addEventListener("abort", abort);
  const client = new HubClient({
    endpoint: hubEndpoint(),
    token: hubToken(),
    signal: ends.signal,
    ...(options.policy && { policy: options.policy }),
  });
  try {
    const commit = isCommit(revision) ? revision : await resolveCommit(client, repo, revision);
    const listing = cache.listing(commit) ?? await listFiles(client, repo, commit);
    const wanted = select(listing, options.files, options.exclude);
    checkWanted(repo, listing, wanted, options);
    cache.prepare(commit, listing);
    checkRoom(cache, commit, wanted);
    const meter = new Meter(wanted, options.onProgress);
    const downloads = new Downloads(client, cache, commit, meter);
    const path = cache.snapshot(commit);
    meter.tell();
    // By the clock: where nothing comes any more the rate is seen to fall.
    const clock = setInterval(() => {
      try {
        meter.tell();
      } catch (cause) {
        ends.abort(cause);
      }
    }, INTERVAL_MS);
    try {
      await each(wanted.filter(({ name }) => !isWeights(name)), (file) => downloads.file(file));
      options.onSmallFiles?.(path);
      await each(wanted.filter(({ name }) => isWeights(name)), (file) => downloads.file(file));
    } catch (cause) {
      ends.abort(cause);
      throw cause;
    } finally {
      clearInterval(clock);
    }
    cache.note(revision, commit);
    meter.tell();
    return { commit, path };
  } finally {
    options.signal?.removeEventListener("abort", abort);
    ends.abort();
  }

  /** Runs `work` on all files, some at once. Returns when nothing runs any more, and throws what failed first. */
  async function each(files: readonly RepoFile[], work: (file: RepoFile) => Promise<void>): Promise<void> {
    const left = files.values();
    const failures: unknown[] = [];
    const worker = async (): Promise<void> => {
      for (const file of left) {
        if (failures.length > 0) return;
        try {
          await work(file);
        } catch (cause) {
          failures.push(cause);
          ends.abort(cause);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (failures.length > 0) throw failures[0];
  }
}

/** The error of a model that is not whole in the cache while nothing may be connected. */
function offlineError({ repo, revision = DEFAULT_REVISION }: HubName, cache: RepoCache): LlmError {
  const commit = cache.commitOf(revision);
  const missing = commit === undefined || !cache.commits().includes(commit) ? [] : cache.missing(commit);
  const lacks = missing.length > 0 ? `lacks ${missing.slice(0, 3).map(quoted).join(", ")} in` : "is not in";
  return new LlmError(
    "hub",
    `${repo} (${quoted(revision)}) ${lacks} ${
      shownPath(cache.cache)
    } and HF_HUB_OFFLINE or VKMX_OFFLINE is set: unset it to download it`,
  );
}

/** Throws if a model has none of the requested files, or one that is too large for its kind. */
function checkWanted(
  repo: string,
  listing: readonly RepoFile[],
  wanted: readonly RepoFile[],
  { files: patterns, exclude }: FetchOptions,
): void {
  const large = wanted.find(({ name, size }) => size > (isWeights(name) ? MAX_WEIGHTS : MAX_OTHERS));
  if (large !== undefined) {
    throw new LlmError(
      "hub",
      `${quoted(large.name)} of ${repo} has ${large.size} bytes, more than such a file may have`,
    );
  }
  if (patterns !== undefined || exclude !== undefined) {
    if (wanted.length > 0) return;
    const but = exclude === undefined ? "" : ` but for ${exclude.map(quoted).join(", ")}`;
    throw new LlmError("hub", `${repo} has no file that fits ${patterns?.map(quoted).join(", ") ?? "a model"}${but}`);
  }
  const lacks = wanted.some(({ name }) => name === "config.json")
    ? wanted.some(({ name }) => isWeights(name)) ? undefined : "weights in safetensors"
    : "config.json";
  if (lacks === undefined) return;
  const gguf = listing.find(({ name }) => name.endsWith(".gguf"));
  const advice = gguf === undefined
    ? "take a model as mlx-lm or transformers publish it"
    : `load one of its files, such as ${quoted(`${repo}/${gguf.name}`)}`;
  throw new LlmError("hub", `${repo} has no ${lacks}: ${advice}`);
}

/** Throws if the disk has no room for the missing files, before anything is downloaded. */
function checkRoom(cache: RepoCache, commit: string, wanted: readonly RepoFile[]): void {
  const need = wanted.filter((file) => !cache.has(commit, file) && !cache.hasBlob(file)).reduce(
    (sum, file) => sum + Math.max(0, file.size - cache.partialBytes(file)),
    0,
  );
  const free = freeBytes(cache.folder);
  if (free === undefined || need <= free) return;
  const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(2)} GB`;
  throw new LlmError(
    "hub",
    `${cache.repo} needs ${gigabytes(need)} and ${shownPath(cache.cache)} has ${gigabytes(free)} free: ` +
      "make room or set HF_HUB_CACHE to a folder on another disk",
  );
}
