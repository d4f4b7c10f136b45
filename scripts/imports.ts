/**
 * Which import map the tests and type checks use. Where JSR answers it is deno.json's; where it does not, "@std/assert" is the
 * small stand-in under tests/_compat, so that tests run on closed networks.
 *
 * @module
 */

import { exists, ROOT, TOOLS } from "./tools.ts";

/** A firewall that drops packets must not hold the tests up. */
const PROBE_MS = 2000;

/** Arguments for `deno test` and `deno check`. */
export async function importArguments(): Promise<string[]> {
  // With JSR there are versions that a lock file written without it does not know.
  if (await reachesJsr()) return ["--no-lock"];
  const { imports } = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  imports["@std/assert"] = new URL("../tests/_compat/assert.ts", import.meta.url).href;
  if (!await exists(TOOLS)) await Deno.mkdir(TOOLS);
  const path = `${TOOLS}/import_map.json`;
  await Deno.writeTextFile(path, JSON.stringify({ imports }));
  return [`--import-map=${path}`];
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
