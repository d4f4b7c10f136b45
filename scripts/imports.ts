/**
 * Which import map the tests and type checks use. Where JSR answers it is deno.json's; if it does not, "@std/assert" is the
 * small stand-in under tests/_compat, so that tests run on closed networks.
 *
 * @module
 */

import { ROOT, TOOLS } from "./tools.ts";

/** A firewall that drops packets must not hold the tests up. */
const PROBE_MS = 2000;

let known: Promise<readonly string[]> | undefined;

/**
 * Arguments for `deno test` and `deno check`. The lock file is that of users: it knows neither JSR nor test data.
 *
 * JSR is asked once in a process, and the map is written once. A program that starts others must not write it while
 * they read it.
 */
export function importArguments(): Promise<readonly string[]> {
  return known ??= findImports();
}

async function findImports(): Promise<readonly string[]> {
  if (await reachesJsr()) return ["--no-lock"];
  const { imports } = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  // A map of its own has to say what deno.json implies: packages have files too.
  for (const [name, target] of Object.entries<string>(imports)) {
    if (target.startsWith("npm:")) imports[`${name}/`] = `${target.replace("npm:", "npm:/")}/`;
  }
  imports["@std/assert"] = new URL("../tests/_compat/assert.ts", import.meta.url).href;
  await Deno.mkdir(TOOLS, { recursive: true });
  const path = `${TOOLS}/import_map.json`;
  await Deno.writeTextFile(path, JSON.stringify({ imports }));
  return ["--no-lock", `--import-map=${path}`];
}

async function reachesJsr(): Promise<boolean> {
  try {
    const url = new URL("@std/assert/meta.json", Deno.env.get("JSR_URL") ?? "https://jsr.io/");
    const response = await fetch(url, { signal: AbortSignal.timeout(PROBE_MS) });
    return "versions" in await response.json(); // a portal's login page is no registry
  } catch {
    return false;
  }
}
