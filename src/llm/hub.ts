/**
 * Models of the Hugging Face Hub by name: downloading them, and looking after those that are kept. Available as `mx.lm.hub`.
 *
 * The cache is the one of Python's `huggingface_hub`: what `hf download`, mlx-lm or transformers downloaded is found here, and what is
 * downloaded here is found there. HF_HUB_CACHE, HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean there.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * await mx.lm.hub.pull("Qwen/Qwen3-0.6B-MLX-4bit", {
 *   onProgress: ({ bytesDone, bytesTotal }) => console.error(`${bytesDone} of ${bytesTotal} bytes`),
 * });
 * for (const { name, size, lastUsed } of mx.lm.hub.list()) console.log(name, size, lastUsed);
 * ```
 *
 * @module
 */

import { find } from "../../ffi/store.ts";
import { quoted, shownPath } from "../graph/error.ts";
import { interruptible } from "./host.ts";
import { checkSignal } from "./abort.ts";
import { checkOptions } from "./arguments.ts";
import { LlmError } from "./error.ts";
import { cachedCommits, type CachedModel, cachedModels, describe, removeCommits, verifyCommit } from "./hub/models.ts";
import type { VerifiedFile } from "./hub/models.ts";
import { type HubFile, hubName, parseFile, parseName } from "./hub/name.ts";
import { hubCache, hubEndpoint, hubToken, isOffline } from "./hub/places.ts";
import type { OnDownload } from "./hub/progress.ts";
import { cachedSnapshot, type FetchOptions, fetchSnapshot, ggufFile } from "./hub/pull.ts";

export type { CachedFile, CachedModel, VerifiedFile } from "./hub/models.ts";
export type { DownloadProgress, FileProgress, OnDownload } from "./hub/progress.ts";

/** Options that all functions of the hub take. */
export interface HubOptions {
  /** A branch, a tag or a commit; default that of "org/name@revision", else "main" for downloads and all cached ones otherwise. */
  readonly revision?: string;
  /** Folder of the cache; default HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub. */
  readonly cacheDir?: string;
}

/** Options of {@link pull}. */
export interface PullOptions extends HubOptions {
  /**
   * Files to download, as shell patterns in which "*" stops at "/" and "**" does not; default the files that loading a model needs.
   * Pickles and programs are never downloaded.
   */
  readonly files?: readonly string[];
  /** Files of those that are left out, as such patterns. */
  readonly exclude?: readonly string[];
  /** Called about ten times a second as bytes arrive. */
  readonly onProgress?: OnDownload;
  /** Ends the download; the next one goes on from there. */
  readonly signal?: AbortSignal;
}

/** Options of {@link verify}. */
export interface VerifyOptions extends HubOptions {
  /** Removes damaged files, so that {@link pull} downloads them again. */
  readonly removeDamaged?: boolean;
  /** Called as bytes are read. */
  readonly onProgress?: (bytesDone: number, bytesTotal: number) => void;
  /** Ends it. */
  readonly signal?: AbortSignal;
}

/** Options of {@link locate}. */
export interface LocateOptions {
  /** A branch, a tag or a commit of a model of the hub. */
  readonly revision?: string;
  /** Called about ten times a second as bytes arrive. */
  readonly onProgress?: OnDownload;
  /** Ends the download; the next one goes on from there. */
  readonly signal?: AbortSignal;
}

/** The findings of {@link verify} for a commit. */
export interface VerifiedModel extends CachedModel {
  /** Every file with its state. */
  readonly verified: readonly VerifiedFile[];
}

const HUB_OPTIONS = { revision: true, cacheDir: true } as const satisfies Record<keyof HubOptions, true>;
const LIST_OPTIONS = { cacheDir: true } as const;
const PULL_OPTIONS = {
  ...HUB_OPTIONS,
  files: true,
  exclude: true,
  onProgress: true,
  signal: true,
} as const satisfies Record<keyof PullOptions, true>;
const LOCATE_OPTIONS = {
  revision: true,
  onProgress: true,
  signal: true,
} as const satisfies Record<keyof LocateOptions, true>;
const VERIFY_OPTIONS = {
  ...HUB_OPTIONS,
  removeDamaged: true,
  onProgress: true,
  signal: true,
} as const satisfies Record<keyof VerifyOptions, true>;

/**
 * Downloads a model of the hub, or what the cache lacks of its newest commit, and returns what is there then. Downloads go on from where
 * an earlier one ended; every file is compared with its published hash before it gets its name. Processes that want the same
 * model at once download it once.
 *
 * Throws an {@link LlmError} with code "hub" that says what to do, or "checksum" where the bytes are not the published ones.
 */
export async function pull(name: string, options: PullOptions = {}): Promise<CachedModel> {
  checkOptions("pull", options, PULL_OPTIONS);
  checkSignal(options.signal);
  const { cacheDir, files, exclude, onProgress } = options;
  for (const [option, list] of Object.entries({ files, exclude })) {
    if (list !== undefined && (!Array.isArray(list) || !list.every((file) => typeof file === "string"))) {
      throw new LlmError("option", `pull() expected ${option} as a list of patterns: found ${quoted(list)}`);
    }
  }
  const hub = hubName("pull", name, options.revision);
  const { commit } = await interruptible(
    options,
    ({ signal }) => fetchSnapshot(hub, { cache: cacheDir, files, exclude, onProgress, signal }),
  );
  const [folder] = cachedCommits(hubCache(cacheDir), { ...hub, revision: commit });
  return describe(folder, commit);
}

