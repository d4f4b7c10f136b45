/**
 * The hashes that the hub names files by: SHA-256 for files in Git LFS, and git's own object id for all others. That id is SHA-1
 * over a header and the bytes.
 *
 * @module
 */

import { createHash, type Hash } from "node:crypto";

/** An algorithm that files are named by. */
export type HashAlgorithm = "sha256" | "git";

/** The algorithms by the length of their hexadecimal digits. */
const ALGORITHMS: Readonly<Record<number, HashAlgorithm>> = { 40: "git", 64: "sha256" };

/** Their names in messages. */
export const HASH_TITLES = { sha256: "SHA-256", git: "git object id" } as const satisfies Record<HashAlgorithm, string>;

/** The algorithm of a hash in lower-case hexadecimal digits; undefined if it is of none. */
export function algorithmOf(hex: unknown): HashAlgorithm | undefined {
  return typeof hex === "string" && /^[0-9a-f]+$/.test(hex) ? ALGORITHMS[hex.length] : undefined;
}

/** A hash that has taken the header before the `size` bytes of a file. */
export function beginHash(algorithm: HashAlgorithm, size: number): Hash {
  return algorithm === "sha256" ? createHash("sha256") : createHash("sha1").update(`blob ${size}\0`);
}
