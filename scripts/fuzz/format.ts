/**
 * A file format as the fuzzer sees it: how to make an input, how the library reads one, and what it may cost.
 *
 * @module
 */

import type { Random } from "./random.ts";

/** A file format. */
export interface Format {
  /** How the command line calls it. */
  readonly name: string;
  /** Ending of files of this kind. */
  readonly suffix: string;
  /** Part of all inputs, beside the parts of the other formats. */
  readonly share: number;
  /** A file that must be read without an error: it shows that {@link Format.read} reaches the reader, and warms it up. */
  readonly base: Uint8Array;
  /** Most milliseconds that reading may take; default 100. */
  readonly milliseconds?: number;
  /** Why the format cannot be tried on this machine; undefined if it can. */
  readonly missing?: () => string | undefined;
  /** Makes an input. */
  readonly generate: (random: Random) => Uint8Array;
  /** Has the library read a file. Throws its error, or {@link Wrong} if it answers what it must not. */
  readonly read: (bytes: Uint8Array) => void | Promise<void>;
}

/** Most milliseconds of an input. */
export const MAX_MILLISECONDS = 100;
/** Most bytes that an input may take beside the memory in use. */
export const MAX_BYTES = 64 * 2 ** 20;

/** An answer that must not be: accepted though malformed, or text of a user that became a control token. */
export class Wrong extends Error {
  override readonly name = "Wrong";
}

/**
 * Folder for the files that a reader opens by name. Each process that reads has a folder of its own, which its parent
 * makes, names in the environment and removes. The library keeps its cache there too.
 */
export function folder(): string {
  return Deno.env.get("VKMX_CACHE")!;
}
