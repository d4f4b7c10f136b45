/**
 * The released libraries, written by `deno task release`. In a checkout the table is empty, "not released": it builds its own.
 *
 * @module
 */

/** A file that a release of this version has for one target. */
export interface ReleasedLibrary {
  /** Its name among the files of the release. */
  readonly asset: string;
  /** Its size in bytes. */
  readonly bytes: number;
  /** SHA-256 of these bytes in hexadecimal. */
  readonly sha256: string;
}

/** The libraries by target, such as "x86_64-linux". A target that is not here has no release. */
export const RELEASES: Readonly<Record<string, ReleasedLibrary>> = {};
