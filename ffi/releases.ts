/**
 * The released libraries, written by `deno task release`. In a checkout the table is empty, "not released": it builds its own.
 *
 * @module
 */

import type { PublishedFile } from "./published_files.ts";

/** A file that a release of this version has for one target. */
export interface ReleasedLibrary extends PublishedFile {
  /** Its name among the files of the release. */
  readonly asset: string;
}

/** The libraries by target, such as "x86_64-linux". A target that is not here has no release. */
export const RELEASES: Readonly<Record<string, ReleasedLibrary>> = {};
