/**
 * A folder of the package, as a folder on disk. A package on disk has it in place. From a package that came over a network, it is
 * fetched file by file into the cache folder, once.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { granted } from "./environment.ts";
import { readFile } from "./file.ts";
import {
  firstLine,
  hostOf,
  isPublished,
  isWhole,
  keep,
  keepForNow,
  keptPath,
  type PublishedFile,
  refusedNetwork,
  removeTemporaryFolder,
  watched,
} from "./published_files.ts";

/** A folder of the package. */
export interface PublishedFolder {
  /** Where it is; ends in "/". */
  readonly url: URL;
  /** Its name in messages, with an article. */
  readonly what: string;
  /** Its files by name. */
  readonly files: Readonly<Record<string, PublishedFile>>;
}

/** A folder on disk; one that could not be kept goes away with {@link ProvidedFolder[Symbol.dispose]}. */
export class ProvidedFolder implements Disposable {
  /** Its path. */
  readonly path: string;
  readonly #temporary: boolean;

  /** Names a folder. */
  constructor(path: string, temporary: boolean) {
    this.path = path;
    this.#temporary = temporary;
  }

  /** Lets go of it. */
  [Symbol.dispose](): void {
    if (this.#temporary) removeTemporaryFolder(this.path);
  }
}

/**
 * Provides a folder of the package. Where that is no folder on disk, every file that is kept is compared with its SHA-256, and those that
 * do not fit are fetched. Throws an Error of one line where they cannot be.
 */
export async function provideFolder(folder: PublishedFolder, signal?: AbortSignal): Promise<ProvidedFolder> {
  const { url, what, files } = folder;
  if (url.protocol === "file:") return new ProvidedFolder(fileURLToPath(url), false);
  const place = keptPath(url.pathname.split("/").at(-2)!);
  const missing = Object.keys(files).filter((name) => place === undefined || !isWhole(join(place, name), files[name]));
  if (place !== undefined && missing.length === 0) return new ProvidedFolder(place, false);
  const refused = refusedNetwork("net", [hostOf(url)]);
  if (refused !== undefined) throw new Error(`${what} is not in ${shownPlace(place)} and ${url.href}: ${refused}`);

  const ends = new AbortController();
  const signals = signal === undefined ? ends.signal : AbortSignal.any([signal, ends.signal]);
  const fetched = new Map<string, Uint8Array>();
  let reason: string | undefined;
  const work = async (): Promise<void> => {
    for (const name of missing) {
      const bytes = await fetchFile(new URL(name, url), files[name], signals);
      fetched.set(name, bytes);
      if (place !== undefined && reason === undefined) reason = keep(join(place, name), bytes, files[name]);
    }
  };
  try {
    await watched(what, url.href, work());
  } finally {
    ends.abort();
  }
  if (place !== undefined && reason === undefined) return new ProvidedFolder(place, false);
  const all = Object.keys(files).map((name) =>
    [name, fetched.get(name) ?? readFile(join(place!, name), files[name].bytes)] as const
  );
  return new ProvidedFolder(keepForNow(all, reason), true);
}

function shownPlace(place: string | undefined): string {
  if (place !== undefined && granted({ name: "read", path: place })) return place;
  return "the cache folder";
}

/** The bytes of a file, which are the published ones. */
async function fetchFile(url: URL, file: PublishedFile, signal: AbortSignal): Promise<Uint8Array> {
  try {
    const response = await fetch(url, { signal });
    if (!response.ok) {
      await response.body?.cancel();
      throw new Error(`the server answers HTTP ${response.status}`);
    }
    const bytes = await response.bytes();
    if (!isPublished(bytes, file)) throw new Error("it is damaged: its SHA-256 is not that of this version");
    return bytes;
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Error(`${url.href}: ${firstLine(error)}`, { cause: error });
  }
}
