/**
 * What was found out about a device and its driver, kept on disk beside the pipelines: a text for each question.
 *
 * A file that cannot be read or written costs asking again and nothing else.
 *
 * @module
 */

import { cacheFolder, findLibrary, VERSION } from "./library.ts";
import { ABI_HASH } from "./symbols.ts";

/** The answer that {@link remember} kept for a question about a device, which its description names with the driver. */
export function recall(device: string, question: string): string | undefined {
  try {
    const { path, key } = place(device, question);
    const [first, answer] = Deno.readTextFileSync(path).split("\n");
    return first === key ? answer : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps an answer of one line. */
export function remember(device: string, question: string, answer: string): void {
  try {
    const { path, key } = place(device, question);
    Deno.mkdirSync(cacheFolder(), { recursive: true });
    const partial = `${path}.${Deno.pid}`;
    Deno.writeTextFileSync(partial, `${key}\n${answer}\n`);
    Deno.renameSync(partial, path);
  } catch {
    // asked again next time
  }
}

function place(device: string, question: string): { readonly path: string; readonly key: string } {
  const key = `${device}|${VERSION}|${ABI_HASH.toString(16)}|${build()}|${question}`;
  let hash = 2166136261; // FNV-1a
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 16777619);
  const folder = cacheFolder();
  if (folder === "") throw new Error("there is no folder for caches");
  return { path: `${folder}/finding-${(hash >>> 0).toString(16).padStart(8, "0")}`, key };
}

/** What tells one build of the library from another: kernels may differ where tables are the same. */
function build(): string {
  const { size, mtime } = Deno.statSync(findLibrary()!);
  return `${size} ${mtime?.getTime()}`;
}
