/**
 * nbclient, which tests run notebooks with: from PyPI into .tools, with the Python that runs it.
 *
 * @module
 */

import { findPip, installFromPip } from "./pip.ts";
import { ROOT, run, TOOLS } from "../tools.ts";

const REQUIREMENTS = "nbclient.txt";
const FOLDER = "nbclient";

/** nbclient and what it needs, in the versions that `scripts/setup/nbclient.txt` pins. */
export const NBCLIENT: readonly { readonly name: string; readonly version: string }[] = Array.from(
  Deno.readTextFileSync(`${ROOT}scripts/setup/${REQUIREMENTS}`).matchAll(/^([\w-]+)==(\S+)/gm),
  ([, name, version]) => ({ name, version }),
);

/** A Python that finds nbclient. */
export interface Python {
  readonly command: string;
  /** Packages that its environment must have. */
  readonly env: Readonly<Record<string, string>>;
}

/** Provides nbclient. Undefined, after a line that says why, if it cannot be had. */
export async function provideNbclient(): Promise<Python | undefined> {
  const command = await findPip();
  if (command !== undefined) {
    const python = { command, env: { PYTHONPATH: `${TOOLS}/${FOLDER}` } };
    const works = async (): Promise<boolean> => (await run([command, "-c", "import nbclient, nbformat"], python)).ok;
    if (await works()) return python;
    if (await installFromPip("nbclient", REQUIREMENTS, FOLDER) && await works()) return python;
    return undefined;
  }
  await installFromPip("nbclient", REQUIREMENTS, FOLDER); // says that there is no pip
  return undefined;
}
