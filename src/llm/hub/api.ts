/**
 * The hub's questions and answers: which commit a revision is, which files a commit has, and what a refusal means for the user.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import type { Explain, HubClient } from "./http.ts";
import { jsonObject, listedFile, MAX_FILES, type RepoFile } from "./listing.ts";
import { isCommit } from "./name.ts";

/** The commit that a revision of a model is now. Throws an {@link LlmError} if the hub does not have it or refuses it. */
export async function resolveCommit(client: HubClient, repo: string, revision: string): Promise<string> {
  const url = client.url("api/models", repo, "revision", "");
  url.pathname += encodeURIComponent(revision);
  const { value } = await client.json(url, refusal(client, repo, revision));
  const { sha } = jsonObject(value);
  if (isCommit(sha)) return sha;
  throw new LlmError("hub", `${client.endpoint.host} tells no commit of ${repo}: check HF_ENDPOINT`);
}

/** All files of a commit. Throws an {@link LlmError} if the list names what cannot be a file. */
export async function listFiles(client: HubClient, repo: string, commit: string): Promise<RepoFile[]> {
  const files: RepoFile[] = [];
  const names = new Set<string>();
  const url = client.url("api/models", repo, "tree", commit);
  url.search = "?recursive=true&expand=false";
  const cursors = new Set<string>();
  for (;;) {
    const { value, headers } = await client.json(url, refusal(client, repo, commit));
    if (!Array.isArray(value)) throw new LlmError("hub", `${url.host} tells no files of ${repo}: check HF_ENDPOINT`);
    for (const entry of value) {
      const file = listedFile(repo, entry);
      if (file === undefined || names.has(file.name)) continue;
      names.add(file.name);
      files.push(file);
    }
    if (files.length > MAX_FILES) throw new LlmError("hub", `${repo} has more than ${MAX_FILES} files`);
    const cursor = nextCursor(headers.get("link"), url);
    if (cursor === undefined) return files;
    // A list without an end would come round.
    if (cursors.has(cursor) || value.length === 0) throw new LlmError("hub", `The list of files of ${repo} has no end`);
    cursors.add(cursor);
    url.searchParams.set("cursor", cursor);
  }
}

/** Where a list goes on, from a Link header; its host is the hub's own, whatever the header says. */
function nextCursor(header: string | null, base: URL): string | undefined {
  const [, target] = /<([^>]*)>\s*;\s*rel="?next"?/.exec(header ?? "") ?? [];
  return target === undefined ? undefined : URL.parse(target, base)?.searchParams.get("cursor") ?? undefined;
}

/** Explains an answer without success, and says what to do. */
export function refusal(client: HubClient, repo: string, revision: string, file?: string): Explain {
  const { host } = client.endpoint;
  const page = `${client.endpoint.href.replace(/\/$/, "")}/${repo}`;
  const model = file === undefined ? repo : `${quoted(file)} of ${repo}`;
  return (status, headers) => {
    const code = headers.get("x-error-code") ?? "";
    const gated = `${model} is gated: ask for access at ${page}, then set HF_TOKEN to a token of that account`;
    const message = code === "GatedRepo"
      ? gated
      : code === "RevisionNotFound"
      ? `${host} has no revision ${quoted(revision)} of ${repo}: see the branches and tags at ${page}`
      : code === "EntryNotFound" || (status === 404 && file !== undefined)
      ? `${host} does not have ${model} at ${quoted(revision)}`
      : status === 401 && client.hasToken
      ? `${host} refuses the token for ${model}: check the name, and HF_TOKEN or what \`hf auth login\` stored`
      : status === 401 || status === 404
      ? `${host} knows no model ${repo}: check the name${
        client.hasToken ? ", and that the token may read it" : "; a private or gated one needs HF_TOKEN"
      }`
      : status === 403
      ? `${host} forbids ${model}${
        hubMessage(headers)
      }: ask for access at ${page} and set HF_TOKEN to a token that may read it`
      : `${host} answers HTTP ${status} for ${model}${hubMessage(headers)}: check HF_ENDPOINT and try again later`;
    return new LlmError("hub", message);
  };
}

/** The hub's own words, if it has some. */
function hubMessage(headers: Headers): string {
  const text = headers.get("x-error-message");
  return text ? ` (${quoted(text)})` : "";
}
