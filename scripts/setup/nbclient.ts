/**
 * nbclient, which tests run notebooks with: from PyPI into .tools, with the Python that runs it.
 *
 * @module
 */

import { type Pinned, pinnedIn, providePackages, type Python } from "./pip.ts";

const REQUIREMENTS = "nbclient.txt";

/** nbclient and what it needs, in the versions that `scripts/setup/nbclient.txt` pins. */
export const NBCLIENT: readonly Pinned[] = pinnedIn(REQUIREMENTS);

/** Provides nbclient. Undefined, after a line that says why, if it cannot be had. */
export function provideNbclient(): Promise<Python | undefined> {
  return providePackages("nbclient", REQUIREMENTS, "nbclient", ["nbclient", "nbformat"]);
}