/** The name of the model whose page on the hub a text is the address of, such as https://huggingface.co/org/name; undefined if it is none. */
export { nameInAddress } from "./hub/name.ts";

/** Whether a text has the form of a model's name on the hub: "org/name" or "org/name@revision". */
export function isName(text: string): boolean {
  return parseName(text) !== undefined;
}

/**
 * The folder of a model, which `load` uses too. This is `name` itself if it is a folder, else the model of the hub. A model that is
 * complete in the cache needs no connection; others are downloaded.
 */
export async function locate(name: string, options: LocateOptions = {}): Promise<string> {
  checkOptions("locate", options, LOCATE_OPTIONS);
  checkSignal(options.signal);
  return await interruptible(options, (heeding) => modelDirectory(name, heeding));
}

/** Where models are kept: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub. Throws an {@link LlmError} if there is no such place. */
export function cacheFolder(): string {
  return hubCache();
}

/** Where the hub is (HF_ENDPOINT), whether there is a token for it, and whether connections are switched off. Connects to nothing. */
export function connection(): { readonly endpoint: URL; readonly hasToken: boolean; readonly offline: boolean } {
  return { endpoint: hubEndpoint(), hasToken: hubToken() !== undefined, offline: isOffline() };
}

/** Every commit of every model that is kept, by name. Connects to nothing. */
export function list(options: Pick<HubOptions, "cacheDir"> = {}): CachedModel[] {
  checkOptions("list", options, LIST_OPTIONS);
  return cachedModels(hubCache(options.cacheDir));
}

/** The commits of a model that are kept, the one used last first. Throws an {@link LlmError} if there is none. */
export function show(name: string, options: HubOptions = {}): CachedModel[] {
  checkOptions("show", options, HUB_OPTIONS);
  const [folder, commits] = cachedCommits(hubCache(options.cacheDir), hubName("show", name, options.revision));
  return commits.map((commit) => describe(folder, commit)).toSorted((a, b) =>
    b.lastUsed.getTime() - a.lastUsed.getTime()
  );
}

/**
 * Removes a model from the cache, or one revision of it and the bytes that no other one needs. Returns how many bytes that gave back.
 * Throws an {@link LlmError} if it is not there, or is being downloaded.
 */
export function remove(name: string, options: HubOptions = {}): number {
  checkOptions("remove", options, HUB_OPTIONS);
  const [folder, commits] = cachedCommits(hubCache(options.cacheDir), hubName("remove", name, options.revision));
  return removeCommits(folder, commits);
}

/** Compares the files of a model that are kept with the hashes that they were published with; about a gigabyte a second. */
export function verify(name: string, options: VerifyOptions = {}): Promise<VerifiedModel[]> {
  return interruptible(options, (heeding) => verifyModel(name, heeding));
}

async function verifyModel(name: string, options: VerifyOptions): Promise<VerifiedModel[]> {
  checkOptions("verify", options, VERIFY_OPTIONS);
  checkSignal(options.signal);
  const { removeDamaged, onProgress, signal } = options;
  const [folder, commits] = cachedCommits(hubCache(options.cacheDir), hubName("verify", name, options.revision));
  const models = commits.map((commit) => describe(folder, commit));
  const total = models.reduce((sum, { files }) => sum + files.reduce((bytes, { size }) => bytes + size, 0), 0);
  let done = 0;
  onProgress?.(done, total);
  const onBytes = (bytes: number): void => onProgress?.(done += bytes, total);
  const found: VerifiedModel[] = [];
  for (const model of models) {
    found.push({
      ...model,
      verified: await verifyCommit(folder, model.commit, { onBytes, ...(removeDamaged && { removeDamaged }), signal }),
    });
  }
  return found;
}

/**
 * The folder of a model: a folder of that name, else the model of the hub. A model that is complete in the cache needs no
 * connection; others are downloaded. A GGUF file stands for the model that it holds, also one of the hub ("org/name/file.gguf").
 */
export async function modelDirectory(
  given: string,
  options: Pick<FetchOptions, "onProgress" | "onSmallFiles" | "signal"> & { readonly revision?: string | undefined },
): Promise<string> {
  const { revision } = options;
  const exists = mayExist(given);
  if (exists && revision !== undefined) {
    throw new LlmError("option", `${shownPath(given)} is no model of the hub and has no revision: leave that out`);
  }
  const file = exists ? undefined : parseFile(given);
  if (file !== undefined) return await ggufOfHub(file, options);
  const hub = exists ? undefined : revision === undefined ? parseName(given) : hubName("load", given, revision);
  if (hub === undefined) return given;
  const cached = cachedSnapshot(hub);
  if (cached !== undefined) return cached.path;
  try {
    return (await fetchSnapshot(hub, options)).path;
  } catch (cause) {
    if (!(cause instanceof LlmError) || cause.code !== "hub") throw cause;
    throw new LlmError("hub", `There is no folder ${shownPath(given)}, and as a model of the hub: ${cause.message}`);
  }
}

/** The path of a GGUF file of the hub; what it is follows from the file itself. */
async function ggufOfHub(
  { hub, file }: HubFile,
  { revision = hub.revision, onProgress, signal }: Parameters<typeof modelDirectory>[1],
): Promise<string> {
  return await ggufFile({ hub: hubName("load", hub.repo, revision), file }, { onProgress, signal });
}

/** Whether there is something of a name; also if that may not be looked at, which reading it says better. */
function mayExist(path: string): boolean {
  try {
    return find(path) !== undefined;
  } catch {
    return true;
  }
}
