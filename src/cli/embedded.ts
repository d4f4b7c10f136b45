/**
 * The model that runs where none is named. It is part of the package: a checkout has it as files, and what was imported from a registry
 * or another host fetches it once from there into the cache folder. Bytes count only where their SHA-256 is that of the table here.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { cacheFolder } from "../../ffi/cache_folder.ts";
import { environment } from "../../ffi/environment.ts";
import { FileError, readFile, writeWhole } from "../../ffi/file.ts";
import { makeFolder } from "../../ffi/store.ts";
import { VERSION } from "../../ffi/version.ts";
import { BYTES, Progress } from "./progress.ts";

/** SHA-256 of its files. */
export const EMBEDDED_FILES: Readonly<Record<string, string>> = {
  "config.json": "b79b8b0e5851687ff24891443f2e5e9571718f76a523bfdf632844076de87312",
  "generation_config.json": "cca10d2e0c2f4b3a4987e051d0c5c37012f74bb7d71e4c076a52e74a3681c416",
  "model.safetensors": "6d1d468e4c0562438989a7ebb57781a4f735a6ec570aa71003efa266864c345c",
  "tokenizer.json": "68b71e02ccf57e06b660c864e9f1f0328305239860fa2cac91049d4fce1e4ee6",
  "tokenizer_config.json": "5fb7cde5c388bcaf7272e0ba590c4f19f43bc1adf3241dd53eb30cf246fd3f55",
};

const SOURCE = new URL("../../examples/models/tiny-qwen3/", import.meta.url);
/** A file that has not come for so long is given up. */
const LIMIT_MS = 120_000;
const MAX_BYTES = 2 ** 24;
const TOTAL_BYTES = 5_150_000; // roughly, for the bar

/** Where the model is, after it was fetched where that must be. Throws where it cannot be had. */
export async function embeddedModel(source: URL = SOURCE): Promise<string | URL> {
  if (source.protocol === "file:") return source;
  const folder = join(cacheFolder() || fail("there is no cache folder; VKMX_CACHE names one"), VERSION, "tiny-qwen3");
  const missing = Object.keys(EMBEDDED_FILES).filter((name) => !isWhole(name, folder));
  if (missing.length === 0) return folder;
  try {
    makeFolder(folder);
    const progress = new Progress("Downloading tiny-qwen3", { unit: BYTES });
    let done = 0;
    for (const name of missing) {
      const bytes = await download(new URL(name, source), name, (count) => progress.update(done += count, TOTAL_BYTES));
      writeWhole(join(folder, name), [bytes]);
    }
    progress.clear();
    return folder;
  } catch (cause) {
    fail((cause as Error).message, cause);
  }
}

function fail(why: string, cause?: unknown): never {
  throw new Error(`The embedded model cannot be fetched: ${why}. --model takes a directory or a name of the hub`, {
    cause,
  });
}

function isWhole(name: string, folder: string): boolean {
  try {
    return sumOf(readFile(join(folder, name), MAX_BYTES)) === EMBEDDED_FILES[name];
  } catch (error) {
    if (error instanceof FileError) return false; // it is not there or cannot be read: it is written anew
    throw error;
  }
}

function sumOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

async function download(url: URL, name: string, onBytes: (count: number) => void): Promise<Uint8Array> {
  if (environment("VKMX_OFFLINE") === "1") throw new Error(`VKMX_OFFLINE=1 forbids to ask for ${url}`);
  const response = await fetch(url, { signal: AbortSignal.timeout(LIMIT_MS) }).catch((cause) => {
    throw new Error(`${url}: ${cause.message}`, { cause });
  });
  if (!response.ok) {
    await response.body?.cancel();
    throw new Error(`${url} answers ${response.status}`);
  }
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    parts.push(part);
    length += part.length;
    if (length > MAX_BYTES) break;
    onBytes(part.length);
  }
  const bytes = new Uint8Array(await new Blob(parts as Uint8Array<ArrayBuffer>[]).arrayBuffer());
  if (sumOf(bytes) !== EMBEDDED_FILES[name]) {
    throw new Error(`${url} is not the file of vkmx ${VERSION}: its SHA-256 differs`);
  }
  return bytes;
}
