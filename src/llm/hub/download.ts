/**
 * Downloads one file into the cache: under a lock, from where a killed download ended, with its hash compared before it gets its name.
 *
 * @module
 */

import { setTimeout } from "node:timers/promises";
import type { Hash } from "node:crypto";
import { Lock, PartialFile, remove } from "../../../ffi/store.ts";
import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { refusal } from "./api.ts";
import { cacheError, inCache, type RepoCache } from "./cache.ts";
import { algorithmOf, beginHash, HASH_TITLES } from "./hash.ts";
import { type Answer, type HubClient, passing } from "./http.ts";
import type { RepoFile } from "./listing.ts";
import type { Meter } from "./progress.ts";
import { PassingError } from "./retry.ts";

/** How often another process's download is looked at. */
const WAIT_MS = 200;

/** One commit's files on their way from the hub into the cache. */
export class Downloads {
  readonly #client: HubClient;
  readonly #cache: RepoCache;
  readonly #commit: string;
  readonly #meter: Meter;
  readonly #signal: AbortSignal | undefined;

  /** Names the way; `meter` counts the bytes. */
  constructor(client: HubClient, cache: RepoCache, commit: string, meter: Meter) {
    this.#client = client;
    this.#cache = cache;
    this.#commit = commit;
    this.#meter = meter;
    this.#signal = client.signal;
  }

  /** Provides a file. Throws an {@link LlmError}; what has come by then is kept and the next call goes on from there. */
  async file(file: RepoFile): Promise<void> {
    if (!this.#cache.has(this.#commit, file)) {
      if (!this.#cache.hasBlob(file)) {
        using _lock = await this.#lock(file);
        if (!this.#cache.hasBlob(file)) await this.#blob(file);
      }
      this.#cache.link(this.#commit, file);
    }
    this.#meter.set(file.name, file.size);
  }

  /** Waits for the lock of a file's bytes, telling how far the process is that has it. */
  async #lock(file: RepoFile): Promise<Lock> {
    const path = this.#cache.lock(file.hash);
    let seen: number | undefined;
    for (;;) {
      this.#signal?.throwIfAborted();
      const lock = inCache(path, () => Lock.take(path));
      if (lock !== undefined) return lock;
      const size = this.#cache.partialBytes(file);
      this.#meter.set(file.name, size, Math.max(0, size - (seen ?? size)));
      seen = size;
      await setTimeout(WAIT_MS, undefined, { signal: this.#signal }).catch(() => {});
    }
  }

  /** Downloads the bytes of a file. The caller holds their lock. */
  async #blob(file: RepoFile): Promise<void> {
    const path = this.#cache.blob(file.hash);
    inCache(path, () => remove(path)); // of another size
    const partialPath = this.#cache.partial(file.hash);
    const partial = inCache(partialPath, () => new PartialFile(partialPath));
    using _file = partial;
    try {
      for (let begun = partial.size > 0;; begun = false) {
        const found = await this.#fill(partial, file);
        if (found === file.hash) return await partial.finish(path);
        partial.clear();
        if (begun) continue; // the part that was there before may be damaged
        remove(partial.path);
        const title = HASH_TITLES[algorithmOf(file.hash)!];
        throw new LlmError(
          "checksum",
          `${this.#client.endpoint.host} sends other bytes than published for ${
            quoted(file.name)
          } of ${this.#cache.repo}: ` +
            `the ${title} is ${found}, expected ${file.hash}: try again, and check the network and HF_ENDPOINT`,
        );
      }
    } catch (cause) {
      throw cacheError(partial.path, cause);
    }
  }

  /** Fills a file to its size and returns the hash of its bytes. */
  async #fill(partial: PartialFile, file: RepoFile): Promise<string> {
    const begin = (): Hash => beginHash(algorithmOf(file.hash)!, file.size);
    let hash = begin();
    for await (const piece of partial.pieces()) {
      hash.update(piece);
      this.#signal?.throwIfAborted();
    }
    this.#meter.set(file.name, partial.size);
    const retries = this.#client.retries();
    let most = partial.size;
    while (partial.size < file.size) {
      try {
        const answer = await this.#open(file, partial.size);
        if (answer === undefined || (answer.status === 200 && partial.size > 0)) {
          partial.clear(); // ranges are not for this file
          hash = begin();
        }
        if (answer === undefined) {
          throw new PassingError(`${this.#client.endpoint.host} does not continue a download`, 0);
        }
        for await (const piece of answer.chunks()) {
          if (partial.size + piece.length > file.size) throw this.#changed(file, "sends more bytes than it lists");
          await partial.append(piece);
          hash.update(piece);
          if (partial.size > most) retries.reset(); // beginning again and again is no progress
          most = Math.max(most, partial.size);
          this.#meter.set(file.name, partial.size, piece.length);
        }
        if (partial.size < file.size) {
          throw new PassingError(`${this.#client.endpoint.host} ends ${quoted(file.name)} at byte ${partial.size}`);
        }
      } catch (failure) {
        await retries.wait(failure);
      }
    }
    return hash.digest("hex");
  }

