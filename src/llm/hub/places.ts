/**
 * Where the hub is, which token is used, and where models are kept. These are the environment variables of Python's
 * `huggingface_hub`, with its defaults, so both share one cache and one login.
 *
 * @module
 */

import { join, resolve } from "node:path";
import { environment } from "../../../ffi/environment.ts";
import { FileError, readFile } from "../../../ffi/file.ts";
import { LlmError } from "../error.ts";

const HUB = "https://huggingface.co";
const YES = /^(?:1|on|yes|true)$/i;
const MAX_TOKEN = 4096;

/** Whether connections are switched off: HF_HUB_OFFLINE=1 (also as TRANSFORMERS_OFFLINE) or VKMX_OFFLINE=1. */
export function isOffline(): boolean {
  return ["VKMX_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].some((name) => YES.test(environment(name) ?? ""));
}

/** The address of the hub, from HF_ENDPOINT. Throws an {@link LlmError} if that is no address. */
export function hubEndpoint(given: string | undefined = environment("HF_ENDPOINT")): URL {
  if (given === undefined) return new URL(HUB);
  const url = URL.parse(given.replace(/\/+$/, ""));
  const fits = url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === "" &&
    url.search === "" && url.hash === "";
  if (fits) return url;
  // It is not shown: there may be a password in it.
  throw new LlmError("hub", `HF_ENDPOINT is no address such as ${HUB}: it takes no user, query or fragment`);
}

/** The folder that models are kept in: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub. Throws an {@link LlmError} without one. */
export function hubCache(given?: string): string {
  const own = given ?? environment("HF_HUB_CACHE") ?? environment("HUGGINGFACE_HUB_CACHE");
  if (own) return resolve(expand(own));
  const home = huggingFaceHome();
  if (home !== undefined) return resolve(home, "hub");
  throw new LlmError(
    "hub",
    "There is no folder to keep models in: set HF_HUB_CACHE to one, or HOME; Deno needs the --allow-env flag to see them",
  );
}

function huggingFaceHome(): string | undefined {
  const own = environment("HF_HOME");
  if (own) return expand(own);
  const caches = environment("XDG_CACHE_HOME");
  if (caches) return join(caches, "huggingface");
  const home = userHome();
  return home && join(home, ".cache", "huggingface");
}

function userHome(): string | undefined {
  return environment("HOME") ?? environment("USERPROFILE");
}

/** "~" and variables in a path, as Python puts their values in. */
function expand(path: string): string {
  const home = userHome();
  const from = home === undefined ? path : path.replace(/^~(?=$|[\\/])/, () => home);
  return from.replace(/\$(?:(\w+)|\{(\w+)\})/g, (text, plain, braced) => environment(plain ?? braced) ?? text);
}

/**
 * The token of the user: HF_TOKEN, or what `hf auth login` left in HF_TOKEN_PATH or HF_HOME/token. Throws an {@link LlmError} if it
 * cannot be sent; no message holds it.
 */
export function hubToken(): string | undefined {
  if (YES.test(environment("HF_HUB_DISABLE_IMPLICIT_TOKEN") ?? "")) return undefined;
  const variable = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].find((name) => environment(name)?.trim());
  if (variable !== undefined) return checkToken(environment(variable)!, variable);
  const home = huggingFaceHome();
  const path = environment("HF_TOKEN_PATH") ?? (home && join(home, "token"));
  if (!path) return undefined;
  try {
    return checkToken(new TextDecoder().decode(readFile(expand(path), MAX_TOKEN)), "The token file of Hugging Face");
  } catch (cause) {
    if (cause instanceof FileError) return undefined; // public models need none
    throw cause;
  }
}

/** A token without white space around it; undefined if nothing is left. */
function checkToken(text: string, from: string): string | undefined {
  const token = text.trim();
  if (token === "") return undefined;
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new LlmError("hub", `${from} has characters that no token has: take it from ${HUB}/settings/tokens`);
}
