/**
 * Notes that a machine gets once: hashes of those that were told, a line each, in the cache folder.
 *
 * @module
 */

import { join } from "node:path";
import { createHash } from "node:crypto";
import { cacheFolder, mayKeep } from "./cache_folder.ts";
import { readFile, writeWhole } from "./file.ts";

/** Notes that are kept; older ones may be printed again. */
const MAX_NOTES = 100;
const MAX_BYTES = 1 << 20;

/** Whether a note is new on this machine; then it is not any more. It always is where nothing can be kept. */
export function isFirstTime(note: string): boolean {
  if (cacheFolder() === "" || !mayKeep()) return true;
  const path = join(cacheFolder(), "told");
  const hash = createHash("sha256").update(note).digest("hex").slice(0, 32);
  const known = knownNotes(path);
  if (known.includes(hash)) return false;
  try {
    Deno.mkdirSync(cacheFolder(), { recursive: true });
    writeWhole(path, [new TextEncoder().encode(`${[...known, hash].slice(-MAX_NOTES).join("\n")}\n`)]);
  } catch { /* the note is printed again next time */ }
  return true;
}

function knownNotes(path: string): string[] {
  try {
    return new TextDecoder().decode(readFile(path, MAX_BYTES)).split("\n").filter((line) => line !== "");
  } catch {
    return [];
  }
}
