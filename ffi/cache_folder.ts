/**
 * The folder for data that is kept between runs: compiled pipelines, results of device probes, downloaded libraries.
 *
 * If nothing can be kept, every start takes longer and nothing fails. One line on stderr says so, but not if Deno lacks the permission:
 * a program without flags starts without questions and without complaints.
 *
 * @module
 */

import { resolve } from "node:path";
import { environment, granted } from "./environment.ts";

/** Variables that name the place of caches on this system, the first that is set, and what is added to it. */
const PLACES: readonly (readonly [variable: string, folder: string])[] = ({
  windows: [["LOCALAPPDATA", "\\vkmx"]],
  darwin: [["HOME", "/Library/Caches/vkmx"]],
} as const)[Deno.build.os as string] ?? [["XDG_CACHE_HOME", "/vkmx"], ["HOME", "/.cache/vkmx"]];

const VARIABLES = ["VKMX_CACHE", ...PLACES.map(([variable]) => variable)];

/** The folder, "" if there is none. */
export function cacheFolder(): string {
  const own = environment("VKMX_CACHE");
  if (own) return resolve(own);
  const place = PLACES.find(([variable]) => environment(variable));
  return place ? environment(place[0]) + place[1] : "";
}

/** Whether Deno may read and write the folder, or look where it is; nothing asks on the terminal. */
export function mayKeep(): boolean {
  const path = cacheFolder();
  if (path === "") return VARIABLES.every((variable) => granted({ name: "env", variable }));
  return granted({ name: "read", path }) && granted({ name: "write", path });
}

let told = false;

/**
 * Says once that nothing can be kept, what that costs and what to do. `reason` is what went wrong, where something did; that there is
 * no folder, or no permission, is found out here.
 */
export function tellNotKept(reason?: string): void {
  const folder = cacheFolder();
  const permitted = mayKeep();
  if (told || (!permitted && environment("VKMX_EXPLAIN") !== "1")) return;
  const [what, end] = reason !== undefined
    ? [reason, `${folder} can be written or VKMX_CACHE names a folder that can`]
    : !permitted
    ? ["Deno may not look for a cache folder and write there", "--allow-env, --allow-read and --allow-write are given"]
    : folder === ""
    ? [`there is no cache folder: none of ${VARIABLES.join(", ")} is set`, "VKMX_CACHE names one"]
    : [];
  if (what === undefined) return;
  told = true;
  console.error(`vkmx: ${what}; every start compiles kernels and tests the device anew until ${end}`);
}
