/**
 * Folders, the hub, and the environment: which folders can be written, whether the hub is reached, which variables are set.
 *
 * @module
 */

import { join } from "node:path";
import * as mx from "../../../mod.ts";
import { cacheFolder } from "../../../ffi/cache_folder.ts";
import { environment } from "../../../ffi/environment.ts";
import { find, freeBytes, makeFolder, names, remove } from "../../../ffi/store.ts";
import { nearest } from "../../graph/nearest.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { describeBytes } from "../table.ts";
import { type Check, ok, reasonOf, warn } from "./check.ts";

/** The hub that has not answered by then counts as not reached. */
const HUB_MS = 3000;
/** Less than this is soon full. */
const MIN_DISK = 2e9;

/** Variables of vkmx for users; docs/variables.md says what each sets. */
export const VARIABLES: readonly string[] = [
  "VKMX_DEVICE",
  "VKMX_DTYPE",
  "VKMX_LIBRARY",
  "VKMX_API_KEY",
  "VKMX_CACHE",
  "VKMX_OFFLINE",
  "VKMX_THREADS",
  "VKMX_EXACT",
  "VKMX_FAST",
  "VKMX_EXPLAIN",
  "VKMX_STRICT",
  "VKMX_MPI",
  "VKMX_PROFILE",
  "VKMX_DEBUG",
  "VKMX_TEST_DEVICES",
  "VKMX_TEST_TIER",
  "VKMX_TEST_SEED",
  "VKMX_TEST_SHARE",
  "VKMX_TEST_SHARE_FROM",
  "VKMX_TEST_SHARE_OF",
  "VKMX_CASES",
  "VKMX_CASES_SEED",
  "VKMX_CASES_OP",
  "VKMX_FUZZ_TEXTS",
  "VKMX_PYTHON",
  "VKMX_STAGING",
  "VKMX_QUEUE_IDLE",
  "VKMX_VALIDATION_LOG",
  "VKMX_FAULT",
];

/** Variables that say where the hub is and where its models lie. */
const HUB_VARIABLES = [
  "HF_HOME",
  "HF_HUB_CACHE",
  "HUGGINGFACE_HUB_CACHE",
  "HF_ENDPOINT",
  "HF_HUB_OFFLINE",
  "TRANSFORMERS_OFFLINE",
];

/** Checks folders, the hub and the environment. */
export async function checkPlaces(): Promise<Check[]> {
  return [checkCache(), checkModels(), await checkHub(), ...checkVariables()];
}

/** Bytes of all files in a folder and those below. */
function sizeOf(folder: string): number {
  return names(folder).reduce((sum, name) => {
    const found = find(join(folder, name));
    return sum + (found?.kind === "folder" ? sizeOf(join(folder, name)) : found?.size ?? 0);
  }, 0);
}

function checkCache(): Check {
  const folder = cacheFolder();
  const advice = "set VKMX_CACHE to a folder that can be written";
  if (folder === "") return warn("cache", "there is no cache folder: every start compiles kernels anew", advice);
  const probe = join(folder, `${crypto.randomUUID()}.tmp`);
  try {
    const there = find(folder) !== undefined;
    if (!there) return ok("cache", `${shownPath(folder)}, not made yet`);
    makeFolder(probe);
    remove(probe);
    return ok("cache", `${shownPath(folder)}, ${describeBytes(sizeOf(folder))}${room(folder)}`);
  } catch (error) {
    return warn("cache", `${shownPath(folder)} ${reasonOf(error)}: every start compiles kernels anew`, advice);
  }
}

function room(folder: string): string {
  const free = freeBytes(folder);
  return free === undefined ? "" : `, ${describeBytes(free)} free on its disk`;
}

function checkModels(): Check {
  try {
    const folder = mx.lm.hub.cacheFolder();
    const models = mx.lm.hub.list();
    const size = models.reduce((sum, { size }) => sum + size, 0);
    const text = `${shownPath(folder)}, ${models.length} models of ${describeBytes(size)}${room(folder)}`;
    const free = freeBytes(folder);
    if (free !== undefined && free < MIN_DISK) return warn("models", text, "make room, or set HF_HUB_CACHE");
    return ok("models", text);
  } catch (error) {
    return warn("models", reasonOf(error), "set HF_HUB_CACHE to a folder that can be written");
  }
}

async function checkHub(): Promise<Check> {
  let connection: ReturnType<typeof mx.lm.hub.connection>;
  try {
    connection = mx.lm.hub.connection();
  } catch (error) {
    return warn("hub", reasonOf(error), "unset it, or correct it");
  }
  const { endpoint, hasToken, offline } = connection;
  const token = hasToken ? "with a token" : "without a token (HF_TOKEN), which private and gated models need";
  if (offline) return ok("hub", `${endpoint.host} is not asked, since connections are switched off; ${token}`);
  try {
    const started = performance.now();
    const response = await fetch(endpoint, { method: "HEAD", signal: AbortSignal.timeout(HUB_MS) });
    await response.body?.cancel();
    return ok("hub", `${endpoint.host} answers after ${Math.round(performance.now() - started)} ms; ${token}`);
  } catch (error) {
    const advice =
      "check the network and HF_ENDPOINT; models that are here work without it, and VKMX_OFFLINE=1 says so";
    return warn("hub", `${endpoint.host} is not reached: ${reasonOf(error)}`, advice);
  }
}

function checkVariables(): Check[] {
  const set = Object.keys(Deno.env.toObject()).filter((name) =>
    name.startsWith("VKMX_") || HUB_VARIABLES.includes(name)
  ).sort();
  return set.filter((name) => Deno.env.get(name) !== "").map((name) => {
    if (name.startsWith("VKMX_") && !VARIABLES.includes(name)) {
      const near = nearest(name, VARIABLES);
      return warn("environment", `${shownPath(name)} means nothing to vkmx`, near && `did you mean ${near}?`);
    }
    // A password may be a part of an address.
    const value = name === "HF_ENDPOINT" ? "is set" : `is ${quoted(Deno.env.get(name))}`;
    if (environment(name) !== undefined) return ok("environment", `${name} ${value}`);
    return warn(
      "environment",
      `${name} ${value}, which is not allowed: it counts as unset`,
      "docs/variables.md says what is",
    );
  });
}
