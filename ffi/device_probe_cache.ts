/**
 * Results of probes of a device and its driver, kept on disk beside the pipelines: a text for each question.
 *
 * A file that cannot be read or written costs a new probe and nothing else. A file that cannot be written is reported once.
 *
 * @module
 */

import { cacheFolder, mayKeep, tellNotKept } from "./cache_folder.ts";
import { granted } from "./environment.ts";
import { libraryBuild } from "./library.ts";
import { ABI_HASH } from "./symbols.ts";
import { VERSION } from "./version.ts";

/** The answer that {@link remember} kept for a question about a device, which its description names with the driver. */
export function recall(device: string, question: string): string | undefined {
  try {
    const { path, key } = place(device, question) ?? {};
    if (path === undefined) return undefined;
    const [first, answer] = Deno.readTextFileSync(path).split("\n");
    return first === key ? answer : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps an answer of one line. */
export function remember(device: string, question: string, answer: string): void {
  const { path, key } = mayKeep() && place(device, question) || {};
  if (path === undefined) return tellNotKept();
  try {
    Deno.mkdirSync(cacheFolder(), { recursive: true });
    const partial = `${path}.${Deno.pid}`;
    Deno.writeTextFileSync(partial, `${key}\n${answer}\n`);
    Deno.renameSync(partial, path);
  } catch (error) {
    tellNotKept(`cannot write ${path}: ${(error as Error).message}`);
  }
}

/** Where an answer lies and what its file begins with; undefined if there is no folder, or Deno may not look there. */
function place(device: string, question: string): { readonly path: string; readonly key: string } | undefined {
  const folder = cacheFolder();
  const build = libraryBuild();
  if (folder === "" || build === undefined || !granted({ name: "read", path: folder })) return undefined;
  const key = `${device}|${VERSION}|${ABI_HASH.toString(16)}|${build}|${question}`;
  let hash = 2166136261; // FNV-1a
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 16777619);
  return { path: `${folder}/finding-${(hash >>> 0).toString(16).padStart(8, "0")}`, key };
}
