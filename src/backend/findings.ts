/**
 * What was found out about a device and its driver, kept on disk beside the pipelines: a text for each question.
 *
 * A file that cannot be read or written costs asking again and nothing else.
 *
 * @module
 */

import { cacheFolder } from "../../ffi/library.ts";
import type { Backend } from "./backend.ts";
import { ABI_HASH } from "./kernels.ts";

/** The answer that {@link remember} kept for a question about this device, driver and build. */
export function recall(backend: Backend, question: string): string | undefined {
  const { path, key } = place(backend, question);
  try {
    const [first, answer] = Deno.readTextFileSync(path).split("\n");
    return first === key ? answer : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps an answer of one line. */
export function remember(backend: Backend, question: string, answer: string): void {
  const { path, key } = place(backend, question);
  try {
    Deno.mkdirSync(cacheFolder(), { recursive: true });
    const partial = `${path}.${Deno.pid}`;
    Deno.writeTextFileSync(partial, `${key}\n${answer}\n`);
    Deno.renameSync(partial, path);
  } catch {
    // asked again next time
  }
}

function place(backend: Backend, question: string): { readonly path: string; readonly key: string } {
  const key = `${backend.description}|${ABI_HASH.toString(16)}|${question}`;
  let hash = 2166136261; // FNV-1a
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 16777619);
  return { path: `${cacheFolder()}/finding-${(hash >>> 0).toString(16).padStart(8, "0")}`, key };
}
