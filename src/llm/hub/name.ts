/**
 * Names of the Hugging Face Hub: models, revisions, files. File names come from a network and become paths. So names are refused if
 * they could leave a folder, hide in a terminal or mean something else on another system.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";

/** A model of the hub. */
export interface HubName {
  /** "org/name". */
  readonly repo: string;
  /** A branch, tag or commit, if one was given. */
  readonly revision: string | undefined;
}

/** The revision that is taken where none is named. */
export const DEFAULT_REVISION = "main";

const PART = String.raw`[A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?`;
const REPO = new RegExp(`^${PART}/${PART}$`);
const LONGEST = 96;
const REVISION = /^[A-Za-z0-9_][\w.+/-]{0,199}$/;
/** A commit in full. */
const COMMIT = /^[0-9a-f]{40}$/;
/** Git forbids these in names of branches and tags, and each of them would be a strange path. */
const NO_REF = /\.\.|\/\/|\/\.|[./]$|\.lock(?:$|\/)/;
/** Windows takes these as devices, with whatever extension. */
const DEVICES = /^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)/i;
// deno-lint-ignore no-control-regex
const UNSAFE = /[\0-\x1f\x7f-\x9f\\]|^[A-Za-z]:/;

/** Takes "org/name" or "org/name@revision" apart; undefined if a text is not of that form. */
export function parseName(text: string): HubName | undefined {
  const at = text.indexOf("@");
  const repo = at < 0 ? text : text.slice(0, at);
  const revision = at < 0 ? undefined : text.slice(at + 1);
  return isRepo(repo) && (revision === undefined || isRevision(revision)) ? { repo, revision } : undefined;
}

/** A GGUF file of a model of the hub. */
export interface HubFile {
  readonly hub: HubName;
  /** Its path in the repository. */
  readonly file: string;
}

/** Takes "org/name/file.gguf" or "org/name@revision/file.gguf" apart; undefined if a text is not of that form. */
export function parseFile(text: string): HubFile | undefined {
  const [, name = "", file = ""] = /^([^/]+\/[^/]+)\/(.+\.gguf)$/.exec(text) ?? [];
  const hub = parseName(name);
  return hub !== undefined && isFileName(file) && !/[*?]/.test(file) ? { hub, file } : undefined;
}

/** A page of the hub, or what its mirror and other programs write before a name. */
const ADDRESS =
  /^(?:https?:\/\/)?(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com)\/(?:models\/)?([^/?#]+\/[^/?#]+)(?:\/(?:tree|blob|resolve|commit)\/([^/?#]+))?/;

/** The name of the model whose page a text is the address of; undefined if it is none. */
export function nameInAddress(text: string): string | undefined {
  const [, repo, revision = DEFAULT_REVISION] = ADDRESS.exec(text) ?? [];
  const name = revision === DEFAULT_REVISION ? repo : `${repo}@${revision}`;
  return repo !== undefined && parseName(name) !== undefined ? name : undefined;
}

/** The model of the hub that a call was given. Throws an {@link LlmError} if the name or the revision cannot be one. */
export function hubName(call: string, text: unknown, revision?: unknown): HubName {
  const name = typeof text === "string" ? parseName(text) : undefined;
  if (name === undefined) {
    const meant = typeof text === "string" ? nameInAddress(text) : undefined;
    const hint = meant === undefined ? "" : `, did you mean ${quoted(meant)}?`;
    throw new LlmError(
      "hub",
      `${call}() expected a model of the hub such as "Qwen/Qwen3-0.6B": found ${quoted(text)}${hint}`,
    );
  }
  if (revision === undefined) return name;
  if (typeof revision !== "string" || !isRevision(revision)) {
    throw new LlmError("hub", `${call}() expected a revision such as "main" or a commit: found ${quoted(revision)}`);
  }
  if (name.revision !== undefined && name.revision !== revision) {
    throw new LlmError(
      "hub",
      `${call}() got two revisions, ${quoted(name.revision)} and ${quoted(revision)}: leave one out`,
    );
  }
  return { repo: name.repo, revision };
}

function isRepo(text: string): boolean {
  return text.length <= LONGEST && REPO.test(text) && !/--|\.\.|\.git$/.test(text) &&
    !text.split("/").some((part) => DEVICES.test(part));
}

/** Whether a text may be a branch, a tag or a commit. */
export function isRevision(text: string): boolean {
  return REVISION.test(text) && !NO_REF.test(text);
}

/** Whether a text is a commit in full. */
export function isCommit(text: unknown): text is string {
  return typeof text === "string" && COMMIT.test(text);
}

/** Whether a name from a listing is a path below the folder that it is put into, on every system. */
export function isFileName(text: string): boolean {
  return text.length <= 1000 && text.isWellFormed() && !UNSAFE.test(text) &&
    text.split("/").every((part) =>
      part !== "" && part !== "." && part !== ".." && part.length <= 255 && !DEVICES.test(part)
    );
}