  /** Asks for the bytes from `offset` on; undefined if the server has no such range. */
  async #open(file: RepoFile, offset: number): Promise<Answer | undefined> {
    const { repo } = this.#cache;
    const url = this.#client.url(repo, "resolve", this.#commit, file.name);
    const answer = await this.#client.open(url, offset > 0 ? { range: `bytes=${offset}-` } : {});
    try {
      const { status, headers } = answer;
      if (status === 416 && offset > 0) {
        await answer.close();
        return undefined;
      }
      if (status !== 200 && status !== 206) {
        throw passing(status, headers, url.host) ??
          refusal(this.#client, repo, this.#commit, file.name)(status, headers);
      }
      for (const hub of answer.hub) this.#compare(file, hub);
      if (status === 206 && !isRange(headers.get("content-range"), offset, file.size)) {
        throw this.#changed(file, `sends bytes ${quoted(headers.get("content-range"))}`);
      }
      const length = headers.get("content-length");
      if (status === 200 && length !== null && !headers.has("content-encoding") && Number(length) !== file.size) {
        throw this.#changed(file, `sends ${quoted(length)} bytes`);
      }
      return answer;
    } catch (cause) {
      await answer.close();
      throw cause;
    }
  }

  /** Throws if the hub says that it serves something else than it listed. */
  #compare(file: RepoFile, headers: Headers): void {
    const commit = headers.get("x-repo-commit");
    if (commit !== null && commit !== this.#commit) throw this.#changed(file, `serves commit ${quoted(commit)}`);
    const size = headers.get("x-linked-size");
    if (size !== null && Number(size) !== file.size) throw this.#changed(file, `serves ${quoted(size)} bytes`);
    // Of a file in Git LFS the plain tag may be one of the store's.
    const tag = headers.get("x-linked-etag")?.replace(/^W\//, "").replaceAll('"', "");
    if (algorithmOf(tag) !== undefined && tag !== file.hash) throw this.#changed(file, `serves hash ${quoted(tag)}`);
  }

  #changed(file: RepoFile, what: string): LlmError {
    const listed = `expected ${file.size} bytes of commit ${this.#commit}, hash ${file.hash}`;
    return new LlmError(
      "hub",
      `${this.#client.endpoint.host} ${what} for ${
        quoted(file.name)
      } of ${this.#cache.repo}, ${listed}: check HF_ENDPOINT`,
    );
  }
}

/** Whether a Content-Range header is the rest of a file from `offset` on. */
function isRange(header: string | null, offset: number, size: number): boolean {
  const [, start, end, total] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(header ?? "") ?? [];
  return Number(start) === offset && Number(end) === size - 1 && (total === "*" || Number(total) === size);
}
